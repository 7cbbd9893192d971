//! One call in flight: its caller waits on it, and the reader stores the replies in it.
//!
//! | phase | meaning | who may change it |
//! |---|---|---|
//! | `Queued` | not written; it is in its mux's queue | the writer, the caller that gives up, or a thread that fails it |
//! | `Written` | handed to the connection; it has its place in the order of replies | the reader, the caller that gives up, or a thread that fails it |
//! | `Left` | the caller is gone; its replies are read and dropped | nobody |
//! | `Done` | all replies have come, or the call has failed | nobody |
//!
//! Beside the phase, a call notes whether its caller is promoted: such a caller is woken to become the writer or the reader of its
//! connection. Lock order: the mux's state, then a call.
//!
//! No caller waits for the answer of a posted call. Its poster stays until the call's bytes are handed to the system. While it stays, it
//! can be promoted to writer, but never to reader, because it does not wait for a reply. If the server does not know the short form of a
//! posted command, the call goes back from `Written` to `Queued` once,
//! in its full form.
//!
//! A call that is to be confirmed stays `Written` until its write is confirmed, too. A posted call is never confirmed.

use super::routes::RouteGuard;
use crate::error::Error;
use crate::log;
use crate::store::redis::net::classify::is_noscript;
use crate::store::redis::net::resp::{Packed, Stamp};
use crate::sync::{Condvar, Mutex, catch_panic, mutant, now};
use ::redis::Value;
use std::time::{Duration, Instant};

/// The outcome of a call: the replies that came and, if some are missing, the reason.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) values: Vec<Value>,
    /// The epoch of the connection in which the call was written.
    pub(crate) epoch: u64,
    /// The reply to the command that confirmed the call, if the call is one to be confirmed and that reply has come.
    pub(crate) confirmation: Option<Value>,
    pub(crate) failure: Option<Error>,
}

/// Receives the answer of a call that nobody waits for. It runs on whichever thread finds the answer, and must not block.
pub(crate) type Callback = Box<dyn FnOnce(Answer) + Send>;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Queued,
    Written,
    Left,
    Done,
}

/// The roles to which a caller is promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promotion {
    pub(crate) to_writer: bool,
    pub(crate) to_reader: bool,
}

/// See the module.
pub(crate) struct Pending {
    /// The number of replies that the call gets.
    pub(crate) replies: usize,
    /// Whether the call is posted: nobody waits for its answer.
    pub(crate) is_posted: bool,
    /// Whether the call is one of several of a caller.
    is_part: bool,
    /// Whether the call is answered only when its write is confirmed, too.
    pub(crate) is_confirmed: bool,
    core: Mutex<Core>,
    changed: Condvar,
}

struct Core {
    phase: Phase,
    promotion: Promotion,
    packed: Packed,
    /// Keeps later calls for the same keys on this mux until the last reply is read.
    route: RouteGuard,
    /// Whether the caller is here, or about to be, to take a role on.
    is_attended: bool,
    /// Whether all bytes of a posted call were handed to the system.
    is_sent: bool,
    /// Whether a posted call was queued again, in its full form.
    is_repeated: bool,
    answer: Answer,
    /// Whether the call failed because no connection could be opened.
    unconnected: bool,
    /// The callback of a posted call.
    callback: Option<Callback>,
}

/// Why a caller woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Done,
    Promoted,
    TimedOut,
}

impl Core {
    fn waits(&self) -> bool {
        matches!(self.phase, Phase::Queued | Phase::Written)
            && !self.is_sent
            && (self.is_attended || mutant!(WaitsTwice))
    }
}

/// What a reply meant to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody has to be woken: the caller is gone, or more replies or the confirmation are missing.
    Kept,
    /// It was the last reply: the call must be woken.
    Last,
    /// The server does not know the short form of a posted call, which must be queued again.
    Again,
}

impl Promotion {
    pub(crate) fn any(self) -> bool {
        self.to_writer || self.to_reader
    }
}

impl Pending {
    /// Creates a call whose caller waits for it, and for no other call at the same time.
    pub(crate) fn new(packed: Packed, route: RouteGuard) -> Self {
        Self::with(packed, route, false, None)
    }

    /// Creates one of several calls of a caller, which [`attend`](Self::attend)s to one after another.
    pub(crate) fn part(packed: Packed, route: RouteGuard) -> Self {
        Self::with(packed, route, true, None)
    }

