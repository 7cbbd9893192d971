//! What a run has found out: tables, targets and pictures, as Markdown.

use std::fmt::{Display, Write};
use std::fs;
use std::path::{Path, PathBuf};

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

impl Limit {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

struct Target {
    what: String,
    limit: Limit,
    value: f64,
}

/// What one experiment has found out.
pub(crate) struct Section {
    text: String,
    targets: Vec<Target>,
}

impl Section {
    pub(crate) fn new(title: &str) -> Self {
        Self { text: format!("## {title}\n"), targets: Vec::new() }
    }

    pub(crate) fn paragraph(&mut self, text: impl Display) {
        writeln!(self.text, "\n{text}").unwrap();
    }

    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        writeln!(self.text, "\n| {} |\n|{}", header.join(" | "), "---|".repeat(header.len())).unwrap();
        rows.iter().for_each(|row| writeln!(self.text, "| {} |", row.join(" | ")).unwrap());
    }

    pub(crate) fn target(&mut self, what: impl Into<String>, limit: Limit, value: f64) {
        self.targets.push(Target { what: what.into(), limit, value });
    }

    pub(crate) fn picture(&mut self, file: &str, what: &str) {
        writeln!(self.text, "\n![{what}]({file})").unwrap();
    }
}

/// The whole run. Prints as it goes, and writes itself to a file after every experiment.
pub(crate) struct Report {
    directory: PathBuf,
    head: String,
    sections: Vec<Section>,
}

impl Report {
    pub(crate) fn new(directory: &Path, head: String) -> Self {
        fs::create_dir_all(directory).unwrap();
        println!("{head}");
        Self { directory: directory.to_owned(), head, sections: Vec::new() }
    }

    pub(crate) fn add(&mut self, mut section: Section) {
        if !section.targets.is_empty() {
            let rows: Vec<_> = section.targets.iter().map(Target::row).collect();
            section.table(&["target", "limit", "measured", "met"], &rows);
        }
        println!("\n{}", section.text);
        self.sections.push(section);
        fs::write(self.directory.join("report.md"), self.text()).unwrap();
    }

    fn text(&self) -> String {
        let mut text = self.head.clone();
        let missed: Vec<_> =
            self.sections.iter().flat_map(|section| &section.targets).filter(|t| !t.is_met()).collect();
        let all: usize = self.sections.iter().map(|section| section.targets.len()).sum();
        writeln!(text, "\n\n{} of {all} targets are met. Missed:\n", all - missed.len()).unwrap();
        missed.iter().for_each(|t| writeln!(text, "* {}: {}, measured {}", t.what, t.limit, number(t.value)).unwrap());
        self.sections.iter().for_each(|section| write!(text, "\n{}", section.text).unwrap());
        text
    }
}

impl Target {
    fn is_met(&self) -> bool {
        self.limit.is_met_by(self.value)
    }

    fn row(&self) -> Vec<String> {
        let met = if self.is_met() { "yes" } else { "**no**" };
        vec![self.what.clone(), self.limit.to_string(), number(self.value), met.to_owned()]
    }
}

/// A figure with as many digits as say something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        x if x >= 1000.0 => format!("{value:.0}"),
        x if x >= 100.0 => format!("{value:.1}"),
        x if x >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
