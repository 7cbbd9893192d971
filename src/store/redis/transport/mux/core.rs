//! What the callers of a mux share: its state under the mutex, and beside it what others may read without the mutex.

use super::super::polling::PollPolicy;
use super::connector::Connector;
use super::epochs::Epochs;
use super::session::Confirming;
use super::state::{MuxState, Woken};
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::resp::Stamp;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What all muxes of a transport share.
pub(crate) struct MuxSettings<C> {
    pub(crate) connector: C,
    /// The name of the server in errors.
    pub(crate) server: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) io_timeout: Duration,
    /// How calls are confirmed, if they are.
    pub(crate) confirming: Option<Confirming>,
    /// What is written over the bytes of commands that are packed for it, in epochs that are stamped.
    pub(crate) stamp: Stamp,
    /// How long the last connect took, in nanoseconds; zero before the first, while the server has never answered.
    // ORDERING: Relaxed: an estimate; nothing is read through it. A caller that was answered has had a mux's mutex after the store.
    pub(crate) connect_took: AtomicU64,
    pub(in super::super) polling: PollPolicy,
}

impl<C> MuxSettings<C> {
    /// How long the oldest reply may be due before the connection is given up.
    pub(super) fn patience(&self) -> Duration {
        self.io_timeout + self.confirming.as_ref().map_or(Duration::ZERO, |confirming| confirming.takes)
    }

    /// The error of a call for which there is no connection.
    pub(super) fn unconnected(&self) -> Error {
        let message = format!("{}: not sent: there is no connection", self.server);
        Error::backend(BackendFailure::NotExecuted, message)
    }
}

/// One connection and its callers: see [`mux`](super). Its methods stand in the files of their steps.
pub(crate) struct Mux<C: Connector> {
    pub(super) settings: Arc<MuxSettings<C>>,
    /// A handle for the thread that connects.
    pub(super) this: Weak<Self>,
    pub(super) state: Mutex<MuxState<C>>,
    /// Notified when a connect on a separate thread has ended, and when the mux is closed.
    pub(super) connected: Condvar,
    /// The number of callers between [`begin`](Self::begin) and the end of [`finish`](Self::finish), or in [`post`](Self::post).
    // ORDERING: Relaxed: a count by which `choose` and the writer estimate. It decides nothing else.
    pub(super) load: AtomicUsize,
    // ORDERING: Relaxed: a hint. Whoever uses the connection finds it in `state`.
    pub(super) is_connected: AtomicBool,
    pub(in super::super) epochs: Epochs,
}

pub(super) type Guard<'a, C> = MutexGuard<'a, MuxState<C>>;

impl<C: Connector> Mux<C> {
    /// Creates a mux that connects with its first call. Its epochs are `first`, `first + step`, …
    pub(crate) fn new(settings: &Arc<MuxSettings<C>>, first: u64, step: u64) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            settings: Arc::clone(settings),
            this: Weak::clone(this),
            state: Mutex::new(MuxState::new(first, step)),
            connected: Condvar::new(),
            load: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            epochs: Epochs::new(),
        })
    }

    /// Returns the number of callers that write to this mux or wait for it.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed) // ORDERING: Relaxed: an estimate.
    }

    /// Returns `true` if the mux has a connection. Approximate: it does not take the mutex, which the users of the connection need.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed) // ORDERING: Relaxed: a hint.
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Unlocks the state. Promotes a writer, and a reader if `reads`, when there is work for one and nobody does it.
    pub(super) fn hand_on(&self, mut state: Guard<'_, C>, reads: bool) {
        let mut successors = Woken::new();
        state.promote_writer(&mut successors);
        if reads {
            state.promote_reader(&mut successors);
        }
        drop(state);
        successors.iter().for_each(|successor| successor.wake());
    }
}
