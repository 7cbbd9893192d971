//! One call in flight: its caller waits on it, and the reader stores the replies in it.
//!
//! [`CallPhase`] is what became of it so far:
//!
//! | phase | meaning | who may change it |
//! |---|---|---|
//! | `Queued` | not written; it is in its mux's queue | the writer, the caller that gives up, or a thread that fails it |
//! | `Written` | handed to the connection; it has its place in the order of replies | the reader, the caller that gives up, or a thread that fails it |
//! | `Left` | the caller is gone; its replies are read and dropped | nobody |
//! | `Done` | all replies have come, or the call has failed | nobody |
//!
//! Beside that, a call notes whether its caller is promoted: such a caller is woken to become
//! the writer or the reader of its connection. Lock order: the mux's state, then a call.
//!
//! No caller waits for the answer of a posted call. Its poster stays until the call's bytes are handed to the system. While it stays, it
//! can be promoted to writer, but never to reader, because it does not wait for a reply.
//!
//! A call that is to be confirmed stays `Written` until its write is confirmed, too. A posted call is never confirmed.
//!
//! # Short forms
//!
//! A command may be written in a short form (`EVALSHA`) that the server does not know. It answers `NOSCRIPT` then, and has executed nothing.
//! This is the only place where that is dealt with: when the last reply of such a call has come, the call goes back from `Written` to
//! `Queued` once, with those of its commands alone, in their full form. Why that is right:
//!
//! * No command is executed twice: only commands that were refused are written again, and each once. A second refusal is the reply.
//! * No later call for the same key comes between, if it is made after the answer to this one: the call keeps its place among the calls for
//!   its keys (its route) until it is done, and it is queued again before any later answer is delivered.
//! * A caller's deadline stays what it was. If it comes first, the commands that were refused were not executed, and that is what it is told.
//! * Each reply has the epoch and the confirmation of the write that its own command was in: the two writes may go on two connections, and a
//!   confirmation says nothing about a write on another one.

use super::super::routes::{RouteGuard, Waits};
use crate::error::Error;
use crate::log;
use crate::store::redis::net::classify::is_noscript;
use crate::store::redis::net::resp::{Packed, Stamp};
use crate::sync::{Condvar, Mutex, catch_panic, now};
use ::redis::Value;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A reply that has come.
#[derive(Clone, Debug)]
pub(crate) struct Replied {
    pub(crate) value: Value,
    /// The epoch of the connection in which the command was written.
    pub(crate) epoch: u64,
    /// The reply to the command that confirmed it, if it is one to be confirmed and that reply has come.
    pub(crate) confirmation: Option<Arc<Value>>,
}

/// The outcome of a call: the reply to each of its commands that has come and, if some are missing, the reason. Those at the end may be left
/// out.
#[derive(Debug, Default)]
pub(crate) struct CallReplies {
    pub(crate) replies: SmallVec<[Option<Replied>; 1]>,
    pub(crate) failure: Option<Error>,
}

impl CallReplies {
    /// Returns the answer to a call that failed before it was sent.
    pub(crate) fn failed(error: Error) -> Self {
        Self { failure: Some(error), ..Self::default() }
    }

    /// Returns the reply to the first command.
    pub(crate) fn first(&self) -> Option<&Value> {
        self.replies.first()?.as_ref().map(|replied| &replied.value)
    }
}

/// Receives the answer of a call that nobody waits for. It runs on whichever thread finds the answer, and must not block.
pub(crate) type Callback = Box<dyn FnOnce(CallReplies) + Send>;

/// What became of a call so far: see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallPhase {
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

impl Promotion {
    pub(crate) fn any(self) -> bool {
        self.to_writer || self.to_reader
    }
}

/// Why a caller woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Done,
    Promoted,
    TimedOut,
}

/// What a reply meant to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody has to be woken: the caller is gone, or more replies or the confirmation are missing.
    Kept,
    /// It was the last reply: the call must be woken.
    Last,
    /// The server does not know the short form of some commands, for which the call must be queued again.
    Again,
}

/// See the module.
pub(crate) struct PendingCall {
    /// Whether the call is posted: nobody waits for its answer.
    pub(crate) is_posted: bool,
    /// Whether the call is one of several of a caller.
    is_part: bool,
    /// Whether the call is answered only when its write is confirmed, too.
    pub(crate) is_confirmed: bool,
    core: Mutex<CallState>,
    changed: Condvar,
}

