//! The server: where its URL comes from, and the connection.

use crate::status::{Failure, USAGE, say};
use redis_dlock::{DLockGenerator, Error, RedisLockProcessor};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const VARIABLE: &str = "DLOCK_URL";

/// The pauses between two attempts to connect to a server that is away.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

/// Connects. A server that is away may come back, so it is waited for, without a limit, and that is said once.
pub(crate) fn wait_for(url: &str) -> Result<RedisLockProcessor, Error> {
    let mut pause = *PAUSES.start();
    loop {
        let connected = RedisLockProcessor::connect(url);
        match &connected {
            Err(error) if error.is_transient() => {
                if pause == *PAUSES.start() {
                    say(&format!("{error}: waiting for the server"));
                }
                thread::sleep(pause);
                pause = (pause * 2).min(*PAUSES.end());
            }
            _ => return connected,
        }
    }
}

/// Connects for questions. Nothing is written that says so.
pub(crate) fn connect(argument: Option<&str>) -> Result<DLockGenerator, Failure> {
    asking(RedisLockProcessor::connect(&url(argument)?)?)
}

/// The same, once the server is there.
pub(crate) fn connect_when_there(argument: Option<&str>) -> Result<DLockGenerator, Failure> {
    asking(wait_for(&url(argument)?)?)
}

fn asking(store: RedisLockProcessor) -> Result<DLockGenerator, Failure> {
    Ok(DLockGenerator::builder().client_record(false).build(store)?)
}

/// Finds the URL: the argument, else the environment variable, else the configuration file. No message of a failure contains it.
pub(crate) fn url(argument: Option<&str>) -> Result<String, Failure> {
    if let Some(url) = argument {
        return Ok(url.to_owned());
    }
    match env::var_os(VARIABLE).filter(|url| !url.is_empty()).map(OsString::into_string) {
        Some(Ok(url)) => return Ok(url),
        Some(Err(_)) => return Err(Failure::new(USAGE, format!("{VARIABLE} is no UTF-8: give a URL"))),
        None => {}
    }
    let file = file(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
    let found = file.as_deref().map_or(Ok(None), from_file)?;
    found.ok_or_else(|| {
        let place = file.map_or_else(|| "~/.config/dlock/config".to_owned(), |file| file.display().to_string());
        Failure::new(
            USAGE,
            format!("no server: give --url, set {VARIABLE}, or write a line `url = redis://…` into {place}"),
        )
    })
}

/// The configuration file. The XDG specification ignores relative paths.
fn file(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute(config_home).or_else(|| Some(absolute(home)?.join(".config")))?;
    Some(directory.join("dlock").join("config"))
}

fn from_file(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|wrong| Failure::new(USAGE, format!("{}, {wrong}", path.display()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Failure::new(USAGE, format!("cannot read {}: {error}", path.display()))),
    }
}

/// Reads lines `url = …`, comments, and empty lines. An error names the line, and does not repeat it: it may contain a password.
fn parse(text: &str) -> Result<Option<String>, String> {
    let mut url = None;
    for (n, line) in text.lines().enumerate() {
        let (n, line) = (n + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("url", "")) => return Err(format!("line {n}: the URL is missing: write `url = redis://…`")),
            Some(("url", _)) if url.is_some() => return Err(format!("line {n}: there is a second `url`: leave one")),
            Some(("url", value)) => url = Some(value.to_owned()),
            _ => return Err(format!("line {n}: write `url = redis://…`, or begin a comment with #")),
        }
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_one_url_and_comments() {
        assert_eq!(parse("# ours\n\n  url=redis://a:p=w@h/0  \n"), Ok(Some("redis://a:p=w@h/0".to_owned())));
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        for (text, line) in [
            ("url = x\nlease = 3s-secret\n", "line 2"),
            ("redis://u:secret@h", "line 1"),
            ("\nurl =\n", "line 2"),
            ("url = redis://u:secret@h\nurl = x", "line 2"),
        ] {
            let wrong = parse(text).expect_err("it is wrong");
            assert!(wrong.starts_with(line) && !wrong.contains("secret"), "{wrong}");
        }
    }

    #[test]
    fn the_place_is_that_of_the_specification() {
        let place = |config: Option<&str>, home: Option<&str>| file(config.map(Into::into), home.map(Into::into));
        assert_eq!(place(Some("/c"), Some("/h")), Some("/c/dlock/config".into()));
        assert_eq!(place(Some("c"), Some("/h")), Some("/h/.config/dlock/config".into()));
        assert_eq!(place(None, Some("/h")), Some("/h/.config/dlock/config".into()));
        assert_eq!(place(None, None), None);
    }
}
