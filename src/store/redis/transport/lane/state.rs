//! What the callers of a lane share, and whom a role goes to.

use super::super::deferring::{LATE, MOST_LEFT};
use super::super::line::Line;
use super::super::pending::Pending;
use super::Woken;
use super::connecting::Connector;
use super::session::Session;
use crate::sync::mutant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// What the mutex of a lane protects.
pub(super) struct State<L: Line> {
    /// Not written yet.
    pub(super) queue: VecDeque<Arc<Pending>>,
    pub(super) session: Option<Session<L>>,
    pub(super) connector: Connector,
    /// Whether somebody writes, connects or gives way first, or has been woken to.
    pub(super) writing: bool,
    /// Whether who is to write gives way to others first. Whoever takes this back has the role.
    pub(super) gathering: bool,
    /// Whether who is to write was appointed and is not awake yet. Whoever takes this back has the role.
    pub(super) appointed: bool,
    /// Whether who writes does so once and then goes, whatever was queued meanwhile.
    pub(super) writes_once: bool,
    /// The next epoch; no two of a transport are the same.
    pub(super) next_epoch: u64,
    pub(super) epoch_step: u64,
    pub(super) closed: bool,
}

impl<L: Line> State<L> {
    pub(super) fn session_of(&mut self, epoch: u64) -> Option<&mut Session<L>> {
        self.session.as_mut().filter(|session| session.epoch == epoch)
    }

    /// The calls whose replies are due, in order.
    pub(super) fn due_calls(&self) -> impl DoubleEndedIterator<Item = &Arc<Pending>> {
        self.session.iter().flat_map(|session| session.due.iter().map(|due| &due.call))
    }

    /// Whether the caller, when it waits for its answer, will see to it that somebody reads.
    pub(super) fn will_read(&self, call: &Pending) -> bool {
        self.session.as_ref().is_some_and(|session| call.is_due_since(session.epoch))
    }

    /// Whether a caller can be appointed to write what is left: rather one that has nothing else to do than who reads.
    pub(super) fn has_other_writer(&self) -> bool {
        if self.queue.is_empty() {
            self.due_calls().any(|call| call.waits())
        } else {
            self.queue.iter().any(|call| call.waits())
        }
    }

    /// Whether something is to be written.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.session.as_ref().is_some_and(|session| session.has_backlog)
    }

    /// Whether a posted call is queued, whose poster may be gone.
    pub(super) fn has_posted(&self) -> bool {
        self.queue.iter().any(|call| call.is_posted)
    }

    /// Whether somebody writes soon, and stays until the queue is empty or a waiting caller goes on: a poster may leave its call then.
    /// Not to a caller that connects, which may take seconds, nor to one whose write has taken long by now.
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

    /// Takes the role of writing from a caller that has it and does not write yet: one that gives way, or is appointed and not awake;
    /// whether there was one.
    pub(super) fn take_idle_role(&mut self) -> bool {
        std::mem::take(&mut self.gathering) || std::mem::take(&mut self.appointed)
    }

    /// Gives back the duty to write of a caller that goes, unless somebody else has taken it.
    pub(super) fn resign(&mut self) {
        if std::mem::take(&mut self.appointed) {
            self.writing = false;
        }
    }

    /// One of those that were answered of late calls again.
    pub(super) fn is_back(&mut self) {
        if let Some(session) = &mut self.session {
            session.away = session.away.saturating_sub(1);
        }
    }

    /// Whether others that were answered of late may be about to call.
    pub(super) fn lacks_callers(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.away > 0)
    }

    /// Finds a caller that writes, if nobody does.
    pub(super) fn appoint_writer(&mut self, heirs: &mut Woken) {
        if !self.writing && self.has_work() {
            let heir = self.queue.iter().chain(self.due_calls()).find(|call| call.appoint(true)).cloned();
            if let Some(heir) = heir {
                heirs.push(heir);
                self.writing = true;
                self.appointed = true;
            }
        }
    }

    /// Finds a caller that reads, if nobody does: the one whose reply comes last.
    pub(super) fn appoint_reader(&mut self, heirs: &mut Woken) {
        if let Some(session) = &self.session
            && session.inbound.is_some()
            && let Some(heir) = self.due_calls().rev().find(|call| call.appoint(false))
        {
            heirs.push(Arc::clone(heir));
        }
    }
}
