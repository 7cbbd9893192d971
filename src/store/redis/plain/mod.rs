//! The first attempt at a key that is likely to be free, in plain commands: they cost the server less than a script.
//!
//! ```text
//!   SET key locker NX PX lease     takes it, if it is free
//!   LLEN queue                     whether others come first
//!   INCR fence                     the number
//!   GET key                        whether it was ours all along
//! ```
//!
//! They go out in one write, and no other command of this connection comes between them. But they are four separate steps: a connection
//! that is cut in the middle leaves the first ones executed. Why this is safe:
//!
//! * *The locker was in the key all the time between the `SET` and the `GET`*, because it is there at both, and a locker enters a free
//!   key only once. So the number was issued within the tenure: after the numbers of all earlier tenures, before those of all later
//!   ones. If the key is lost before a late `INCR`, the `GET` after it shows that, and the number is never used. (With `MULTI` and
//!   `EXEC` the three would need no `GET`, but would cost the server more, and need two more rights.)
//! * *The number is trusted only under a proof* (`trust.rs`); otherwise a script issues one.
//! * *A `SET` that succeeds while a queue exists does not count*: the key was free because a lease had ended, or for pollers. The
//!   locker is released, which hands the key over, and then asks by the script, which puts it at the end of the queue.
//! * *Every other irregular outcome* (a `SET` that was executed, followed by an error) is released, too. Then the script is asked: its
//!   reply names what is wrong. A locker that is neither stored nor in flight may be sent again.
//! * *When the reply to that release is lost, the locker is given up.* The release may be executed late, and would then end a tenure
//!   that a poll found in the meantime. So a poll of such a locker is sent as another release, and returns `Gone`.
//! * *A lost reply is an unknown outcome*, exactly as for the script. A command that arrives late can take a free key for the locker,
//!   as a late script can, and the same polls and releases deal with it.
//!
//! A single attempt that finds the key busy needs no more than these four replies. They do not say how long the holder's lease lasts.
//! If the caller waits, the script is asked next, to give it a place in the queue, but only if the limit leaves time for that; without
//! its reply, the attempt still reports the key as busy. A key that was recently busy is tried by script at once, which saves the
//! second round trip.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the commands, what their replies mean, which keys are likely to be free |
//! | `attempt.rs` | an attempt from beginning to end |
//! | `trust.rs` | when to trust a number that no script has compared with the clock |
//! | `given_up.rs` | the lockers whose release has not been answered |

mod attempt;
mod given_up;
mod trust;

use super::net::classify::classify;
use super::net::resp::Packed;
use super::script::keys::{FENCE, queue_key};
use super::script::reply::HIGHEST_NUMBER;
use super::script::request::millis;
use super::transport::KeyHash;
use crate::error::{BackendFailure, Error};
use crate::store::processor::{AcquireOutcome, Claim, ExtendOutcome, Outcome, PollOutcome, ReleaseOutcome};
use ::redis::Value;
use std::sync::atomic::{AtomicU8, Ordering};

pub(super) use attempt::Attempt;
pub(super) use given_up::GivenUp;
pub(super) use trust::FenceTrust;

/// A contended key is tried by script until this many scripted acquires in a row succeed. So a key that is busy every other time is
/// never tried in plain commands.
const SUCCESSES: u8 = 4;

/// Stands for the holder of a key that was busy at the `SET` and free at the `GET`.
const GONE: &str = "(released meanwhile)";

/// What the four commands found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The locker holds the key, nobody waits, and this is the fence number.
    Taken(u64),
    /// Another locker, this one, holds the key. The caller's locker is not in the store.
    Busy(String),
    /// The server refused to take the key for the locker, which is not in the store.
    Refused,
    /// The locker may hold the key, and must not keep it.
    Doubtful,
}

/// Which keys were contended recently: for each, how many scripted acquires in a row must still succeed. A key without contention is
/// likely to be free.
// ORDERING: Relaxed: a guess that decides only whether a key is first tried in plain commands. A stale value or a lost update costs a
// round trip.
#[derive(Debug)]
pub(crate) struct Contention(Vec<AtomicU8>);

/// The commands, back to back.
pub(super) fn pack(claim: &Claim<'_>) -> Packed {
    let mut packed = Packed::for_one();
    let lease = millis(claim.lease);
    packed.words(&["SET", claim.key, claim.locker, "NX", "PX", &lease]);
    packed.words(&["LLEN", &queue_key(claim.key)]);
    packed.words(&["INCR", FENCE]);
    packed.words(&["GET", claim.key]);
    packed.is_confirmed = true;
    packed
}

