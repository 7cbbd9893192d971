//! Random numbers that are the same for the same seed.

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to `most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % (most + 1)
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&mut self, part: u64) -> bool {
        self.up_to(99) < part
    }
}

/// `DLOCK_TEST_SEED`, or one that differs from run to run.
pub(crate) fn seed() -> u64 {
    match std::env::var("DLOCK_TEST_SEED") {
        Ok(seed) => seed.parse().expect("a number in DLOCK_TEST_SEED"),
        Err(_) => {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            since.as_nanos() as u64 % 1_000_000_007
        }
    }
}
