//! A call from its queueing to its answer, and the end of the mux.

use super::connector::Connector;
use super::core::Mux;
use super::leaving::{closed_by_us, fail_all};
use super::pending::CallReplies;
use super::pending::{PendingCall, Wake};
use super::reading::Reader;
use super::state::MuxState;
use super::writing::WriterClaim;
use crate::error::Error;
use crate::sync::atomic::Ordering;
use crate::sync::now;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<C: Connector> Mux<C> {
    /// Sends a call, unless its time is already over at the moment `at`. [`finish`](Self::finish) must follow: immediately if `at_once`,
    /// otherwise after [`attend`](Self::attend).
    pub(crate) fn begin(&self, call: &Arc<PendingCall>, at: Instant, deadline: Instant, at_once: bool) {
        self.load.fetch_add(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        if at >= deadline {
            // The call stays `Queued` and is never written; `finish` reports that.
            return;
        }
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            call.fail(&Error::ShutDown, false);
            return;
        }
        state.queue.push_back(Arc::clone(call));
        state.is_back();
        let state = self.write(state, call, deadline, WriterClaim::Free);
        let reads = !at_once || !state.will_read(call);
        self.hand_on(state, reads);
    }

    /// Begins to wait for this call, after the caller had other calls to wait for; [`finish`](Self::finish) must follow at once.
    pub(crate) fn attend(&self, call: &Arc<PendingCall>, deadline: Instant) {
        let state = self.state.lock();
        call.attend();
        let state = if state.has_work() { self.write(state, call, deadline, WriterClaim::Free) } else { state };
        let reads = !state.will_read(call);
        self.hand_on(state, reads);
    }

    /// Waits for the answer to a call, until the deadline at most, and for `spare` longer if it was sent again in its full form: its caller may
    /// have waited for something else until then, and only now sees the refusal. With `or_break`, a deadline that comes before the answer
    /// breaks the connection, so that the next attempt gets a fresh one. `limit` is the caller's time limit, for the error message.
    pub(crate) fn finish(
        &self,
        call: &Arc<PendingCall>,
        deadline: Instant,
        spare: Duration,
        limit: Duration,
        or_break: bool,
    ) -> CallReplies {
        let mut is_free = self.wait(call, deadline);
        let mut answer = if is_free { call.finished() } else { None };
        if answer.is_none() {
            Reader::look(self, |session| session.has_reply_for(call));
            if !spare.is_zero() && call.is_under_way_again() {
                if !is_free {
                    self.hand_on(self.state.lock(), true);
                }
                is_free = self.wait(call, deadline + spare);
                answer = if is_free { call.finished() } else { None };
            }
        }
        self.load.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        answer.unwrap_or_else(|| {
            Reader::look(self, |session| session.has_reply_for(call));
            self.depart(call, limit, or_break)
        })
    }

    /// Takes in the replies that have come for calls that nobody waits for. Returns `true` if some of these calls still have no answer.
    /// Does not block.
    pub(crate) fn collect(&self) -> bool {
        Reader::look(self, |_| true);
        let mut state = self.state.lock();
        // Takes the role from a promoted caller too: that caller may read instead, and sleep for a while.
        let takes_over = |state: &mut MuxState<C>| !state.writing || std::mem::take(&mut state.promoted);
        if state.has_work() && takes_over(&mut state) {
            state = self.write_left_over(state);
        }
        state.connecting.is_telling() || state.queue.iter().chain(state.due_calls()).any(|call| call.is_posted)
    }

    /// Closes the connection. Calls that wait fail, and so does every later one. Does not wait for a connect that is under way: its thread
    /// closes the connection that it gets.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.connected.notify_all();
        let queue = std::mem::take(&mut state.queue);
        if let Some(epoch) = state.session.as_ref().map(|session| session.epoch) {
            state = self.fail(state, epoch, closed_by_us());
        }
        drop(state);
        let told = queue.iter();
        fail_all(told, &Error::ShutDown, false);
        self.end_connecting();
    }

    /// Waits for the answer, and takes on the roles to which the caller is promoted meanwhile. Returns `false` if the time ended in such a
    /// role; the caller must then `depart`, which promotes a successor.
    fn wait(&self, call: &Arc<PendingCall>, deadline: Instant) -> bool {
        self.poll(call, deadline);
        loop {
            if call.may_read_on() {
                self.read(call, deadline, true);
            }
            // Even if the answer is there: a role must be taken on.
            match call.wait(deadline) {
                Wake::Done | Wake::TimedOut => return true,
                Wake::Promoted => {
                    let promotion = call.take_promotion();
                    let state = self.state.lock();
                    let state = if promotion.to_writer {
                        self.write(state, call, deadline, WriterClaim::Promoted)
                    } else {
                        state
                    };
                    if now() >= deadline {
                        // Hand nothing on here: while this caller still counts as waiting it could be promoted again and again.
                        return false;
                    }
                    // A caller whose answer has come promotes a reader; one that still waits for it reads itself.
                    let reads = !state.will_read(call);
                    self.hand_on(state, reads);
                }
            }
        }
    }
}
