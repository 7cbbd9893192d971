//! What every operation of a client is given: its store, its clock, its identity, its keys, and the schedules of its
//! threads.
//!
//! A core is shared by the handles of the client and by its threads, which hold weak references. It does not know the
//! operations: the work of its threads is passed in from above as [`Rounds`].

use super::acquire::right::RightToSend;
use super::activity::Activity;
use super::apart::Apart;
use super::cleanup::Cleanup;
use super::inquiry::Inquiries;
use super::listener::{Listen, Listener};
use super::long_waits::LongWaits;
use super::metrics::name_of;
use super::observer::{Hooks, Observer};
use super::record::Record;
use super::releases::Releases;
use super::renewals::Renewals;
use super::schedule::Schedule;
use super::worker::{Round, Worker};
use crate::clock::Clock;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::state::key::{Key, Table};
use crate::state::locker::ClientId;
use crate::state::machine::{Ended, Phase, State};
use crate::state::queue::Waiter;
use crate::state::tenure::Tenure;
use crate::store::processor::{Claim, LockProcessor, Outcome, Request, StoreLimits};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Mutex, mutant};
use crate::timer::Timer;
use crossbeam_channel::Sender;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The work of a client's threads, and what happens at the end of its last hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// The work of `dlock-retry`.
    pub(crate) retry: Round<Core>,
    /// The work of `dlock-lease`.
    pub(crate) renew: Round<Core>,
    /// The same of the threads for keys whose servers keep others waiting.
    pub(crate) retry_apart: Round<Core>,
    pub(crate) renew_apart: Round<Core>,
    /// The work of `dlock-listen`.
    pub(crate) listen: Listen<Core>,
    /// Ends the threads and closes the store.
    pub(crate) shut_down: fn(&Core),
}

/// The core of a client. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) processor: Box<dyn LockProcessor>,
    /// What the store can keep to.
    pub(crate) limits: StoreLimits,
    /// The number of the server that answered last: [`Status::server`](crate::store::processor::Status::server).
    pub(super) server: AtomicU64,
    /// When that number was last seen to rise, in nanoseconds; zero if it never was.
    // ORDERING: SeqCst, as for `server`. Stored before the keys are looked at; `grant` loads it with the key's mutex held. So of a
    // grant and a rise, either the grant sees the moment, or the thread that has seen the rise finds the tenure.
    pub(super) server_rose_at: AtomicU64,
    pub(crate) clock: Timer,
    pub(crate) cleanup: Arc<Cleanup>,
    pub(super) releases: Releases,
    id: ClientId,
    /// The process that has the threads and the connections.
    pid: u32,
    pub(super) this: Weak<Self>,
    pub(crate) keys: Arc<Table>,
    pub(super) waiting: Mutex<Schedule<Arc<Key>>>,
    pub(super) retry_thread: Worker,
    pub(super) renewals: Mutex<Renewals>,
    pub(super) lease_thread: Worker,
    pub(super) apart: Apart,
    pub(super) listener: Listener,
    /// What the client says of itself in the store.
    pub(super) record: Record,
    /// What clients say to one another about keys.
    pub(super) inquiries: Inquiries,
    /// Who is told what happens, if anybody is.
    pub(super) observer: Option<Arc<Observer>>,
    pub(super) right_to_send: RightToSend,
    /// The slowest recent round trip, in nanoseconds.
    // ORDERING: Relaxed: a statistic.
    pub(super) trip: AtomicU64,
    pub(super) activity: Activity,
    pub(super) long_waits: LongWaits,
    /// Whether the client is shut down. Held during the shutdown, so that it runs only once.
    pub(super) is_down: Mutex<bool>,
    pub(super) rounds: Rounds,
}

