//! The files that the manual's page of recipes shows. Tests and `build.rs` take them from there.

const PAGE: &str = include_str!("../../src/manual/recipes.md");

/// The block of the page that contains this line, as a file.
pub(crate) fn file(line: &str) -> &'static str {
    // Prose and blocks alternate.
    let blocks = PAGE.split("\n```").skip(1).step_by(2);
    let found = blocks.filter_map(|block| block.split_once('\n')).find(|(_, text)| text.lines().any(|is| is == line));
    found.unwrap_or_else(|| panic!("no block of the page has the line {line:?}")).1
}
