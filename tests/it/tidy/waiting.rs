//! The lists of the tests that wait in real time, and of those that are played again where the machine stood still: they name every such
//! file, and no other one.

use super::{package, sources};
use std::collections::BTreeSet;
use std::fs;

/// What stands in a file that sleeps, and in one whose tests may be played again.
const SLEEPS: [&str; 1] = ["thread::sleep("];
const NEEDS_A_RUNNING_MACHINE: [&str; 3] = ["on_a_running_machine(", "running_on_both_stores!(", "Stalls::watch("];

/// The files that the first cells of a table of tests/README.md name.
fn named(head: &str) -> BTreeSet<String> {
    let page = fs::read_to_string(package().join("tests/README.md")).expect("the page");
    let rows = page.lines().skip_while(|line| *line != head).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .flat_map(|row| {
            row.split('|').nth(1).unwrap_or("").split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// The files of `tests/it` that contain one of these, but for the kit and for this check.
fn with(words: &[&str]) -> BTreeSet<String> {
    let root = package().join("tests/it");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let path = |file: &std::path::PathBuf| file.strip_prefix(&root).expect("below it").display().to_string();
    let is_test = |file: &String| !file.starts_with("support") && !file.starts_with("tidy");
    let text = |file: &String| fs::read_to_string(root.join(file)).expect("a source");
    let paths = files.iter().map(path).filter(is_test);
    paths.filter(|file| words.iter().any(|word| text(file).contains(word))).collect()
}

#[test]
fn every_file_that_sleeps_in_real_time_is_in_the_list_with_its_reason() {
    let (named, found) = (named("| files | why they sleep |"), with(&SLEEPS));
    assert!(named.len() > 10, "the table is not read");
    let missing: Vec<_> = found.difference(&named).collect();
    assert!(
        missing.is_empty(),
        "not in the table of tests/README.md: wait for an event, move the clock, or say why not: {missing:?}"
    );
    let vain: Vec<_> = named.difference(&found).collect();
    assert!(vain.is_empty(), "in the table, and they do not sleep: {vain:?}");
}

#[test]
fn every_file_that_needs_a_running_machine_is_in_the_list_with_its_reason() {
    let (named, found) = (named("| files | why they need a machine that runs |"), with(&NEEDS_A_RUNNING_MACHINE));
    assert_eq!(named, found, "the table of tests/README.md, and the files");
}
