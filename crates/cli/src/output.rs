//! What is printed for people and for programs.

use crate::status::{self, Failure};
use anstream::AutoStream;
use comfy_table::{CellAlignment, Table, presets};
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Prints a text, with its colours if the output is a terminal that shows them. Returns whether somebody reads on: a reader that has gone
/// away is no failure.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    write_to(AutoStream::auto(io::stdout().lock()), text.as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn write(bytes: &[u8]) -> Result<bool, Failure> {
    write_to(io::stdout().lock(), bytes)
}

fn write_to(mut out: impl Write, bytes: &[u8]) -> Result<bool, Failure> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("cannot write the output", error)),
    }
}

/// Says what has failed, and returns the status.
pub(crate) fn end(outcome: Result<u8, Failure>) -> u8 {
    outcome.unwrap_or_else(|failure| {
        status::say(&failure.message);
        failure.status
    })
}

/// A table with a head. The first two columns are texts, the others numbers.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    table.add_rows(rows);
    for (n, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if n > 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

/// A text of somebody else's, in which nothing moves the cursor or begins a new line.
pub(crate) fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Whether a character changes the direction of those after it, or begins a line for some terminals.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A time as people write it: to a millisecond below ten seconds, to a second above.
pub(crate) fn time(time: Duration) -> String {
    let whole = if time < Duration::from_secs(10) {
        Duration::from_millis(millis(time))
    } else {
        Duration::from_secs(time.as_secs())
    };
    humantime::format_duration(whole).to_string()
}

/// A time as programs read it: whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The part of a text that the terminal has room for: a line that is left out would scroll the first one away.
pub(crate) fn fit(text: &str) -> String {
    let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else { return text.to_owned() };
    fit_into(text, size.ws_row.into(), size.ws_col.into())
}

fn fit_into(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    // A terminal that does not know its size says zero.
    let (rows, columns) =
        (if rows < 2 { usize::MAX } else { rows - 1 }, if columns == 0 { usize::MAX } else { columns });
    let cut = |line: &&str| format!("{}\n", line.chars().take(columns).collect::<String>());
    if lines.len() <= rows {
        return lines.iter().map(cut).collect();
    }
    let shown: String = lines[..rows - 1].iter().map(cut).collect();
    format!("{shown}… and {} more lines\n", lines.len() - (rows - 1))
}

/// A text that takes the place of what the terminal shows.
pub(crate) fn over(text: &str) -> String {
    const HOME: &str = "\x1b[H";
    const END_LINE: &str = "\x1b[K\n";
    const END_SCREEN: &str = "\x1b[J";
    format!("{HOME}{}{END_SCREEN}", text.replace('\n', END_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_somebody_else_stays_on_its_line() {
        assert_eq!(one_line("a\nb\x1b[2J\u{9b}é\u{202e}c"), "a\\nb\\u{1b}[2J\\u{9b}é\\u{202e}c");
    }

    #[test]
    fn times_are_as_exact_as_people_need() {
        for (micros, said) in [(0, "0s"), (1_234_567, "1s 234ms"), (75_999_999, "1m 15s")] {
            assert_eq!(time(Duration::from_micros(micros)), said);
        }
    }

    #[test]
    fn a_page_fits_the_terminal() {
        assert_eq!(fit_into("abc\ndef\n", 3, 2), "ab\nde\n");
        assert_eq!(fit_into("a\nb\nc\nd\n", 4, 80), "a\nb\n… and 2 more lines\n");
        assert_eq!(fit_into("a\nb\n", 0, 0), "a\nb\n");
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let rows = [["é", "x", "1"], ["long", "y", "10"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["A", "B", "N"], rows.into_iter()), "A     B   N\né     x   1\nlong  y  10\n");
    }
}
