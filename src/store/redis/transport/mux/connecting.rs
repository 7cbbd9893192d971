//! Opens the connection of a mux.
//!
//! The thread `dlock-connect` opens it. This thread exists only while it connects. A connect has the whole `connect_timeout`, whichever
//! caller needs it. A caller's deadline limits only how long that caller waits: a caller whose time ends leaves, and the connect goes on
//! for the others. That is why a caller does not connect itself. Its time may be too short for a connect, and if that is so for every
//! caller, no connection would ever be opened.
//!
//! The thread installs the connection in the mux. If no caller is the writer by then, it also writes the queue, so that a posted call whose
//! poster has left is sent. If the connect has failed, all queued calls fail at once. Otherwise each of them would wait for one more
//! connect, one after another.
//!
//! If the operating system refuses the thread, a caller that waits for the connect connects itself, within its own time. If that time is
//! too short, the calls of other callers fail with its own. Without this attempt they would have no connection at all.
//!
//! The thread holds a weak reference to its mux. If the mux is gone when the connect ends, the thread closes the new connection at once.

use super::state::{MuxState, Session};
use super::{Guard, Mux, fail_all};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::store::redis::net::connector::{Connector, OpenConnection};
use crate::sync::atomic::Ordering;
use crate::sync::{catch_panic, now, thread};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

