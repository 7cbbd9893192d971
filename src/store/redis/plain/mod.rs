//! A first question about a key that is likely to be free, in plain commands: less work for the server than a script.
//!
//! ```text
//!   SET key locker NX PX lease     takes it, if it is free
//!   LLEN queue                     whether others come first
//!   INCR fence                     the number
//!   GET key                        that it was ours all along
//! ```
//!
//! They go out in one write, and nothing else of this connection comes between; but they are four steps, and a connection
//! that is cut among them leaves the first ones done. Why that is right:
//!
//! * *The locker is in the key at the `SET`, and at the `GET`; so it was in between*, for a locker comes into a free key once.
//!   So the number was issued within the tenure: after those of all tenures before it, before those of all after it. An
//!   `INCR` that comes late, after the key was lost, is followed by a `GET` that tells so, and its number is never shown. (In
//!   `MULTI` and `EXEC` the three would need no `GET`, and cost the server more, and two more rights.)
//! * *The number is believed under a proof alone* (`trust.rs`); else a script issues one.
//! * *A success in a queue's presence is none*: the key was free because a lease had ended, or for pollers. The locker is
//!   released, which hands the key over, and asks by the script, which puts it at the queue's end.
//! * *Whatever else is not as it should be* (a `SET` that was executed, with an error after it) is released, too, and the
//!   script speaks: it names what is wrong. A locker that is nowhere, and nowhere under way, may be sent once more.
//! * *When the answer to that release is lost, the locker is given up.* It may be executed late, and would end a tenure that a poll
//!   has found meanwhile. So a poll of such a locker is another release, and answers `Gone`.
//! * *No answer is no answer*: an unknown outcome, as with the script. What is late can take a free key for the locker, as a late
//!   script can, and the same polls and releases deal with it.
//!
//! A busy key is an answer: a single attempt needs no more than these four replies. They do not say how long the holder's lease
//! lasts. For an asker that waits, the script is asked next, to give it a place in the queue, but only where the limit leaves
//! time for that; and without an answer the key is busy all the same. Where a key was busy of late, the script asks at once,
//! and no second round trip is necessary.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the commands, what their replies mean, which keys are likely to be free |
//! | `attempt.rs` | an attempt from beginning to end |
//! | `trust.rs` | when a number may be believed that no script has compared with the clock |
//! | `given_up.rs` | the lockers whose release has no answer |

mod attempt;
mod given_up;
mod trust;

use super::net::classify::classify;
use super::net::resp::Packed;
use super::script::keys::{FENCE, queue_key};
use super::script::reply::HIGHEST_NUMBER;
use super::script::request::millis;
use super::transport::Mark;
use crate::error::{BackendFailure, Error};
use crate::store::processor::{AcquireOutcome, AcquireRequest, ExtendOutcome, Outcome, PollOutcome, ReleaseOutcome};
use ::redis::Value;
use std::sync::atomic::{AtomicU8, Ordering};

pub(super) use given_up::GivenUp;
pub(super) use trust::Proofs;

/// So many successes of the script make a key calm again: one that is busy every other time never is.
const RESTLESS: u8 = 4;

/// The holder of a key that was busy when it was to be taken, and free when its holder was asked for.
const GONE: &str = "(released meanwhile)";

/// What the four commands found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The key is the locker's, nobody waits, and this is its number.
    Taken(u64),
    /// The key is somebody else's, and the locker is not in the store. The holder.
    Busy(String),
    /// The server refused to take the key for the locker, which is not in the store.
    Refused,
    /// The locker may have the key, and must not keep it.
    Doubtful,
}

/// Which keys are likely to be free, by what was last heard of them.
#[derive(Debug)]
pub(super) struct Calm(Vec<AtomicU8>);

/// The commands, back to back.
pub(super) fn pack(request: &AcquireRequest<'_>) -> Packed {
    let mut packed = Packed::for_one();
    let lease = millis(request.lease);
    packed.words(&["SET", request.key, request.locker, "NX", "PX", &lease]);
    packed.words(&["LLEN", &queue_key(request.key)]);
    packed.words(&["INCR", FENCE]);
    packed.words(&["GET", request.key]);
    packed
}

/// What their replies mean.
///
/// # Errors
///
/// [`Error::Backend`] (unknown) when the first reply leaves open whether the command was executed.
pub(super) fn read(replies: &[Value], request: &AcquireRequest<'_>) -> Result<Found, Error> {
    match replies {
        // What came after it has changed nothing but the fence.
        [Value::Nil, _, _, holder] => match holder {
            Value::BulkString(holder) => Ok(Found::Busy(String::from_utf8_lossy(holder).into_owned())),
            // The holder has ended between the two commands.
            Value::Nil => Ok(Found::Busy(GONE.to_owned())),
            // A key of another type: the script says so.
            _ => Ok(Found::Refused),
        },
        [Value::ServerError(refusal), _, _, _] => match classify(refusal, request.key) {
            error @ Error::Backend { failure: BackendFailure::Unknown, .. } => Err(error),
            _ => Ok(Found::Refused),
        },
        [Value::Okay, Value::Int(0), Value::Int(number), Value::BulkString(holder)]
            if holder == request.locker.as_bytes() =>
        {
            match u64::try_from(*number) {
                Ok(number @ 1..=HIGHEST_NUMBER) => Ok(Found::Taken(number)),
                _ => Ok(Found::Doubtful),
            }
        }
        _ => Ok(Found::Doubtful),
    }
}

