//! Reads JVM DLock's `config-dlock.properties`: a default lease, in milliseconds, for each lock type.
//!
//! The syntax is that of `java.util.Properties`: `type=lease`, with `=`, `:` or white space as the separator. `#` and `!` begin
//! comments. A backslash at the end continues a line. `\t \n \r \f \uXXXX` and backslashed characters are escapes. The file is
//! read as UTF-8 (Java reads ISO 8859-1; the two agree on ASCII).

use crate::config::check_lease;
use crate::error::Error;
use crate::log;
use crate::one_line::OneLine;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Default leases by lock type.
pub(crate) type Leases = HashMap<String, Duration>;

const WHAT: &str = "properties";

/// Reads a properties file. Fails with [`Error::InvalidConfig`], which names the file, or its first wrong line.
pub(crate) fn read(path: &Path) -> Result<Leases, Error> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| {
        Error::invalid_config(
            "properties file",
            name.clone(),
            format!("it cannot be read: {e}; give the path of a readable file"),
        )
    })?;
    let text = String::from_utf8(bytes).map_err(|e| {
        Error::invalid_config("properties file", name.clone(), format!("it is not UTF-8 ({e}); save it as UTF-8"))
    })?;
    parse(&text, &name)
}

/// Parses the text of a properties file; `name` is for messages. Fails with [`Error::InvalidConfig`], which names the first wrong line.
pub(crate) fn parse(text: &str, name: &str) -> Result<Leases, Error> {
    // Some editors begin a file with a byte order mark. It is no part of the first type.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut leases = Leases::new();
    for (number, line) in logical_lines(text) {
        let wrong = |hint: String| Error::invalid_config(WHAT, line.clone(), format!("{name}, line {number}: {hint}"));
        let (lock_type, value) = split(&line).ok_or_else(|| wrong("an escape \\uXXXX needs four hex digits".into()))?;
        if lock_type.is_empty() {
            return Err(wrong("the lock type is missing; write type=milliseconds".into()));
        }
        let value = value.trim_end();
        let millis: i64 = value.parse().map_err(|_| {
            wrong(format!("{value:?} is not a whole number; write type=milliseconds, such as ORDER=30000"))
        })?;
        let millis = u64::try_from(millis)
            .map_err(|_| wrong(format!("the lease {value} is negative; give one from 20 ms to 2147483647 ms")))?;
        let lease = Duration::from_millis(millis);
        check_lease(lease)
            .map_err(|_| wrong(format!("the lease {lease:?} is out of range; give one from 20 ms to 2147483647 ms")))?;
        if leases.insert(lock_type.clone(), lease).is_some() {
            log::warn!(
                CONFIG,
                "{}, line {number}: the lock type {lock_type:?} is set twice; the last line counts",
                OneLine(name)
            );
        }
    }
    Ok(leases)
}

/// Returns the logical lines: comments and blank lines dropped, continuations joined, each with the number of its first natural
/// line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, natural) in text.lines().enumerate() {
        let start = natural.trim_start_matches(is_blank);
        if open.is_none() && (start.is_empty() || start.starts_with(['#', '!'])) {
            continue;
        }
        let (number, mut line) = open.take().unwrap_or((index + 1, String::new()));
        let backslashes = start.len() - start.trim_end_matches('\\').len();
        if backslashes % 2 == 1 {
            line.push_str(&start[..start.len() - 1]);
            open = Some((number, line));
        } else {
            line.push_str(start);
            lines.push((number, line));
        }
    }
    lines.extend(open);
    lines
}

/// Splits a logical line into its key and value, unescaped. `None` for a malformed `\u`.
fn split(line: &str) -> Option<(String, String)> {
    let mut escaped = false;
    let end = line.find(|c| {
        let literal = escaped;
        escaped = c == '\\' && !literal;
        !literal && (is_blank(c) || c == '=' || c == ':')
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    Some((unescape(key)?, unescape(rest.trim_start_matches(is_blank))?))
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            None => {}
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let mut code = 0;
                for _ in 0..4 {
                    code = code * 16 + chars.next()?.to_digit(16)?;
                }
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => out.push(other),
        }
    }
    Some(out)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

#[cfg(test)]
#[path = "../../tests/white_box/lock/properties.rs"]
mod tests;
