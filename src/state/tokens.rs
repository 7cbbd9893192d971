//! The fencing tokens of one tenure: fence number × 1024 + pass.
//!
//! The store gives out the number with the tenure; the pass counts the successive holds within the process. When the
//! passes run out, the store gives a range of numbers that nobody else was or will be given.

use std::ops::{Range, RangeInclusive};

/// Tokens per fence number.
const PASSES: u64 = 1024;

/// The current token, and those that follow.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    number: u64,
    pass: u64,
    /// Unused numbers, all above `number`.
    spare: Range<u64>,
}

impl Tokens {
    pub(crate) fn of(number: u64) -> Self {
        Self { number, pass: 0, spare: 0..0 }
    }

    /// Returns the token of the current hold.
    pub(crate) fn current(&self) -> u64 {
        self.number.saturating_mul(PASSES).saturating_add(self.pass)
    }

    /// Moves on to the next hold's token. Returns `false` if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        if self.pass + 1 < PASSES {
            self.pass += 1;
            return true;
        }
        match self.spare.next() {
            Some(number) => {
                (self.number, self.pass) = (number, 0);
                true
            }
            None => false,
        }
    }

    /// Returns whether the current token is the last one.
    pub(crate) fn is_last(&self) -> bool {
        self.pass + 1 >= PASSES && self.spare.is_empty()
    }

    /// Replaces the unused numbers by numbers from the store, without those that are not above the current one.
    pub(crate) fn refill(&mut self, numbers: RangeInclusive<u64>) {
        self.spare = *numbers.start().max(&(self.number + 1))..numbers.end().saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: G7.
    #[test]
    fn tokens_rise_until_the_passes_are_used_up_and_go_on_with_fresh_numbers() {
        let mut tokens = Tokens::of(7);
        assert_eq!(tokens.current(), 7 * 1024);
        let mut last = tokens.current();
        for _ in 1..1024 {
            assert!(!tokens.is_last() && tokens.advance() && tokens.current() > last);
            last = tokens.current();
        }
        assert!(tokens.is_last() && !tokens.advance());
        assert_eq!(tokens.current(), last);
        tokens.refill(5..=9);
        assert!(tokens.advance());
        assert_eq!(tokens.current(), 8 * 1024, "numbers that were used are dropped");
        tokens.refill(1..=8);
        assert_eq!((1..3000).filter(|_| tokens.advance()).count(), 1023);
    }

    /// Shows: G7.
    #[test]
    fn tokens_fit_a_signed_column() {
        // The last microsecond of the year 2254.
        assert!(i64::try_from(Tokens::of(9_007_199_254_740_991).current()).is_ok());
    }
}
