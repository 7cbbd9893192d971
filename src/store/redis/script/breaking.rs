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
#[path = "../../../../tests/white_box/store/redis/script/breaking.rs"]
mod tests;
