//! Sends posted calls, for whose answers nobody waits. They are the releases of dropped guards.
//!
//! The bytes of a posted call are with the operating system when its poster goes on, unless its limit ends or the connection breaks. No call is
//! left to a thread that is about to write: a program that ends then would leave its lock. So the poster writes the call itself, or waits until
//! another thread has written it. One write carries the calls of many posters.
//!
//! The answer is taken in by the next reader, or when the store [collects](Mux::collect). Nobody waits for the refusal of a short form, so a
//! connection's first call of a script that is posted carries the whole text (`PendingCall::write_to`). If the server has forgotten the
//! script since, the thread that reads the refusal queues the call again before it delivers any later answer: a question that a caller
//! sends after such an answer comes behind the release.

use super::connector::Connector;
use super::core::Mux;
use super::leaving::fail_all;
use super::pending::{PendingCall, Wake};
use super::writing::WriterClaim;
use crate::error::Error;
use crate::sync::atomic::Ordering;
use crate::sync::now;
use std::sync::Arc;
use std::time::Instant;

impl<C: Connector> Mux<C> {
    /// Sends a call without waiting for its answer, which its callback receives. Blocks until the call is written: while a connection is
    /// being opened, while the connection takes no more bytes, and for a moment while another caller writes.
    ///
    /// 1. The poster queues its call, and writes the queue if it can become the writer.
    /// 2. Otherwise it waits until the call is written, and takes the role of writer over from a writer that does not write yet.
    ///
    /// So the call is written when this returns, unless the deadline has come or the connection broke.
    pub(crate) fn post(&self, call: &Arc<PendingCall>, deadline: Instant) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return fail_all([call], &Error::ShutDown, false);
        }
        self.load.fetch_add(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        state.queue.push_back(Arc::clone(call));
        state.is_back();
        // The poster does not read for this call, so `hand_on` must promote a reader for the calls that were written with it.
        let state = self.write(state, call, deadline, WriterClaim::Free);
        self.hand_on(state, true);
        if !call.is_over() {
            self.see_sent(call, deadline);
        }
        self.load.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        if call.leave_sent() {
            let mut state = self.state.lock();
            state.resign();
            self.hand_on(state, true);
        }
    }

    /// Waits until another caller has written a posted call, or writes it.
    fn see_sent(&self, call: &Arc<PendingCall>, deadline: Instant) {
        let at = now();
        if at < deadline && self.load() > 1 {
            // Callers that are already answered may call or post meanwhile: one write then carries the commands of all.
            let _ = self.settings.polling.yield_once(at, self.load());
        }
        let mut claim = WriterClaim::AtOnce;
        // Even if the call is already sent: a role must be taken on.
        while claim == WriterClaim::Promoted || !call.is_over() {
            let state = self.state.lock();
            // A call that is written in part goes on with the next write, which nobody else may need.
            let has_backlog = state.session.as_ref().is_some_and(|session| session.has_backlog);
            let writes = claim == WriterClaim::Promoted || call.is_queued() || has_backlog;
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
