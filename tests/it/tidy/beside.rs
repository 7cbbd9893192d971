//! The table of the command's README that sets `dlock run` beside other commands: the tests of each row stand below it, and each of them exists.

use super::package;
use std::fs;

fn page() -> String {
    fs::read_to_string(package().join("crates/cli/README.md")).expect("the page")
}

/// The names of the table's rows.
fn names(page: &str) -> Vec<&str> {
    let rows = page.lines().skip_while(|line| !line.starts_with("| | `flock`")).skip(2);
    rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next()).collect()
}

/// The tests that the list below the table names for each row.
fn listed(page: &str) -> Vec<(&str, Vec<&str>)> {
    let list = page.lines().skip_while(|line| *line != "The tests of `dlock run`:");
    let items = list.filter_map(|line| line.strip_prefix("* *")?.split_once("*: "));
    items.map(|(name, tests)| (name, tests.split('`').skip(1).step_by(2).collect())).collect()
}

#[test]
fn each_cell_about_dlock_run_names_tests_that_exist() {
    let page = page();
    let listed = listed(&page);
    assert_eq!(listed.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names(&page));
    for (cell, tests) in listed {
        assert!(!tests.is_empty(), "no test shows {cell:?}");
        for test in tests {
            let (module, name) = test.split_once("::").unwrap_or_else(|| panic!("{test:?} is no test"));
            let file = package().join(format!("crates/cli/tests/command/{module}.rs"));
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{test}: {error}"));
            // One on each store, or one on Redis. The compiler finds a function that no list of tests names.
            let heads = [format!("fn {name}() {{"), format!("fn {name}<S: Site>(kit: &mut KitOn<S>) {{")];
            let mut lines = text.lines().skip_while(|line| *line != "#[test]" && !line.starts_with("on_each_site!"));
            assert!(
                lines.any(|line| heads.iter().any(|head| line == head)),
                "{test} does not exist: it should show {cell:?}"
            );
        }
    }
}

/// A test of each of the other commands says `Row: …` of each row.
#[test]
fn each_row_is_shown_for_the_other_commands() {
    let page = page();
    let names = names(&page);
    assert!(names.len() > 10, "the table is not read");
    for other in ["flock", "consul", "etcd"] {
        let file = package().join(format!("crates/cli/tests/command/others/{other}.rs"));
        let text = fs::read_to_string(file).expect("the tests");
        for name in &names {
            assert!(text.contains(&format!("Row: {name}.")), "no test of {other} shows {name:?}");
        }
    }
}
