//! Which keys are likely to be free.

use crate::port::{AcquireOutcome, ExtendOutcome, Outcome, PollOutcome, ReleaseOutcome};
use crate::store::redis::transport::KeyHash;
use std::sync::atomic::{AtomicU8, Ordering};

/// A contended key is tried by script until this many scripted acquires in a row succeed. So a key that is busy every other time is
/// never tried in plain commands.
const SUCCESSES: u8 = 4;

/// Which keys were contended recently: for each, how many scripted acquires in a row must still succeed. A key without contention is
/// likely to be free.
// ORDERING: Relaxed: a guess that decides only whether a key is first tried in plain commands. A stale value or a lost update costs a
// round trip.
#[derive(Debug)]
pub(crate) struct Contention(Vec<AtomicU8>);

impl Contention {
    pub(crate) fn new() -> Self {
        Self((0..KeyHash::COUNT).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns `true` if the key was contended recently.
    pub(super) fn is_at(&self, key: KeyHash) -> bool {
        self.of(key).load(Ordering::Relaxed) > 0 // ORDERING: Relaxed: a guess.
    }

    /// Notes the outcome of a script.
    pub(crate) fn note(&self, key: KeyHash, outcome: &Outcome) {
        match outcome {
            Outcome::Acquire(AcquireOutcome::Acquired(grant)) if grant.waiting == 0 => {
                // ORDERING: Relaxed: a guess; a lost update keeps the key with the script for one more acquire.
                let left = self.of(key).load(Ordering::Relaxed);
                if left > 0 {
                    self.of(key).store(left - 1, Ordering::Relaxed);
                }
            }
            Outcome::Release(outcome) => self.note_release(key, outcome),
            _ if shows_contention(outcome) => self.note_busy(key),
            _ => {}
        }
    }

    /// Notes that a plain attempt found the key busy.
    pub(super) fn note_busy(&self, key: KeyHash) {
        self.of(key).store(SUCCESSES, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
    }

    /// Notes the outcome of a release.
    pub(crate) fn note_release(&self, key: KeyHash, outcome: &ReleaseOutcome) {
        let is_contended = match outcome {
            ReleaseOutcome::Released { waiting } => *waiting > 0,
            ReleaseOutcome::Passed(grant) => grant.waiting > 0,
            ReleaseOutcome::Queued(_) => true,
            ReleaseOutcome::NotOurs(_) => false,
        };
        if is_contended {
            self.of(key).store(SUCCESSES, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
        }
    }

    fn of(&self, key: KeyHash) -> &AtomicU8 {
        &self.0[key.index()]
    }
}

/// Whether somebody else holds the key or waits for it.
fn shows_contention(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Acquire(AcquireOutcome::Acquired(grant)) | Outcome::Poll(PollOutcome::Acquired(grant)) => {
            grant.waiting > 0
        }
        Outcome::Extend(ExtendOutcome::Extended(extension)) => extension.waiting > 0,
        Outcome::Acquire(AcquireOutcome::Busy(_) | AcquireOutcome::Unqueued { .. })
        | Outcome::Poll(PollOutcome::Waiting(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Busy, Grant};

    #[test]
    fn a_key_that_was_busy_is_contended_until_some_successes_in_a_row() {
        let (contention, key) = (Contention::new(), KeyHash::of("DLOCK_a_b"));
        let taken = Outcome::Acquire(AcquireOutcome::Acquired(Grant::new(1, 0)));
        let busy = Outcome::Acquire(AcquireOutcome::Busy(Busy::new("l-2", None)));
        assert!(!contention.is_at(key));
        for _ in 0..3 {
            contention.note(key, &busy);
            assert!(contention.is_at(key));
            (1..SUCCESSES).for_each(|_| contention.note(key, &taken));
            assert!(contention.is_at(key));
        }
        contention.note(key, &taken);
        assert!(!contention.is_at(key));
        contention.note(key, &Outcome::Release(ReleaseOutcome::Released { waiting: 0 }));
        assert!(!contention.is_at(key));
        contention.note(key, &Outcome::Release(ReleaseOutcome::Released { waiting: 1 }));
        assert!(contention.is_at(key));
    }
}