struct CallState {
    phase: CallPhase,
    promotion: Promotion,
    packed: Packed,
    /// Keeps later calls for the same keys on this mux until the last reply is read.
    route: RouteGuard,
    /// Whether the caller is here, or about to be, to take a role on.
    is_attended: bool,
    /// Whether all bytes of a posted call were handed to the system.
    is_sent: bool,
    /// The epoch of the last write.
    epoch: u64,
    /// How many replies of the last write have come.
    came: u32,
    /// How many replies the last write has.
    expected: u32,
    /// The places of the commands whose short form the server does not know.
    unknown: Vec<usize>,
    /// The places of the commands that were queued again, in their full form. `None` before that.
    repeated: Option<Vec<usize>>,
    answer: CallReplies,
    /// Whether the call failed because no connection could be opened.
    unconnected: bool,
    /// The callback of a posted call.
    callback: Option<Callback>,
}

impl CallState {
    fn is_over(&self) -> bool {
        matches!(self.phase, CallPhase::Done) || self.is_sent
    }

    fn waits(&self) -> bool {
        matches!(self.phase, CallPhase::Queued | CallPhase::Written) && !self.is_sent && self.is_attended
    }

    /// Takes in a reply to the last write.
    fn take(&mut self, value: Value) {
        let at = self.came as usize;
        if at == 0 {
            self.answer.replies.reserve(self.expected as usize);
        }
        self.came += 1;
        let place = self.repeated.as_ref().map_or(at, |repeated| repeated[at]);
        let is_unknown = self.repeated.is_none() && is_noscript(&value);
        let replied = if is_unknown {
            self.unknown.push(place);
            None
        } else {
            Some(Replied { value, epoch: self.epoch, confirmation: None })
        };
        match self.answer.replies.get_mut(place) {
            Some(empty) => *empty = replied,
            None => self.answer.replies.push(replied),
        }
    }

    /// Ends the call, or a first write of it, to which everything has come.
    fn end_write(&mut self) -> Taken {
        if self.unknown.is_empty() {
            self.phase = CallPhase::Done;
            return Taken::Last;
        }
        let unknown = std::mem::take(&mut self.unknown);
        self.packed.spell_out(unknown.iter().copied());
        self.repeated = Some(unknown);
        self.phase = CallPhase::Queued;
        Taken::Again
    }
}

impl PendingCall {
    /// Creates a call. Its caller waits for it at once, or after it has [`attend`](Self::attend)ed to others of its calls.
    /// With a callback nobody waits for the answer: the poster [`leave`](Self::leave_sent)s once the call is sent.
    pub(crate) fn new(packed: Packed, route: RouteGuard, waits: Waits, callback: Option<Callback>) -> Self {
        let (is_posted, is_confirmed) = (callback.is_some(), packed.is_confirmed);
        let core = CallState {
            phase: CallPhase::Queued,
            promotion: Promotion { to_writer: false, to_reader: false },
            packed,
            route,
            is_attended: matches!(waits, Waits::AtOnce),
            is_sent: false,
            epoch: 0,
            came: 0,
            expected: 0,
            unknown: Vec::new(),
            repeated: None,
            answer: CallReplies { replies: SmallVec::new(), failure: None },
            unconnected: false,
            callback,
        };
        Self {
            is_posted,
            is_part: matches!(waits, Waits::AfterOthers),
            is_confirmed,
            core: Mutex::new(core),
            changed: Condvar::new(),
        }
    }

    /// Waits until the caller has what it came for (the answer or, for a posted call, that it is sent), is promoted, or the deadline has come.
    pub(crate) fn wait(&self, deadline: Instant) -> Wake {
        let mut core = self.core.lock();
        loop {
            // Check this first, even if the call is over: the role must be taken on or handed on.
            if core.promotion.any() {
                return Wake::Promoted;
            }
            if core.is_over() {
                return Wake::Done;
            }
            let left = deadline.saturating_duration_since(now());
            if left == Duration::ZERO {
                return Wake::TimedOut;
            }
            self.changed.wait_for(&mut core, left);
        }
    }

    /// Returns `true` if the call was queued again, in its full form, and has no answer yet.
    pub(crate) fn is_under_way_again(&self) -> bool {
        let core = self.core.lock();
        core.repeated.is_some() && matches!(core.phase, CallPhase::Queued | CallPhase::Written)
    }

