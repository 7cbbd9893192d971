//! The configuration file.

use super::{Reach, Rules};
use crate::status::{Failure, USAGE};
use clap::Parser;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The contents of the file: each line is an option without its dashes.
#[derive(Debug, Default, Parser)]
#[command(name = "dlock", no_binary_name = true, disable_help_flag = true)]
pub(super) struct FileSettings {
    #[command(flatten)]
    pub(super) reach: Reach,
    #[command(flatten)]
    pub(super) rules: Rules,
}

/// The path of the configuration file. The XDG specification ignores relative paths.
pub(super) fn place(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute(config_home).or_else(|| Some(absolute(home)?.join(".config")))?;
    Some(directory.join("dlock").join("config"))
}

pub(super) fn read(path: &Path) -> Result<FileSettings, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|wrong| Failure::new(USAGE, format!("{}, {wrong}", path.display()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(FileSettings::default())
        }
        Err(error) => Err(Failure::new(USAGE, format!("cannot read {}: {error}", path.display()))),
    }
}

/// Reads lines `url = …`, `lock-delay = 5s` and the like, comments, and empty lines. An error names the line. It repeats no line that may contain
/// a password.
fn parse(text: &str) -> Result<FileSettings, String> {
    if text.starts_with('\u{feff}') {
        return Err("line 1: the file begins with a byte order mark: save it without one".to_owned());
    }
    let mut words = Vec::<String>::new();
    for (n, line) in text.lines().enumerate() {
        let (n, line) = (n + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
            return Err(format!("line {n}: write `url = redis://…`, or begin a comment with #"));
        };
        if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') || name.is_empty() {
            return Err(format!("line {n}: write `url = redis://…`, or begin a comment with #"));
        }
        if value.is_empty() {
            let example = if name == "url" { "redis://…" } else { "…" };
            return Err(format!("line {n}: the value is missing: write `{name} = {example}`"));
        }
        if value.starts_with(['"', '\'']) {
            return Err(format!("line {n}: the value of `{name}` stands in quotation marks: leave them out"));
        }
        let option = format!("--{name}=");
        if words.iter().any(|word| word.starts_with(&option)) {
            return Err(format!("line {n}: there is a second `{name}`: leave one"));
        }
        let word = option + value;
        if let Err(wrong) = FileSettings::try_parse_from([&word]) {
            let wrong = wrong.render().to_string();
            let wrong = wrong.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Err(match wrong.starts_with("unexpected argument") {
                true => format!(
                    "line {n}: {name:?} is no setting: see `dlock run --help` for those of the server and the lock"
                ),
                false => format!("line {n}: {wrong}"),
            });
        }
        words.push(word);
    }
    FileSettings::try_parse_from(words).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_file_has_one_url_settings_and_comments() {
        let url = |text: &str| {
            let told = parse(text)?;
            assert!(!format!("{told:?}").contains("p=w"), "{told:?}");
            Ok::<_, String>(told.reach.url.as_deref().map(str::to_owned))
        };
        assert_eq!(url("# ours\n\n  url=redis://a:p=w@h/0  \n"), Ok(Some("redis://a:p=w@h/0".to_owned())));
        assert_eq!(url(""), Ok(None));
        let told = parse("replica-acks = 2\nlock-delay = 5\naddress-map = a=b, c:1=d:2\nca = /x y").expect("settings");
        assert_eq!((told.reach.replica_acks, told.rules.lock_delay), (Some(2), Some(Duration::from_secs(5))));
        assert_eq!((told.reach.address_map.len(), told.reach.ca), (2, Some("/x y".into())));
    }

    #[test]
    fn a_wrong_line_is_named_and_no_url_is_shown() {
        for (text, line) in [
            ("url = x\nlease = 3s\n", "line 2: \"lease\" is no setting"),
            ("redis://u:secret@h", "line 1"),
            ("redis://u:secret@h/x=y", "line 1"),
            ("\nurl =\n", "line 2"),
            ("url = redis://u:secret@h\nurl = x", "line 2: there is a second `url`"),
            ("io-timeout = soon", "line 1: invalid value 'soon' for '--io-timeout"),
            ("replica-acks = two", "line 1: invalid value 'two' for '--replica-acks"),
            ("\u{feff}url = redis://u:secret@h", "line 1: the file begins with a byte order mark"),
            ("url = \"redis://u:secret@h\"", "line 1: the value of `url` stands in quotation marks"),
            ("ca = '/x y'", "line 1: the value of `ca` stands in quotation marks"),
            ("address-map = here", "line 1: invalid value 'here' for '--address-map"),
        ] {
            let wrong = parse(text).expect_err("it is wrong");
            assert!(wrong.starts_with(line) && !wrong.contains("secret"), "{wrong}");
        }
    }

    #[test]
    fn the_place_is_that_of_the_specification() {
        let place = |config: Option<&str>, home: Option<&str>| place(config.map(Into::into), home.map(Into::into));
        assert_eq!(place(Some("/c"), Some("/h")), Some("/c/dlock/config".into()));
        assert_eq!(place(Some("c"), Some("/h")), Some("/h/.config/dlock/config".into()));
        assert_eq!(place(None, Some("/h")), Some("/h/.config/dlock/config".into()));
        assert_eq!(place(None, None), None);
    }
}
