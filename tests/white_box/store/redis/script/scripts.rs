//! Unit tests of `src/store/redis/script/scripts.rs`.

use super::*;

/// All scripts, and their first lines.
fn all() -> Vec<(&'static Lazy<Script>, &'static str)> {
    vec![
        (&ACQUIRE, "#!lua"),
        (&EXTEND_ALONE, "#!lua flags=allow-oom"),
        (&POLL, "#!lua flags=allow-oom"),
        (&PROBE, "#!lua flags=allow-oom"),
        (&EXTEND, "#!lua flags=allow-oom"),
        (&RELEASE, "#!lua flags=allow-oom"),
        (&INSPECT, "#!lua flags=no-writes"),
        (&BREAK, "#!lua flags=allow-oom"),
        (&BROKEN, "#!lua flags=no-writes"),
        (&LOCKERS, "#!lua flags=no-writes"),
        (&RECORD, "#!lua"),
    ]
}

#[test]
fn no_script_is_forgotten_here() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts")).expect("the scripts");
    let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text"));
    assert_eq!(texts.filter(|text| text.starts_with("#!lua")).count(), all().len());
}

#[test]
fn scripts_are_whole_and_start_with_their_flags() {
    for (script, first) in all() {
        for form in [Form::Server, Form::Cluster] {
            let Text { full: [_, text], sha } = script.text(form);
            assert_eq!(text.lines().next(), Some(first));
            assert!(!text.contains("#include"), "{text}");
            assert!(!text.contains("function"), "a closure costs time at every call");
            assert_eq!(sha.len(), 40);
        }
    }
}

#[test]
fn the_two_forms_differ_by_the_three_replacements_alone() {
    let mut applied = [0; 3];
    for (script, _) in all() {
        let ([_, server], cluster) = (script.server.full, script.text(Form::Cluster));
        let ([_, cluster], sha) = (cluster.full, &cluster.sha);
        let back = REPLACEMENTS.iter().fold(cluster.to_owned(), |text, (here, there)| text.replace(there, here));
        assert_eq!(back, *server);
        // Whatever else is like what is replaced would be a call to the wrong channel.
        for word in ["PUBLISH", "NUMSUB", "DLOCK:"] {
            let code = |text: &str| {
                text.lines().filter(|line| !line.starts_with("--")).collect::<String>().matches(word).count()
            };
            let known = REPLACEMENTS.iter().filter(|(here, _)| here.contains(word));
            assert_eq!(code(server), known.map(|(here, _)| server.matches(here).count()).sum::<usize>(), "{word}");
        }
        for (count, (here, there)) in applied.iter_mut().zip(REPLACEMENTS) {
            assert_eq!(server.matches(here).count(), cluster.matches(there).count());
            assert!(!cluster.contains(here));
            *count += server.matches(here).count();
        }
        assert_eq!(server == cluster, script.server.sha == *sha);
    }
    // hand_over.lua is in four scripts, and each script that hands over sends its message.
    assert_eq!(applied, [6, 5, 8]);
}

#[test]
fn an_extension_without_numbers_can_do_with_the_key_alone() {
    let keys = ["k", "q", "f", ""];
    let call = |script, flag| Call {
        script,
        form: Form::Cluster,
        keys,
        key_count: 3,
        args: ["l-1", "5", flag, "", "", ""],
        arg_count: 3,
        slack: Slack::Last,
        is_confirmed: true,
    };
    let mut packed = Packed::default();
    let alone = call(&EXTEND, "0").alone().expect("an extension");
    assert!(alone.is_confirmed);
    alone.pack(&mut packed);
    let mut command = ::redis::cmd("EVALSHA");
    command.arg(&EXTEND_ALONE.text(Form::Cluster).sha).arg(1).arg("k").arg("l-1").arg("5");
    assert_eq!(packed.bytes, command.get_packed_command());
    assert!(call(&EXTEND, "1").alone().is_none() && call(&POLL, "0").alone().is_none());
    let whole = Call { key_count: 4, arg_count: 2, ..call(&BREAK, "") };
    let few = whole.alone().expect("a break");
    assert_eq!((few.key_count, few.arg_count, few.args[0], few.args[1]), (3, 2, "l-1", ""));
    assert!(few.alone().is_none());
}

#[test]
fn a_call_is_packed_as_redis_wants_it() {
    let keys = ["k", "q", "é", ""];
    let args = ["locker-1", "5", "", "", "", ""];
    for (slack, expected) in [
        (Slack::None, &["locker-1", "5"][..]),
        (Slack::Last, &["locker-1", "5", "00000"]),
        (Slack::In(1), &["locker-1", "5 00000"]),
    ] {
        let mut packed = Packed::default();
        Call { script: &PROBE, form: Form::Server, keys, key_count: 3, args, arg_count: 2, slack, is_confirmed: false }
            .pack(&mut packed);
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(&PROBE.server.sha).arg(3).arg(&keys[..3]).arg(expected);
        assert_eq!(packed.bytes, command.get_packed_command());
        let end = packed.bytes.len() - 7;
        assert_eq!(packed.stamps().collect::<Vec<_>>(), if slack == Slack::None { vec![] } else { vec![end] });
        assert_eq!(packed.replies(), 1);
    }
}

#[test]
fn commands_that_are_spelt_out_have_the_full_text_and_the_stamp_in_its_place() {
    let (keys, args) = (["k", "q", "", ""], ["locker-1", "5", "", "", "", ""]);
    let call = |slack| Call {
        script: &RELEASE,
        form: Form::Server,
        keys,
        key_count: 2,
        args,
        arg_count: 2,
        slack,
        is_confirmed: false,
    };
    let full = |stamped: &[&str]| {
        let mut command = ::redis::cmd("EVAL");
        command.arg(RELEASE.server.full[1]).arg(2).arg(&keys[..2]).arg("locker-1").arg(stamped);
        command.get_packed_command()
    };
    let kinds = [(Slack::None, &["5"][..]), (Slack::Last, &["5", "00000"]), (Slack::In(1), &["5 00000"])];
    let mut packed = Packed::for_one();
    packed.words(&["PING"]);
    kinds.iter().for_each(|(slack, _)| call(*slack).pack(&mut packed));
    for chosen in [&[0, 1, 2, 3][..], &[1], &[3], &[1, 2], &[2, 3]] {
        let mut spelt = packed.clone();
        spelt.spell_out(chosen.iter().copied());
        let (mut bytes, mut stamps) = (Vec::new(), Vec::new());
        for at in chosen {
            match at.checked_sub(1).map(|kind| kinds[kind]) {
                None => bytes.extend(::redis::cmd("PING").get_packed_command()),
                Some((slack, stamped)) => {
                    bytes.extend(full(stamped));
                    stamps.extend((slack != Slack::None).then_some(bytes.len() - 7));
                }
            }
        }
        assert_eq!((&spelt.bytes, spelt.stamps().collect()), (&bytes, stamps), "{chosen:?}");
        assert_eq!((spelt.replies(), spelt.short_texts().count()), (chosen.len(), 0));
    }
}
