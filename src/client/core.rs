//! A client at work: what its parts are given, and the parts.
//!
//! A core is shared by the handles of the client and by its threads, which hold weak references. It does not know the
//! operations: the work of its threads is passed in from above as [`Rounds`].

use super::Options;
use super::activity::Activity;
use super::context::Context;
use super::describe::Describe;
use super::listener::{Listen, Listener};
use super::record::Record;
use super::releases::Releases;
use super::renewals::Renewals;
use super::retries::Retries;
use super::slow_nodes::SlowNodeWorkers;
use super::subscription::Subscription;
use super::twin::Greetings;
use super::worker::{Round, Worker};
use crate::clock::{Clock, Moment};
use crate::config::DLockConfig;
use crate::error::Error;
use crate::log;
use crate::port::LockProcessor;
use crate::state::key::Key;
use crate::state::machine::{Ended, Phase, State};
use crate::state::queue::Waiter;
use crate::state::tenure::Tenure;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use crossbeam_channel::Sender;
use std::ops::Deref;
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
    pub(crate) retry_on_slow_nodes: Round<Core>,
    pub(crate) renew_on_slow_nodes: Round<Core>,
    /// The work of `dlock-listen`.
    pub(crate) listen: Listen<Core>,
    /// Ends the threads and closes the store.
    pub(crate) shut_down: fn(&Core),
}

/// The core of a client. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Core {
    context: Arc<Context>,
    pub(super) renewals: Renewals,
    pub(crate) retries: Retries,
    pub(super) releases: Releases,
    pub(super) slow_nodes: SlowNodeWorkers,
    pub(super) subscription: Subscription,
    /// What the client says of itself in the store.
    pub(super) record: Record,
    /// What clients say to one another about keys.
    pub(super) describe: Describe,
    /// What a client says to another one of its identity.
    pub(super) greetings: Greetings,
    pub(super) activity: Activity,
    /// The number of the last server of which the store has told.
    // ORDERING: SeqCst. Of two threads that are told at once, the one with the greater number counts.
    server: AtomicU64,
    /// When that number last rose, in nanoseconds; zero if it never did.
    // ORDERING: SeqCst, as for `server`. Stored before the keys are looked at; `grant` loads it with the key's mutex held. So of a
    // grant and a rise, either the grant sees the moment, or the thread that is told of the rise finds the tenure.
    server_rose_at: AtomicU64,
    pub(super) this: Weak<Self>,
    /// Whether the client is shut down. Held during the shutdown, so that it runs only once.
    pub(super) is_down: Mutex<bool>,
    shut_down: fn(&Self),
}

impl Deref for Core {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Core {
    pub(super) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        options: Options,
        rounds: Rounds,
    ) -> Result<Arc<Self>, Error> {
        let Options { hooks, listens, has_record } = options;
        let context = Arc::new(Context::new(processor, clock, hooks)?);
        // Without a queue in the store there is nothing to listen to.
        let listens = listens && context.processor.queue().is_some();
        let core = Arc::new_cyclic(|this| {
            let worker = |name, round| Worker::new(name, &context.clock, context.process, this, round);
            let listener = Listener::new(listens, context.clock.clone(), this, rounds.listen);
            Self {
                renewals: Renewals::new(&context, worker("dlock-lease", rounds.renew)),
                retries: Retries::new(&context, worker("dlock-retry", rounds.retry)),
                releases: Releases::default(),
                slow_nodes: SlowNodeWorkers::new(
                    worker("dlock-lease-2", rounds.renew_on_slow_nodes),
                    worker("dlock-retry-2", rounds.retry_on_slow_nodes),
                ),
                subscription: Subscription::new(&context, listener),
                record: Record::new(&context, has_record),
                describe: Describe::new(&context),
                greetings: Greetings::default(),
                activity: Activity::default(),
                server: AtomicU64::new(0),
                server_rose_at: AtomicU64::new(0),
                this: Weak::clone(this),
                is_down: Mutex::new(false),
                shut_down: rounds.shut_down,
                context: Arc::clone(&context),
            }
        });
        let this = Arc::downgrade(&core);
        let told = move |number| {
            if let Some(core) = this.upgrade() {
                core.note_server(number);
                core.drop_elsewhere();
            }
        };
        core.processor.on_new_server(Box::new(told));
        Ok(core)
    }

