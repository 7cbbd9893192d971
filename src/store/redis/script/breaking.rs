//! Forced breaks: the call, its reply, and the key that tells a broken locker by whom and why.

use super::keys::{FENCE, broken_key, queue_key, slot_fence_key};
use super::reply::{items, natural, text, unexpected};
use super::scripts::{BREAK, BROKEN, Call, Form, Slack};
use crate::error::Error;
use crate::one_line::OneLine;
use crate::store::processor::{Break, BreakOutcome, Broken, Claim};
use crate::store::redis::net::classify::classify;
use ::redis::Value;

/// The longest locker that is told. Those of this crate are shorter, and nobody else asks.
const LONGEST_LOCKER: usize = 256;

/// How many characters of what the key says are read: other programs may write it, too.
const MOST_READ: usize = 4096;

/// The texts that the call borrows in addition to those of the order.
#[derive(Debug)]
pub(crate) struct Texts {
    form: Form,
    queue: String,
    /// The fence of the key's slot, in a Cluster.
    fence: Option<String>,
    broken: String,
    words: String,
}

impl Texts {
    pub(crate) fn of(order: &Break<'_>, form: Form) -> Self {
        let is_told = order.locker.len() <= LONGEST_LOCKER;
        Self {
            form,
            queue: queue_key(order.key),
            fence: (form == Form::Cluster).then(|| slot_fence_key(order.key)),
            broken: broken_key(order.key, if is_told { order.locker } else { "" }),
            words: if is_told { words(order.by, order.reason) } else { String::new() },
        }
    }

    pub(crate) fn call<'a>(&'a self, order: &Break<'a>) -> Call<'a> {
        Call {
            script: &BREAK,
            form: self.form,
            keys: [order.key, &self.queue, self.fence.as_deref().unwrap_or(FENCE), &self.broken],
            key_count: 4,
            args: [order.locker, &self.words, "", "", "", ""],
            arg_count: 2,
            slack: Slack::Last,
            is_confirmed: false,
        }
    }
}

/// The key that says by whom the hold of this claim's locker was broken.
pub(crate) fn key_of(claim: &Claim<'_>) -> String {
    broken_key(claim.key, claim.locker)
}

/// The call that reads it.
pub(crate) fn look(key: &str) -> Call<'_> {
    Call {
        script: &BROKEN,
        // Both forms are the same.
        form: Form::Server,
        keys: [key, "", "", ""],
        key_count: 1,
        args: [""; 6],
        arg_count: 0,
        slack: Slack::None,
        is_confirmed: false,
    }
}

/// Reads the reply to a break of `key`.
///
/// # Errors
///
/// As in [`outcome`](super::reply::outcome).
pub(crate) fn outcome(key: &str, reply: &Value) -> Result<BreakOutcome, Error> {
    if let Value::ServerError(e) = reply {
        return Err(classify(e, key));
    }
    let holder = |value: &Value| match value {
        Value::Nil => Some(None),
        other => text(other).map(Some),
    };
    let read = || match items(reply)? {
        [Value::Int(1), next, waiting] => {
            Some(BreakOutcome::Broken { next: holder(next)?, waiting: natural(waiting)? })
        }
        [Value::Int(0), other] => Some(BreakOutcome::NotHeldBy { holder: holder(other)? }),
        _ => None,
    };
    read().ok_or_else(|| unexpected(reply))
}

/// Reads the reply to a [`look`].
///
/// # Errors
///
/// As in [`outcome`].
pub(crate) fn broken(key: &str, reply: &Value) -> Result<Option<Broken>, Error> {
    match reply {
        Value::ServerError(e) => Err(classify(e, key)),
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(read_words(bytes))),
        other => Err(unexpected(other)),
    }
}

/// What the key says: by whom, a space, and why.
fn words(by: &str, reason: &str) -> String {
    [by, " ", reason].concat()
}

/// Reads what the key says. Whoever wrote it, the result is on one line.
fn read_words(bytes: &[u8]) -> Broken {
    let text: String = String::from_utf8_lossy(bytes).chars().take(MOST_READ).collect();
    let text = OneLine(text).to_string();
    let (by, reason) = text.split_once(' ').unwrap_or((&text, ""));
    Broken::new(by, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn shapes_that_the_script_does_not_have_are_errors() {
        let array = Value::Array;
        let read = |reply| outcome("k", &array(reply)).ok();
        let broken = |next: Option<&str>, waiting| BreakOutcome::Broken { next: next.map(str::to_owned), waiting };
        assert_eq!(read(vec![Value::Int(1), bulk("b-1"), Value::Int(2)]), Some(broken(Some("b-1"), 2)));
        assert_eq!(read(vec![Value::Int(1), Value::Nil, Value::Int(0)]), Some(broken(None, 0)));
        let other = BreakOutcome::NotHeldBy { holder: Some("c-1".to_owned()) };
        assert_eq!(read(vec![Value::Int(0), bulk("c-1")]), Some(other));
        assert_eq!(read(vec![Value::Int(0), Value::Nil]), Some(BreakOutcome::NotHeldBy { holder: None }));
        for reply in [vec![], vec![Value::Int(1)], vec![Value::Int(2), Value::Nil], vec![Value::Nil, Value::Nil]] {
            assert_eq!(read(reply.clone()), None, "{reply:?}");
        }
        assert_eq!(read(vec![Value::Int(1), Value::Nil, Value::Int(-1)]), None);
        assert!(super::broken("k", &Value::Int(7)).is_err());
    }

    #[test]
    fn a_locker_of_any_length_is_broken_and_one_of_ours_is_told() {
        for (length, is_told) in [(LONGEST_LOCKER, true), (LONGEST_LOCKER + 1, false)] {
            let locker = "l".repeat(length);
            let order = Break::new("k", &locker, "me", "why");
            let texts = Texts::of(&order, Form::Server);
            assert_eq!(texts.words.is_empty(), !is_told);
            assert!(texts.broken.len() < 300 && texts.call(&order).args[0] == locker);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(by in "[!-~]{1,60}", reason in "[ -~]{0,256}") {
            prop_assert_eq!(read_words(words(&by, &reason).as_bytes()), Broken::new(by, reason));
        }

        #[test]
        fn whatever_stands_there_is_on_one_line(bytes: Vec<u8>) {
            let Broken { by, reason } = read_words(&bytes);
            prop_assert!(!(by + &reason).contains(|c: char| c.is_control()));
        }
    }
}
