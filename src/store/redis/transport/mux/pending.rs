//! One call in flight: its caller waits on it, and the reader stores the replies in it.
//!
//! [`CallPhase`] says what has become of the call so far:
//!
//! | phase | meaning | who may change it |
//! |---|---|---|
//! | `Queued` | the call is not written; it is in its mux's queue | the writer, the caller that gives up, or a thread that fails it |
//! | `Written` | the call was handed to the connection; it has its place in the order of replies | the reader, the caller that gives up, or a thread that fails it |
//! | `Left` | the caller has left; its replies are read and dropped | no thread |
//! | `Done` | all replies have come, or the call has failed | no thread |
//!
//! A call also notes whether its caller is promoted, that is, woken to become the writer or the reader of the connection. Lock order: the
//! mux's state, then a call.
//!
//! No caller waits for the answer of a posted call. Its poster waits until the call's bytes are handed to the operating system, unless they go out
//! with what it begins next. While it waits, it can be promoted to writer, but never to reader, because it does not wait for a reply.
//!
//! A call that is to be confirmed stays `Written` until its write is confirmed, too. A posted call is never confirmed.
//!
//! # Short forms
//!
//! A command may be written in a short form (`EVALSHA`) that the server does not know. The server then answers `NOSCRIPT`, and has executed
//! nothing. Only this file handles that answer. When the last reply to such a call has come, the call goes back from `Written` to `Queued`
//! once. It then contains only the commands that were refused, in their full form. That is right for these reasons:
//!
//! * No command is executed twice: only commands that were refused are written again, and each of them once. If such a command is refused
//!   again, the caller receives that refusal as its reply.
//! * A call for the same key that is made after a later answer comes behind this one: this call keeps its keys on their connection (its
//!   route) until it is done, and it is queued again before any later answer is delivered.
//! * A caller's deadline stays what it was. If it comes while the call is queued again, the caller is told that the commands that were
//!   refused were not executed.
//! * Each reply has the epoch and the confirmation of the write that contained its command. The two writes may go on two connections, and a
//!   confirmation says nothing about a write on another connection.

use super::super::routes::{Route, WaitOrder};
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
    /// The reply to the command that confirmed this one, if this one is to be confirmed and that reply has come.
    pub(crate) confirmation: Option<Arc<Value>>,
}

/// The outcome of a call: the replies that have come, in the places of their commands, and the reason if some are missing. Missing replies
/// at the end may be left out.
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

/// Receives the answer to a posted call. It runs on the thread that finds the answer, and must not block.
pub(crate) type Callback = Box<dyn FnOnce(CallReplies) + Send>;

/// What has become of a call so far: see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallPhase {
    Queued,
    /// In this epoch.
    Written(u64),
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
    /// No caller must be woken: the caller has left, or more replies or the confirmation are missing.
    Kept,
    /// It was the last reply: the call must be woken.
    Last,
    /// The server does not know the short form of some commands, so the call must be queued again.
    Again,
}

pub(crate) struct PendingCall {
    /// Whether the call is posted: its caller does not wait for the answer.
    pub(crate) is_posted: bool,
    /// Whether the caller begins other calls before it waits for this one.
    is_part: bool,
    /// Whether the call is answered only once its write is confirmed.
    pub(crate) is_confirmed: bool,
    core: Mutex<CallState>,
    changed: Condvar,
}