    /// Returns a fresh locker for a tenure with these settings.
    pub(crate) fn next_locker(&self, settings: &DLockConfig) -> Arc<str> {
        let linger = if self.subscription.hands_over() { settings.linger } else { Duration::ZERO };
        self.id().next_locker(settings.lock_delay, linger).into()
    }

    /// Returns `true` if the request sent at that moment may have been answered by an earlier server than the last one that is known.
    pub(crate) fn is_of_earlier_server(&self, sent_at: Moment) -> bool {
        let rose_at = self.server_rose_at.load(Ordering::SeqCst);
        rose_at != 0 && sent_at.as_nanos() <= rose_at
    }

    /// Drops a core where nothing may block. Clients can share a store and hear each other's answers. So the client may have ended meanwhile,
    /// and this be the last pointer to its store, whose end waits for the threads that tell of answers.
    pub(super) fn drop_elsewhere(self: Arc<Self>) {
        if let Some(last) = Arc::into_inner(self) {
            // Without a thread it ends here.
            let _ = thread::Builder::new().name("dlock-end".to_owned()).spawn(move || drop(last));
        }
    }

    /// Notes that another server answers than before, as the store tells. Makes every wait, every tenure and every release that is to be
    /// repeated due now: the other server may not know of them, or know of them alone. The listener does not wait any longer either:
    /// until it has subscribed, waiters may lose their places.
    fn note_server(&self, server: u64) {
        if self.server.fetch_max(server, Ordering::SeqCst) >= server {
            return;
        }
        log::info!(CLIENT, "another server answers than before: asking about every lock that is held or waited for");
        self.events.tell_new_server(server);
        let now = self.clock.now();
        self.server_rose_at.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
        for key in self.keys.all() {
            if let Some(tenure) = key.state.lock().kept() {
                tenure.lease.doubt(now);
            }
        }
        self.retries.cleanup.hasten(now);
        self.retries.hasten(now);
        self.renewals.hasten(now);
        self.subscription.hasten();
    }

    /// Starts the lease thread unless it was started before.
    ///
    /// # Errors
    ///
    /// Those of [`Worker::start`].
    pub(crate) fn start_renewing(&self) -> Result<(), Error> {
        if self.renewals.thread.start()? {
            self.renewals.thread.wake_by(self.record.begin());
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.activity.is_closed()
    }

    /// Returns a value that counts out a hold when it is dropped.
    pub(crate) fn leaving(&self) -> Leaving<'_> {
        Leaving(self)
    }
}

/// How a hold begins and ends.
impl Core {
    /// Gives the hold to a thread. The caller must have the turn, or the phase must be `Waiting`.
    pub(crate) fn grant(&self, key: &Arc<Key>, state: &mut State, mut tenure: Tenure, to: Taker<'_>, now: Moment) {
        tenure.begin(now);
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
        self.renewals.put(key, &tenure);
        key.hold.begin(to.thread, to.settings, &tenure);
        state.phase = Phase::Held(tenure);
    }

    /// Returns whether what the client knows of a tenure is enough to tell a thread of its hold.
    pub(super) fn counts(&self, tenure: &Tenure) -> bool {
        tenure.lease.is_answered() || !self.limits.extends_heard_grants
    }

    /// Ends the current hold and enters `phase`. Returns the tenure and the loss channels of the hold, or `None` if
    /// there is no hold.
    pub(crate) fn end_hold(&self, key: &Key, phase: Phase, now: Moment) -> Option<(Tenure, Vec<Sender<()>>)> {
        self.end_hold_in(key, &mut key.state.lock(), phase, now)
    }

    /// Like [`end_hold`](Self::end_hold), with the mutex held.
    pub(crate) fn end_hold_in(
        &self,
        key: &Key,
        state: &mut State,
        phase: Phase,
        now: Moment,
    ) -> Option<(Tenure, Vec<Sender<()>>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(mut tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
                state.tenure_ends(&mut tenure, now);
                self.renewals.forget(key);
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

/// A hold that is counted out when this is dropped, after its release.
#[must_use]
pub(crate) struct Leaving<'a>(&'a Core);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.0.activity.end_hold() {
            (self.0.shut_down)(self.0);
        }
    }
}
