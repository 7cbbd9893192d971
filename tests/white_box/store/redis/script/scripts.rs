//! Unit tests of `src/store/redis/script/scripts.rs`.

use super::*;
use crate::port::{Broken, Gap, ReleaseDelay};
use crate::store::redis::script::keys::queue_key;
use crate::store::redis::script::reply::read_words;
use proptest::prelude::*;

/// All scripts, and their first lines.
fn all() -> Vec<(&'static Lazy<Script>, &'static str)> {
    vec![
        (&ACQUIRE, "#!lua"),
        (&EXTEND_ALONE, "#!lua flags=allow-oom"),
        (&POLL, "#!lua flags=allow-oom"),
        (&PROBE, "#!lua flags=allow-oom"),
        (&EXTEND, "#!lua flags=allow-oom"),
        (&RELEASE, "#!lua flags=allow-oom"),
        (&DELAY_RELEASE, "#!lua flags=allow-oom"),
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
            let ScriptText { full: [_, text], sha } = script.text(form);
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

const CLAIM: Claim<'_> = Claim::new("k", "l", "l-1", Duration::from_millis(5));

/// A call in its short form, and in full.
fn packed(call: Call<'_>, form: Form) -> (Packed, Packed) {
    let (mut short, mut full) = (Packed::default(), Packed::default());
    call.pack(form, &mut short);
    call.pack_in_full(form, &mut full);
    (short, full)
}

fn command(words: &[&str]) -> Vec<u8> {
    ::redis::cmd(words[0]).arg(&words[1..]).get_packed_command()
}

/// Checks that a call is written as this script with these keys and arguments.
fn check_call(call: Call<'_>, form: Form, script: &'static Script, keys: &[&str], args: &[&str]) {
    let (short, full) = packed(call, form);
    let ScriptText { full: [eval, text], sha } = script.text(form);
    let count = keys.len().to_string();
    let words = |head: [&str; 2]| command(&[&head, &[&*count][..], keys, args].concat());
    assert_eq!(short.bytes, words(["EVALSHA", sha]), "{call:?}");
    assert_eq!(full.bytes, words([eval, text]), "{call:?}");
    // A stamp is written over the slack, which is none so far.
    let is_stamped = args.iter().any(|arg| arg.ends_with("00000"));
    for packed in [short, full] {
        assert_eq!(packed.replies(), 1);
        let stamps: Vec<_> = packed.stamps().collect();
        assert_eq!(stamps.len(), usize::from(is_stamped), "{call:?}");
        assert!(stamps.iter().all(|at| packed.bytes[*at..].starts_with(b"00000\r\n")), "{call:?}");
    }
}

#[test]
fn an_extension_without_numbers_can_do_with_the_key_alone() {
    let extend = Request::Extend(CLAIM);
    let alone = Call::of(&extend).alone().expect("an extension");
    check_call(alone, Form::Cluster, &EXTEND_ALONE, &["k"], &["l-1", "5"]);
    assert!(packed(alone, Form::Cluster).0.is_confirmed && !alone.has_many_keys() && alone.alone().is_none());
    for other in [Request::ExtendWithNumbers(CLAIM), Request::Poll(CLAIM), Request::Release(CLAIM)] {
        assert!(Call::of(&other).alone().is_none() && Call::of(&other).has_many_keys());
    }
    let order = Request::Break(Break::new("k", "l-1", "me", "why"));
    let few = Call::of(&order).alone().expect("a break");
    let (queue, fence) = (queue_key("k"), slot_fence_key("k"));
    check_call(few, Form::Cluster, &BREAK, &["k", &queue, &fence], &["l-1", "", "00000"]);
    assert!(few.alone().is_none() && few.has_many_keys());
}

#[test]
fn each_request_is_the_script_with_the_keys_and_arguments_that_it_expects() {
    let (gap, next) = (Gap::new(Duration::from_millis(20), Duration::from_secs(3)), Claim { locker: "l-2", ..CLAIM });
    let gapped = CLAIM.with_poller_gap(Some(gap));
    for (form, fence) in [(Form::Server, FENCE.to_owned()), (Form::Cluster, slot_fence_key("k"))] {
        let (queue, gapped_key, broken) = (queue_key("k"), gapped_key("k"), broken_key("k", "l-1"));
        let keys = &["k", &*queue, &*fence, &*gapped_key];
        let check = |request: Request<'_>, script, keys: &[&str], args: &[&str]| {
            check_call(Call::of(&request), form, script, keys, args);
            assert_eq!(packed(Call::of(&request), form).0.is_confirmed, acks::is_confirmed(&request));
        };
        check(Request::Acquire(CLAIM), &ACQUIRE, &keys[..3], &["l-1", "5", "0", "00000"]);
        check(Request::Join(CLAIM), &ACQUIRE, &keys[..3], &["l-1", "5", "1", "00000"]);
        check(Request::Poll(CLAIM), &POLL, &keys[..3], &["l-1", "5", "00000"]);
        check(Request::Extend(CLAIM), &EXTEND, &keys[..3], &["l-1", "5", "0", "00000"]);
        check(Request::ExtendWithNumbers(CLAIM), &EXTEND, &keys[..3], &["l-1", "5", "1", "00000"]);
        check(Request::Release(CLAIM), &RELEASE, &keys[..3], &["l-1", "5 00000"]);
        check(Request::Release(gapped), &RELEASE, keys, &["l-1", "5 00000", "", "", "20", "3000"]);
        check(Request::HandOver(CLAIM, next), &RELEASE, &keys[..3], &["l-1", "5 00000", "l-2", "5"]);
        check(Request::HandOver(gapped, next), &RELEASE, keys, &["l-1", "5 00000", "l-2", "5", "20", "3000"]);
        let delay = ReleaseDelay::new("a mark", Duration::from_micros(7001));
        check(Request::DelayRelease(CLAIM, delay), &DELAY_RELEASE, &["k"], &["l-1", "a mark", "8"]);
        check(Request::Probe(CLAIM), &PROBE, &["k"], &["l-1"]);
        check(Request::Inspect { key: "k" }, &INSPECT, &keys[..2], &[]);
        let order = Break::new("k", "l-1", "me", "why");
        check(Request::Break(order), &BREAK, &[&keys[..3], &[&*broken]].concat(), &["l-1", "me why", "00000"]);
        check(Request::Broken { key: "k", locker: "l-1" }, &BROKEN, &[&broken], &[]);
        check_call(Call::lockers("k"), form, &LOCKERS, &keys[..2], &["100"]);
        check_call(Call::record("é", &["words", "5"]), form, &RECORD, &["é"], &["words", "5"]);
    }
}

#[test]
fn commands_that_are_spelt_out_have_the_full_text_and_the_stamp_in_its_place() {
    let requests = [Request::Probe(CLAIM), Request::Poll(CLAIM), Request::Release(CLAIM)];
    let mut all = Packed::for_one();
    all.words(&["PING"]);
    requests.iter().for_each(|request| Call::of(request).pack(Form::Server, &mut all));
    for chosen in [&[0, 1, 2, 3][..], &[1], &[3], &[1, 2], &[2, 3]] {
        let mut spelt = all.clone();
        spelt.spell_out(chosen.iter().copied());
        let mut wanted = Packed::default();
        for at in chosen {
            match at.checked_sub(1).map(|kind| &requests[kind]) {
                None => wanted.words(&["PING"]),
                Some(request) => Call::of(request).pack_in_full(Form::Server, &mut wanted),
            }
        }
        let stamps = |packed: &Packed| packed.stamps().collect::<Vec<_>>();
        assert_eq!((&spelt.bytes, stamps(&spelt)), (&wanted.bytes, stamps(&wanted)), "{chosen:?}");
        assert_eq!((spelt.replies(), spelt.short_texts().count()), (chosen.len(), 0));
    }
}

#[test]
fn a_locker_of_any_length_is_broken_and_one_of_ours_is_told() {
    for (length, is_told) in [(LONGEST_LOCKER, true), (LONGEST_LOCKER + 1, false)] {
        let locker = "l".repeat(length);
        let order = Break::new("k", &locker, "me", "why");
        assert_eq!(words(&order).is_empty(), !is_told);
        assert!(told_key(&order).len() < 300);
        let request = Request::Break(order);
        let mut packed = Packed::default();
        Call::of(&request).pack(Form::Server, &mut packed);
        assert!(String::from_utf8_lossy(&packed.bytes).contains(&format!("\r\n{locker}\r\n")));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(by in "[!-~]{1,60}", reason in "[ -~]{0,256}") {
        prop_assert_eq!(read_words(words(&Break::new("k", "l", &by, &reason)).as_bytes()), Broken::new(by, reason));
    }
}
