//! The table of the command's README that sets `dlock run` beside other commands: each cell of ours names its tests, and each of them exists.

use super::package;
use std::fs;

/// What each row says of `dlock run`, and the tests that it names.
fn rows() -> Vec<(String, Vec<String>)> {
    let page = fs::read_to_string(package().join("crates/cli/README.md")).expect("the page");
    let is_head = |line: &&str| line.starts_with("| | `flock`");
    let rows = page.lines().skip_while(|line| !is_head(line)).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [.., ours, tests] = cells[..] else { panic!("too few cells: {row}") };
            let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            (ours.to_owned(), tests)
        })
        .collect()
}

#[test]
fn each_cell_about_dlock_run_names_tests_that_exist() {
    let rows = rows();
    assert!(rows.len() > 10, "the table is not read");
    for (cell, tests) in rows {
        assert!(!tests.is_empty(), "no test shows {cell:?}");
        for test in tests {
            let (module, name) = test.split_once("::").unwrap_or_else(|| panic!("{test:?} is no test"));
            let file = package().join(format!("crates/cli/tests/command/{module}.rs"));
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{test}: {error}"));
            let head = format!("fn {name}() {{");
            let mut lines = text.lines().skip_while(|line| *line != "#[test]");
            assert!(lines.any(|line| line == head), "{test} does not exist: it should show {cell:?}");
        }
    }
}

/// A test of each of the other commands says `Row: …` of each row.
#[test]
fn each_row_is_shown_for_the_other_commands() {
    let page = fs::read_to_string(package().join("crates/cli/README.md")).expect("the page");
    let rows = page.lines().skip_while(|line| !line.starts_with("| | `flock`")).skip(2);
    let names: Vec<_> = rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next()).collect();
    assert!(names.len() > 10, "the table is not read");
    for other in ["flock", "consul", "etcd"] {
        let file = package().join(format!("crates/cli/tests/command/others/{other}.rs"));
        let text = fs::read_to_string(file).expect("the tests");
        for name in &names {
            assert!(text.contains(&format!("Row: {name}.")), "no test of {other} shows {name:?}");
        }
    }
}
