//! What every operation of a client is given: its store, its clock, its identity, its keys, and what its threads have to do when.
//!
//! A core is shared by the handles of the client, and by its threads, which hold it weakly. It knows none of the operations: the work of
//! its threads is handed in from above as [`Rounds`].

use super::activity::Activity;
use super::agenda::Held;
use super::cleanup::Cleanup;
use super::hook::{Hooks, LossHook};
use super::listener::{Listen, Listener};
use super::schedule::Schedule;
use super::ticket::Unanswered;
use super::worker::{Round, Worker};
use crate::clock::Clock;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::state::key::{Key, Table};
use crate::state::locker::ClientId;
use crate::store::processor::{LockProcessor, Outcome, Request, run};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::timer::Timer;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What the threads of a client do, and what the end of its last hold does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// Of `dlock-retry`.
    pub(crate) retry: Round<Core>,
    /// Of `dlock-lease`.
    pub(crate) renew: Round<Core>,
    /// Of `dlock-listen`.
    pub(crate) listen: Listen<Core>,
    /// Ends the threads, and lets go of the store.
    pub(crate) shut_down: fn(&Core),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) processor: Box<dyn LockProcessor>,
    pub(crate) clock: Timer,
    pub(crate) cleanup: Arc<Cleanup>,
    pub(super) unanswered: Arc<Unanswered>,
    id: ClientId,
    /// The process that has the threads and the connection.
    pid: u32,
    pub(super) this: Weak<Self>,
    pub(crate) keys: Arc<Table>,
    pub(super) waiting: Mutex<Schedule<Arc<Key>>>,
    pub(super) retry_thread: Worker,
    /// When the answers to posted releases are to be taken in; zero when none is known to be missing.
    pub(super) collect_at: AtomicU64,
    pub(super) held: Mutex<Held>,
    pub(super) lease_thread: Worker,
    pub(super) listener: Listener,
    /// The program's own functions.
    pub(super) hooks: Hooks,
    /// Whether messages may be sent, or somebody is about to find out.
    pub(super) is_checked: AtomicBool,
    /// The slowest round trip of late, in nanoseconds.
    pub(super) trip: AtomicU64,
    pub(super) activity: Activity,
    /// Whether the end has come; held while it comes, so that it comes once.
    pub(super) is_down: Mutex<bool>,
    pub(super) rounds: Rounds,
}

impl Core {
    pub(super) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        listen: bool,
        hooks: Hooks,
        rounds: Rounds,
    ) -> Result<Arc<Self>, Error> {
        let (id, clock) = (ClientId::draw()?, Timer::new(clock));
        Ok(Arc::new_cyclic(|this| Self {
            processor,
            cleanup: Arc::new(Cleanup::new(clock.clone())),
            unanswered: Arc::default(),
            id,
            pid: std::process::id(),
            this: Weak::clone(this),
            keys: Arc::new(Table::new()),
            waiting: Mutex::new(Schedule::new()),
            retry_thread: Worker::new("dlock-retry", clock.clone()),
            collect_at: AtomicU64::new(0),
            held: Mutex::new(Held::new()),
            lease_thread: Worker::new("dlock-lease", clock.clone()),
            listener: Listener::new(listen, clock.clone()),
            clock,
            hooks,
            is_checked: AtomicBool::new(false),
            trip: AtomicU64::new(0),
            activity: Activity::default(),
            is_down: Mutex::new(false),
            rounds,
        }))
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_str()
    }

    /// Whether a locker is one of this client.
    pub(crate) fn is_ours(&self, locker: &str) -> bool {
        locker.strip_prefix(self.id()).is_some_and(|rest| rest.starts_with('-'))
    }

    /// A fresh locker for a tenure with these settings.
    pub(crate) fn next_locker(&self, settings: &DLockConfig) -> Arc<str> {
        self.id.next_locker(self.hands_over() && !settings.linger().is_zero()).into()
    }

    /// Whether this is a child of the process that made the client, with a copy of its memory. Costs a system call.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Makes sure that this process may use the client: a child would talk on its parent's connection, and wait for threads
    /// that it does not have.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// What the program wants to be told of lost leases by.
    pub(crate) fn on_lost(&self) -> Option<&LossHook> {
        self.hooks.on_lost.as_deref()
    }

    /// Sends one request.
    pub(crate) fn run(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        run(&*self.processor, request, limit)
    }

    /// Sends many requests in one go; as many results, whatever the store returns.
    pub(crate) fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let mut results = self.processor.batch(requests, limit);
        results.resize_with(requests.len(), || {
            Err(Error::backend(BackendFailure::Unknown, "the store returned fewer results than it had requests"))
        });
        results
    }
}

/// The inbox.
impl Core {
    /// Whether waiters are handed the lock: by messages between processes, by one another within this one.
    pub(crate) fn hands_over(&self) -> bool {
        self.listener.is_enabled()
    }

    /// Whether grants are heard.
    pub(crate) fn is_listening(&self) -> bool {
        self.listener.is_subscribed()
    }

    /// Sees to it that grants will be heard; until then, and when that fails, waiting threads ask.
    pub(crate) fn listen(&self) {
        if self.listener.is_started() || self.is_forked() {
            return;
        }
        if let Err(error) = self.listener.start(&self.this, self.rounds.listen) {
            log::error!(HAND_OVER, "grants will not be heard: {error}");
        }
    }
}

/// Who is inside, and who holds.
impl Core {
    pub(crate) fn is_closed(&self) -> bool {
        self.activity.is_closed()
    }

    /// Lets the calling thread in.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] after the closing.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Error> {
        self.activity.enter().map(|()| Inside(self))
    }

    /// Counts out a hold when what this returns is dropped.
    pub(crate) fn leaving(&self) -> Leaving<'_> {
        Leaving(self)
    }
}

/// A thread inside `lock`.
#[must_use]
pub(crate) struct Inside<'a>(&'a Core);

impl Inside<'_> {
    /// The thread leaves with a hold, which takes its place.
    pub(crate) fn begin_hold(self) {
        self.0.activity.begin_hold();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.activity.leave();
    }
}

/// A hold that is about to be over, release and all.
#[must_use]
pub(crate) struct Leaving<'a>(&'a Core);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.0.activity.end_hold() {
            (self.0.rounds.shut_down)(self.0);
        }
    }
}
