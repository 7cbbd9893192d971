//! Unit tests of `src/store/redis/script/keys.rs`.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn helper_keys_share_the_slot_of_the_lock_key(key in "(\\{\\}|[{} a-z:é]|\\PC){0,40}") {
        let slot = slot_of(key.as_bytes());
        prop_assert_eq!(slot_of(queue_key(&key).as_bytes()), slot);
        prop_assert_eq!(slot_of(gapped_key(&key).as_bytes()), slot);
        prop_assert_eq!(slot_of(broken_key(&key, &key).as_bytes()), slot);
        prop_assert_eq!(slot_of(slot_fence_key(&key).as_bytes()), slot);
        let channel = slot_inbox_channel(slot, "host-1-ff");
        prop_assert_eq!(slot_of(channel.as_bytes()), slot);
        // The way in which the scripts make it: see `REPLACEMENTS` in `scripts.rs`.
        let queue = queue_key(&key);
        prop_assert_eq!(key_of_queue(&queue), Some(key.as_str()));
        prop_assert_eq!(channel, format!("{}inbox:host-1-ff", &queue[..queue.len() - key.len() - 6]));
    }
}

#[test]
fn crc16_of_the_check_string() {
    assert_eq!(crc16(b"123456789"), 0x31C3);
}

#[test]
fn only_the_first_braces_count_and_only_if_not_empty() {
    assert_eq!(slot_of(b"{x}y"), slot_of(b"x"));
    assert_eq!(slot_of(b"a{x}{y}"), slot_of(b"x"));
    assert_eq!(slot_of(b"{{x}}"), slot_of(b"{x"));
    assert_eq!(slot_of(b"{}x"), crc16(b"{}x") % 16_384);
    assert_eq!(slot_of(b"a}b{"), crc16(b"a}b{") % 16_384);
}

#[test]
fn every_slot_has_a_short_tag() {
    for (slot, tag) in TAGS.iter().enumerate() {
        assert_eq!(usize::from(slot_of(tag.to_string().as_bytes())), slot);
        assert!(*tag < 1_000_000, "{tag}");
    }
}

#[test]
fn a_tag_is_the_smallest_number_of_its_slot() {
    let mut seen = std::collections::HashSet::new();
    for n in 0..=*TAGS.iter().max().expect("slots") {
        let slot = slot_of(n.to_string().as_bytes());
        if seen.insert(slot) {
            assert_eq!(tag_of(slot), n);
        }
    }
    assert_eq!(seen.len(), SLOTS);
}