/// Interprets the replies to the four commands.
///
/// # Errors
///
/// [`Error::Backend`] (unknown) when the first reply leaves open whether the command was executed.
pub(super) fn read(replies: &[Value], claim: &Claim<'_>) -> Result<Found, Error> {
    match replies {
        // The key was not taken. The commands after the `SET` have changed nothing but the fence.
        [Value::Nil, _, _, holder] => match holder {
            Value::BulkString(holder) => Ok(Found::Busy(String::from_utf8_lossy(holder).into_owned())),
            // The holder ended between the `SET` and the `GET`.
            Value::Nil => Ok(Found::Busy(GONE.to_owned())),
            // The key has another type: the script reports it.
            _ => Ok(Found::Refused),
        },
        [Value::ServerError(refusal), _, _, _] => match classify(refusal, claim.key) {
            error @ Error::Backend { failure: BackendFailure::Unknown, .. } => Err(error),
            _ => Ok(Found::Refused),
        },
        [Value::Okay, Value::Int(0), Value::Int(number), Value::BulkString(holder)]
            if holder == claim.locker.as_bytes() =>
        {
            match u64::try_from(*number) {
                Ok(number @ 1..=HIGHEST_NUMBER) => Ok(Found::Taken(number)),
                _ => Ok(Found::Doubtful),
            }
        }
        _ => Ok(Found::Doubtful),
    }
}

impl Contention {
    pub(super) fn new() -> Self {
        Self((0..KeyHash::COUNT).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns `true` if the key was contended recently.
    pub(super) fn is_at(&self, key: KeyHash) -> bool {
        self.of(key).load(Ordering::Relaxed) > 0 // ORDERING: Relaxed: a guess.
    }

    /// Notes the outcome of a script.
    pub(super) fn note(&self, key: KeyHash, outcome: &Outcome) {
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
    pub(super) fn note_release(&self, key: KeyHash, outcome: &ReleaseOutcome) {
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
    use crate::store::processor::{Busy, Grant};
    use std::time::Duration;

    const CLAIM: Claim<'_> = Claim::new("k", "l", "l-1", Duration::from_millis(500));

    fn error(line: &str) -> Value {
        ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
    }

    fn holder(locker: &str) -> Value {
        Value::BulkString(locker.into())
    }

    /// Shows: S2, S5.
    #[test]
    fn only_a_key_that_was_ours_all_along_with_nobody_waiting_is_taken() {
        use Value::{Int, Nil, Okay};
        let ours = || holder("l-1");
        assert_eq!(read(&[Okay, Int(0), Int(7), ours()], &CLAIM).ok(), Some(Found::Taken(7)));
        let none = || error("ERR value is not an integer or out of range");
        for (replies, why) in [
            ([Okay, Int(1), Int(7), ours()], "others wait"),
            ([Okay, none(), Int(7), ours()], "no queue"),
            ([Okay, Int(0), none(), ours()], "no number"),
            ([Okay, Int(0), Int(0), ours()], "no number of a fence"),
            ([Okay, Int(0), Int(-7), ours()], "no number of a fence"),
            ([Okay, Int(0), Int(i64::MAX), ours()], "beyond every clock"),
            ([Okay, Int(0), Int(7), Nil], "lost before the number was looked at"),
            ([Okay, Int(0), Int(7), holder("l-2")], "somebody else's by then"),
            ([Okay, Int(0), Int(7), none()], "unknown whose"),
            ([Int(1), Int(0), Int(7), ours()], "no reply to SET"),
        ] {
            assert_eq!(read(&replies, &CLAIM).ok(), Some(Found::Doubtful), "{why}");
        }
        assert_eq!(read(&[Okay, Int(0), Int(7)], &CLAIM).ok(), Some(Found::Doubtful));
    }

    #[test]
    fn a_busy_or_refused_key_holds_nothing_of_the_locker() {
        use Value::{Int, Nil};
        for number in [Int(7), error("READONLY You can't write")] {
            for refusal in [error("READONLY You can't write"), error("OOM command"), error("NOPERM this user")] {
                let replies = [refusal, Int(0), number.clone(), holder("l-2")];
                assert_eq!(read(&replies, &CLAIM).ok(), Some(Found::Refused));
            }
            for (last, found) in [
                (holder("l-2"), Found::Busy("l-2".into())),
                (Nil, Found::Busy(GONE.into())),
                (error("WRONGTYPE Operation against a key"), Found::Refused),
            ] {
                assert_eq!(read(&[Nil, Int(0), number.clone(), last], &CLAIM).ok(), Some(found));
            }
        }
        let unknown = read(&[error("SOMETHING new"), Int(0), Int(7), Nil], &CLAIM);
        assert!(matches!(unknown, Err(Error::Backend { failure: BackendFailure::Unknown, .. })), "{unknown:?}");
    }

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

    /// Shows: S2.
    #[test]
    fn the_commands_are_packed_in_the_order_that_the_proof_needs() {
        let packed = pack(&CLAIM);
        let mut wanted = Vec::new();
        for words in
            [&["SET", "k", "l-1", "NX", "PX", "500"][..], &["LLEN", &queue_key("k")], &["INCR", FENCE], &["GET", "k"]]
        {
            wanted.extend(::redis::cmd(words[0]).arg(&words[1..]).get_packed_command());
        }
        assert_eq!((packed.bytes, packed.replies), (wanted, 4));
    }
}
