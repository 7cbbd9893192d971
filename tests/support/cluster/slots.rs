//! Which slot a key falls into, and keys for a slot. Written anew here, so that a mistake in the crate's own arithmetic shows.

use std::ops::RangeInclusive;

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 (XMODEM) of the text in its first braces, or of all if there is none in them.
pub(crate) fn slot_of(key: &str) -> u16 {
    let in_braces = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = in_braces.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc >> 15 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    });
    crc % SLOTS
}

/// Those of the keys that `key` makes of 0, 1, 2 … that fall into certain slots. Without an end: take as many as needed.
pub(crate) fn keys_in<F: Fn(u32) -> String>(
    slots: Vec<RangeInclusive<u16>>,
    key: F,
) -> impl Iterator<Item = String> + use<F> {
    assert!(!slots.is_empty(), "no slots");
    (0..).map(key).filter(move |key| slots.iter().any(|range| range.contains(&slot_of(key))))
}

#[test]
fn slots_are_those_of_the_specification() {
    assert_eq!(slot_of("123456789"), 0x31C3);
    assert_eq!(slot_of("a{123456789}{b}"), 0x31C3);
    for without in ["{}x", "x{", "x}{y", "{a"] {
        let whole = without.bytes().collect::<Vec<_>>();
        assert_eq!(slot_of(without), crc_by_division(&whole) % SLOTS, "{without}");
    }
}

/// The remainder of a division by the polynomial, bit by bit.
#[cfg(test)]
fn crc_by_division(bytes: &[u8]) -> u16 {
    let mut rest: u32 = 0;
    for bit in bytes.iter().chain(&[0, 0]).flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1)) {
        rest = (rest << 1) | u32::from(bit);
        rest ^= if rest >> 16 == 0 { 0 } else { 0x1_1021 };
    }
    u16::try_from(rest).unwrap()
}
