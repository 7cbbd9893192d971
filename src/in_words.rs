//! Who holds a lock and who waits for it, in words: each is a part of one line.

use crate::description::{DelayedRelease, Party};
use crate::one_line::OneLine;
use std::fmt;
use std::time::Duration;

/// Shows the locker, and as far as they are known the process, how long it holds the lock or waits for it, and the reason: for a line such as
/// `held by {party}`.
impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&locker(&self.locker))?;
        if let Some(client) = &self.client {
            write!(f, ": {}", process(client.program.as_deref(), client.pid, client.host.as_deref()))?;
        }
        let Some(told) = &self.told else { return Ok(()) };
        // A client that still asks may be in the key already, and holds nothing then.
        match (told.held_for, told.first_waits_for) {
            (Some(held), _) => write!(f, ", for {}", time(held))?,
            (None, Some(waits)) => write!(f, ", waiting for {}", time(waits))?,
            (None, None) => {}
        }
        f.write_str(&reason(told.reason.as_deref()))
    }
}

/// Shows the process, the name of the hold, how long the hold lasted, and the reason: for a line such as `held last by {release}`.
impl fmt::Display for DelayedRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&process(self.program.as_deref(), self.pid, self.host.as_deref()))?;
        if let Some(name) = &self.holder_name {
            write!(f, ", {}", OneLine(name))?;
        }
        write!(f, ", in {}{}", time(self.held_for), reason(self.reason.as_deref()))
    }
}

/// Returns what a key contains, in quotation marks if that is a locker.
pub(crate) fn locker(text: &str) -> String {
    match DelayedRelease::of_locker(text) {
        Some(ended) => format!("nobody: held last by {ended}"),
        None => format!("{text:?}"),
    }
}

fn process(program: Option<&str>, pid: Option<u32>, host: Option<&str>) -> String {
    let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    format!("{} (pid {pid}) on {}", OneLine(program.unwrap_or("?")), OneLine(host.unwrap_or("?")))
}

fn reason(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({})", OneLine(reason)))
}

/// Returns a time as people write it: to a millisecond below ten seconds, to a second above.
fn time(time: Duration) -> String {
    const UNITS: [(&str, u128); 5] = [("day", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut left = time.as_millis();
    if left >= 10_000 {
        left -= left % 1_000;
    }
    let mut words = Vec::new();
    for (unit, length) in UNITS {
        let (count, plural) = (left / length, if unit == "day" && left / length > 1 { "s" } else { "" });
        left %= length;
        if count > 0 {
            words.push(format!("{count}{unit}{plural}"));
        }
    }
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
#[path = "../tests/white_box/in_words.rs"]
mod tests;
