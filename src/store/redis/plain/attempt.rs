//! A plain attempt from beginning to end, including what follows when it fails.

use super::commands::{Found, pack, read};
use super::contention::Contention;
use super::fence_watermarks::FenceWatermarks;
use super::given_up::TakingBack;
use crate::error::{BackendFailure, Error};
use crate::port::{AcquireOutcome, Busy, Claim, Grant, Outcome, Request};
use crate::store::redis::net::classify::is_no_master;
use crate::store::redis::script::acks::ReplicaAcks;
use crate::store::redis::transport::{KeyHash, Transport, Way};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// The script is asked in the same call only if this many round trips of the plain attempt fit into what is left of the limit.
const ROOM: u32 = 4;

/// What an attempt uses of its store.
pub(crate) struct Attempt<'a, S> {
    pub(crate) transport: &'a Transport,
    pub(crate) watermarks: &'a FenceWatermarks,
    pub(crate) contention: &'a Contention,
    /// How many replicas must acknowledge, if some must.
    pub(crate) acks: Option<ReplicaAcks>,
    pub(crate) taking_back: TakingBack<'a, S>,
}

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum Tried {
    Done(AcquireOutcome),
    /// The locker is not in the store, and the script must be asked: on this way, if one was chosen and not used.
    Ask(Option<Way>),
}

impl<S: Fn(Request<'_>, Duration) -> Result<Outcome, Error>> Attempt<'_, S> {
    /// Tries to take a key in plain commands, where that is likely to succeed.
    pub(crate) fn run(&self, claim: &Claim<'_>, wait: bool, start: Instant, limit: Duration) -> Result<Tried, Error> {
        let hash = KeyHash::of(claim.key);
        if self.contention.is_at(hash) {
            return Ok(Tried::Ask(None));
        }
        let way = self.transport.way(hash, limit);
        let Some(watermark) = self.watermarks.watermark_on(self.transport, &way) else {
            return Ok(Tried::Ask(Some(way)));
        };
        let mut batch = self.transport.batch_on(way);
        batch.push(claim.key, |packed| pack(claim, packed));
        let replies = self.transport.run(batch, limit, false);
        let (mut epoch, mut confirmation, mut values) = (0, None, SmallVec::<[_; 4]>::new());
        for reply in &replies {
            let replied = reply.as_ref().map_err(Error::clone)?;
            (epoch, confirmation) = (replied.epoch, replied.confirmation.as_deref());
            values.push(&replied.value);
        }
        if values.iter().copied().any(is_no_master) {
            self.watermarks.end_all(self.transport);
        }
        match read(&values, claim).map_err(|e| self.taking_back.address.hide(e))? {
            Found::Taken(number) if self.watermarks.accepts(self.transport, watermark, epoch, number) => {
                let outcome = AcquireOutcome::Acquired(Grant::new(number, 0));
                let Some(acks) = self.acks else { return Ok(Tried::Done(outcome)) };
                return match acks.count(confirmation) {
                    Ok(()) => Ok(Tried::Done(outcome)),
                    Err(error) => Err(self.taking_back.undo(claim, error, limit.saturating_sub(start.elapsed()))),
                };
            }
            Found::Busy(holder) => {
                self.contention.note_busy(hash);
                let busy = Busy::new(holder, None);
                if !wait {
                    return Ok(Tried::Done(AcquireOutcome::Busy(busy)));
                }
                return self.acquire_place(claim, busy, start.elapsed(), limit).map(Tried::Done);
            }
            Found::Refused => return Ok(Tried::Ask(None)),
            Found::Taken(_) | Found::Doubtful => {}
        }
        self.taking_back.take_back(claim, limit.saturating_sub(start.elapsed())).map(|()| Tried::Ask(None))
    }

    /// Asks for a place in the queue of a key that a plain attempt found busy, if the caller's limit leaves time for the reply. If that
    /// request fails with [`Error::Backend`], the key is still reported as busy.
    fn acquire_place(
        &self,
        claim: &Claim<'_>,
        busy: Busy,
        trip: Duration,
        limit: Duration,
    ) -> Result<AcquireOutcome, Error> {
        let left = limit.saturating_sub(trip);
        if left < trip * ROOM {
            return Ok(AcquireOutcome::Unqueued { busy, under_way: false });
        }
        match (self.taking_back.by_script)(Request::Join(*claim), left) {
            Ok(outcome) => outcome.try_into(),
            Err(error @ Error::Backend { failure: BackendFailure::Unacknowledged, .. }) => Err(error),
            Err(Error::Backend { failure, .. }) => {
                Ok(AcquireOutcome::Unqueued { busy, under_way: failure == BackendFailure::Unknown })
            }
            Err(error) => Err(error),
        }
    }
}
