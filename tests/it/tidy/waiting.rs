//! The lists of the tests that wait in real time, and of those that are played again where the machine stood still: they name every such
//! file, and no other one.

use super::{package, sources};
use std::collections::BTreeSet;
use std::fs;

/// What stands in a file that sleeps, and in one whose tests may be played again.
const SLEEPS: [&str; 1] = ["thread::sleep("];
const NEEDS_A_RUNNING_MACHINE: [&str; 2] = ["on_a_running_machine(", "Stalls::watch("];

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

/// The roots of the tests. The files below the first are named in the tables without it.
const ROOTS: [&str; 11] = [
    "tests/it/",
    "crates/cli/tests/",
    "crates/conformance/src/",
    "crates/consensus/tests/stores/",
    "crates/mongodb/tests/",
    "tests/examples/",
    "tests/faults/",
    "tests/recipes/",
    "tests/tasks/",
    "tests/two_versions/",
    "tests/white_box/",
];

/// The files of tests that contain one of these, but for the kit and for this check.
fn with(words: &[&str]) -> BTreeSet<String> {
    let mut files = Vec::new();
    ROOTS.iter().for_each(|root| sources(&package().join(root), &mut files));
    let path = |file: &std::path::PathBuf| {
        let path = file.strip_prefix(package()).expect("below it").display().to_string();
        path.strip_prefix(ROOTS[0]).map_or_else(|| path.clone(), str::to_owned)
    };
    let is_test = |(name, _): &(String, _)| !name.starts_with("support") && !name.starts_with("tidy");
    let contains = |(_, file): &(String, &std::path::PathBuf)| {
        let text = fs::read_to_string(file).expect("a source");
        words.iter().any(|word| text.contains(word))
    };
    let found = files.iter().map(|file| (path(file), file)).filter(is_test).filter(contains);
    found.map(|(name, _)| name).collect()
}

#[test]
fn every_file_that_sleeps_in_real_time_is_in_the_list_with_its_reason() {
    let (named, found) = (named("| files | why they sleep |"), with(&SLEEPS));
    assert!(named.len() > 10, "the table is not read");
    // A name with a slash at its end is that of a directory.
    let is_of =
        |entry: &String, file: &String| file == entry || entry.ends_with('/') && file.starts_with(entry.as_str());
    let missing: Vec<_> = found.iter().filter(|file| !named.iter().any(|entry| is_of(entry, file))).collect();
    assert!(
        missing.is_empty(),
        "not in the table of tests/README.md: wait for an event, move the clock, or say why not: {missing:?}"
    );
    let vain: Vec<_> = named.iter().filter(|entry| !found.iter().any(|file| is_of(entry, file))).collect();
    assert!(vain.is_empty(), "in the table, and they do not sleep: {vain:?}");
}

#[test]
fn every_file_that_needs_a_running_machine_is_in_the_list_with_its_reason() {
    let (named, found) = (named("| files | why they need a machine that runs |"), with(&NEEDS_A_RUNNING_MACHINE));
    assert_eq!(named, found, "the table of tests/README.md, and the files");
}
