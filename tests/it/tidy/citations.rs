//! Who shows what: the numbers of the guarantees and invariants, and the tests that cite them.
//!
//! The numbers stand at the beginning of lines, in the files of [`DEFINED_IN`]: `* **G1**`, `| **S1** |`. What shows a guarantee or an invariant
//! cites it in the last line of its comment: `/// Shows: G1, S1.` That is a test, a case, a property of a model, or a rule of a checker. The table is
//! printed by
//!
//! ```text
//! cargo test --all-features --test it -- tidy::citations --nocapture
//! ```

use super::{is_test_only, package, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// `G1` is `('G', 1)`.
type Number = (char, u32);

/// The files that define numbers, and what stands before each.
const DEFINED_IN: [(&str, &str); 5] = [
    ("README.md", "* **"),
    ("ARCHITECTURE.md", "| **"),
    ("src/state/machine.rs", "//! * **"),
    ("src/client/steps.rs", "//! * **"),
    ("src/client/closing.rs", "//! * **"),
];

/// What stands on the rung `all` alone (tests/README.md), beside most of `FAULTS`. A number that is cited nowhere else would be shown by no run of CI.
const ON_NO_RUNG_OF_CI: [&str; 2] = ["tests/it/cluster/lock.rs", "crates/mongodb/"];
/// The tests of faults, of which CI runs those whose names `tests/run.sh` has in a pattern.
const FAULTS: &str = "tests/faults/";

/// How many of the tests that cite a number the table names.
const NAMED: usize = 3;

fn number(word: &str) -> Option<Number> {
    let mut chars = word.chars();
    let letter = chars.next().filter(|letter| "GSL".contains(*letter))?;
    Some((letter, chars.as_str().parse().ok()?))
}

/// The numbers that exist, and the file that defines each.
fn defined() -> BTreeMap<Number, &'static str> {
    let mut defined = BTreeMap::new();
    for (file, mark) in DEFINED_IN {
        let text = fs::read_to_string(package().join(file)).expect("a text");
        for line in text.lines() {
            let word = line.strip_prefix(mark).and_then(|rest| rest.split_once("**"));
            let Some(found) = word.and_then(|(word, _)| number(word)) else { continue };
            let before = defined.insert(found, file);
            assert!(before.is_none(), "{}{} is defined twice, in {file} too", found.0, found.1);
        }
    }
    defined
}

/// What the comment that was just read is of: the name of the next function, constant, case or variant.
fn subject<'a>(lines: &[&'a str]) -> &'a str {
    let is_code = |line: &&&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with("#[");
    let line = lines.iter().find(is_code).copied().unwrap_or_default();
    let named = ["fn ", "const "].into_iter().find_map(|word| line.split_once(word));
    let name = named.map_or(line, |(_, name)| name);
    name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
}

/// Whether the test below a comment runs only where it is asked for by name.
fn is_ignored(lines: &[&str]) -> bool {
    lines
        .iter()
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.starts_with("#[ignore"))
}

/// The citation in a line, if it is one.
fn cited(line: &str) -> Option<&str> {
    line.strip_prefix("//")?.trim_start_matches(['/', '!']).strip_prefix(" Shows: ")
}

/// Whether tests begin here, in a file that has others above them.
fn begins_tests(line: &str) -> bool {
    ["#[cfg(test)]", "#[cfg(all(test,"].into_iter().any(|begin| line.starts_with(begin))
}

