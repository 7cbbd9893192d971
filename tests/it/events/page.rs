//! The manual's page of the metrics, read.

use std::collections::BTreeSet;

pub(super) const PAGE: &str = include_str!("../../../src/manual/metrics.md");

/// A row of a table of figures.
struct Row {
    name: &'static str,
    /// Each label with its values. One that has no values in the table has any.
    labels: Vec<(&'static str, Vec<&'static str>)>,
}

/// The rows of the tables of a part of the page.
fn rows(part: &'static str) -> Vec<Row> {
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `dlock_")?.split('|');
        let name = &line[3..3 + "dlock_".len() + cells.next()?.find('`')?];
        let _kind = cells.next()?;
        let labels = cells.next()?.split(';').flat_map(labels).collect();
        Some(Row { name, labels })
    };
    part.lines().filter_map(row).collect()
}

/// Reads `` `lock_type`, `how`: `free`, `granted` ``.
fn labels(text: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let words = |text: &'static str| text.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    let (names, values) = text.split_once(':').unwrap_or((text, ""));
    let mut labels: Vec<_> = words(names).into_iter().map(|name| (name, Vec::new())).collect();
    if let Some(last) = labels.last_mut() {
        last.1 = words(values);
    }
    labels
}

/// The part of the page that is about a program, and the part about a store.
fn parts() -> [&'static str; 2] {
    let (program, rest) = PAGE.split_once("\n# The exporter\n").expect("the chapter");
    let (_, store) = rest.split_once("\n# The figures of a store\n").expect("the chapter");
    [program, store]
}

/// The names of the figures of a program.
pub(super) fn names() -> Vec<&'static str> {
    rows(parts()[0]).iter().map(|row| row.name).collect()
}

/// The series of a program that has locks of one type: `dlock_lost_total{lock_type=TEST,cause=deleted}`.
pub(super) fn series(lock_type: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for row in rows(parts()[0]) {
        let mut sets = vec![String::new()];
        for (label, values) in &row.labels {
            let values = if values.is_empty() { vec![lock_type] } else { values.clone() };
            let with = |set: &String, value| format!("{set}{}{label}={value}", if set.is_empty() { "" } else { "," });
            sets =
                sets.iter().flat_map(|set| values.iter().map(|value| with(set, value)).collect::<Vec<_>>()).collect();
        }
        all.extend(sets.iter().map(|set| format!("{}{{{set}}}", row.name)));
    }
    assert!(all.len() > 50, "the table is not read: {all:?}");
    all
}

/// Says what an expression of `PromQL` asks for and no table has: a name, a label, or a value of a label.
pub(super) fn strangers(expression: &str) -> Vec<String> {
    let rows: Vec<_> = parts().into_iter().flat_map(rows).collect();
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut strange = Vec::new();
    let mut seen = 0;
    for (at, _) in expression.match_indices("dlock_") {
        if expression[..at].ends_with(is_of_a_name) {
            continue;
        }
        seen += 1;
        let (name, rest) =
            expression[at..].split_at(expression[at..].find(|c| !is_of_a_name(c)).unwrap_or(expression.len() - at));
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let Some(row) = rows.iter().find(|row| row.name == name || row.name == stem) else {
            strange.push(name.to_owned());
            continue;
        };
        let matchers =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(matchers, _)| matchers);
        for matcher in matchers.split(',').filter(|matcher| !matcher.is_empty()) {
            let (label, value) = matcher.split_once('=').expect("a matcher");
            let values = row.labels.iter().find(|(name, _)| *name == label).map(|(_, values)| values);
            let asked = value.trim_start_matches('~').trim_matches('"');
            let is_known = |value: &str| values.is_some_and(|known| known.is_empty() || known.contains(&value));
            if !asked.starts_with('$') && !asked.split('|').all(is_known) {
                strange.push(format!("{name}{{{matcher}}}"));
            }
        }
    }
    if seen == 0 {
        strange.push(format!("no figure at all: {expression}"));
    }
    strange
}
