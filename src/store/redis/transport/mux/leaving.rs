//! How a connection fails, and how a caller leaves before its answer has come.
//!
//! A failure is told to each call that was written to the connection, once, and as unknown: the server may have executed it. A call that is only
//! queued is not told: it goes on the next connection. A caller that leaves is told what its call's phase says: one that was never written was
//! not executed, and may be repeated at once; of any other nobody knows.
//!
//! Whoever tells calls does it without the mutex. Their callers call again at once, and callbacks of posted calls are not ours.

use super::connector::Connector;
use super::core::{Guard, Mux};
use super::pending::CallReplies;
use super::pending::{CallPhase, PendingCall};
use super::session::Session;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::one_line::OneLine;
use crate::sync::atomic::Ordering;
use crate::sync::now;
use std::io;
use std::sync::Arc;
use std::time::Duration;

impl<C: Connector> Mux<C> {
    /// Drops a connection. Every call written to it fails once.
    pub(super) fn fail<'a>(&'a self, mut state: Guard<'a, C>, epoch: u64, cause: io::Error) -> Guard<'a, C> {
        if state.session_of(epoch).is_none() {
            return state;
        }
        let level = if state.closed { log::Level::Debug } else { log::Level::Warn };
        let Some(session) = state.session.take() else { return state };
        self.is_connected.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
        drop(state);
        log::log!(level, TRANSPORT, "{}: connection dropped: {}", self.settings.server, OneLine(&cause));
        let message = format!("no answer from {}: {cause}", self.settings.server);
        let error = Error::backend_caused_by(BackendFailure::Unknown, message, cause);
        let due = session.abort();
        fail_all(&due, &error, false);
        self.state.lock()
    }

    /// Ends the connection if nobody has used it for so long and nothing is due on it. The next call opens another one.
    pub(crate) fn end_idle(&self, idle: Duration) {
        let mut state = self.state.lock();
        if state.writing || !state.queue.is_empty() {
            return;
        }
        let Some(session) = state.session.take_if(|session| session.is_idle(now(), idle)) else { return };
        self.is_connected.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
        drop(state);
        log::debug!(TRANSPORT, "{}: a connection ends that was idle for {idle:?}", self.settings.server);
        // No call is due on it.
        session.abort();
    }

    /// Removes a caller whose time is over, or that leaves while it is promoted.
    pub(super) fn depart(&self, call: &Arc<PendingCall>, limit: Duration, or_break: bool) -> CallReplies {
        let mut state = self.state.lock();
        let (phase, promotion, mut answer, written_in) = call.leave();
        let server = &self.settings.server;
        let mut was_queued = false;
        match phase {
            CallPhase::Queued => {
                let before = state.queue.len();
                state.queue.retain(|other| !Arc::ptr_eq(other, call));
                was_queued = state.queue.len() < before;
                let is_confirming = state.session.as_ref().is_some_and(|session| session.is_confirming);
                let why = match () {
                    () if state.connecting.is_busy => "; the connect goes on",
                    () if is_confirming && call.is_confirmed => "; earlier commands were still being confirmed",
                    () => "",
                };
                let message = format!("{server}: not sent within {limit:?}{why}");
                answer.failure = Some(Error::backend(BackendFailure::NotExecuted, message));
            }
            CallPhase::Written => {
                let message = format!("no answer from {server} within {limit:?}");
                answer.failure = Some(Error::backend(BackendFailure::Unknown, message));
            }
            CallPhase::Left | CallPhase::Done => {}
        }
        if promotion.to_writer {
            state.resign();
        }
        // A connection that was opened within the caller's time is fresh and is not broken.
        let is_old = |session: &&Session<C>| now().saturating_duration_since(session.opened) >= limit;
        let epoch = state.session.as_ref().filter(is_old).map(|session| session.epoch);
        let is_due = phase == CallPhase::Written && epoch.is_some_and(|first_epoch| written_in >= first_epoch);
        // Even for a call that was never written: if there was a writer, it has not got on all this time. But a call whose time was over
        // before it was queued has not met the connection.
        let is_late = was_queued || is_due;
        if or_break
            && is_late
            && let Some(epoch) = epoch
        {
            state = self.fail(state, epoch, ended(limit));
        }
        self.hand_on(state, true);
        answer
    }
}

/// Ends calls with a failure. Call it without holding the mux's state, because callbacks run.
pub(super) fn fail_all<'a>(calls: impl IntoIterator<Item = &'a Arc<PendingCall>>, error: &Error, unconnected: bool) {
    for call in calls {
        if call.fail(error, unconnected) {
            call.wake();
        }
    }
}

pub(super) fn overdue_by(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no reply for {timeout:?}"))
}

fn ended(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no reply within the limit of {limit:?}"))
}

pub(super) fn closed_by_us() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this client closed the connection")
}
