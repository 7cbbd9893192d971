//! When replicas must acknowledge a write before its outcome counts: [`RedisBuilder::replica_acks`](crate::RedisBuilder::replica_acks).
//!
//! A request that may take a key or extend a lease is *confirmed*: the connection sends one `WAIT` behind all commands of a write, and the
//! reply to a confirmed request is given out with that of the `WAIT`, which says how many replicas have the write. `WAIT` covers the last
//! write that its own connection made, and all that the server wrote before that. So one is enough for the requests of many threads.
//!
//! Since Redis 7.2, a command that writes nothing is not covered: a `WAIT` behind it alone says nothing about what others have written. So every
//! outcome that gives a right must be a write by its own command, even if the key already contains the locker: such a poll issues a number and sets
//! the lease, and an extension sets the lease, even to the same end. Replicas get writes in their order, so a replica that has that write has the one
//! that gave the key to the locker.
//!
//! | outcome without enough acknowledgements | then |
//! |---|---|
//! | an acquire or a poll got the key | the locker is released, and the request fails as [`Unacknowledged`](BackendFailure::Unacknowledged) |
//! | an extension | it fails likewise, or as `Unknown` if the reply to `WAIT` is missing. The deadline stays where it was: a promoted replica may know only the earlier one |
//! | a delayed release | as an extension: the client repeats it, and the repetition is a write |
//! | a hand-over gave the key to the next locker | it fails as `Unknown`, and the client asks what became of that locker |
//! | any other | it counts: it gives nobody a right |
//!
//! A release, a probe and an inspection are not confirmed. If the release is lost in a failover, the key is taken until its lease ends.
//!
//! # Why it is right
//!
//! * *One `WAIT` is under way at a time on a connection, as the last command of a write.* Redis executes nothing behind a `WAIT` until that is
//!   answered, so a release in the same write comes before it, and requests that are to be confirmed meanwhile go out together with one more
//!   (`transport/mux`, rule 8). If each write had its own, they would add up while replicas are missing, until the connection is overdue.
//! * *What got the key without enough acknowledgements is released* before the call fails. If that release is not answered, the outcome is
//!   unknown, and the locker is given up (`plain/given_up`): a grant of it may be heard, and must not be confirmed while a release may come.
//! * *An extension without them fails.* The master keeps the key for longer than the client believes, which is the safe way round.
//! * *A grant that another client's release made is confirmed by its receiver.* The message says nothing of replicas, so the client extends the
//!   lease before `lock()` returns (`StoreLimits::extends_heard_grants`). If the extension fails, the grant is given back.
//! * *A release is not confirmed, nor is a forced break.* If a failover loses it, the key is taken for the rest of the lease. The same happens if the
//!   process is killed while its release is behind a `WAIT`: Redis drops what it has not executed when the connection ends.
//!
//! See the `WAIT` page of Redis: a replica that did not acknowledge may be promoted nevertheless.

use crate::error::{BackendFailure, Error};
use crate::port::{AcquireOutcome, DelayReleaseOutcome, ExtendOutcome, Outcome, PollOutcome, ReleaseOutcome, Request};
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::resp::Packed;
use ::redis::Value;
use std::time::Duration;

/// How many replicas must acknowledge, and for how long the server waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaAcks {
    pub(crate) wanted: u32,
    pub(crate) timeout: Duration,
}

impl ReplicaAcks {
    /// Returns `None` if no acknowledgement is wanted.
    pub(crate) fn new(wanted: u32, timeout: Duration) -> Option<Self> {
        (wanted > 0).then_some(Self { wanted, timeout })
    }

    /// How much longer one request may take because the server waits for replicas: twice, once for earlier requests of the connection and once for
    /// this one; twice more if the server did not know the script; and once more, for others, before the release that undoes the request.
    pub(crate) fn longest(&self) -> Duration {
        self.timeout * 5
    }

    /// The command that confirms the commands before it.
    pub(crate) fn command(&self) -> Vec<u8> {
        Packed::of(&["WAIT", &self.wanted.to_string(), &self.timeout.as_millis().to_string()]).bytes
    }

    /// Checks that enough replicas have acknowledged the outcome of a request, if it gives somebody a right. `confirmation` is the reply to
    /// `WAIT`, if it came. Fails as the table of the module says, and with [`Error::Denied`] or [`Error::Unsupported`] if the user may not use
    /// `WAIT`, or the server lacks it.
    pub(crate) fn check(
        &self,
        request: &Request<'_>,
        outcome: &Outcome,
        confirmation: Option<&Value>,
    ) -> Result<(), Error> {
        let stays_unknown = match outcome {
            _ if !is_confirmed(request) => return Ok(()),
            // The caller undoes it.
            Outcome::Acquire(AcquireOutcome::Acquired(_)) | Outcome::Poll(PollOutcome::Acquired(_)) => false,
            Outcome::Extend(ExtendOutcome::Extended(_)) | Outcome::DelayRelease(DelayReleaseOutcome::Delayed) => {
                confirmation.is_none()
            }
            Outcome::Release(ReleaseOutcome::Passed(_)) => true,
            _ => return Ok(()),
        };
        self.count(confirmation).map_err(|error| if stays_unknown { error.into_unknown() } else { error })
    }

    /// Checks the reply to `WAIT`. Fails with [`Error::Backend`] (unacknowledged) if too few replicas have acknowledged, or it is not known how
    /// many, or with [`Error::Denied`] or [`Error::Unsupported`].
    pub(crate) fn count(&self, confirmation: Option<&Value>) -> Result<(), Error> {
        let Self { wanted, timeout } = self;
        let why = match confirmation {
            Some(Value::Int(n)) if *n >= i64::from(*wanted) => return Ok(()),
            Some(Value::Int(n)) => format!(
                "{n} of {wanted} replicas acknowledged the write within {timeout:?}; bring back those that are away, or allow more time"
            ),
            Some(Value::ServerError(e)) => match classify(e, "") {
                Error::Backend { message, .. } => {
                    format!("it is not known whether {wanted} replicas have acknowledged the write: {message}")
                }
                other => return Err(other),
            },
            Some(_) | None => format!("it is not known whether {wanted} replicas have acknowledged the write"),
        };
        Err(Error::backend(BackendFailure::Unacknowledged, why))
    }
}

/// Returns `true` for a request that is confirmed.
pub(crate) fn is_confirmed(request: &Request<'_>) -> bool {
    match request {
        Request::Acquire(_)
        | Request::Join(_)
        | Request::Poll(_)
        | Request::HandOver(..)
        | Request::DelayRelease(..) => true,
        // A lease of zero ends the tenure.
        Request::Extend(claim) | Request::ExtendWithNumbers(claim) => !claim.lease.is_zero(),
        Request::Release(_)
        | Request::Probe(_)
        | Request::Inspect { .. }
        | Request::Settle(_)
        | Request::Break(_)
        | Request::Broken { .. } => false,
    }
}

/// Returns `true` for a request that may have taken a key.
pub(crate) fn takes(request: &Request<'_>) -> bool {
    matches!(request, Request::Acquire(_) | Request::Join(_) | Request::Poll(_))
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/acks.rs"]
mod tests;
