//! What `--json` prints: exactly these fields, of these types, as `--help`, the manual page and README name them.

use super::kit::{KEY, Kit, Start};
use super::places::Watching;
use super::support::crew::eventually;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What is written of a hold that has ended, and whose lock is kept.
const DELAYED: &str =
    r#"{"locker", "held_for_ms", "delay_ms", "ended_ms_ago", "holder_name", "reason", "program", "host", "pid"}"#;

/// What is written of the fields, by subcommand.
const TOLD: [(&str, &[&str]); 4] = [
    ("ls", &[r#"{"key", "locker", "remaining_ms", "lock_delay_ms", "delayed_release", "waiting"}"#, DELAYED]),
    (
        "show",
        &[
            r#"{"key", "holder", "remaining_ms", "lock_delay_ms", "delayed_release", "waiting", "queue_length"}"#,
            DELAYED,
            r#"{"locker", "client", "told"}"#,
            r#"{"program", "host", "pid", "user", "version", "started_unix_ms", "features"}"#,
            r#"{"thread", "thread_id", "reason", "held_for_ms", "hold_count", "token", "lease_left_ms", "lingering", "waiting_threads", "first_waits_for_ms", "waiters"}"#,
            r#"{"thread", "thread_id", "waits_for_ms"}"#,
        ],
    ),
    (
        "watch",
        &[
            r#"{"locks": [{"key", "locker", "remaining_ms", "lock_delay_ms", "delayed_release", "waiting"}, …]}"#,
            r#"{"error"}"#,
        ],
    ),
    ("doctor", &[r#"{"worst", "findings": [{"server", "subject", "severity", "message", "advice"}, …]}"#]),
];

/// A document with the type of each value in its place. Of a list, each member must have the same shape.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "bool".into(),
        Value::Number(number) if number.is_u64() => "integer".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(members) => {
            let shapes: Vec<_> = members.iter().map(shape).collect();
            assert!(shapes.iter().all(|shape| *shape == shapes[0]), "{value:#}");
            shapes.into_iter().take(1).collect()
        }
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
    }
}

fn printed(kit: &Kit, words: &[&str]) -> Vec<Value> {
    let ended = kit.dlock(words).end();
    let values = serde_json::Deserializer::from_str(&ended.out).into_iter();
    values.map(|value| value.unwrap_or_else(|error| panic!("{error}: {ended:?}"))).collect()
}

/// The names of fields in a text: words in quotation marks.
fn names_in(text: &str) -> BTreeSet<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names that were told for a subcommand.
fn told(of: &str) -> BTreeSet<String> {
    let (_, texts) = TOLD.iter().find(|(name, _)| *name == of).unwrap();
    texts.iter().flat_map(|text| names_in(text)).collect()
}

fn names_of(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| names_of(value).into_iter().chain([name.clone()])).collect()
        }
        Value::Array(members) => members.iter().flat_map(names_of).collect(),
        _ => BTreeSet::new(),
    }
}

fn party(client: &Value, told: &Value) -> Value {
    json!({ "locker": "text", "client": client, "told": told })
}

#[test]
fn a_listed_lock_has_these_fields() {
    let mut kit = Kit::new();
    let lock = json!({
        "key": "text", "locker": "text", "remaining_ms": "integer", "lock_delay_ms": null, "delayed_release": null,
        "waiting": "integer",
    });
    for name in ["DLOCK_JOB_x", "DLOCK_JOB_y"] {
        kit.server.run::<()>(&["SET", name, "host-1-ff-1", "PX", "600000"]);
    }
    let listed = printed(&kit, &["ls", "--json"]);
    assert_eq!(listed.iter().map(shape).collect::<Vec<_>>(), [lock.clone(), lock.clone()]);
    let rounds = printed(&kit, &["watch", "--json", "--count", "2", "--interval", "1ms"]);
    assert_eq!(rounds.iter().map(shape).collect::<Vec<_>>(), [json!({ "locks": [lock] }), json!({ "locks": [lock] })]);
    kit.server.run::<()>(&["DEL", "DLOCK_JOB_x", "DLOCK_JOB_y"]);
    assert_eq!(printed(&kit, &["watch", "--json", "--count", "1"]), [json!({ "locks": [] })]);
    let watching = Watching::start(&mut kit.dlock(&["watch", "--json", "--interval", "20ms"]));
    watching.wait_for("a round", Value::is_object);
    kit.server.kill();
    let failed = watching.wait_for("an outage", |line| !line["error"].is_null());
    assert_eq!(shape(&failed), json!({ "error": "text" }));
    let both: BTreeSet<_> = names_of(&rounds[0]).into_iter().chain(names_of(&failed)).collect();
    assert_eq!(both, told("watch"));
}

