//! Sends posted calls, for whose answers nobody waits.

use super::super::connector::Connector;
use super::super::deferring::is_left_long;
use super::super::pending::{Pending, Wake};
use super::leaving::fail_all;
use super::{Mux, WriterClaim};
use crate::error::Error;
use crate::sync::atomic::Ordering;
use crate::sync::{mutant, now};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<C: Connector> Mux<C> {
    /// Sends a call without waiting for its answer, which its callback receives. Blocks until the call is written: while a connection is
    /// being opened, while the connection takes no more bytes, and for a moment while another caller writes.
    ///
    /// 1. The poster queues its call, and writes the queue if it can become the writer.
    /// 2. Otherwise it leaves the call to the writer, if that is about to write and the budget of late writes allows it, and returns
    ///    `true`.
    /// 3. Otherwise it waits until the call is written, and takes the role of writer over from a writer that does not write yet.
    ///
    /// So, on `false`, the call is written, unless the deadline has come or the connection broke.
    pub(crate) fn post(&self, call: &Arc<Pending>, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            fail_all([call], &Error::ShutDown, false);
            return false;
        }
        state.queue.push_back(Arc::clone(call));
        // A poster usually calls right afterwards, so posting does not count as having called again. The poster does not read for this
        // call, so `hand_on` must promote a reader for the calls that were written with it.
        let at = now();
        let state = self.write(state, call, deadline, WriterClaim::Free);
        let is_left = state.is_about_to_write(at) && self.settings.deferring.is_allowed() && call.leave_queued(at);
        // ORDERING: Relaxed: the mutex of the mux is held. Without it, only `write_left` loads this.
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

    /// Writes the queue if a posted call was left and the writer has not written it for long, because other threads have its core. Any
    /// caller may do so, also one of another connection. Waits neither for room in the socket nor for the state. Returns `true` if it
    /// wrote.
    pub(crate) fn write_left(&self, at: Instant) -> bool {
        // ORDERING: Relaxed: a hint that saves taking the mutex. With a stale value, the next caller looks again.
        let since = self.left_since.load(Ordering::Relaxed);
        if since == 0 || !is_left_long(Duration::from_nanos(self.nanos(at).saturating_sub(since))) {
            return false;
        }
        // The thread that holds the state may be off its core. Do not wait for it: another caller soon tries again.
        let Some(mut state) = self.state.try_lock() else { return false };
        // One caller is enough. If there is a writer already, it goes on until the queue is empty.
        self.left_since.store(0, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux is held.
        let writes = state.has_work() && (!state.writing || state.take_idle_role());
        if writes && !mutant!(TakesLeftAndLeaves) {
            drop(self.write_left_over(state));
        }
        writes
    }

    /// Waits until another caller has written a posted call, or writes it.
    fn see_sent(&self, call: &Arc<Pending>, deadline: Instant) {
        let at = now();
        if at < deadline && self.load() > 1 {
            // Callers that are already answered may call or post meanwhile: one write then carries the commands of all.
            let _ = self.settings.yielding.yield_once(at, self.load());
        }
        let mut claim = WriterClaim::AtOnce;
        // Even if the call is already sent: a role must be taken on.
        while claim == WriterClaim::Promoted || !call.is_over() {
            let state = self.state.lock();
            let writes = claim == WriterClaim::Promoted || call.is_queued();
            let mut state = if writes { self.write(state, call, deadline, claim) } else { state };
            if now() >= deadline {
                // Leave first: while this poster still counts as waiting it could be promoted again and again.
                if call.leave_sent() {
                    state.resign();
                }
                return self.hand_on(state, true);
            }
            self.hand_on(state, true);
            claim = match call.wait_sent(deadline) {
                Wake::Done | Wake::TimedOut => return,
                Wake::Promoted => {
                    call.take_promotion();
                    WriterClaim::Promoted
                }
            };
        }
    }
}
