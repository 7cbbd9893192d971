//! Words of others (a server, a peer's certificate, a path, a caller's reason) as they may stand in a message: on one line.
//!
//! Whoever writes a line break, a terminal's escape sequence or a character that turns the reading direction into an error reply or a
//! holder's value would else write lines of their own into the log. Names and values are shown by `{:?}`, which escapes the same characters.

use std::fmt;

/// Shows a text with the characters escaped that have no shape of their own; quotes and backslashes stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Write::write_fmt(&mut Escaping(f), format_args!("{}", self.0))
    }
}

/// Escapes what is written through it.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_plain(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", c.escape_debug())?;
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// What is left as it is; of other alphabets, `escape_debug` leaves alone what has a shape.
fn is_plain(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_the_line_or_turns_it_round() {
        let words = "ERR 'a' \"b\" \\ é 名\r\nWARN\u{1b}[2J\0\u{85}\u{2028}\u{202e}\u{7f}";
        let shown = OneLine(words).to_string();
        assert!(!shown.contains(|c: char| c.is_control() || "\u{2028}\u{202e}".contains(c)), "{shown}");
        assert!(shown.starts_with("ERR 'a' \"b\" \\ é 名\\r\\nWARN\\u{1b}"), "{shown}");
        assert_eq!(OneLine(shown.as_str()).to_string(), shown, "what is escaped stays as it is");
    }
}
