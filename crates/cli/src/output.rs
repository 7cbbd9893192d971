//! The output for people and for programs.

use crate::status::Failure;
use anstream::AutoStream;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Prints a text, with its colours if the output is a terminal that shows them. Returns whether somebody still reads: a reader that has gone away is
/// no failure.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    const ESCAPE: char = '\x1b';
    // Where `AutoStream` removes colours, it removes U+007F, too, which a name in JSON may contain. JSON has no colours.
    if text.contains(ESCAPE) {
        write_to(AutoStream::auto(io::stdout().lock()), text.as_bytes())
    } else {
        write(text.as_bytes())
    }
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

/// Prints the failure, if there is one, and returns the status.
pub(crate) fn end(outcome: Result<u8, Failure>) -> u8 {
    outcome.unwrap_or_else(|failure| failure.tell())
}

/// A table that is printed in parts. The first two columns are texts. The others are numbers, and aligned to the right.
pub(crate) struct Columns<const N: usize> {
    /// The head of the table. The first lines take it.
    head: Option<[&'static str; N]>,
    /// The present width of each column. A later part may widen it.
    widths: [usize; N],
    /// The greatest width of a line.
    most: usize,
}

/// The space between two columns.
const GAP: usize = 2;

/// The least width to which a text is cut.
const LEAST: usize = 12;

impl<const N: usize> Columns<N> {
    pub(crate) fn new(head: [&'static str; N]) -> Self {
        Self { head: Some(head), widths: head.map(|name| name.width()), most: usize::MAX }
    }

    /// Cuts the texts of longer lines: first the second column, as far as it may be cut.
    pub(crate) fn within(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Returns whether the next lines are the first ones.
    pub(crate) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Returns the next lines. The first ones have the head above them.
    pub(crate) fn lines(&mut self, rows: impl Iterator<Item = [String; N]>) -> String {
        let rows: Vec<_> = rows.collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let mut room = self.widths;
        let mut too_much = (room.iter().sum::<usize>() + GAP * (N - 1)).saturating_sub(self.most);
        for text in [1, 0] {
            let less = too_much.min(room[text].saturating_sub(LEAST));
            room[text] -= less;
            too_much -= less;
        }
        let line = |cells: [&str; N]| {
            let cell = |(n, cell): (usize, &str)| {
                let cell = cut(cell, room[n]);
                let space = " ".repeat(room[n].saturating_sub(cell.width()));
                if n > 1 { space + &cell } else { cell + &space }
            };
            let cells: Vec<_> = cells.into_iter().enumerate().map(cell).collect();
            format!("{}\n", cells.join(&" ".repeat(GAP)).trim_end())
        };
        let head = self.head.take().map_or_else(String::new, line);
        head + &rows.iter().map(|row| line(row.each_ref().map(String::as_str))).collect::<String>()
    }
}

/// A text without its middle, if it is too wide.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut head, mut tail) = (String::new(), String::new());
    let (mut from_start, mut from_end) = (text.chars(), text.chars().rev());
    while let Some(next) = if head.width() <= tail.width() { from_start.next() } else { from_end.next() } {
        if head.width() + tail.width() + next.width().unwrap_or(0) + 1 > width {
            break;
        }
        if head.width() <= tail.width() { head.push(next) } else { tail.insert(0, next) }
    }
    format!("{head}…{tail}")
}

/// Escapes what moves the cursor or begins a new line in a text that another program has written.
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

/// How many rows and columns the terminal has. A terminal that does not know its size counts as unlimited.
pub(crate) fn size() -> (usize, usize) {
    let size =
        rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_row.into(), size.ws_col.into()));
    let known = |n: usize| if n == 0 { usize::MAX } else { n };
    (known(size.0), known(size.1))
}

/// The part of a text that fits on the terminal. A longer text would scroll the first line away.
pub(crate) fn fit(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let rows = if rows < 2 { usize::MAX } else { rows - 1 };
    let cut = |line: &&str| format!("{}\n", line.chars().take(columns).collect::<String>());
    if lines.len() <= rows {
        return lines.iter().map(cut).collect();
    }
    let shown: String = lines[..rows - 1].iter().map(cut).collect();
    format!("{shown}… and {} more lines\n", lines.len() - (rows - 1))
}

/// A text that replaces the contents of the terminal.
pub(crate) fn over(text: &str) -> String {
    const HOME: &str = "\x1b[H";
    const END_LINE: &str = "\x1b[K\n";
    const END_SCREEN: &str = "\x1b[J";
    format!("{HOME}{}{END_SCREEN}", text.replace('\n', END_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis_dlock::DelayedRelease;

    #[test]
    fn a_text_of_somebody_else_stays_on_its_line() {
        assert_eq!(one_line("a\nb\x1b[2J\u{9b}é\u{202e}c"), "a\\nb\\u{1b}[2J\\u{9b}é\\u{202e}c");
    }

    #[test]
    fn times_are_as_exact_as_people_need() {
        for (micros, said) in [(0, "0s"), (1_234_567, "1s 234ms"), (75_999_999, "1m 15s")] {
            assert_eq!(time(Duration::from_micros(micros)), said);
        }
        // The library writes times in the same way, up to a month.
        for ms in [0, 7, 9_999, 10_999, 60_000, 3_600_000, 93_784_999, 172_800_000] {
            let ended = DelayedRelease::of_locker(&format!("delayed-release locker=l-1 held={ms}")).expect("a mark");
            assert_eq!(ended.to_string(), format!("? (pid ?) on ?, in {}", time(Duration::from_millis(ms))));
        }
    }

    #[test]
    fn a_page_fits_the_terminal() {
        assert_eq!(fit("abc\ndef\n", 3, 2), "ab\nde\n");
        assert_eq!(fit("a\nb\nc\nd\n", 4, 80), "a\nb\n… and 2 more lines\n");
        assert_eq!(fit("a\nb\n", usize::MAX, usize::MAX), "a\nb\n");
    }

    #[test]
    fn columns_stand_under_their_heads_in_every_part() {
        let rows = [["é", "x", "1"], ["long", "y", "10"]].map(|row| row.map(str::to_owned));
        let mut columns = Columns::new(["A", "B", "N"]);
        assert_eq!(columns.lines(rows.into_iter()), "A     B   N\né     x   1\nlong  y  10\n");
        let later = ["a", "b", "2"].map(str::to_owned);
        assert_eq!(columns.lines([later].into_iter()), "a     b   2\n");
    }

    #[test]
    fn a_narrow_table_keeps_its_numbers() {
        let row =
            ["DLOCK_EXPORT_a_long_name_of_a_lock", "build-host-17.example.org-4711-0123456789abcdef-42", "29s", "3"];
        for most in [80, 60, 40] {
            let text = Columns::new(["LOCK", "HOLDER", "LEASE LEFT", "WAITING"])
                .within(most)
                .lines([row.map(str::to_owned)].into_iter());
            for line in text.lines() {
                assert!(line.width() <= most.max(12 + 12 + 10 + 7 + 6), "{most}: {text}");
            }
            let last = text.lines().last().expect("a row");
            assert!(last.ends_with("        29s        3"), "{most}: {text}");
            // Both ends of a name tell more than its middle.
            assert!(last.starts_with("DLOCK") && last.contains("-42 "), "{most}: {text}");
        }
        assert_eq!(cut("abcdefgh", 5), "ab…gh");
        assert_eq!(cut("日本語日本", 5), "日…本");
    }
}
