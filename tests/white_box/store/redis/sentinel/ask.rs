//! Unit tests of `src/store/redis/sentinel/ask.rs`.

use super::*;

fn reply(fields: &[(&str, &str)]) -> Value {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    Value::Array(fields.iter().flat_map(|(name, value)| [text(name), text(value)]).collect())
}

const COMPLETE: [(&str, &str); 5] = [
    ("name", "dlock"),
    ("ip", "10.0.0.7"),
    ("port", "6380"),
    ("config-epoch", "3"),
    ("down-after-milliseconds", "5000"),
];

/// A caller whose limit is short looks whether a Sentinel is cooling down that another thread asks.
/// Shows: G12.
#[test]
fn nobody_waits_for_a_question_of_another_to_learn_whether_a_sentinel_rests() {
    let sentinel = Sentinel::new(Address::parse("redis://127.0.0.1:1").expect("an address"));
    sentinel.line.lock().cooldown.fail(Instant::now(), ASK_AGAIN);
    assert!(sentinel.is_cooling_down(Instant::now()));
    let asking = sentinel.line.lock();
    let (say, report) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| say.send(sentinel.is_cooling_down(Instant::now())));
        let is_cooling_down = report.recv_timeout(Duration::from_secs(20));
        drop(asking);
        assert_eq!(is_cooling_down, Ok(false));
    });
}

#[test]
fn an_answer_names_the_master_and_its_epoch() {
    let report = MasterReport { epoch: 3, at: ("10.0.0.7".to_owned(), 6380) };
    let answer = |fails_over| SentinelAnswer { report: report.clone(), down_after: Duration::from_secs(5), fails_over };
    assert_eq!(read_master(&reply(&COMPLETE)), Some(answer(false)));
    for (flags, fails_over) in [("master", false), ("master,failover_in_progress", true), ("s_down,master", false)] {
        let fields: Vec<_> = COMPLETE.into_iter().chain([("flags", flags)]).collect();
        assert_eq!(read_master(&reply(&fields)), Some(answer(fails_over)));
    }
}

#[test]
fn an_answer_that_lacks_something_is_no_answer() {
    assert_eq!(read_master(&Value::Nil), None);
    for missing in &COMPLETE[1..] {
        let fields: Vec<_> = COMPLETE.into_iter().filter(|field| field != missing).collect();
        assert_eq!(read_master(&reply(&fields)), None, "without {missing:?}");
    }
    for (at, value) in [(1, ""), (2, "0"), (2, "x"), (2, "65536"), (3, "-1"), (4, "")] {
        let mut fields = COMPLETE;
        fields[at].1 = value;
        assert_eq!(read_master(&reply(&fields)), None, "{fields:?}");
    }
}
