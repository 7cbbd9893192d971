//! The mistakes that are built in on purpose: tests/README.md says how many there are, and names those that only the rung `all` finds.

use super::package;
use std::collections::BTreeSet;
use std::fs;

/// Where the mistakes are listed: those of the protocol, and those of the client, the transport and the consensus stores.
const PROTOCOL: &str = "tests/model/rules.rs";
const LIBRARIES: [&str; 2] = ["tests/white_box/check/model/mistakes.rs", "crates/consensus/tests/white_box/mutants.rs"];
/// The variant that is no mistake.
const NONE: &str = "Faithful";
/// The scenarios of faults that find mistakes, and how many of these are built into a server.
const SCENARIOS: &str = "tests/faults/mutants.rs";
const OF_SERVERS: usize = 1;

fn read(path: &str) -> String {
    fs::read_to_string(package().join(path)).expect(path)
}

fn mistakes(path: &str) -> BTreeSet<String> {
    let text = read(path);
    let lines = text.lines().skip_while(|line| !line.ends_with("enum Mutant {")).take_while(|line| *line != "}");
    let code = lines.map(str::trim).filter(|line| !line.starts_with("//"));
    code.filter_map(|line| line.strip_suffix(',')).filter(|variant| *variant != NONE).map(str::to_owned).collect()
}

#[test]
fn the_page_of_the_tests_names_the_mistakes_that_only_all_finds() {
    let protocol = mistakes(PROTOCOL);
    let libraries: BTreeSet<_> = LIBRARIES.iter().flat_map(|path| mistakes(path)).collect();
    let named = |text: &str, quote: char| -> BTreeSet<_> {
        text.split(quote).filter(|word| libraries.contains(*word)).map(str::to_owned).collect()
    };
    let page = read("tests/README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let list = page.split("Only `all` finds the ").nth(1).and_then(|rest| rest.split(". ").next()).expect("the list");
    let (only_all, in_scenarios) = (named(list, '`'), named(&read(SCENARIOS), '"'));
    assert!(only_all.is_subset(&in_scenarios), "no scenario: {:?}", only_all.difference(&in_scenarios));
    let (model, schedules) = (protocol.len(), libraries.len() - only_all.len());
    let (ci, all) = (model + schedules, only_all.len() + OF_SERVERS);
    let says = format!(
        "Of {} mistakes that are built in on purpose, CI finds {ci}: the {model} of `model` and the {schedules} of `schedules`. Only `all` finds \
         the {all} of `mutants`:",
        ci + all
    );
    assert!(page.contains(&says), "tests/README.md does not say: {says}");
    assert!(page.contains(&format!("and {model} mistakes that it must find")), "its table");
}
