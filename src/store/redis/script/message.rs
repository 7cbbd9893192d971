//! The messages that the scripts publish: `granted {number} {waiting} {locker} {key}`, `contended {locker} {key}` and `broken {locker} {key}`.
//! One space separates the fields; the key is everything after the last of them.
//!
//! Clients send `describe …` and `described …` to one another, and `here …` to a copy of themselves. Version 0.1.0 ignores all three.

use super::reply::HIGHEST_NUMBER;
use crate::port::{Grant, Message};

/// The longest message of one client to another. A longer one is ignored.
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
#[path = "../../../../tests/white_box/store/redis/script/message.rs"]
mod tests;
