//! Decides when a fence number from an unchecked `INCR` on a connection may be trusted. No script has compared such a number with the server's clock.
//!
//! A *watermark* is a number that a script issued: at that moment it was at the server's clock, or behind it by at most the slack. For one second
//! after that, counting up is good enough. Whatever loses the fence leaves it far below the last number, so the next count is not above that number;
//! a number that is above it was counted up from it. Only an event that throws the fence back by less than about two seconds (the greatest age of a
//! watermark when its number is read) goes unnoticed, and no such event happens while the connection stays open and the server stays master.
//!
//! A server can stop being master, let another one issue numbers, and become master again without closing a connection. It refuses
//! every command in between, and a refusal ends the watermark. But if no command was sent in between, nobody notices. So a watermark holds
//! for one *epoch* of its connection: an epoch ends when nothing is written for 100 ms (`QUIET` in `transport/timing.rs`), and with a
//! refusal, even one that answers a caller that has left. The first number of the next epoch comes from a script, without slack. One
//! case stays unnoticed: a server that is no master for less than 100 ms plus the time that a command takes to reach it.
//!
//! A watermark ends after its second, with its epoch, when the server says that it is or was no master, and with a number that is not above
//! the earlier ones. A number that was requested before such an end, by a script or not, starts no new watermark.

use super::timing::{FRESH, STALE};
use crate::clock::{Clock, Moment, SystemClock};
use crate::port::{AcquireOutcome, ExtendOutcome, Extension, Outcome, PollOutcome, ReleaseOutcome};
use crate::store::redis::transport::{MUXES, Route, Transport};
use crate::sync::Mutex;
use std::time::Instant;

/// What is known of the fence numbers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watermark {
    /// The epoch of the connection.
    epoch: u64,
    /// The highest number read in this epoch.
    highest: u64,
    /// When the last number that a script issued was requested.
    at: Moment,
    /// How often all watermarks had been ended before.
    ends: u64,
}

/// The verdict on a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The number may be used.
    Trusted,
    /// The watermark has ended.
    Expired,
    /// The number is not above the earlier ones: the fence was lost.
    FenceReset,
}

/// The watermarks of all muxes, and the decision.
#[derive(Debug)]
pub(crate) struct FenceWatermarks(Mutex<Watermarks>);

#[derive(Debug)]
struct Watermarks {
    muxes: [Option<Watermark>; MUXES],
    /// When all watermarks were last ended, and how often that has happened.
    ended: Option<Moment>,
    ends: u64,
}

impl FenceWatermarks {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Watermarks { muxes: [None; MUXES], ended: None, ends: 0 }))
    }

    /// Forgets that fence numbers were read on the connections, because the server says that it is or was no master (so another may
    /// have issued numbers since), or because the fence was lost.
    pub(crate) fn end_all(&self, transport: &Transport) {
        self.end(SystemClock.now(), || transport.unstamp());
    }

    /// Returns the watermark by which numbers that are read on this route may be trusted, if there is one at this moment.
    pub(super) fn watermark_on(&self, transport: &Transport, route: &Route, at: Instant) -> Option<Watermark> {
        self.of(route.mux, transport.warm_epoch(route, at)?, SystemClock.now())
    }

    /// Whether an unchecked number may be used that was requested under a watermark and read on the connection with that epoch. A number
    /// that is not above the earlier ones ends all watermarks.
    pub(super) fn accepts(&self, transport: &Transport, watermark: Watermark, epoch: u64, number: u64) -> bool {
        if transport.is_deposed(epoch) {
            return false;
        }
        let verdict = self.judge(watermark, epoch, number, SystemClock.now());
        if verdict == Verdict::FenceReset {
            self.end_all(transport);
        }
        verdict == Verdict::Trusted
    }

    /// Notes the outcome of a script that was called at `sent_at` and answered in that epoch. From now on the fence may lag a little, if the script
    /// has issued a number.
    pub(crate) fn note(&self, transport: &Transport, epoch: u64, outcome: &Outcome, sent_at: Moment) {
        let number = match outcome {
            Outcome::Acquire(AcquireOutcome::Acquired(grant))
            | Outcome::Poll(PollOutcome::Acquired(grant))
            | Outcome::Release(ReleaseOutcome::Passed(grant)) => grant.number,
            Outcome::Extend(ExtendOutcome::Extended(Extension { numbers: Some(numbers), .. })) => *numbers.end(),
            _ => return,
        };
        self.note_number(epoch, number, sent_at, || transport.stamp(epoch));
    }

    /// Records a number that a script issued on the connection, requested at `sent_at`, and then runs `then`. For a while unchecked numbers
    /// may be trusted. Does nothing if the number was requested before all watermarks were last ended: then it proves nothing. An
    /// [`end`](Self::end) comes before both steps or after both.
    fn note_number(&self, epoch: u64, number: u64, sent_at: Moment, then: impl FnOnce()) {
        let mut state = self.0.lock();
        if state.ended.is_some_and(|ended| sent_at <= ended) {
            return;
        }
        let ends = state.ends;
        let watermark = &mut state.muxes[mux_of(epoch)];
        match watermark {
            Some(watermark) if watermark.epoch > epoch => {}
            Some(watermark) if watermark.epoch == epoch => {
                watermark.highest = watermark.highest.max(number);
                watermark.at = watermark.at.max(sent_at);
            }
            _ => *watermark = Some(Watermark { epoch, highest: number, at: sent_at, ends }),
        }
        then();
    }

    /// The watermark of a mux, if a number may be requested under it in this epoch.
    fn of(&self, mux: usize, epoch: u64, now: Moment) -> Option<Watermark> {
        let state = self.0.lock();
        let watermark =
            state.muxes[mux].filter(|watermark| watermark.epoch == epoch && now.since(watermark.at) <= FRESH)?;
        // All connections lead to one server, which has counted up from every number that was read on any of them.
        let highest = state.muxes.iter().flatten().map(|watermark| watermark.highest).max()?;
        Some(Watermark { highest, ..watermark })
    }

    /// Judges a number that was requested under a watermark, and whose call was written in that epoch.
    fn judge(&self, asked: Watermark, epoch: u64, number: u64, now: Moment) -> Verdict {
        let mut state = self.0.lock();
        if epoch != asked.epoch || state.ends != asked.ends {
            return Verdict::Expired;
        }
        // The number must be above those that were read before the request. It need not be above those that were read since, because threads look at
        // their replies in any order.
        if number <= asked.highest {
            return Verdict::FenceReset;
        }
        match &mut state.muxes[mux_of(epoch)] {
            Some(watermark) if watermark.epoch == epoch && now.since(watermark.at) <= STALE => {
                watermark.highest = watermark.highest.max(number);
                Verdict::Trusted
            }
            _ => Verdict::Expired,
        }
    }

    /// Ends all watermarks, and runs `then` to undo what followed from them.
    fn end(&self, now: Moment, then: impl FnOnce()) {
        let mut state = self.0.lock();
        then();
        *state = Watermarks { muxes: [None; MUXES], ended: Some(now), ends: state.ends + 1 };
    }
}

fn mux_of(epoch: u64) -> usize {
    (epoch % MUXES as u64) as usize
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/plain/fence_watermarks.rs"]
mod tests;
