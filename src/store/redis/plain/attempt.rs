//! A plain attempt: which keys are likely to be free, the four commands, and what their replies mean. The store calls the script if the attempt is
//! [`Unfinished`](Tried::Unfinished), and takes back what an attempt must not keep.

use super::fence_watermarks::{FenceWatermarks, Watermark};
use super::given_up::Exchange;
use crate::error::{BackendFailure, Error};
use crate::port::{AcquireOutcome, Busy, Claim, ExtendOutcome, Grant, Outcome, PollOutcome, ReleaseOutcome, Request};
use crate::store::redis::net::classify::{classify, is_no_master};
use crate::store::redis::net::resp::{Packed, Word};
use crate::store::redis::script::acks::ReplicaAcks;
use crate::store::redis::script::keys::{FENCE, queue_name, tag_for};
use crate::store::redis::script::reply::{HIGHEST_NUMBER, holder_text, mismatch};
use crate::store::redis::script::scripts::{Call, Form, millis};
use crate::store::redis::transport::{AtLimit, KeyHash, Reply, Transport, WaitOrder};
use ::redis::Value;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How many commands an attempt has.
const COMMANDS: usize = 4;

/// The script is called in the same request only if this many round trips of the plain attempt fit into what is left of the limit.
const ROOM: u32 = 4;

/// What an attempt uses of its store.
pub(crate) struct Attempt<'a> {
    pub(crate) transport: &'a Transport,
    pub(crate) watermarks: &'a FenceWatermarks,
    pub(crate) contention: &'a Contention,
    /// The number of replicas that must acknowledge, if any must.
    pub(crate) acks: Option<ReplicaAcks>,
    pub(crate) at_limit: AtLimit,
}

/// What came of one of several requests that were sent together.
pub(crate) enum Answered {
    /// It was tried in plain commands.
    Tried(Result<Tried, Error>),
    /// Its script was called, and this is the reply.
    Called(Reply),
}

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum Tried {
    Done(AcquireOutcome),
    /// The script must be called next. The locker is not in the store. If the key was busy, the script is called for a place in its queue.
    Unfinished(Option<Busy>),
    /// The locker may hold the key, and must not keep it. Once it is taken back, the script must be called.
    Doubtful,
    /// The locker holds the key, and too few replicas have acknowledged that. Once it is taken back, the request fails with this error.
    Unacknowledged(Error),
}

impl Attempt<'_> {
    /// Sends requests together at the moment `start`, and waits for their replies. It tries those that are likely to take a free key, unless another
    /// of the requests is about the same key, or a key with the same hash: requests about one key keep their order. For the others it calls their
    /// scripts.
    pub(crate) fn run(
        &self,
        requests: &[Exchange<'_>],
        (start, limit): (Instant, Duration),
    ) -> SmallVec<[Answered; 1]> {
        let mut sorted: SmallVec<[_; 8]> = requests.iter().map(|request| request.hash).collect();
        sorted.sort_unstable();
        let is_alone = |hash: KeyHash| {
            sorted.len() == 1 || sorted.get(sorted.partition_point(|other| *other < hash) + 1) != Some(&hash)
        };
        let mut batch = self.transport.batch(limit);
        let mut tried = SmallVec::<[_; 1]>::new();
        for Exchange { sent, hash, .. } in requests {
            let route = batch.route(*hash);
            let taken = match &**sent {
                Request::Acquire(claim) | Request::Join(claim) if !self.contention.is_at(*hash) && is_alone(*hash) => {
                    let watermark = self.watermarks.watermark_on(self.transport, &route, start);
                    watermark.map(|watermark| (claim, watermark))
                }
                _ => None,
            };
            batch.push_on(route, |packed| match taken {
                Some((claim, _)) => pack(claim, packed),
                None => Call::of(sent).pack(Form::Server, packed),
            });
            tried.push(taken);
        }
        let mut begun = self.transport.begin(batch, start, limit, WaitOrder::AtOnce);
        begun.until.at_limit = self.at_limit;
        let mut replies = self.transport.end(begun).into_iter();
        let mut answered = |(request, tried): (&Exchange<'_>, Option<_>)| match tried {
            Some((claim, watermark)) => {
                let replies: SmallVec<[_; COMMANDS]> = replies.by_ref().take(COMMANDS).collect();
                Answered::Tried(self.judge(request, claim, watermark, &replies, (start, limit)))
            }
            None => Answered::Called(replies.next().unwrap_or_else(|| Err(mismatch()))),
        };
        requests.iter().zip(tried).map(&mut answered).collect()
    }

    /// Reads the replies to an attempt at the claim of a request.
    fn judge(
        &self,
        request: &Exchange<'_>,
        claim: &Claim<'_>,
        watermark: Watermark,
        replies: &[Reply],
        (start, limit): (Instant, Duration),
    ) -> Result<Tried, Error> {
        let (mut epoch, mut confirmation, mut values) = (0, None, SmallVec::<[_; COMMANDS]>::new());
        for reply in replies {
            let replied = reply.as_ref().map_err(Error::clone)?;
            (epoch, confirmation) = (replied.epoch, replied.confirmation.as_deref());
            values.push(&replied.value);
        }
        if values.iter().copied().any(is_no_master) {
            self.watermarks.end_all(self.transport);
        }
        Ok(match read(&values, claim)? {
            Found::Taken(number) if self.watermarks.accepts(self.transport, watermark, epoch, number) => {
                match self.acks.map(|acks| acks.count(confirmation)) {
                    Some(Err(error)) => Tried::Unacknowledged(error),
                    _ => Tried::Done(AcquireOutcome::Acquired(Grant::new(number, 0))),
                }
            }
            Found::Taken(_) | Found::Doubtful => Tried::Doubtful,
            Found::Busy(holder) => {
                self.contention.note_busy(request.hash);
                let (busy, trip) = (Busy::new(holder, None), start.elapsed());
                match *request.sent {
                    // It joins the queue of a busy key.
                    Request::Join(_) if limit.saturating_sub(trip) >= trip * ROOM => Tried::Unfinished(Some(busy)),
                    Request::Join(_) => Tried::Done(AcquireOutcome::Unqueued { busy, under_way: false }),
                    _ => Tried::Done(AcquireOutcome::Busy(busy)),
                }
            }
            Found::Refused => Tried::Unfinished(None),
        })
    }
}