impl Core {
    pub(super) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        listen: bool,
        hooks: Hooks,
        record: bool,
        rounds: Rounds,
    ) -> Result<Arc<Self>, Error> {
        let (id, clock) = (ClientId::draw()?, Timer::new(clock));
        // Without a queue in the store there is nothing to listen to.
        let listen = listen && processor.queue().is_some();
        let core = Arc::new_cyclic(|this| Self {
            limits: processor.limits(),
            server: AtomicU64::new(processor.status().server),
            server_rose_at: AtomicU64::new(0),
            processor,
            cleanup: Arc::new(Cleanup::new(clock.clone())),
            releases: Releases::default(),
            id,
            pid: std::process::id(),
            this: Weak::clone(this),
            keys: Arc::new(Table::new()),
            waiting: Mutex::new(Schedule::new()),
            retry_thread: Worker::new("dlock-retry", clock.clone()),
            renewals: Mutex::new(Renewals::new()),
            lease_thread: Worker::new("dlock-lease", clock.clone()),
            apart: Apart::new(&clock),
            listener: Listener::new(listen, clock.clone()),
            clock,
            record: Record::new(record),
            inquiries: Inquiries::default(),
            observer: hooks.into_observer(),
            right_to_send: RightToSend::new(),
            trip: AtomicU64::new(0),
            activity: Activity::default(),
            long_waits: LongWaits::default(),
            is_down: Mutex::new(false),
            rounds,
        });
        let this = Arc::downgrade(&core);
        // The lease thread asks about what is held, and wakes the retry thread.
        let told = move || {
            if let Some(core) = this.upgrade() {
                core.lease_thread.wake_by(core.clock.now());
            }
        };
        core.processor.on_new_server(Box::new(told));
        Ok(core)
    }

    pub(crate) fn id(&self) -> &ClientId {
        self.id.current()
    }

    /// Describes a tenure of this client to the store, which keeps the key for it for the time `kept`.
    pub(crate) fn claim<'a>(&'a self, key: &'a str, locker: &'a str, kept: Duration) -> Claim<'a> {
        Claim::new(key, self.id().as_str(), locker, kept)
    }

    /// Describes a tenure of this client that ends.
    pub(crate) fn ending<'a>(&'a self, key: &'a str, tenure: &'a Tenure) -> Claim<'a> {
        self.claim(key, &tenure.locker, tenure.kept()).with_poller_gap(tenure.gap)
    }

    /// Returns whether a locker belongs to this client.
    pub(crate) fn is_ours(&self, locker: &str) -> bool {
        locker.strip_prefix(self.id().as_str()).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Returns a fresh locker for a tenure with these settings.
    pub(crate) fn next_locker(&self, settings: &DLockConfig) -> Arc<str> {
        let linger = if self.hands_over() { settings.linger() } else { Duration::ZERO };
        self.id().next_locker(settings.lock_delay(), linger).into()
    }

    /// Returns whether this process is a forked child of the one that made the client, with a copy of its memory.
    /// Costs a system call.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Checks that this process may use the client. A forked child would use its parent's connection, and wait for
    /// threads that it does not have.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Sends one request.
    pub(crate) fn run(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        let send = || request.send(&*self.processor, limit);
        match &self.observer {
            None => send(),
            Some(observer) => self.observed(observer, (name_of(request), request.claim().key), limit, send),
        }
    }

    /// Sends many requests at once. Returns exactly one result for each, whatever the store returns.
    pub(crate) fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let mut results = match &self.observer {
            None => self.processor.batch(requests, limit),
            Some(observer) => self.observed_batch(observer, requests, limit),
        };
        results.resize_with(requests.len(), || {
            Err(Error::backend(BackendFailure::Unknown, "the store returned fewer results than there were requests"))
        });
        results
    }
}

/// The inbox.
impl Core {
    /// Returns whether waiters are handed the lock: by messages between processes, and by one another within this
    /// process.
    pub(crate) fn hands_over(&self) -> bool {
        self.listener.is_enabled()
    }

    /// Returns whether the client receives messages of grants.
    pub(crate) fn is_listening(&self) -> bool {
        self.listener.is_subscribed()
    }

    /// Returns whether the client would hear of a grant of this key now. Only then may its threads wait in the store's
    /// queue.
    pub(crate) fn hears(&self, key: &Key) -> bool {
        self.is_listening() && self.processor.queue().is_some_and(|queue| queue.hears(self.id().as_str(), &key.name))
    }

    /// Returns whether the client hears of grants of this key, after it has got ready for that. May ask the store.
    pub(crate) fn gets_ready_to_hear(&self, key: &Key, limit: impl FnOnce() -> Duration) -> bool {
        if self.hears(key) || !self.is_listening() {
            return self.is_listening();
        }
        let ready = self.processor.queue().map(|queue| queue.get_ready_to_hear(self.id().as_str(), &key.name, limit()));
        if let Some(Err(error)) = ready {
            log::debug!(HAND_OVER, "lock {:?}: not ready to hear grants, polling: {error}", key.name);
        }
        self.hears(key)
    }

