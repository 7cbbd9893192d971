//! Forced breaks: the key that tells a broken locker by whom and why, and its words.

use super::keys::broken_key;
use crate::port::Break;

/// The longest locker that is told. Those of this crate are shorter, and nobody else asks.
const LONGEST_LOCKER: usize = 256;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Broken, Request};
    use crate::store::redis::net::resp::Packed;
    use crate::store::redis::script::reply::read_words;
    use crate::store::redis::script::scripts::{Call, Form};
    use proptest::prelude::*;

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
    }
}
