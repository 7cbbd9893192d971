//! Forced breaks: the replies, and the key that tells a broken locker by whom and why.

use super::keys::broken_key;
use super::reply::{items, natural, text};
use crate::one_line::OneLine;
use crate::port::{Break, BreakOutcome, Broken};
use ::redis::Value;

/// The longest locker that is told. Those of this crate are shorter, and nobody else asks.
const LONGEST_LOCKER: usize = 256;

/// How many characters of what the key says are read: other programs may write it, too.
const MOST_READ: usize = 4096;

/// The key in which an order is noted. What is noted for a locker that is too long is never looked at.
pub(super) fn told_key(order: &Break<'_>) -> String {
    broken_key(order.key, if is_told(order) { order.locker } else { "" })
}

fn is_told(order: &Break<'_>) -> bool {
    order.locker.len() <= LONGEST_LOCKER
}

/// What the key says of an order: by whom, a space, and why. Nothing for a locker that is not told.
pub(super) fn words(order: &Break<'_>) -> String {
    if is_told(order) { [order.by, " ", order.reason].concat() } else { String::new() }
}

/// Reads the reply to a break.
pub(super) fn outcome(reply: &Value) -> Option<BreakOutcome> {
    let holder = |value: &Value| match value {
        Value::Nil => Some(None),
        other => text(other).map(Some),
    };
    match items(reply)? {
        [Value::Int(1), next, waiting] => {
            Some(BreakOutcome::Broken { next: holder(next)?, waiting: natural(waiting)? })
        }
        [Value::Int(0), other] => Some(BreakOutcome::NotHeldBy { holder: holder(other)? }),
        _ => None,
    }
}

/// Reads what the key says by whom a hold was broken. The inner value is `None` if there is no such key.
#[expect(clippy::option_option, reason = "the outer `None` is a reply of another shape, as everywhere in this folder")]
pub(super) fn broken(reply: &Value) -> Option<Option<Broken>> {
    match reply {
        Value::Nil => Some(None),
        Value::BulkString(bytes) => Some(Some(read_words(bytes))),
        _ => None,
    }
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
    use crate::port::Request;
    use crate::store::redis::net::resp::Packed;
    use crate::store::redis::script::scripts::{Call, Form};
    use proptest::prelude::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn shapes_that_the_script_does_not_have_are_errors() {
        let array = Value::Array;
        let read = |reply| outcome(&array(reply));
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
        assert!(super::broken(&Value::Int(7)).is_none());
    }

    #[test]
    fn a_locker_of_any_length_is_broken_and_one_of_ours_is_told() {
        for (length, is_told) in [(LONGEST_LOCKER, true), (LONGEST_LOCKER + 1, false)] {
            let locker = "l".repeat(length);
            let order = Break::new("k", &locker, "me", "why");
            assert_eq!(words(&order).is_empty(), !is_told);
            assert!(told_key(&order).len() < 300);
            let request = Request::Break(order);
            let mut packed = Packed::default();
            Call::of(&request).pack(Form::Server, &mut packed);
            assert!(String::from_utf8_lossy(&packed.bytes).contains(&format!("\r\n{locker}\r\n")));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(by in "[!-~]{1,60}", reason in "[ -~]{0,256}") {
            prop_assert_eq!(read_words(words(&Break::new("k", "l", &by, &reason)).as_bytes()), Broken::new(by, reason));
        }

        #[test]
        fn whatever_stands_there_is_on_one_line(bytes: Vec<u8>) {
            let Broken { by, reason } = read_words(&bytes);
            prop_assert!(!(by + &reason).contains(|c: char| c.is_control()));
        }
    }
}
