//! Unit tests of `src/one_line.rs`.

use super::*;

#[test]
fn nothing_breaks_the_line_or_turns_it_round() {
    let words = "ERR 'a' \"b\" \\ é 名\r\nWARN\u{1b}[2J\0\u{85}\u{2028}\u{202e}\u{7f}";
    let shown = OneLine(words).to_string();
    assert!(!shown.contains(|c: char| c.is_control() || "\u{2028}\u{202e}".contains(c)), "{shown}");
    assert!(shown.starts_with("ERR 'a' \"b\" \\ é 名\\r\\nWARN\\u{1b}"), "{shown}");
    assert_eq!(OneLine(shown.as_str()).to_string(), shown, "what is escaped stays as it is");
}
