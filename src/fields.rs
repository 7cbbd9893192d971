//! What clients tell one another and keep in the store for people: `name=value` pairs, separated by spaces, in one line of bounded length.
//!
//! In a value, white space, control characters and `%` are written as `%` and two hexadecimal digits for each byte. Whoever reads such a
//! line expects anything in it: anybody with the rights of a client may have written it.

use crate::one_line::OneLine;
use std::fmt::{Display, Write};

/// The longest line, in bytes.
pub(crate) const MOST: usize = 1024;

/// The longest text that is read from a value, in characters.
const MOST_TEXT: usize = 512;

/// A line that is being written.
#[derive(Debug, Default)]
pub(crate) struct Fields(String);

impl Fields {
    /// Adds a value, if there is one and it fits.
    pub(crate) fn put(&mut self, name: &str, value: Option<impl Display>) {
        let Some(value) = value else { return };
        let before = self.0.len();
        self.begin(name);
        for c in value.to_string().chars() {
            push(&mut self.0, c);
        }
        if self.0.len() > MOST {
            self.0.truncate(before);
        }
    }

    /// Adds as much of a text as fits into this many bytes. A text that is cut ends with `…`.
    pub(crate) fn put_text(&mut self, name: &str, text: Option<&str>, most: usize) {
        const CUT: char = '…';
        let Some(text) = text else { return };
        let before = self.0.len();
        self.begin(name);
        let end = (self.0.len() + most).min(MOST.saturating_sub(CUT.len_utf8()));
        if self.0.len() >= end {
            return self.0.truncate(before);
        }
        for c in text.chars() {
            let at = self.0.len();
            push(&mut self.0, c);
            if self.0.len() > end {
                self.0.truncate(at);
                self.0.push(CUT);
                return;
            }
        }
    }

    /// Returns whether a text of this many bytes would not be cut for want of room.
    pub(crate) fn has_room(&self, name: &str, most: usize) -> bool {
        self.0.len() + " ".len() + name.len() + "=".len() + most + "…".len() <= MOST
    }

    fn begin(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(name);
        self.0.push('=');
    }

    pub(crate) fn into_line(self) -> String {
        self.0
    }
}

fn push(line: &mut String, c: char) {
    if c.is_whitespace() || c.is_control() || c == '%' {
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a `String` cannot fail.
            let _ = write!(line, "%{byte:02x}");
        }
    } else {
        line.push(c);
    }
}

/// Reads a line. Each value is one line of text that is safe to show. A line that is too long has no fields.
pub(crate) fn read(line: &str) -> impl Iterator<Item = (&str, String)> {
    let line = if line.len() <= MOST { line } else { "" };
    line.split(' ').filter_map(|field| field.split_once('=')).map(|(name, value)| (name, shown(value)))
}

fn shown(value: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OneLine(String::from_utf8_lossy(&bytes).chars().take(MOST_TEXT).collect::<String>()).to_string()
}

#[cfg(test)]
#[path = "../tests/white_box/fields.rs"]
mod tests;