/// Of tests of faults by their names, those that CI runs.
fn run_by_ci(names: &BTreeSet<String>) -> BTreeSet<String> {
    let script = fs::read_to_string(package().join("tests/run.sh")).expect("the script");
    let pieces = script.lines().filter_map(|line| line.strip_prefix("few_faults")?.split('\'').nth(1));
    let pattern = pieces.collect::<String>();
    let mut grep = Command::new("grep")
        .args(["-E", &format!("^({pattern})")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("grep");
    let lines = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    grep.stdin.take().expect("its input").write_all(lines.as_bytes()).expect("it reads");
    let found = grep.wait_with_output().expect("it ends").stdout;
    String::from_utf8(found).expect("names").lines().map(str::to_owned).collect()
}

/// The name of a test of faults that stands in this file.
fn name_of(file: &str, subject: &str) -> Option<String> {
    let module = file.strip_prefix(FAULTS)?.strip_suffix(".rs")?;
    Some(format!("{}::{subject}", module.strip_suffix("/mod").unwrap_or(module).replace('/', "::")))
}

/// Who cites each number, on the rungs of CI.
fn citations() -> BTreeMap<Number, BTreeSet<String>> {
    let mut files = Vec::new();
    ["src", "tests", "crates"].iter().for_each(|root| sources(&package().join(root), &mut files));
    let mut citations = BTreeMap::<Number, BTreeSet<String>>::new();
    let mut faults = BTreeMap::new();
    for path in &files {
        let file = path.strip_prefix(package()).expect("below").to_str().expect("a name").replace('\\', "/");
        if ON_NO_RUNG_OF_CI.iter().any(|path| file.starts_with(path)) {
            continue;
        }
        let text = fs::read_to_string(path).expect("a text");
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let mut is_test = ["tests/", "crates/conformance/"].iter().any(|room| file.starts_with(room))
            || file.contains("/tests/")
            || is_test_only(&file, &text);
        for (place, line) in lines.iter().enumerate() {
            is_test |= begins_tests(line);
            let is_run_on = line.starts_with("//") && line.contains(". Shows: ");
            assert!(!is_run_on, "{file}: a citation has a line of its own: {line}");
            let Some(list) = cited(line) else { continue };
            let subject = subject(&lines[place + 1..]);
            let who = format!("{file}: {subject}");
            faults.extend(name_of(&file, subject).map(|name| (who.clone(), name)));
            assert!(is_test, "{who} is no test");
            if is_ignored(&lines[place + 1..]) {
                continue;
            }
            let list = list.strip_suffix('.').unwrap_or_else(|| panic!("{who}: a full stop ends the citation"));
            for word in list.split(", ") {
                let cited = number(word).unwrap_or_else(|| panic!("{who} cites {word:?}, which is no number"));
                citations.entry(cited).or_default().insert(who.clone());
            }
        }
    }
    let run = run_by_ci(&faults.values().cloned().collect());
    assert!(!run.is_empty() && run.len() < faults.len(), "the pattern is not read: {run:?}");
    let is_run = |who: &String| faults.get(who).is_none_or(|name| run.contains(name));
    citations.values_mut().for_each(|who| who.retain(is_run));
    citations.retain(|_, who| !who.is_empty());
    citations
}

#[test]
fn every_number_is_cited_and_every_citation_is_of_a_number() {
    let (defined, citations) = (defined(), citations());
    for letter in ['G', 'S', 'L'] {
        let places: Vec<u32> = defined.keys().filter(|number| number.0 == letter).map(|number| number.1).collect();
        assert!(places.len() > 4, "the numbers with {letter} are not read: {places:?}");
        assert!(places.iter().copied().eq((1_u32..).take(places.len())), "{letter} has a hole: {places:?}");
    }
    for (number, who) in &citations {
        assert!(defined.contains_key(number), "{}{} does not exist, and is cited by {who:?}", number.0, number.1);
    }
    eprintln!("| number | cited by | for example |\n|---|---|---|");
    let mut uncited = Vec::new();
    for ((letter, place), file) in &defined {
        let Some(who) = citations.get(&(*letter, *place)) else {
            uncited.push(format!("{letter}{place} of {file}"));
            continue;
        };
        let some: Vec<&str> = who.iter().step_by(who.len().div_ceil(NAMED)).map(String::as_str).collect();
        eprintln!("| {letter}{place} | {} | {} |", who.len(), some.join("; "));
    }
    assert!(uncited.is_empty(), "nobody shows {uncited:?}");
}
