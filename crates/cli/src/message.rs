//! Messages on standard error: as text, or as JSON.

pub(crate) mod queue;

use clap::ValueEnum;
use log::Level;
use redis_dlock::{DelayedRelease, Party};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The format of messages on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Finds `--log-format` among the arguments. Call it before anything else: an error about the arguments is a message, too, and the helper processes
/// begin before the arguments are read.
pub(crate) fn read_format(arguments: impl Iterator<Item = OsString>) {
    let _ = FORMAT.set(format_of(arguments));
}

fn format_of(arguments: impl Iterator<Item = OsString>) -> LogFormat {
    const OPTION: &str = "--log-format";
    // The words behind `--` are the command and its arguments.
    let mut words = arguments.take_while(|word| word != "--");
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        let value = match word.strip_prefix(OPTION) {
            Some("") => words.next().map(|value| value.to_string_lossy().into_owned()),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        if let Some(Ok(format)) = value.map(|value| LogFormat::from_str(&value, false)) {
            return format;
        }
    }
    LogFormat::Text
}

/// Removes the login from a URL in a text: `redis://…@host`. A password may have any character, so all goes up to the last `@` of a line.
pub(crate) fn without_logins(text: &str) -> String {
    let line = |line: &str| match (line.find("://"), line.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://…{}", &line[..scheme], &line[at..]),
        _ => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// The key of the lock that the arguments name.
static LOCK: OnceLock<String> = OnceLock::new();

/// Notes which lock the messages are about.
pub(crate) fn are_about(key: String) {
    let _ = LOCK.set(key);
}

/// Prints a warning: something is wrong, or takes long, and `dlock` goes on.
pub(crate) fn say(message: &str) {
    tell(Level::Warn, message, None);
}

/// Prints information about a step.
pub(crate) fn inform(message: &str, holder: Option<&HolderFields>) {
    tell(Level::Info, message, holder);
}

/// Prints an error.
pub(crate) fn complain(message: &str) {
    tell(Level::Error, message, None);
}

/// Prints a message. Does nothing if nobody can read it.
pub(crate) fn tell(level: Level, message: &str, holder: Option<&HolderFields>) {
    if let Some(line) = queue::take(line(level, message, holder)) {
        write(&line);
    }
}

/// Prints the message with which this process ends, and waits for a reader that stands still. Nothing is at stake any more.
pub(crate) fn tell_at_the_end(level: Level, message: &str, holder: Option<&HolderFields>) {
    queue::finish();
    write(&line(level, message, holder));
}

fn line(level: Level, message: &str, holder: Option<&HolderFields>) -> String {
    match FORMAT.get() {
        Some(LogFormat::Json) => document(level, message, holder) + "\n",
        _ => format!("dlock: {message}\n"),
    }
}

/// Writes a line at once, so that messages of several processes do not mix.
fn write(line: &str) {
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Returns the message as a document, with the known fields of its subject.
fn document(level: Level, message: &str, holder: Option<&HolderFields>) -> String {
    let mut document = json!({
        "time": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        "level": level.as_str().to_ascii_lowercase(),
        "program": "dlock",
        "pid": std::process::id(),
        "message": message,
    });
    let fields = [
        ("lock", LOCK.get()),
        ("holder", holder.map(|holder| &holder.locker)),
        ("host", holder.and_then(|holder| holder.host.as_ref())),
        ("reason", holder.and_then(|holder| holder.reason.as_ref())),
    ];
    for (name, text) in fields {
        if let Some(text) = text {
            document[name] = text.as_str().into();
        }
    }
    document.to_string()
}

/// The present or last holder of a lock, for the fields of a message.
#[derive(Debug)]
pub(crate) struct HolderFields {
    locker: String,
    host: Option<String>,
    reason: Option<String>,
}

impl HolderFields {
    /// A holder of which only the locker is known.
    pub(crate) fn of(locker: String) -> Self {
        Self { locker, host: None, reason: None }
    }
}

impl From<&Party> for HolderFields {
    fn from(party: &Party) -> Self {
        let host = party.client.as_ref().and_then(|client| client.host.clone());
        let reason = party.told.as_ref().and_then(|told| told.reason.clone());
        Self { locker: party.locker.clone(), host, reason }
    }
}

impl From<&DelayedRelease> for HolderFields {
    fn from(ended: &DelayedRelease) -> Self {
        Self { locker: ended.locker.clone(), host: ended.host.clone(), reason: ended.reason.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_not_shown_wherever_it_stands() {
        for (text, shown) in [
            ("invalid value 'redis://u:secret@h' for x: no", "invalid value 'redis://…@h' for x: no"),
            ("a\n  'consul://secret@h'\nb://c", "a\n  'consul://…@h'\nb://c"),
            ("x://u:sec ret' @x://secret@h\n", "x://…@h\n"),
            ("an @ before redis://h", "an @ before redis://h"),
            ("no URL", "no URL"),
        ] {
            assert_eq!(without_logins(text), shown);
        }
    }

    #[test]
    fn the_format_is_found_before_the_arguments_are_read() {
        let format = |line: &str| format_of(line.split(' ').map(OsString::from));
        for json in ["dlock --log-format json ls", "dlock ls --log-format=json"] {
            assert_eq!(format(json), LogFormat::Json, "{json}");
        }
        for text in [
            "dlock ls",
            "dlock run JOB x -- a --log-format json",
            "dlock ls --log-format",
            "dlock --log-format text ls",
        ] {
            assert_eq!(format(text), LogFormat::Text, "{text}");
        }
    }
}
