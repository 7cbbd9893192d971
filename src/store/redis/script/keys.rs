//! The names of everything that a lock has in Redis besides its own key. They carry a format version.

use super::slot::{Slot, tag_for, tag_of};

/// The fence of the whole server.
pub(crate) const FENCE: &str = "DLOCK:1:fence";

/// The queue of a lock key, in the lock key's slot.
pub(crate) fn queue_key(key: &str) -> String {
    // Every lock calls this, and `format!` takes several times as long.
    let mut digits = itoa::Buffer::new();
    ["DLOCK:1:{", digits.format(tag_for(key)), "}:queue:", key].concat()
}

/// The key that records when a lock key was last left free for pollers, in the lock key's slot.
pub(crate) fn gapped_key(key: &str) -> String {
    format!("DLOCK:1:{{{}}}:gapped:{key}", tag_for(key))
}

/// The key that tells a locker by whom its hold was broken, in the lock key's slot. No two lockers are equal, whatever their keys.
pub(crate) fn broken_key(key: &str, locker: &str) -> String {
    format!("DLOCK:1:{{{}}}:broken:{locker}", tag_for(key))
}

/// The fence of a lock key's slot, for Redis Cluster, where one script may not touch two slots.
pub(crate) fn slot_fence_key(key: &str) -> String {
    format!("DLOCK:1:{{{}}}:fence", tag_for(key))
}

/// The inbox channel of a client. The scripts derive it from the client's lockers.
pub(crate) fn inbox_channel(client: &str) -> String {
    format!("DLOCK:1:inbox:{client}")
}

/// What a client says of itself. In a Cluster it lies in a slot of its own.
pub(crate) fn record_key(client: &str) -> String {
    format!("DLOCK:1:client:{{{client}}}")
}

/// The lock key whose queue has this name.
pub(crate) fn key_of_queue(name: &str) -> Option<&str> {
    let (tag, key) = name.strip_prefix("DLOCK:1:{")?.split_once("}:queue:")?;
    tag.bytes().all(|b| b.is_ascii_digit()).then_some(key)
}

/// The inbox channel of a client for the locks of one slot, for Redis Cluster. The scripts derive it from the queue's name and the client's
/// lockers.
pub(crate) fn slot_inbox_channel(slot: Slot, client: &str) -> String {
    format!("DLOCK:1:{{{}}}:inbox:{client}", tag_of(slot))
}

#[cfg(test)]
mod tests {
    use super::super::slot::slot_of;
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
}
