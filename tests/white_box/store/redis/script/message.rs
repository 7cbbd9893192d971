//! Unit tests of `src/store/redis/script/message.rs`.

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