impl<C: Connector> Mux<C> {
    /// Opens the connection before the first call, until the deadline at most.
    pub(in super::super) fn connect_first(&self, deadline: Instant) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.session.is_none() && !state.closed {
            state = self.connect_while(state, deadline, || true);
        }
        if state.closed {
            return Err(Error::ShutDown);
        }
        if state.session.is_some() {
            return Ok(());
        }
        let failed = state.connecting.failed.as_ref().filter(|_| !state.connecting.is_busy);
        Err(failed.map_or_else(|| self.settings.unconnected(), |(_, error)| error.clone()))
    }

    /// Starts a connect for later calls, unless there is a connection, one is being opened, or the last connect failed less than `pause`
    /// ago. Does not block.
    pub(in super::super) fn connect_ahead(&self, pause: Duration) {
        let mut state = self.state.lock();
        if state.closed || state.session.is_some() || state.connecting.failed_within(pause) {
            return;
        }
        // If the thread cannot be started, the next caller connects.
        let begun = self.begin_connect(&mut state);
        drop(state);
        let _ = begun.inspect_err(note_refusal);
    }

    /// Returns `true` if the last connect failed less than `pause` ago.
    pub(in super::super) fn failed_within(&self, pause: Duration) -> bool {
        self.state.lock().connecting.failed_within(pause)
    }

    /// Starts a connect, and waits for its end while `waits` returns `true`, until the deadline at most.
    pub(super) fn connect_while<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        deadline: Instant,
        waits: impl Fn() -> bool,
    ) -> Guard<'a, C> {
        if let Err(refusal) = self.begin_connect(&mut state) {
            state.connecting.is_busy = true;
            drop(state);
            note_refusal(&refusal);
            let start = now();
            self.end_connect(
                open(&self.settings.connector, deadline.min(start + self.settings.connect_timeout)),
                start,
            );
            return self.state.lock();
        }
        while waits() {
            let left = deadline.saturating_duration_since(now());
            if !state.connecting.is_busy || state.closed || left.is_zero() {
                break;
            }
            self.connected.wait_for(&mut state, left);
        }
        state
    }

    /// Starts a connect on a separate thread, unless one is under way. Does not block.
    ///
    /// # Errors
    ///
    /// If the operating system refuses the thread.
    pub(super) fn begin_connect(&self, state: &mut MuxState<C>) -> io::Result<()> {
        if state.connecting.is_busy {
            return Ok(());
        }
        let (mux, settings, start) = (Weak::clone(&self.this), Arc::clone(&self.settings), now());
        let connect = move || {
            let opened = open(&settings.connector, start + settings.connect_timeout);
            if let Some(mux) = mux.upgrade() {
                mux.end_connect(opened, start);
            }
        };
        let may_spawn = self.settings.connector.may_spawn();
        let spawn = || thread::Builder::new().name("dlock-connect".to_owned()).spawn(connect);
        let thread = if may_spawn { spawn()? } else { return Err(io::ErrorKind::WouldBlock.into()) };
        // The thread cannot report its end before this mark is set, because it needs the mutex for that.
        state.connecting.thread = Some(thread);
        state.connecting.is_busy = true;
        Ok(())
    }

    /// Takes the outcome of a connect.
    fn end_connect(&self, opened: Result<OpenConnection<C>, Error>, start: Instant) {
        let mut state = self.state.lock();
        let me = thread::current().id();
        // In one step: `close` must find this thread either as one that connects, or as one that may still run callbacks.
        state.connecting.is_busy = false;
        state.connecting.tellers.push(me);
        self.connected.notify_all();
        // Callbacks and the log may panic.
        let told = catch_panic(|| {
            let state = self.take_up(state, opened, start);
            if !state.writing && state.has_work() {
                drop(self.write_left_over(state));
            }
        });
        let mut state = self.state.lock();
        state.connecting.tellers.retain(|teller| *teller != me);
        self.connected.notify_all();
        drop(state);
        if told.is_none() {
            log::error!(TRANSPORT, "the thread dlock-connect has caught a panic; please report it");
        }
    }

    /// Installs a connection, or fails every queued call.
    fn take_up<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        opened: Result<OpenConnection<C>, Error>,
        start: Instant,
    ) -> Guard<'a, C> {
        match opened {
            Ok(open) => {
                let took = u64::try_from(now().duration_since(start).as_nanos()).unwrap_or(u64::MAX).max(1);
                // ORDERING: Relaxed: `has_answered` and `has_time_to_connect` load the value alone.
                self.settings.connect_took.store(took, Ordering::Relaxed);
                // A mux that was closed meanwhile keeps no connection: this one ends when `open` is dropped.
                if !state.closed {
                    state.session = Some(Session::new(self.epochs.begin(), open));
                    self.is_connected.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
                }
                state
            }
            Err(error) => {
                state.connecting.failed = Some((now(), error.clone()));
                let failed: VecDeque<_> = std::mem::take(&mut state.queue);
                drop(state);
                fail_all(&failed, &error, true);
                self.state.lock()
            }
        }
    }

    /// Called when the mux is closed. Waits until every thread whose connect has ended has run its callbacks, and until the last of these
    /// threads has ended. Returns at once on such a thread, and does not wait for a connect that is still under way.
    pub(super) fn end_connecting(&self) {
        let me = thread::current().id();
        let mut state = self.state.lock();
        if state.connecting.tellers.contains(&me) {
            return;
        }
        while state.connecting.is_telling() {
            self.connected.wait(&mut state);
        }
        let thread = if state.connecting.is_busy { None } else { state.connecting.thread.take() };
        drop(state);
        if let Some(thread) = thread {
            // The thread has caught any panic itself.
            let _ = thread.join();
        }
    }

    /// Returns `true` if a thread connects, is about to, or has not yet written what waited for its connection.
    #[cfg(all(test, dlock_shuttle))]
    pub(in super::super) fn is_connecting(&self) -> bool {
        let state = self.state.lock();
        state.connecting.is_busy || state.connecting.is_telling()
    }
}

/// Says in the log that there is no thread for a connect. Call it without holding the mux's state: a logger may block.
fn note_refusal(refusal: &io::Error) {
    log::debug!(TRANSPORT, "the operating system refused the thread dlock-connect: {refusal}");
}

/// Opens a connection, until the deadline at most. A panic becomes an error, because the mux must learn that this connect has ended: code
/// of the program that runs during a connect, such as its logger, may panic.
fn open<C: Connector>(connector: &C, deadline: Instant) -> Result<OpenConnection<C>, Error> {
    let panicked = || Error::backend(BackendFailure::NotExecuted, "opening a connection panicked; please report it");
    catch_panic(|| connector.open(deadline)).unwrap_or_else(|| Err(panicked()))
}