#[test]
fn a_lock_that_is_shown_has_these_fields() {
    let kit = Kit::new();
    let show = || printed(&kit, &["show", "JOB", "x", "--json"]).pop().unwrap();
    let free = json!({
        "key": KEY, "holder": null, "remaining_ms": null, "lock_delay_ms": null,
        "delayed_release": null, "waiting": [], "queue_length": 0,
    });
    assert_eq!(show(), free);
    let _holder = kit.holder(&[]);
    let _waiter = kit.queued(&[], "true");
    let mut shown = Value::Null;
    eventually("both have answered", || {
        shown = show();
        let is_known = |party: &Value| !party["told"].is_null() && !party["client"].is_null();
        is_known(&shown["holder"]) && is_known(&shown["waiting"][0])
    });
    let client = json!({
        "program": "text", "host": "text", "pid": "integer", "user": "text", "version": "text",
        "started_unix_ms": "integer", "features": ["text"],
    });
    let holds = json!({
        "thread": "text", "thread_id": "integer", "reason": "text", "held_for_ms": "integer", "hold_count": "integer",
        "token": "integer", "lease_left_ms": "integer", "lingering": "bool", "waiting_threads": "integer",
        "first_waits_for_ms": null, "waiters": [],
    });
    let waits = json!({
        "thread": "text", "thread_id": "integer", "reason": "text", "held_for_ms": null, "hold_count": "integer",
        "token": null, "lease_left_ms": null, "lingering": "bool", "waiting_threads": "integer",
        "first_waits_for_ms": "integer",
        "waiters": [{ "thread": "text", "thread_id": "integer", "waits_for_ms": "integer" }],
    });
    let expected = json!({
        "key": "text", "holder": party(&client, &holds), "remaining_ms": "integer", "lock_delay_ms": null,
        "delayed_release": null, "waiting": [party(&client, &waits)], "queue_length": "integer",
    });
    assert_eq!(shape(&shown), expected, "{shown:#}");
    kit.server.run::<()>(&["SET", KEY, "delayed-release locker=h-1-ff-1 held=7 delay=600000 pid=1", "PX", "500000"]);
    let kept = show();
    let listed = printed(&kit, &["ls", "--json"]).pop().unwrap();
    assert_eq!(listed["delayed_release"]["locker"], "h-1-ff-1");
    assert_eq!(names_of(&listed), told("ls"));
    let ended = json!({
        "locker": "text", "held_for_ms": "integer", "delay_ms": "integer", "ended_ms_ago": "integer", "holder_name": null,
        "reason": null, "program": null, "host": null, "pid": "integer",
    });
    assert_eq!(shape(&kept["delayed_release"]), ended, "{kept:#}");
    assert_eq!(names_of(&shown).union(&names_of(&kept)).cloned().collect::<BTreeSet<_>>(), told("show"));
    kit.server.run::<()>(&["SET", KEY, "10.0.0.1-7"]);
    let of_jvm = shape(&show()["holder"]);
    assert_eq!(of_jvm, party(&Value::Null, &Value::Null));
}

/// A name may have any character.
#[test]
fn a_name_is_printed_as_it_is() {
    let kit = Kit::new();
    let key = "DLOCK_JOB_\u{7f}\u{1b}[1m\n\u{9b}\u{202e}é";
    kit.server.run::<()>(&["SET", key, "host-1-ff-1"]);
    let target = key.strip_prefix("DLOCK_JOB_").unwrap();
    for words in [&["ls", "--json"][..], &["show", "JOB", target, "--json"]] {
        assert_eq!(printed(&kit, words)[0]["key"], key, "{words:?}");
    }
    let watched = printed(&kit, &["watch", "--json", "--count", "1"]);
    assert_eq!(watched[0]["locks"][0]["key"], key);
}

#[test]
fn a_lock_in_its_delay_is_told_as_such() {
    let kit = Kit::new();
    // The holder has died: less is left than the lock-delay, which the locker says.
    kit.server.run::<()>(&["SET", KEY, "host-1-c0ffee-1D60000", "PX", "50000"]);
    for document in [&printed(&kit, &["ls", "--json"])[0], &printed(&kit, &["show", "JOB", "x", "--json"])[0]] {
        let left = document["lock_delay_ms"].as_u64().unwrap();
        assert!(left > 0 && left <= 50_000, "{document:#}");
    }
    let texts = ["nobody holds it: its lock-delay", "held last by host-1-c0ffee-1D60000"];
    kit.dlock(&["show", "JOB", "x"]).end().expect(0).shows(texts);
    kit.dlock(&["ls"]).end().expect(0).shows(["(delay after host-1-c0ffee-1D60000)"]);
}

#[test]
fn a_finding_has_these_fields() {
    let kit = Kit::new();
    let found = printed(&kit, &["doctor", "--json"]).pop().unwrap();
    assert_eq!(names_of(&found), told("doctor"));
    assert_eq!(found["worst"], "notice");
    let findings = found["findings"].as_array().unwrap();
    assert!(findings.len() >= 10, "{found:#}");
    for finding in findings {
        let advice = if finding["severity"] == "fine" { Value::Null } else { "text".into() };
        let expected = json!({
            "server": "text", "subject": "text", "severity": "text", "message": "text", "advice": advice,
        });
        assert_eq!(shape(finding), expected, "{finding:#}");
    }
}

/// A text without line breaks in the middle, and without what a manual page writes for signs of its own.
fn flat(text: &str) -> String {
    let text = text.replace("\\-", "-").replace("\\(dq", "\"").replace("\\&", "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_fields_are_written_where_people_look() {
    let kit = Kit::new();
    let readme = flat(include_str!("../../README.md"));
    for (name, texts) in TOLD {
        let help = flat(&kit.dlock(&[name, "--help"]).end().expect(0).out);
        let page = flat(&kit.dlock(&["man", name]).end().expect(0).out);
        for text in texts {
            for (place, written) in [("--help", &help), ("the manual page", &page), ("README", &readme)] {
                assert!(written.contains(text), "{place} of {name}: {text} is not in {written}");
            }
        }
        // No field that is not there any more.
        let of_option = &help[help.find("--json").unwrap()..];
        let end = of_option.find(" --log-format").unwrap_or(of_option.len());
        assert!(names_in(&of_option[..end]).is_subset(&told(name)), "{name}: {of_option}");
    }
}