/// Returns the outcome of a request whose key was `busy`, from that of the script, which was called for a place in the queue. If the script fails
/// with [`Error::Backend`], the key is still reported as busy.
pub(crate) fn with_place(busy: Option<Busy>, result: Result<Outcome, Error>) -> Result<Outcome, Error> {
    match (busy, result) {
        (Some(busy), Err(Error::Backend { failure, .. })) if failure != BackendFailure::Unacknowledged => {
            let under_way = failure == BackendFailure::Unknown;
            Ok(Outcome::Acquire(AcquireOutcome::Unqueued { busy, under_way }))
        }
        (_, result) => result,
    }
}

/// Takes the place of the holder's locker for a key that was busy at the `SET` and free at the `GET`.
const GONE: &str = "(released meanwhile)";

/// What the four commands found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The locker holds the key, nobody waits, and this is the fence number.
    Taken(u64),
    /// Another locker, which is given here, holds the key. The caller's locker is not in the store.
    Busy(String),
    /// The server refused to set the key. The caller's locker is not in the store.
    Refused,
    /// The caller's locker may hold the key, and must not keep it.
    Doubtful,
}

/// Adds the commands, back to back.
fn pack(claim: &Claim<'_>, packed: &mut Packed) {
    let mut digits = itoa::Buffer::new();
    packed.words(&["SET", claim.key, claim.locker, "NX", "PX", digits.format(millis(claim.lease))]);
    let queue = queue_name(digits.format(tag_for(claim.key)), claim.key);
    packed.command([Word::Text("LLEN"), Word::Parts(&queue)].into_iter());
    packed.words(&["INCR", FENCE]);
    packed.words(&["GET", claim.key]);
    packed.is_confirmed = true;
}

/// Interprets the replies to the four commands. Fails with [`Error::Backend`] (unknown) when the first reply leaves open whether the command
/// was executed.
fn read(replies: &[&Value], claim: &Claim<'_>) -> Result<Found, Error> {
    match replies {
        // The key was not taken. The commands after the `SET` have changed nothing but the fence.
        [Value::Nil, _, _, holder] => match holder {
            Value::BulkString(holder) => Ok(Found::Busy(holder_text(holder))),
            // The holder ended between the `SET` and the `GET`.
            Value::Nil => Ok(Found::Busy(GONE.to_owned())),
            // The key has another type: the script reports it.
            _ => Ok(Found::Refused),
        },
        [Value::ServerError(refusal), _, _, _] => match classify(refusal, claim.key) {
            error if error.is_unknown() => Err(error),
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

/// A contended key is acquired by script until this many scripted acquires in a row have succeeded. So a key that is busy every other time
/// is never tried in plain commands.
const SUCCESSES: u8 = 4;

/// Which keys were contended recently. An entry is the number of scripted acquires in a row that must still succeed before the key counts as
/// uncontended. An uncontended key is likely to be free.
// ORDERING: Relaxed: a guess that decides only whether a key is first tried in plain commands. A stale value or a lost update costs a
// round trip.
#[derive(Debug)]
pub(crate) struct Contention(Vec<AtomicU8>);

impl Contention {
    pub(crate) fn new() -> Self {
        Self((0..KeyHash::COUNT).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns `true` if the key was contended recently.
    fn is_at(&self, key: KeyHash) -> bool {
        self.of(key).load(Ordering::Relaxed) > 0 // ORDERING: Relaxed: a guess.
    }

    /// Notes the outcome of a script for this key.
    pub(crate) fn note(&self, key: KeyHash, outcome: &Outcome) {
        match outcome {
            Outcome::Acquire(AcquireOutcome::Acquired(grant)) if grant.waiting == 0 => {
                let left = self.of(key);
                // ORDERING: Relaxed: a guess; a lost update keeps the key with the script for one more acquire.
                match left.load(Ordering::Relaxed) {
                    0 => {}
                    some => left.store(some - 1, Ordering::Relaxed),
                }
            }
            _ if shows_contention(outcome) => self.note_busy(key),
            _ => {}
        }
    }

    /// Notes that a plain attempt found the key busy.
    fn note_busy(&self, key: KeyHash) {
        self.of(key).store(SUCCESSES, Ordering::Relaxed); // ORDERING: Relaxed: a guess.
    }

    /// Notes the outcome of a posted release.
    pub(crate) fn note_release(&self, key: KeyHash, outcome: &ReleaseOutcome) {
        if leaves_waiters(outcome) {
            self.note_busy(key);
        }
    }

    fn of(&self, key: KeyHash) -> &AtomicU8 {
        &self.0[usize::from(key.0)]
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
        Outcome::Release(outcome) => leaves_waiters(outcome),
        _ => false,
    }
}

fn leaves_waiters(outcome: &ReleaseOutcome) -> bool {
    match outcome {
        ReleaseOutcome::Released { waiting } => *waiting > 0,
        ReleaseOutcome::Passed(grant) => grant.waiting > 0,
        ReleaseOutcome::Queued(_) => true,
        ReleaseOutcome::NotOurs(_) => false,
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/plain/attempt.rs"]
mod tests;
