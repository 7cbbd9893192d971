//! What the callers of a mux share, and which follower gets a role next.

use super::super::connector::Connector;
use super::super::deferring::{LATE, MOST_LEFT};
use super::super::pending::Pending;
use super::Woken;
use super::connecting::Connecting;
use super::session::Session;
use crate::sync::mutant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// What the mutex of a mux protects.
pub(super) struct State<C: Connector> {
    /// Calls that are not written yet.
    pub(super) queue: VecDeque<Arc<Pending>>,
    pub(super) session: Option<Session<C>>,
    pub(super) connecting: Connecting,
    /// Whether there is a writer: it writes, connects, yields first, or is promoted.
    pub(super) writing: bool,
    /// Whether the writer yields to others before it writes. A caller that clears this takes the role over.
    pub(super) gathering: bool,
    /// Whether the writer is promoted and not awake yet. A caller that clears this takes the role over.
    pub(super) promoted: bool,
    /// Whether the writer writes once and then leaves, whatever was queued meanwhile (`write_left_over`).
    pub(super) writes_once: bool,
    /// The next epoch. No two epochs of a transport are equal.
    pub(super) next_epoch: u64,
    pub(super) epoch_step: u64,
    pub(super) closed: bool,
}

impl<C: Connector> State<C> {
    pub(super) fn session_of(&mut self, epoch: u64) -> Option<&mut Session<C>> {
        self.session.as_mut().filter(|session| session.epoch == epoch)
    }

    /// Returns the calls whose replies are due, in order.
    pub(super) fn due_calls(&self) -> impl DoubleEndedIterator<Item = &Arc<Pending>> {
        self.session.iter().flat_map(|session| session.due.iter().map(|due| &due.call))
    }

    /// Returns `true` if the caller will read, or make sure that somebody does, when it waits for its answer.
    pub(super) fn will_read(&self, call: &Pending) -> bool {
        self.session.as_ref().is_some_and(|session| call.is_due_since(session.epoch))
    }

    /// Returns `true` if a caller can be promoted to writer, for what is left. While calls are queued, only their callers count: they have
    /// nothing else to do, whereas a caller whose reply is due may be the reader.
    pub(super) fn has_other_writer(&self) -> bool {
        if self.queue.is_empty() {
            self.due_calls().any(|call| call.waits())
        } else {
            self.queue.iter().any(|call| call.waits())
        }
    }

    /// Returns `true` if something is waiting to be written.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.session.as_ref().is_some_and(|session| session.has_backlog)
    }

    /// Returns `true` if a posted call is queued; its poster may be gone.
    pub(super) fn has_posted(&self) -> bool {
        self.queue.iter().any(|call| call.is_posted)
    }

    /// Returns `true` if a writer writes soon, and stays until the queue is empty or a waiting caller succeeds it: then a poster may leave
    /// its call. Returns `false` for a writer that connects, which may take seconds, and for one whose write has already taken long.
    pub(super) fn is_about_to_write(&self, at: Instant) -> bool {
        let Some(session) = &self.session else { return false };
        let is_writing = session.outbound.is_none();
        let is_slow = is_writing && at.saturating_duration_since(session.last_write) > LATE / 2;
        let left = self.queue.iter().filter(|call| call.is_posted).count();
        self.writing
            && (!self.writes_once || mutant!(LeavesToOneWrite))
            && !session.has_backlog
            && !is_slow
            && left <= MOST_LEFT
    }

    /// Takes the role from a writer that does not write yet: it yields, or is promoted and not awake yet. Returns `true` if there was
    /// one.
    pub(super) fn take_idle_role(&mut self) -> bool {
        std::mem::take(&mut self.gathering) || std::mem::take(&mut self.promoted)
    }

    /// Gives back the role of writer for a promoted caller that leaves, unless another caller has taken the role over.
    pub(super) fn resign(&mut self) {
        if std::mem::take(&mut self.promoted) {
            self.writing = false;
        }
    }

    /// Notes that one of the callers answered recently has called again.
    pub(super) fn is_back(&mut self) {
        if let Some(session) = &mut self.session {
            session.away = session.away.saturating_sub(1);
        }
    }

    /// Returns `true` if other callers that were answered recently may be about to call.
    pub(super) fn lacks_callers(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.away > 0)
    }

    /// Promotes a follower to writer if there is work and nobody writes.
    pub(super) fn promote_writer(&mut self, successors: &mut Woken) {
        if !self.writing && self.has_work() {
            let successor = self.queue.iter().chain(self.due_calls()).find(|call| call.promote(true)).cloned();
            if let Some(successor) = successor {
                successors.push(successor);
                self.writing = true;
                self.promoted = true;
            }
        }
    }

    /// Promotes a follower to reader if there is none: the caller whose reply comes last, so that it reads for all others.
    pub(super) fn promote_reader(&mut self, successors: &mut Woken) {
        if let Some(session) = &self.session
            && session.inbound.is_some()
            && let Some(successor) = self.due_calls().rev().find(|call| call.promote(false))
        {
            successors.push(Arc::clone(successor));
        }
    }
}
