//! What the callers of a mux share, and which follower gets a role next.
//!
//! The role of writer has three marks. `writing` says that somebody has it. `gathering` and `promoted` say that this somebody does not write yet:
//! it yields to others first, or was woken and is not awake yet. A caller that cannot wait for that takes such a mark away, and the role with it.
//! All three change under the mutex alone, so exactly one caller succeeds.
//!
//! The role of reader has no mark: who has the session's inbound half is the reader.

use super::connector::Connector;
use super::pending::PendingCall;
use super::session::{Due, Session};
use crate::error::Error;
use crate::sync::{now, thread};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The calls whose callers must be woken once the state is unlocked.
pub(super) type Woken = Vec<Arc<PendingCall>>;

/// What the mutex of a mux protects.
pub(super) struct MuxState<C: Connector> {
    /// Calls that are not written yet.
    pub(super) queue: VecDeque<Arc<PendingCall>>,
    pub(super) session: Option<Session<C>>,
    pub(super) connecting: Connecting,
    /// Whether there is a writer: it writes, connects, yields first, or is promoted.
    pub(super) writing: bool,
    /// The writer that yields to others before it writes, by the number of its yield. A caller that clears this takes the role over. The
    /// number tells the writer, when it comes back, whether it is still the one that yields: its successor may yield by then.
    pub(super) gathering: Option<u64>,
    /// How many writers have yielded before they wrote.
    pub(super) gatherings: u64,
    /// Whether the writer is promoted and not awake yet. A caller that clears this takes the role over.
    pub(super) promoted: bool,
    /// The next epoch. No two epochs of a transport are equal.
    pub(super) next_epoch: u64,
    pub(super) epoch_step: u64,
    pub(super) closed: bool,
}

/// The thread that connects for a mux, and the outcome of its last connect.
#[derive(Default)]
pub(super) struct Connecting {
    /// Whether a connect is under way on that thread.
    pub(super) is_busy: bool,
    /// The last thread. It ends when it has reported the outcome of its connect.
    pub(super) thread: Option<thread::JoinHandle<()>>,
    /// The threads whose connect has ended, but which may still be about to run the callbacks of posted calls.
    pub(super) tellers: Vec<thread::ThreadId>,
    /// When the last connect that failed did so, and why.
    pub(super) failed: Option<(Instant, Error)>,
}

impl Connecting {
    /// Returns `true` if the last connect failed less than `pause` ago.
    pub(super) fn failed_within(&self, pause: Duration) -> bool {
        self.failed.as_ref().is_some_and(|(at, _)| now().saturating_duration_since(*at) < pause)
    }

    /// Returns `true` if another thread that has connected may still be about to run callbacks.
    pub(super) fn is_telling(&self) -> bool {
        let me = thread::current().id();
        self.tellers.iter().any(|teller| *teller != me)
    }
}

impl<C: Connector> MuxState<C> {
    /// The state of a mux without a connection.
    pub(super) fn new(first_epoch: u64, epoch_step: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            session: None,
            connecting: Connecting::default(),
            writing: false,
            gathering: None,
            gatherings: 0,
            promoted: false,
            next_epoch: first_epoch,
            epoch_step,
            closed: false,
        }
    }

    pub(super) fn session_of(&mut self, epoch: u64) -> Option<&mut Session<C>> {
        self.session.as_mut().filter(|session| session.epoch == epoch)
    }

    /// Returns the calls whose replies are due, in order.
    pub(super) fn due_calls(&self) -> impl DoubleEndedIterator<Item = &Arc<PendingCall>> {
        self.session.iter().flat_map(|session| session.due.iter().flat_map(Due::calls))
    }

    /// Returns `true` if the caller will read, or make sure that somebody does, when it waits for its answer.
    pub(super) fn will_read(&self, call: &PendingCall) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_reply_for(call))
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

    /// Returns `true` if something is to be written now: a call that is not held back, or the rest of a write.
    pub(super) fn has_work(&self) -> bool {
        let session = self.session.as_ref();
        let is_confirming = session.is_some_and(|session| session.is_confirming);
        self.queue.iter().any(|call| !(is_confirming && call.is_confirmed))
            || session.is_some_and(|session| session.has_backlog)
    }

    /// Takes the role from a writer that does not write yet: it yields, or is promoted and not awake yet. Returns `true` if there was
    /// one.
    pub(super) fn take_idle_role(&mut self) -> bool {
        self.gathering.take().is_some() || std::mem::take(&mut self.promoted)
    }

    /// Gives back the role of writer for a promoted caller that leaves, unless another caller has taken the role over.
    pub(super) fn resign(&mut self) {
        if std::mem::take(&mut self.promoted) {
            self.writing = false;
        }
    }

    /// Notes that a writer yields to others before it writes. Returns the number of its yield.
    pub(super) fn gather(&mut self) -> u64 {
        self.gatherings += 1;
        self.gathering = Some(self.gatherings);
        self.gatherings
    }

    /// Returns `true` if the writer has kept the role while it yielded for the time of that number.
    pub(super) fn has_gathered(&mut self, number: u64) -> bool {
        self.gathering.take_if(|current| *current == number).is_some()
    }

    /// Notes that one of the callers that were answered, or whose posted calls were sent, has called again.
    pub(super) fn is_back(&mut self) {
        if let Some(session) = &mut self.session {
            session.away = session.away.saturating_sub(1);
        }
    }

    /// Returns `true` if other such callers may be about to call.
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

    /// Promotes a follower to reader if there is none: the caller whose reply comes last, so that it reads for all others. If none waits
    /// for a reply of its own, one whose call is held back reads the confirmation.
    pub(super) fn promote_reader(&mut self, successors: &mut Woken) {
        let Some(session) = self.session.as_ref().filter(|session| session.inbound.is_some()) else { return };
        let held_back = self.queue.iter().filter(|call| session.holds_back(call));
        if let Some(successor) = held_back.chain(self.due_calls()).rev().find(|call| call.promote(false)) {
            successors.push(Arc::clone(successor));
        }
    }
}

#[cfg(all(test, not(dlock_shuttle)))]
mod tests {
    use super::*;
    use crate::store::redis::net::endpoint::Endpoint;

    #[test]
    fn a_writer_that_comes_back_does_not_take_the_role_of_a_successor_that_yields() {
        let mut state = MuxState::<Endpoint>::new(0, 1);
        let first = state.gather();
        assert!(state.take_idle_role());
        let second = state.gather();
        assert!(!state.has_gathered(first));
        assert!(state.has_gathered(second));
        assert!(!state.has_gathered(second));
    }
}