    /// Returns `true` if the call is not written yet.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.core.lock().phase, CallPhase::Queued)
    }

    /// Returns `true` if the caller has what it came for: the answer or, for a posted call, that it is sent.
    pub(crate) fn is_over(&self) -> bool {
        self.core.lock().is_over()
    }

    /// Notes that all bytes of a posted call were handed to the system. Returns `true` if its poster has waited for that.
    pub(crate) fn mark_sent(&self) -> bool {
        let mut core = self.core.lock();
        core.is_sent = true;
        let (is_attended, is_done) = (core.is_attended, matches!(core.phase, CallPhase::Done));
        drop(core);
        if is_attended {
            self.changed.notify_one();
        }
        is_attended && !is_done
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
        matches!(core.phase, CallPhase::Written) && core.epoch >= first_epoch
    }

    /// Returns `true` if the caller may go on reading: its answer has not come, and it is not promoted to writer.
    pub(crate) fn may_read_on(&self) -> bool {
        let core = self.core.lock();
        !matches!(core.phase, CallPhase::Done) && !core.promotion.to_writer
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
        if matches!(core.phase, CallPhase::Done)
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

    /// Appends the call's bytes to `bytes`, with the stamp, if there is one, in its places. Returns the number of replies that are due then.
    ///
    /// Nobody waits for the refusal of a posted call, and it would be repeated late. So a posted call has the full form unless all its short
    /// forms are in `spelt`: the texts that were written in full on this connection before. They are in it afterwards.
    pub(crate) fn write_to(
        &self,
        bytes: &mut Vec<u8>,
        epoch: u64,
        stamp: Option<&Stamp>,
        spelt: &mut Vec<&'static str>,
    ) -> usize {
        let mut core = self.core.lock();
        core.phase = CallPhase::Written;
        (core.epoch, core.came) = (epoch, 0);
        if self.is_posted {
            let is_new = |text: &&'static str| !spelt.iter().any(|known| std::ptr::eq(*known, *text));
            let new: Vec<_> = core.packed.short_texts().filter(is_new).collect();
            if !new.is_empty() {
                core.packed.spell_out_all();
                spelt.extend(new);
            }
        }
        let start = bytes.len();
        bytes.extend_from_slice(&core.packed.bytes);
        if let Some(stamp) = stamp {
            for at in core.packed.stamps() {
                bytes[start + at..start + at + stamp.len()].copy_from_slice(stamp);
            }
        }
        let replies = core.packed.replies();
        core.expected = u32::try_from(replies).unwrap_or(u32::MAX);
        replies
    }

    /// Takes in a reply.
    pub(crate) fn push(&self, value: Value) -> Taken {
        let mut core = self.core.lock();
        if !matches!(core.phase, CallPhase::Written) {
            // The caller has left, or the call has failed. The reply had its place in the order, and is dropped.
            return Taken::Kept;
        }
        core.take(value);
        if core.came < core.expected || self.is_confirmed {
            return Taken::Kept;
        }
        core.end_write()
    }

    /// Takes in the reply to the command that confirms the call. All replies to the call itself have come before.
    pub(crate) fn confirm(&self, value: &Value) -> Taken {
        let mut core = self.core.lock();
        if !matches!(core.phase, CallPhase::Written) {
            return Taken::Kept;
        }
        let epoch = core.epoch;
        let value = Arc::new(value.clone());
        // A call that was sent again has replies of two writes. This confirmation says nothing about those of the first.
        let of_write = |replied: &&mut Replied| replied.epoch == epoch && replied.confirmation.is_none();
        for replied in core.answer.replies.iter_mut().flatten().filter(of_write) {
            replied.confirmation = Some(Arc::clone(&value));
        }
        core.end_write()
    }

    /// Ends the call with a failure; the replies that came stay. Returns `true` if the call must be woken.
    pub(super) fn fail(&self, error: &Error, unconnected: bool) -> bool {
        let mut core = self.core.lock();
        // A call that is done keeps its answer. If the caller has left, there is nobody to tell.
        if !matches!(core.phase, CallPhase::Queued | CallPhase::Written) {
            return false;
        }
        core.phase = CallPhase::Done;
        core.unconnected = unconnected;
        core.answer.failure = Some(error.clone());
        true
    }

    /// Returns the answer if the call is done and its caller is not promoted.
    pub(crate) fn finished(&self) -> Option<CallReplies> {
        let mut core = self.core.lock();
        let is_free = matches!(core.phase, CallPhase::Done) && !core.promotion.any();
        if is_free { Some(std::mem::take(&mut core.answer)) } else { None }
    }

    /// Lets the caller leave. Returns the phase that the call was in, the roles to which the caller is promoted, what came, and the epoch
    /// of the last write. Later replies are dropped.
    pub(crate) fn leave(&self) -> (CallPhase, Promotion, CallReplies, u64) {
        let mut core = self.core.lock();
        let phase = core.phase;
        if !matches!(phase, CallPhase::Done) {
            core.phase = CallPhase::Left;
        }
        (phase, std::mem::take(&mut core.promotion), std::mem::take(&mut core.answer), core.epoch)
    }

    /// Returns the bytes to write, and the route of the call, if the call failed because no connection could be opened, and was never
    /// written.
    pub(crate) fn unconnected(&self) -> Option<(Packed, RouteGuard)> {
        let mut core = self.core.lock();
        // A call that is queued again was written before: some of its commands were executed, and must not go out once more.
        let is_new = core.repeated.is_none();
        (is_new && std::mem::take(&mut core.unconnected)).then(|| (std::mem::take(&mut core.packed), core.route.take()))
    }
}
