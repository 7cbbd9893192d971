//! The names of everything that a lock has in Redis besides its own key, and the slots of a Cluster to which keys belong. Each name
//! contains the version of the format.
//!
//! A key's slot is the CRC16 (XMODEM) of its first non-empty `{…}`, or of the whole key if there is none. A script may touch keys of one
//! slot alone. So each helper key has a short hash tag of its own, whose slot is that of the lock's key. The name of a lock is never used
//! as a hash tag, and needs no escaping.

/// The fence of the whole server.
pub(crate) const FENCE: &str = "DLOCK:1:fence";

/// The queue of a lock key, in the lock key's slot. Returns the parts of its name, so that a call needs no memory for it. `tag` is the text of the
/// tag [for](tag_for) the key.
pub(crate) const fn queue_name<'a>(tag: &'a str, key: &'a str) -> [&'a str; 4] {
    ["DLOCK:1:{", tag, "}:queue:", key]
}

#[cfg(test)]
pub(crate) fn queue_key(key: &str) -> String {
    queue_name(&tag_for(key).to_string(), key).concat()
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

/// The inbox channel of a client. The scripts derive it from the client's lockers: each that sends a message contains this prefix, which
/// `scripts.rs` replaces in a Cluster by that of [`slot_inbox_channel`].
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

/// A slot of Redis Cluster.
pub(crate) type Slot = u16;

/// The number of slots of a Redis Cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The CRC16 of XMODEM: polynomial 0x1021, initial value 0, no reflection.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0;
    for byte in bytes {
        crc = (crc << 8) ^ CRC_OF_BYTE[usize::from((crc >> 8) as u8 ^ byte)];
    }
    crc
}

/// Like [`crc16`], but usable in constants: returns the CRC of a text that has one more byte at its end.
const fn longer(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ CRC_OF_BYTE[((crc >> 8) as u8 ^ byte) as usize]
}

/// The CRC16 of each single byte.
static CRC_OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key, as `CLUSTER KEYSLOT` gives it.
pub(crate) fn slot_of(key: &[u8]) -> Slot {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS as Slot
}

/// The text between the first `{` and the first `}` after it, if it is not empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let mut start = None;
    for (at, byte) in key.iter().enumerate() {
        match start {
            None if *byte == b'{' => start = Some(at + 1),
            Some(start) if *byte == b'}' => return if at > start { Some(&key[start..at]) } else { None },
            _ => {}
        }
    }
    None
}

/// For each slot, the smallest decimal number whose text falls into it.
///
/// The search tries some 110,000 numbers, and the compiler does it in about a second. At run time, a process that locks once would spend more
/// time on the search than on its lock.
static TAGS: [u32; SLOTS] = {
    let (mut tags, mut missing) = ([u32::MAX; SLOTS], SLOTS);
    // The CRC of each number that is the head of another number: `110` is the head of `1107`. The head of a single digit is empty, and its CRC is 0.
    let mut crcs = [0; 11_000];
    let mut n = 0;
    while missing > 0 {
        let crc = longer(crcs[n / 10], b'0' + (n % 10) as u8);
        if 0 < n && n < crcs.len() {
            crcs[n] = crc;
        }
        let tag = &mut tags[crc as usize % SLOTS];
        if *tag == u32::MAX {
            *tag = n as u32;
            missing -= 1;
        }
        n += 1;
    }
    tags
};

/// A hash tag, without braces, that falls into the slot of `key`.
pub(crate) fn tag_for(key: &str) -> u32 {
    TAGS[usize::from(slot_of(key.as_bytes()))]
}

/// The hash tag, without braces, that falls into a slot.
pub(crate) fn tag_of(slot: Slot) -> u32 {
    TAGS[usize::from(slot)]
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/keys.rs"]
mod tests;
