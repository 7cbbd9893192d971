//! Decides when a fence number from an unchecked `INCR` on a connection may be trusted: one that no script has compared with the
//! server's clock.
//!
//! A *proof* is a number that a script issued: at that moment it was at the server's clock, or behind it by at most the slack. For one
//! second after it, counting up is good enough. Whatever loses the fence leaves it far below the last number, so the next count is not
//! above that number; a number that is above it was counted up from it. Only an event that throws the fence back by less than about two
//! seconds (the greatest age of a proof when its number is read) goes unnoticed, and no such event happens while the connection stays
//! open and the server stays master.
//!
//! A server can stop being master, let another one issue numbers, and become master again without closing a connection. It refuses
//! every command in between, and a refusal ends the proof. But if no command was sent in between, nobody notices. So a proof holds for
//! one *epoch* of its connection: an epoch ends when nothing is written for 100 ms (`QUIET` in `transport/mux/core.rs`), and with a
//! refusal, even one that answers a caller that has left. The first number of the next epoch comes from a script, without slack. One
//! case stays unnoticed: a server that is no master for less than 100 ms plus the time that a command takes to reach it.
//!
//! A proof ends after its second, with its epoch, when the server says that it is or was no master, and with a number that is not above
//! the earlier ones. A number that was requested before such an end, by a script or not, starts no new proof.

use super::timing::{FRESH, STALE};
use crate::clock::{Clock, Moment, SystemClock};
use crate::store::redis::transport::{MUXES, Transport, Way};
use crate::sync::Mutex;

/// What is known of the fence numbers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// The epoch of the connection.
    epoch: u64,
    /// The highest number read in this epoch.
    highest: u64,
    /// When the last number that a script issued was requested.
    at: Moment,
    /// How often all proofs had been ended before.
    ends: u64,
}

/// The verdict on a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The number may be used.
    Trusted,
    /// The proof has ended.
    Expired,
    /// The number is not above the earlier ones: the fence was lost.
    FenceReset,
}

/// The proofs of all muxes, and the decision.
#[derive(Debug)]
pub(crate) struct FenceTrust(Mutex<State>);

#[derive(Debug)]
struct State {
    muxes: [Option<Proof>; MUXES],
    /// When all proofs were last ended, and how often that has happened.
    ended: Option<Moment>,
    ends: u64,
}

impl FenceTrust {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { muxes: [None; MUXES], ended: None, ends: 0 }))
    }

    /// Records that a script issued a number on the connection; the request was sent at `sent_at`. From now on the fence may lag a
    /// little, and for a while unchecked numbers may be trusted.
    pub(crate) fn note(&self, transport: &Transport, epoch: u64, number: u64, sent_at: Moment) {
        self.prove(epoch, number, sent_at, || transport.stamp(epoch));
    }

    /// Forgets that fence numbers were read on the connections, because the server says that it is or was no master (so another may
    /// have issued numbers since), or because the fence was lost.
    pub(crate) fn end_all(&self, transport: &Transport) {
        self.end(|| transport.unstamp());
    }

    /// Returns the proof under which numbers may be trusted that are read on this way, if there is one.
    pub(super) fn proof_on(&self, transport: &Transport, way: &Way) -> Option<Proof> {
        self.of(way.mux, transport.warm_epoch(way)?)
    }

    /// Whether an unchecked number may be used that was requested under a proof and read on the connection with that epoch. A number
    /// that is not above the earlier ones ends all proofs.
    pub(super) fn accepts(&self, transport: &Transport, proof: Proof, epoch: u64, number: u64) -> bool {
        if transport.is_deposed(epoch) {
            return false;
        }
        let verdict = self.judge(proof, epoch, number);
        if verdict == Verdict::FenceReset {
            self.end_all(transport);
        }
        verdict == Verdict::Trusted
    }

    /// Records a number that a script issued, requested at `sent_at`, and then runs `then`. Does nothing if the number was requested
    /// before all proofs were last ended: then it proves nothing. An [`end`](Self::end) comes before both steps or after both.
    fn prove(&self, epoch: u64, number: u64, sent_at: Moment, then: impl FnOnce()) {
        let mut state = self.0.lock();
        if state.ended.is_some_and(|ended| sent_at <= ended) {
            return;
        }
        let ends = state.ends;
        let proof = &mut state.muxes[mux_of(epoch)];
        match proof {
            Some(proof) if proof.epoch > epoch => {}
            Some(proof) if proof.epoch == epoch => {
                proof.highest = proof.highest.max(number);
                proof.at = proof.at.max(sent_at);
            }
            _ => *proof = Some(Proof { epoch, highest: number, at: sent_at, ends }),
        }
        then();
    }

    /// The proof of a mux, if a number may be requested under it in this epoch.
    fn of(&self, mux: usize, epoch: u64) -> Option<Proof> {
        self.of_at(mux, epoch, SystemClock.now())
    }

    fn of_at(&self, mux: usize, epoch: u64, now: Moment) -> Option<Proof> {
        let state = self.0.lock();
        let proof = state.muxes[mux].filter(|proof| proof.epoch == epoch && now.since(proof.at) <= FRESH)?;
        // All connections lead to one server, which has counted up from every number that was read on any of them.
        let highest = state.muxes.iter().flatten().map(|proof| proof.highest).max()?;
        Some(Proof { highest, ..proof })
    }

    /// Judges a number that was requested under a proof, and whose call was written in that epoch.
    fn judge(&self, asked: Proof, epoch: u64, number: u64) -> Verdict {
        self.judge_at(asked, epoch, number, SystemClock.now())
    }

    fn judge_at(&self, asked: Proof, epoch: u64, number: u64, now: Moment) -> Verdict {
        let mut state = self.0.lock();
        if epoch != asked.epoch || state.ends != asked.ends {
            return Verdict::Expired;
        }
        // The number must be above those read before the request, but not above all that were read since: each thread looks at its own
        // reply, in any order.
        if number <= asked.highest {
            return Verdict::FenceReset;
        }
        match &mut state.muxes[mux_of(epoch)] {
            Some(proof) if proof.epoch == epoch && now.since(proof.at) <= STALE => {
                proof.highest = proof.highest.max(number);
                Verdict::Trusted
            }
            _ => Verdict::Expired,
        }
    }

    /// Ends all proofs, and runs `then` to undo what followed from them.
    fn end(&self, then: impl FnOnce()) {
        self.end_at(SystemClock.now(), then);
    }

    fn end_at(&self, now: Moment, then: impl FnOnce()) {
        let mut state = self.0.lock();
        then();
        *state = State { muxes: [None; MUXES], ended: Some(now), ends: state.ends + 1 };
    }
}

fn mux_of(epoch: u64) -> usize {
    (epoch % MUXES as u64) as usize
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/plain/trust.rs"]
mod tests;
