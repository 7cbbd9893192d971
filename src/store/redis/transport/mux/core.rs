//! What the callers of a mux share: its state under the mutex, and beside it what others may read without the mutex.

use super::super::connector::Connector;
use super::super::timing::QUIET;
use super::super::yielding::Yielding;
use super::session::Confirming;
use super::state::{State, Woken};
use crate::store::redis::net::resp::Stamp;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, now};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What all muxes of a transport share.
pub(crate) struct Settings<C> {
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
    pub(in super::super) yielding: Yielding,
}

impl<C> Settings<C> {
    /// How long the oldest reply may be due before the connection is given up.
    pub(super) fn patience(&self) -> Duration {
        self.io_timeout + self.confirming.as_ref().map_or(Duration::ZERO, |confirming| confirming.takes)
    }
}

/// One connection and its callers: see [`mux`](super). Its methods stand in the files of their steps.
pub(crate) struct Mux<C: Connector> {
    pub(super) settings: Arc<Settings<C>>,
    /// A handle for the thread that connects.
    pub(super) this: Weak<Self>,
    pub(super) state: Mutex<State<C>>,
    /// Notified when a connect on a separate thread has ended, and when the mux is closed.
    pub(super) connected: Condvar,
    /// The number of callers between [`begin`](Self::begin) and the end of [`finish`](Self::finish), or in [`post`](Self::post).
    // ORDERING: Relaxed: a count by which `choose` and the writer estimate. It decides nothing else.
    pub(super) load: AtomicUsize,
    // ORDERING: Relaxed: a hint. Whoever uses the connection finds it in `state`.
    pub(super) is_connected: AtomicBool,
    /// The current epoch. A connection has one or more, one after another.
    // ORDERING: Relaxed, also for `written`: stored with the mutex of `state` held. `epoch_at` loads without it, and may guess wrong: the
    // answer says in which epoch the call was written, and whoever relies on the epoch compares it.
    pub(super) epoch: AtomicU64,
    /// When the connection was last written to, in nanoseconds after `since`.
    pub(super) written: AtomicU64,
    since: Instant,
    /// The last epoch that is stamped.
    // ORDERING: Relaxed: stored under the mutex of whoever sets stamps, loaded by `write_once` under that of `state`, under which every
    // call is queued. So the calls that a thread sends after it has ended the stamp are written after that is seen. A stamp that is seen
    // too late costs the server one write.
    pub(super) stamped: AtomicU64,
    /// The last epoch in which the server said that it is no master, even if only to a caller that had left.
    // ORDERING: Relaxed: `take_in` stores it with the mutex of `state` held, before it delivers replies, each under the mutex of its call.
    // So whoever takes a reply sees what was read before that reply or together with it.
    pub(super) deposed: AtomicU64,
}

pub(super) type Guard<'a, C> = MutexGuard<'a, State<C>>;

impl<C: Connector> Mux<C> {
    /// Creates a mux that connects with its first call. Its epochs are `first`, `first + step`, …
    pub(crate) fn new(settings: &Arc<Settings<C>>, first: u64, step: u64) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            settings: Arc::clone(settings),
            this: Weak::clone(this),
            state: Mutex::new(State::new(first, step)),
            connected: Condvar::new(),
            load: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            written: AtomicU64::new(0),
            since: now(),
            stamped: AtomicU64::new(0),
            deposed: AtomicU64::new(0),
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

    pub(super) fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the epoch in which a command sent at this moment is written, or `None` if it begins a new epoch. Approximate: it does not
    /// take the mutex, which the users of the connection need.
    pub(crate) fn epoch_at(&self, at: Instant) -> Option<u64> {
        // ORDERING: Relaxed: a guess, which the epoch of the answer corrects.
        let written = self.since + Duration::from_nanos(self.written.load(Ordering::Relaxed));
        let epoch = self.epoch.load(Ordering::Relaxed);
        (at.saturating_duration_since(written) <= QUIET && !self.is_deposed(epoch)).then_some(epoch)
    }

    /// Returns `true` if the server has said in that epoch, or later, that it is no master.
    pub(crate) fn is_deposed(&self, epoch: u64) -> bool {
        // ORDERING: Relaxed: the mutex of the call whose reply was taken comes after `take_in`.
        self.deposed.load(Ordering::Relaxed) >= epoch
    }

    /// Stamps the commands that are written in that epoch.
    pub(crate) fn stamp(&self, epoch: u64) {
        self.stamped.fetch_max(epoch, Ordering::Relaxed); // ORDERING: Relaxed: seen too late, it costs one write.
    }

    /// Stamps no more commands.
    pub(crate) fn unstamp(&self) {
        self.stamped.store(0, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux orders it before later calls.
    }

    /// Begins an epoch, which is not stamped.
    pub(super) fn begin_epoch(&self, next: &mut u64, step: u64) -> u64 {
        let epoch = *next;
        *next += step;
        self.epoch.store(epoch, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux is held: see `Mux::epoch`.
        epoch
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