    /// Creates a call whose answer nobody waits for. Its poster [`leave`](Self::leave_sent)s once the call is sent.
    pub(crate) fn posted(packed: Packed, route: RouteGuard, callback: Callback) -> Self {
        Self::with(packed, route, false, Some(callback))
    }

    fn with(packed: Packed, route: RouteGuard, is_part: bool, callback: Option<Callback>) -> Self {
        let (replies, is_posted, is_confirmed) = (packed.replies, callback.is_some(), packed.is_confirmed);
        let (promotion, answer) = (Promotion::default(), Answer::default());
        let core = Core {
            phase: Phase::Queued,
            promotion,
            packed,
            route,
            is_attended: !is_part,
            is_sent: false,
            is_repeated: false,
            answer,
            unconnected: false,
            callback,
        };
        Self { replies, is_posted, is_part, is_confirmed, core: Mutex::new(core), changed: Condvar::new() }
    }

    /// Waits until the call is done, its caller is promoted, or the deadline has come.
    pub(crate) fn wait(&self, deadline: Instant) -> Wake {
        let mut core = self.core.lock();
        loop {
            // Check this first, even if the call is done: the role must be taken on or handed on.
            if core.promotion.any() {
                return Wake::Promoted;
            }
            if core.phase == Phase::Done {
                return Wake::Done;
            }
            let left = deadline.saturating_duration_since(now());
            if left == Duration::ZERO {
                return Wake::TimedOut;
            }
            self.changed.wait_for(&mut core, left);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.core.lock().phase == Phase::Done
    }

    /// Returns `true` if the call is not written yet.
    pub(crate) fn is_queued(&self) -> bool {
        self.core.lock().phase == Phase::Queued
    }

    /// Returns `true` if the caller has what it came for: the answer or, for a posted call, that it is sent.
    pub(crate) fn is_over(&self) -> bool {
        let core = self.core.lock();
        core.phase == Phase::Done || core.is_sent
    }

    /// Notes that all bytes of a posted call were handed to the system. Returns `true` if its poster has waited for that.
    pub(crate) fn mark_sent(&self) -> bool {
        let mut core = self.core.lock();
        core.is_sent = true;
        let (is_attended, is_done) = (core.is_attended, core.phase == Phase::Done);
        drop(core);
        if is_attended {
            self.changed.notify_one();
        }
        is_attended && !is_done
    }

    /// Waits until a posted call is sent or has failed, its poster is promoted, or the deadline has come.
    pub(crate) fn wait_sent(&self, deadline: Instant) -> Wake {
        let mut core = self.core.lock();
        loop {
            if core.promotion.any() {
                return Wake::Promoted;
            }
            if core.is_sent || core.phase == Phase::Done {
                return Wake::Done;
            }
            let left = deadline.saturating_duration_since(now());
            if left == Duration::ZERO {
                return Wake::TimedOut;
            }
            self.changed.wait_for(&mut core, left);
        }
    }

    /// Lets the poster leave. Returns `true` if it was promoted to writer: then a successor is needed.
    pub(crate) fn leave_sent(&self) -> bool {
        let mut core = self.core.lock();
        core.is_attended = false;
        std::mem::take(&mut core.promotion).to_writer
    }

    /// Returns `true` if the call was written to the mux's current connection, whose first epoch this is, and its caller waits for the
    /// answer.
    pub(crate) fn is_due_since(&self, first_epoch: u64) -> bool {
        let core = self.core.lock();
        core.phase == Phase::Written && core.answer.epoch >= first_epoch
    }

    /// Returns `true` if the caller may go on reading: its answer has not come, and it is not promoted to writer.
    pub(crate) fn may_read_on(&self) -> bool {
        let core = self.core.lock();
        core.phase != Phase::Done && (!core.promotion.to_writer || mutant!(ReadsOnInDuty))
    }

    /// Notes that the caller waits for this call from now on.
    pub(crate) fn attend(&self) {
        self.core.lock().is_attended = true;
    }

    /// Returns `true` if the caller has other calls to begin before it attends to this one.
    pub(crate) fn has_others_first(&self) -> bool {
        self.is_part && !self.core.lock().is_attended
    }

    /// Returns `true` if a caller waits for this call now, so that it can be promoted.
    pub(crate) fn waits(&self) -> bool {
        self.core.lock().waits()
    }

    /// Promotes the caller to writer, or else to reader. Returns `false` if nobody waits here any more, or yet. Wake the caller after
    /// unlocking the mux's state.
    pub(crate) fn promote(&self, to_writer: bool) -> bool {
        let mut core = self.core.lock();
        let waits = core.waits() && (to_writer || !self.is_posted);
        if waits {
            core.promotion.to_writer |= to_writer;
            core.promotion.to_reader |= !to_writer;
        }
        waits
    }

    /// Returns the roles to which the caller was promoted, and which it takes on now.
    pub(crate) fn take_promotion(&self) -> Promotion {
        std::mem::take(&mut self.core.lock().promotion)
    }

    /// Wakes the caller, or passes the answer of a posted call to its callback. Call it without holding the mux's state.
    pub(crate) fn wake(&self) {
        let mut core = self.core.lock();
        if core.phase == Phase::Done
            && let Some(callback) = core.callback.take()
        {
            let (answer, is_attended) = (std::mem::take(&mut core.answer), core.is_attended);
            drop(core);
            if is_attended {
                self.changed.notify_one();
            }
            // Contain a panic: it would keep the answers of other callers from them.
            if catch_panic(|| callback(answer)).is_err() {
                log::error!(TRANSPORT, "the callback of a call ended by a panic; please report it");
            }
        } else {
            drop(core);
            self.changed.notify_one();
        }
    }

    /// Appends the call's bytes to `bytes`, with the stamp, if there is one, in its places.
    pub(crate) fn write_to(&self, bytes: &mut Vec<u8>, epoch: u64, stamp: Option<&Stamp>) {
        let mut core = self.core.lock();
        core.phase = Phase::Written;
        core.answer.epoch = epoch;
        let start = bytes.len();
        bytes.extend_from_slice(&core.packed.bytes);
        let Some(stamp) = stamp else { return };
        for at in &core.packed.stamp_at {
            bytes[start + at..start + at + stamp.len()].copy_from_slice(stamp);
        }
    }

    /// Takes in a reply.
    pub(crate) fn push(&self, value: Value) -> Taken {
        let mut core = self.core.lock();
        if core.phase != Phase::Written {
            return Taken::Kept;
        }
        // NOSCRIPT: the short form is unknown, and nothing was executed.
        if self.is_posted && self.replies == 1 && is_noscript(&value) && !std::mem::replace(&mut core.is_repeated, true)
        {
            core.packed.spell_out();
            core.phase = Phase::Queued;
            return Taken::Again;
        }
        core.answer.values.push(value);
        if core.answer.values.len() < self.replies || (self.is_confirmed && !mutant!(AnswersUnconfirmed)) {
            return Taken::Kept;
        }
        core.phase = Phase::Done;
        Taken::Last
    }

    /// Takes in the reply to the command that confirms the call. All replies to the call itself have come before.
    pub(crate) fn confirm(&self, value: &Value) -> Taken {
        let mut core = self.core.lock();
        if core.phase != Phase::Written {
            return Taken::Kept;
        }
        core.answer.confirmation = Some(value.clone());
        core.phase = Phase::Done;
        Taken::Last
    }

    /// Ends the call with a failure; the replies that came stay. Returns `true` if the call must be woken.
    pub(crate) fn fail(&self, error: &Error, unconnected: bool) -> bool {
        let mut core = self.core.lock();
        if !matches!(core.phase, Phase::Queued | Phase::Written) {
            return false;
        }
        core.phase = Phase::Done;
        core.unconnected = unconnected;
        core.answer.failure = Some(error.clone());
        true
    }

    /// Returns the answer if the call is done and its caller is not promoted.
    pub(crate) fn finished(&self) -> Option<Answer> {
        let mut core = self.core.lock();
        (core.phase == Phase::Done && !core.promotion.any()).then(|| std::mem::take(&mut core.answer))
    }

    /// Lets the caller leave. Returns the phase that the call was in, the roles to which the caller is promoted,
    /// and what came. Later replies are dropped.
    pub(crate) fn leave(&self) -> (Phase, Promotion, Answer) {
        let mut core = self.core.lock();
        let phase =
            if core.phase == Phase::Done { Phase::Done } else { std::mem::replace(&mut core.phase, Phase::Left) };
        if mutant!(GivesPassageBackEarly) {
            core.route.give_back();
        }
        (phase, std::mem::take(&mut core.promotion), std::mem::take(&mut core.answer))
    }

    /// Returns the bytes to write, and the route of the call, if the call failed because no connection could be opened.
    pub(crate) fn unconnected(&self) -> Option<(Packed, RouteGuard)> {
        let mut core = self.core.lock();
        std::mem::take(&mut core.unconnected).then(|| (std::mem::take(&mut core.packed), core.route.take()))
    }
}
