//! Replays the corpus in `tests/fuzz/corpus`: every file of it, and every beginning of every file, through every target. So each reader
//! also gets what was written for the others, and whatever it reads is cut at every place.

use super::target::Target;
use super::targets;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(name)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    entries.map(|entry| entry.expect("a directory's entry").path()).collect()
}

fn replay(name: &str) {
    let target = targets().find(|target| target.name == name).expect("a target");
    assert!(!entries(&folder("corpus").join(name)).is_empty(), "no corpus for {name}");
    for file in entries(&folder("corpus")).iter().flat_map(|directory| entries(directory)) {
        let data = fs::read(&file).expect("an input");
        (0..=data.len()).for_each(|end| run(target, &data[..end], &file));
    }
}

fn run(target: &Target, data: &[u8], file: &Path) {
    if catch_unwind(AssertUnwindSafe(|| (target.check)(data))).is_err() {
        let Target { name, .. } = target;
        panic!("target {name}: \"{}\" fails, of {}", data.escape_ascii(), file.display());
    }
}

/// Defines a test for each target, and one that checks that no target is missing, here and in the crate for libFuzzer.
macro_rules! replay {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test] fn $test() { replay($name); })*

        #[test]
        fn every_target_is_replayed() {
            let names: BTreeSet<_> = targets().map(|target| target.name).collect();
            assert_eq!(names, BTreeSet::from([$($name),*]));
            let of_libfuzzer = fs::read_to_string(folder("Cargo.toml")).expect("the crate for libFuzzer");
            for name in &names {
                assert!(of_libfuzzer.contains(&format!("path = \"targets/{name}.rs\"")), "libFuzzer has no {name}");
            }
        }
    };
}

replay! {
    properties_are_read_or_refused_by_line: "properties",
    hosts_make_lockers_and_holders_are_told_from_them: "locker",
    urls_are_read_or_refused_without_their_passwords: "url",
    messages_are_read_as_they_were_written_or_ignored: "message",
    replies_are_read_as_the_scripts_write_them_or_refused: "reply",
    bytes_of_a_server_are_replies_or_refused: "resp",
    error_replies_have_a_class_and_are_shown_on_one_line: "error",
    answers_to_hello_are_judged: "hello",
}