    /// Starts the listener thread if necessary, and gets ready to hear of this key, without waiting for that.
    pub(crate) fn listen_for(&self, key: &Key) {
        self.listen();
        if self.is_listening() && !self.hears(key) {
            self.gets_ready_to_hear(key, || Duration::ZERO);
        }
    }

    /// Starts the listener thread if necessary. Until it is subscribed, and if that fails, waiting threads poll.
    pub(crate) fn listen(&self) {
        if self.listener.is_started() || self.is_forked() {
            return;
        }
        if let Err(error) = self.listener.start(&self.this, self.rounds.listen) {
            log::error!(HAND_OVER, "cannot start the listener, falling back to polling: {error}");
        }
    }
}

/// Which threads are inside `lock`, and which hold.
impl Core {
    pub(crate) fn is_closed(&self) -> bool {
        self.activity.is_closed()
    }

    /// Counts the calling thread as inside `lock`.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] after the client is closed.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Error> {
        self.activity.enter().map(|()| Inside(self))
    }

    /// Returns a value that counts out a hold when it is dropped.
    pub(crate) fn leaving(&self) -> Leaving<'_> {
        Leaving(self)
    }
}

/// How a hold begins and ends.
impl Core {
    /// Gives the hold to a thread. The caller must have the turn, or the phase must be `Waiting`.
    pub(crate) fn grant(&self, key: &Arc<Key>, state: &mut State, mut tenure: Tenure, to: Taker<'_>) {
        let now = self.clock.now();
        tenure.begin(now);
        if mutant!(CountsFromHearing) && self.counts(&tenure) {
            tenure.lease.renewed(now);
        }
        if let Some(about) = state.about().filter(|about| about.locker == tenure.locker) {
            if about.contended {
                tenure.note_waiting(1, now);
            }
            if about.broken {
                tenure.lease.told_broken(now);
            }
        }
        state.asked = 0;
        state.failures = 0;
        state.failure = None;
        // The earlier server may have granted it, and the reply was on its way.
        if self.is_of_earlier_server(tenure.lease.renewed_at()) {
            tenure.lease.doubt(now);
        }
        self.schedule_renewal(key, &tenure);
        key.hold.begin(to.thread, to.settings, &tenure);
        state.phase = Phase::Held(tenure);
    }

    /// Returns whether what the client knows of a tenure is enough to tell a thread of its hold.
    pub(super) fn counts(&self, tenure: &Tenure) -> bool {
        tenure.lease.is_answered() || !self.limits.extends_heard_grants || mutant!(BelievesMessages)
    }

    /// Ends the current hold and enters `phase`. Returns the tenure and the loss channels of the hold, or `None` if
    /// there is no hold.
    pub(crate) fn end_hold(&self, key: &Key, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        self.end_hold_in(key, &mut key.state(), phase)
    }

    /// Like [`end_hold`](Self::end_hold), with the mutex held.
    pub(crate) fn end_hold_in(&self, key: &Key, state: &mut State, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(mut tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
                state.tenure_ends(&mut tenure, self.clock.now());
                self.forget_renewal(key);
                key.hold.end();
                Some((tenure, std::mem::take(&mut state.watchers)))
            }
            other => {
                state.phase = other;
                None
            }
        }
    }
}

/// The thread that gets a hold, with the settings of the handle that it has called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker<'a> {
    pub(crate) thread: u64,
    pub(crate) settings: &'a DLockConfig,
}

impl<'a> From<&'a Arc<Waiter>> for Taker<'a> {
    fn from(waiter: &'a Arc<Waiter>) -> Self {
        Self { thread: waiter.thread, settings: &waiter.settings }
    }
}

/// A thread inside `lock`.
#[must_use]
pub(crate) struct Inside<'a>(&'a Core);

impl Inside<'_> {
    /// The thread leaves with a hold, which is counted in its place.
    pub(crate) fn begin_hold(self) {
        self.0.activity.begin_hold();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.activity.leave();
    }
}

/// A hold that is counted out when this is dropped, after its release.
#[must_use]
pub(crate) struct Leaving<'a>(&'a Core);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.0.activity.end_hold() {
            (self.0.rounds.shut_down)(self.0);
        }
    }
}
