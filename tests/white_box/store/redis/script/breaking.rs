//! Unit tests of `src/store/redis/script/breaking.rs`.

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
