//! One call under way: what its caller waits on, and what the leader writes into.
//!
//! | phase | meaning | who may change it |
//! |---|---|---|
//! | `Queued` | not written; it stands in the transport's queue | the leader, or the caller that gives up |
//! | `Written` | handed to the link; it stands in the link's order | the leader, or the caller that gives up |
//! | `Left` | the caller is gone; its replies are read and thrown away | nobody |
//! | `Done` | all replies are there, or a failure | nobody |
//!
//! `lead` is set beside the phase when the caller is woken to lead. Lock order: the transport's state, then a slot.

use super::script::Packed;
use crate::error::Error;
use ::redis::Value;
use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// What a call brought: the replies that came, and, when they are fewer than asked for, why.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) values: Vec<Value>,
    /// Which connection they came on.
    pub(crate) epoch: u64,
    pub(crate) failure: Option<Error>,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Queued,
    Written,
    Left,
    Done,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slot {
    /// How many replies the call has.
    pub(crate) replies: usize,
    core: Mutex<Core>,
    changed: Condvar,
}

#[derive(Debug)]
struct Core {
    phase: Phase,
    lead: bool,
    packed: Packed,
    values: Vec<Value>,
    epoch: u64,
    failure: Option<Error>,
}

/// Why a caller woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Done,
    Lead,
    TimedOut,
}

impl Slot {
    pub(crate) fn new(packed: Packed) -> Self {
        let replies = packed.replies;
        let (values, failure) = (Vec::with_capacity(replies), None);
        let core = Core { phase: Phase::Queued, lead: false, packed, values, epoch: 0, failure };
        Self { replies, core: Mutex::new(core), changed: Condvar::new() }
    }

    /// Waits until the call is over, its caller is to lead, or the deadline has come.
    pub(crate) fn wait(&self, deadline: Instant) -> Wake {
        let mut core = self.core.lock();
        loop {
            // The lead first, even when the call is over: it has to be passed on.
            if core.lead {
                return Wake::Lead;
            }
            if core.phase == Phase::Done {
                return Wake::Done;
            }
            if self.changed.wait_until(&mut core, deadline).timed_out() && core.phase != Phase::Done && !core.lead {
                return Wake::TimedOut;
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.core.lock().phase == Phase::Done
    }

    /// Makes the caller the leader; `false` when nobody waits here any more. Wake it after unlocking.
    pub(crate) fn appoint(&self) -> bool {
        let mut core = self.core.lock();
        let waits = matches!(core.phase, Phase::Queued | Phase::Written);
        core.lead = waits;
        waits
    }

    /// Takes the leadership that was given, if it was.
    pub(crate) fn take_lead(&self) -> bool {
        std::mem::take(&mut self.core.lock().lead)
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Appends the bytes to what is to be written, with the slack in its place.
    pub(crate) fn write_to(&self, bytes: &mut Vec<u8>, epoch: u64, slack: &[u8; 5]) {
        let mut core = self.core.lock();
        core.phase = Phase::Written;
        core.epoch = epoch;
        let start = bytes.len();
        bytes.extend_from_slice(&core.packed.bytes);
        for at in &core.packed.slack_at {
            bytes[start + at..start + at + slack.len()].copy_from_slice(slack);
        }
    }

    /// Takes in a reply; `true` when the caller is to be woken for it.
    pub(crate) fn push(&self, value: Value) -> bool {
        let mut core = self.core.lock();
        if core.phase != Phase::Written {
            return false;
        }
        core.values.push(value);
        if core.values.len() == self.replies {
            core.phase = Phase::Done;
        }
        core.phase == Phase::Done
    }

    /// Ends the call with a failure; the replies that came stay. `true` when the caller is to be woken for it.
    pub(crate) fn fail(&self, error: &Error) -> bool {
        let mut core = self.core.lock();
        if !matches!(core.phase, Phase::Queued | Phase::Written) {
            return false;
        }
        core.phase = Phase::Done;
        core.failure = Some(error.clone());
        true
    }

    /// The caller goes: the phase it was in. Replies that come later are thrown away.
    pub(crate) fn leave(&self) -> Phase {
        let mut core = self.core.lock();
        if core.phase == Phase::Done { Phase::Done } else { std::mem::replace(&mut core.phase, Phase::Left) }
    }

    /// What came.
    pub(crate) fn answer(&self) -> Answer {
        let mut core = self.core.lock();
        let (values, failure) = (std::mem::take(&mut core.values), core.failure.take());
        Answer { values, epoch: core.epoch, failure }
    }
}
