//! Text from others (a server, a peer's certificate, a path, a caller's reason), escaped so that a message stays on one line.
//!
//! Otherwise, somebody who puts a line break, a terminal's escape sequence or a character that reverses the reading direction
//! into an error reply or a holder's value could write their own lines into the log. Names and values are shown with `{:?}`,
//! which escapes the same characters.

use std::fmt;

/// Displays a text with its unprintable characters escaped. Quotes and backslashes stay as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Write::write_fmt(&mut Escaping(f), format_args!("{}", self.0))
    }
}

/// Escapes all text that is written through it.
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

/// Returns `true` for characters that are written unchanged. `escape_debug` decides about all others, and leaves the printable
/// ones of other alphabets unchanged.
fn is_plain(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic()
}

#[cfg(test)]
#[path = "../tests/white_box/one_line.rs"]
mod tests;
