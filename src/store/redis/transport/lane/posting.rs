//! Calls that nobody waits for.

use super::super::deferring::is_left_long;
use super::super::line::Line;
use super::super::pending::{Pending, Wake};
use super::{Claim, Lane, fail_all};
use crate::error::Error;
use crate::sync::atomic::Ordering;
use crate::sync::{mutant, now};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<L: Line> Lane<L> {
    /// Sends a call without waiting for its answer, which its callback is given. The call is written when this returns, unless the
    /// deadline has come, the connection broke, or the call was left to a caller that is about to write: then this returns `true`.
    /// Blocks until then: while a connection is being opened, while it takes no more bytes, and for a moment while another caller
    /// writes.
    pub(crate) fn post(&self, call: &Arc<Pending>, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            fail_all([call], &Error::ShutDown, false);
            return false;
        }
        state.queue.push_back(Arc::clone(call));
        // Who posts mostly calls right after, so it does not count as back. And nobody reads for this call: those whose calls
        // were written with it need a reader.
        let at = now();
        let state = self.write(state, call, deadline, Claim::Free);
        let is_left = state.is_about_to_write(at) && self.settings.deferring.is_allowed() && call.leave_queued(at);
        if is_left && self.left_since.load(Ordering::Relaxed) == 0 {
            self.left_since.store(self.nanos(at).max(1), Ordering::Relaxed);
        }
        self.hand_on(state, !mutant!(PostsUnread));
        if is_left {
            return true;
        }
        if !call.is_over() && !mutant!(PostsAndLeaves) {
            self.see_sent(call, deadline);
        }
        if call.leave_sent() {
            let mut state = self.state.lock();
            state.resign();
            self.hand_on(state, true);
        }
        false
    }

    /// Writes what is queued if a posted call was left that the writer has not written for long: other threads have its core.
    /// Any caller may do so, also one of another connection. Waits neither for room in the socket nor for the state; returns whether it wrote.
    pub(crate) fn write_left(&self, at: Instant) -> bool {
        let since = self.left_since.load(Ordering::Relaxed);
        if since == 0 || !is_left_long(Duration::from_nanos(self.nanos(at).saturating_sub(since))) {
            return false;
        }
        // Who has the state may be put off its core, and another caller comes by soon.
        let Some(mut state) = self.state.try_lock() else { return false };
        // One caller is enough. If somebody writes already, that one goes on until the queue is empty.
        self.left_since.store(0, Ordering::Relaxed);
        let writes = state.has_work() && (!state.writing || state.take_idle_role());
        if writes && !mutant!(TakesLeftAndLeaves) {
            drop(self.write_left_over(state));
        }
        writes
    }

    /// Waits until somebody else has written a posted call, or writes it.
    fn see_sent(&self, call: &Arc<Pending>, deadline: Instant) {
        let at = now();
        if at < deadline && self.load() > 1 {
            // Others that were answered by now may call or post meanwhile: then one write is for all of them.
            let _ = self.settings.giving_way.give_way(at, self.load());
        }
        let mut claim = Claim::AtOnce;
        // Also when the call is sent by now: a duty has to be done.
        while claim == Claim::Appointed || !call.is_over() {
            let state = self.state.lock();
            let writes = claim == Claim::Appointed || call.is_queued();
            let mut state = if writes { self.write(state, call, deadline, claim) } else { state };
            if now() >= deadline {
                // As long as it is here it might be appointed again, and again.
                if call.leave_sent() {
                    state.resign();
                }
                return self.hand_on(state, true);
            }
            self.hand_on(state, true);
            claim = match call.wait_sent(deadline) {
                Wake::Done | Wake::TimedOut => return,
                Wake::Duty => {
                    call.take_duties();
                    Claim::Appointed
                }
            };
        }
    }
}