struct CallState {
    phase: CallPhase,
    promotion: Promotion,
    packed: Packed,
    /// Keeps later calls for the same keys on this mux until the last reply is read.
    route: Route,
    /// Whether the caller waits for this call, or is about to wait, so that it can take a role on.
    is_attended: bool,
    /// Whether all bytes of a posted call were handed to the operating system.
    is_sent: bool,
    /// The number of replies to the last write that have come.
    came: u32,
    /// The number of replies that are due to the last write.
    expected: u32,
    /// The indexes of the commands whose short form the server does not know.
    unknown: Vec<usize>,
    /// The indexes of the commands that were queued again, in their full form. `None` if none were.
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
        matches!(self.phase, CallPhase::Queued | CallPhase::Written(_)) && !self.is_sent && self.is_attended
    }

    /// Takes in a reply to the last write, which was in `epoch`.
    fn take(&mut self, value: Value, epoch: u64) {
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
            Some(Replied { value, epoch, confirmation: None })
        };
        match self.answer.replies.get_mut(place) {
            Some(empty) => *empty = replied,
            None => self.answer.replies.push(replied),
        }
    }

    /// Ends a write whose replies have all come: ends the call, or queues it again if commands were refused.
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
    /// Creates a call. Its caller waits for it at once, or later, when it [`attend`](Self::attend)s to it. A call with a callback is
    /// posted: its poster [`leave`](Self::leave_sent)s once the call is sent.
    pub(crate) fn new(packed: Packed, route: Route, waits: WaitOrder, callback: Option<Callback>) -> Self {
        let (is_posted, is_confirmed) = (callback.is_some(), packed.is_confirmed);
        let core = CallState {
            phase: CallPhase::Queued,
            promotion: Promotion { to_writer: false, to_reader: false },
            packed,
            route,
            is_attended: matches!(waits, WaitOrder::AtOnce),
            is_sent: false,
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
            is_part: matches!(waits, WaitOrder::AfterOthers),
            is_confirmed,
            core: Mutex::new(core),
            changed: Condvar::new(),
        }
    }

    /// Waits until the caller has what it came for (the answer or, for a posted call, the end of its sending), until it is promoted, or
    /// until the deadline has come.
    pub(crate) fn wait(&self, deadline: Instant) -> Wake {
        let mut core = self.core.lock();
        loop {
            // Check this first, even if the call is over: a promoted caller must take the role on or hand it on.
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
        core.repeated.is_some() && matches!(core.phase, CallPhase::Queued | CallPhase::Written(_))
    }

    /// Returns `true` if the call is not written yet.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.core.lock().phase, CallPhase::Queued)
    }

    /// Returns `true` if the caller has what it came for: the answer or, for a posted call, the end of its sending.
    pub(crate) fn is_over(&self) -> bool {
        self.core.lock().is_over()
    }

    /// Notes that all bytes of a posted call were handed to the operating system. Returns `true` if its poster has waited for that.
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

    /// Notes that the poster leaves. Returns `true` if it was promoted to writer: its caller must then promote a successor.
    pub(crate) fn leave_sent(&self) -> bool {
        let mut core = self.core.lock();
        core.is_attended = false;
        std::mem::take(&mut core.promotion.to_writer)
    }

    /// Returns `true` if the call was written to the mux's current connection, whose first epoch is `first_epoch`, and has no answer yet.
    pub(crate) fn is_due_since(&self, first_epoch: u64) -> bool {
        matches!(self.core.lock().phase, CallPhase::Written(epoch) if epoch >= first_epoch)
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

    /// Promotes the caller to writer. Returns `false` if the caller does not wait for this call. Wake the caller after unlocking the mux's state.
    pub(crate) fn promote_to_writer(&self) -> bool {
        let mut core = self.core.lock();
        let waits = core.waits();
        core.promotion.to_writer |= waits;
        waits
    }

    /// Promotes the caller to reader, as [`promote_to_writer`](Self::promote_to_writer) does. Returns `false` for a posted call, too.
    pub(crate) fn promote_to_reader(&self) -> bool {
        let mut core = self.core.lock();
        let waits = !self.is_posted && core.waits();
        core.promotion.to_reader |= waits;
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
            // A panic ends here. Otherwise the calls after this one would not be woken.
            if catch_panic(|| callback(answer)).is_none() {
                log::error!(TRANSPORT, "the callback of a call ended by a panic; please report it");
            }
        } else {
            drop(core);
            self.changed.notify_one();
        }
    }

    /// Appends the call's bytes to `bytes`, with the stamp, if there is one, in its places. Returns the number of replies that are due then.
    ///
    /// No caller waits for the refusal of a posted call, so it would be repeated late. A posted call is therefore written in its full form,
    /// unless all its scripts are in `spelt`: these are the scripts that were written in full on this connection before. This call adds
    /// those of its own that are new.
    pub(crate) fn write_to(
        &self,
        bytes: &mut Vec<u8>,
        epoch: u64,
        stamp: Option<&Stamp>,
        spelt: &mut Vec<&'static str>,
    ) -> usize {
        let mut core = self.core.lock();
        (core.phase, core.came) = (CallPhase::Written(epoch), 0);
        if self.is_posted {
            let known = spelt.len();
            for text in core.packed.short_texts() {
                if !spelt.iter().any(|known| std::ptr::eq(*known, text)) {
                    spelt.push(text);
                }
            }
            if spelt.len() > known {
                let all = 0..core.packed.replies();
                core.packed.spell_out(all);
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
        // If the caller has left, or the call has failed, its reply was read to keep the order, and is dropped.
        let CallPhase::Written(epoch) = core.phase else { return Taken::Kept };
        core.take(value, epoch);
        if core.came < core.expected || self.is_confirmed {
            return Taken::Kept;
        }
        core.end_write()
    }

    /// Takes in the reply to the command that confirms the call. It comes after all replies to the call itself.
    pub(crate) fn confirm(&self, value: &Value) -> Taken {
        let mut core = self.core.lock();
        let CallPhase::Written(epoch) = core.phase else { return Taken::Kept };
        let value = Arc::new(value.clone());
        // A call that was sent again has replies to two writes. This confirmation says nothing about the replies to the first write.
        let of_write = |replied: &&mut Replied| replied.epoch == epoch && replied.confirmation.is_none();
        for replied in core.answer.replies.iter_mut().flatten().filter(of_write) {
            replied.confirmation = Some(Arc::clone(&value));
        }
        core.end_write()
    }

    /// Ends the call with a failure, and keeps the replies that have come. Returns `true` if the call must be woken.
    pub(super) fn fail(&self, error: &Error, unconnected: bool) -> bool {
        let mut core = self.core.lock();
        // A call that is done keeps its answer. If the caller has left, no failure is reported.
        if !matches!(core.phase, CallPhase::Queued | CallPhase::Written(_)) {
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

    /// Notes that the caller leaves. Returns the phase that the call was in, and the replies that came. Later replies are dropped. A
    /// promotion that the caller was given before is still to be taken.
    pub(crate) fn leave(&self) -> (CallPhase, CallReplies) {
        let mut core = self.core.lock();
        let phase = core.phase;
        if !matches!(phase, CallPhase::Done) {
            core.phase = CallPhase::Left;
        }
        (phase, std::mem::take(&mut core.answer))
    }

    /// Returns the commands and the route of a call that was never written, and that failed because no connection could be opened.
    pub(crate) fn unconnected(&self) -> Option<(Packed, Route)> {
        let mut core = self.core.lock();
        // A call that was queued again was written before. Some of its commands may have been executed, and must not be sent once more.
        let is_new = core.repeated.is_none();
        (is_new && std::mem::take(&mut core.unconnected)).then(|| (std::mem::take(&mut core.packed), core.route.take()))
    }
}
