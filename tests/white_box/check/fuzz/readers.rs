//! The targets that do not concern Redis: the properties file and lockers.

use super::target::{Target, assert_plain_error};
use crate::config::check_lease;
use crate::lock::properties::{Leases, parse};
use crate::state::locker::{ClientId, may_linger};
use std::fmt::Write as _;
use std::time::Duration;

pub(super) const TARGETS: &[Target] =
    &[Target { name: "properties", check: properties }, Target { name: "locker", check: locker }];

/// Settings that are read are within the limits, and read the same after they are written down again. The error for a refused line
/// names that line.
fn properties(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(text, "a\nfile") {
        Ok(leases) => {
            assert!(leases.iter().all(|(name, lease)| !name.is_empty() && check_lease(*lease).is_ok()));
            assert_eq!(parse(&printed(&leases), "printed").expect("what was printed is read"), leases);
            let commented = parse(&format!("# comment \\\n\n! another\r\n{text}"), "commented");
            assert_eq!(commented.expect("comments change nothing"), leases);
        }
        Err(error) => {
            assert_plain_error(&error);
            let shown = error.to_string();
            let line = shown.rsplit_once("a\\nfile, line ").and_then(|(_, rest)| rest.split_once(':'));
            let line: usize = line.and_then(|(number, _)| number.parse().ok()).expect("names a line");
            assert!((1..=text.lines().count()).contains(&line), "{shown}");
        }
    }
}

/// Writes an equivalent file. Everything is escaped except letters and digits.
fn printed(leases: &Leases) -> String {
    let mut text = String::new();
    for (name, lease) in leases {
        for c in name.chars() {
            let _ = match u32::from(c) {
                _ if c.is_ascii_alphanumeric() => write!(text, "{c}"),
                code @ 0..=0xffff => write!(text, "\\u{code:04X}"),
                _ => write!(text, "\\{c}"),
            };
        }
        let _ = writeln!(text, "={}", lease.as_millis());
    }
    text
}

/// Whatever the host's name is, its lockers survive queue entries and messages. Whatever a holder's value is, it may linger only if it
/// ends as our lockers do.
fn locker(data: &[u8]) {
    let (host, holder) = data.split_at(data.iter().position(|b| *b == 0).unwrap_or(data.len()));
    let id = ClientId::of_host(&String::from_utf8_lossy(host)).expect("random bytes");
    for (linger, delay) in [(false, 0), (true, 0), (false, 60_000), (true, 1)] {
        let locker = id.next_locker(Duration::from_millis(delay), Duration::from_millis(linger.into()));
        assert!(locker.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b)), "{locker:?}");
        assert!(locker.len() < 150, "{locker:?}");
        assert_eq!(locker.rsplit_once('-').map(|(client, _)| client), Some(id.as_str()));
        assert_eq!(may_linger(&locker), linger);
    }
    let holder = String::from_utf8_lossy(holder);
    if may_linger(&holder) {
        let short = holder.strip_suffix('L').expect("lingers by its last letter");
        let without_digits = |text: &str| text.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        let end = without_digits(short);
        let client = end.strip_suffix('D').map_or_else(|| end.clone(), without_digits);
        assert!(client.ends_with('-') && client.len() < short.len(), "{holder:?}");
        assert!(!may_linger(short) && !may_linger(&format!("{holder}L")) && !may_linger(&format!("{holder} ")));
    } else {
        assert!(!holder.is_empty() || !may_linger("L"));
        assert!(may_linger(&format!("{holder}-7L")), "our own end makes any value ours");
    }
}