impl Calm {
    pub(super) fn new() -> Self {
        Self((0..Mark::COUNT).map(|_| AtomicU8::new(0)).collect())
    }

    pub(super) fn has(&self, key: Mark) -> bool {
        self.of(key).load(Ordering::Relaxed) == 0
    }

    /// Takes in what a script found.
    pub(super) fn note(&self, key: Mark, outcome: &Outcome) {
        match outcome {
            Outcome::Acquire(AcquireOutcome::Acquired(grant)) if grant.waiting == 0 => {
                let left = self.of(key).load(Ordering::Relaxed);
                if left > 0 {
                    self.of(key).store(left - 1, Ordering::Relaxed);
                }
            }
            Outcome::Release(outcome) => self.note_release(key, outcome),
            _ if is_restless(outcome) => self.note_busy(key),
            _ => {}
        }
    }

    /// A plain attempt found the key busy.
    pub(super) fn note_busy(&self, key: Mark) {
        self.of(key).store(RESTLESS, Ordering::Relaxed);
    }

    /// Takes in what a release found.
    pub(super) fn note_release(&self, key: Mark, outcome: &ReleaseOutcome) {
        let restless = match outcome {
            ReleaseOutcome::Released { waiting } => *waiting > 0,
            ReleaseOutcome::Passed(grant) => grant.waiting > 0,
            ReleaseOutcome::Queued(_) => true,
            ReleaseOutcome::NotOurs(_) => false,
        };
        if restless {
            self.of(key).store(RESTLESS, Ordering::Relaxed);
        }
    }

    fn of(&self, key: Mark) -> &AtomicU8 {
        &self.0[key.index()]
    }
}

/// Whether somebody else holds the key or waits for it.
fn is_restless(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Acquire(AcquireOutcome::Acquired(grant)) | Outcome::Poll(PollOutcome::Acquired(grant)) => {
            grant.waiting > 0
        }
        Outcome::Extend(ExtendOutcome::Extended { waiting, .. }) => *waiting > 0,
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

    const REQUEST: AcquireRequest<'_> =
        AcquireRequest { key: "k", locker: "l-1", lease: Duration::from_millis(500), wait: true };

    fn error(line: &str) -> Value {
        ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error")
    }

    fn holder(locker: &str) -> Value {
        Value::BulkString(locker.into())
    }

    #[test]
    fn only_a_key_that_was_ours_all_along_with_nobody_waiting_is_taken() {
        use Value::{Int, Nil, Okay};
        let ours = || holder("l-1");
        assert_eq!(read(&[Okay, Int(0), Int(7), ours()], &REQUEST).ok(), Some(Found::Taken(7)));
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
            assert_eq!(read(&replies, &REQUEST).ok(), Some(Found::Doubtful), "{why}");
        }
        assert_eq!(read(&[Okay, Int(0), Int(7)], &REQUEST).ok(), Some(Found::Doubtful));
    }

    #[test]
    fn a_busy_or_refused_key_holds_nothing_of_the_locker() {
        use Value::{Int, Nil};
        for number in [Int(7), error("READONLY You can't write")] {
            for refusal in [error("READONLY You can't write"), error("OOM command"), error("NOPERM this user")] {
                let replies = [refusal, Int(0), number.clone(), holder("l-2")];
                assert_eq!(read(&replies, &REQUEST).ok(), Some(Found::Refused));
            }
            for (last, found) in [
                (holder("l-2"), Found::Busy("l-2".into())),
                (Nil, Found::Busy(GONE.into())),
                (error("WRONGTYPE Operation against a key"), Found::Refused),
            ] {
                assert_eq!(read(&[Nil, Int(0), number.clone(), last], &REQUEST).ok(), Some(found));
            }
        }
        let unknown = read(&[error("SOMETHING new"), Int(0), Int(7), Nil], &REQUEST);
        assert!(matches!(unknown, Err(Error::Backend { failure: BackendFailure::Unknown, .. })), "{unknown:?}");
    }

    #[test]
    fn a_key_that_was_busy_is_calm_again_after_some_successes_in_a_row() {
        let (calm, key) = (Calm::new(), Mark::of("DLOCK_a_b"));
        let taken = Outcome::Acquire(AcquireOutcome::Acquired(Grant { number: 1, waiting: 0 }));
        let busy = Outcome::Acquire(AcquireOutcome::Busy(Busy { holder: "l-2".into(), remaining: None }));
        assert!(calm.has(key));
        for _ in 0..3 {
            calm.note(key, &busy);
            assert!(!calm.has(key));
            (1..RESTLESS).for_each(|_| calm.note(key, &taken));
            assert!(!calm.has(key));
        }
        calm.note(key, &taken);
        assert!(calm.has(key));
        calm.note(key, &Outcome::Release(ReleaseOutcome::Released { waiting: 0 }));
        assert!(calm.has(key));
        calm.note(key, &Outcome::Release(ReleaseOutcome::Released { waiting: 1 }));
        assert!(!calm.has(key));
    }

    #[test]
    fn the_commands_are_packed_in_the_order_that_the_proof_needs() {
        let packed = pack(&REQUEST);
        let mut wanted = Vec::new();
        for words in
            [&["SET", "k", "l-1", "NX", "PX", "500"][..], &["LLEN", &queue_key("k")], &["INCR", FENCE], &["GET", "k"]]
        {
            wanted.extend(::redis::cmd(words[0]).arg(&words[1..]).get_packed_command());
        }
        assert_eq!((packed.bytes, packed.replies), (wanted, 4));
    }
}
