//! The messages that the scripts publish: `granted {number} {waiting} {locker} {key}`, `contended {locker} {key}` and `broken {locker} {key}`.
//! One space separates the fields; the key is everything after the last of them.
//!
//! Clients send `describe …` and `described …` to one another, and `here …` to whoever has their identity, too. Version 0.1.0 ignores all three.

use super::reply::HIGHEST_NUMBER;
use crate::store::processor::{Grant, Message};

/// The longest words of a client to another one. Longer ones are nobody's.
const MOST_SAID: usize = 4096;

/// Reads a message. Returns `None` for anything that no script of this version publishes.
pub(crate) fn parse(payload: &[u8]) -> Option<Message> {
    let text = std::str::from_utf8(payload).ok()?;
    let (verb, rest) = text.split_once(' ')?;
    match verb {
        "granted" => {
            let (number, rest) = rest.split_once(' ')?;
            let (waiting, rest) = rest.split_once(' ')?;
            // Anybody may publish, and a client that believed a number above the highest could never be issued a greater one.
            let number = count(number).filter(|number| *number <= HIGHEST_NUMBER)?;
            let grant = Grant { number, waiting: count(waiting)? };
            let (locker, key) = locker_and_key(rest)?;
            Some(Message::Granted { key, locker, grant })
        }
        "contended" => {
            let (locker, key) = locker_and_key(rest)?;
            Some(Message::Contended { key, locker })
        }
        "broken" => {
            let (locker, key) = locker_and_key(rest)?;
            Some(Message::Broken { key, locker })
        }
        "describe" | "described" | "here" if text.len() <= MOST_SAID => Some(Message::Said { text: text.to_owned() }),
        _ => None,
    }
}

/// Reads a number in plain decimal digits (`str::parse` alone would accept a sign).
fn count(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn locker_and_key(text: &str) -> Option<(String, String)> {
    let (locker, key) = text.split_once(' ')?;
    (!locker.is_empty()).then(|| (locker.to_owned(), key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_key_is_all_the_rest() {
        let message = parse("granted 1763700000000000 3 host-1-ff-9 DLOCK_a_ b  c é".as_bytes());
        let grant = Grant { number: 1_763_700_000_000_000, waiting: 3 };
        let (key, locker) = ("DLOCK_a_ b  c é".to_owned(), "host-1-ff-9".to_owned());
        assert_eq!(message, Some(Message::Granted { key, locker, grant }));
        let (key, locker) = (String::new(), "l-1".to_owned());
        assert_eq!(parse(b"contended l-1 "), Some(Message::Contended { key, locker }));
    }

    #[test]
    fn anything_else_is_ignored() {
        for payload in [
            "",
            " ",
            "granted",
            "granted 1",
            "granted 1 2",
            "granted 1 2 l-1",
            "granted +1 2 l-1 k",
            "granted -1 2 l-1 k",
            "granted  1 2 l-1 k",
            "granted 1 2  k",
            "granted 99999999999999999999 0 l-1 k",
            "granted 9007199254740992 0 l-1 k",
            "granted 1.0 0 l-1 k",
            "contended l-1",
            "contended  k",
            "broken",
            "broken l-1",
            "broken  k",
            "revoked l-1 k",
            "Granted 1 2 l-1 k",
            "describe",
            &format!("describe {}", "x".repeat(MOST_SAID)),
        ] {
            assert_eq!(parse(payload.as_bytes()), None, "{payload:?}");
        }
        assert_eq!(parse(b"contended l-1 \xff"), None);
    }

    proptest! {
        #[test]
        fn every_published_message_is_read_back(number in 0..=HIGHEST_NUMBER, waiting: u64, locker in "[^ ]{1,30}", key in ".{0,60}") {
            let parsed = parse(format!("granted {number} {waiting} {locker} {key}").as_bytes());
            let grant = Grant { number, waiting };
            prop_assert_eq!(parsed, Some(Message::Granted { key: key.clone(), locker: locker.clone(), grant }));
            let parsed = parse(format!("contended {locker} {key}").as_bytes());
            prop_assert_eq!(parsed, Some(Message::Contended { key: key.clone(), locker: locker.clone() }));
            let parsed = parse(format!("broken {locker} {key}").as_bytes());
            prop_assert_eq!(parsed, Some(Message::Broken { key, locker }));
        }
    }
}
