//! The core of a client: the store, the clock, the identity, the keys in use, the events, and the parts.
//!
//! A core is shared by the handles of the client and by its threads, which hold weak references. Every operation and every method of a
//! part that asks the store is given the core.

use super::Options;
use super::activity::Activity;
use super::describe::Describe;
use super::events::Events;
use super::record::Record;
use super::releases::Releases;
use super::renewals::{self, Renewals};
use super::retries::{self, Retries};
use super::server::ServerWatch;
use super::slow_nodes::SlowNodeWorkers;
use super::subscription::Subscription;
use super::worker::{Process, Worker};
use crate::clock::{Clock, Moment};
use crate::config::DLockConfig;
use crate::error::Error;
use crate::log;
use crate::port::{Claim, Directory, Limit, LockProcessor, Operations, Outcome, Request, StoreLimits, unanswered};
use crate::state::key::{Key, KeyTable};
use crate::state::locker::ClientId;
use crate::state::machine::{Ended, Phase, State, Waiter};
use crate::state::tenure::Tenure;
use crate::sync::{Mutex, catch_panic};
use crate::timer::Timer;
use crossbeam_channel::Sender;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The core of a client. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) processor: Box<dyn LockProcessor>,
    /// The limits that the store declares.
    pub(crate) limits: StoreLimits,
    pub(crate) clock: Timer,
    /// The identity. Another one may take its place: see [`ClientId::current`].
    pub(crate) id: ClientId,
    pub(crate) process: Process,
    pub(crate) keys: Arc<KeyTable>,
    pub(super) events: Arc<Events>,
    pub(super) renewals: Arc<Renewals>,
    pub(crate) retries: Arc<Retries>,
    pub(super) releases: Releases,
    pub(super) slow_nodes: SlowNodeWorkers,
    pub(super) subscription: Arc<Subscription>,
    /// What the client says of itself in the store.
    pub(super) record: Record,
    /// What clients say to one another.
    pub(super) describe: Describe,
    pub(super) server: Arc<ServerWatch>,
    pub(super) activity: Activity,
    #[cfg_attr(any(not(unix), all(test, dlock_shuttle)), expect(dead_code, reason = "nobody waits there"))]
    pub(super) this: Weak<Self>,
    /// Whether the client is shut down. Held during the shutdown, so that it runs only once.
    pub(super) is_down: Mutex<bool>,
}

impl Core {
    /// Creates a client that works on a store.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the operating system has no random numbers.
    pub(super) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Arc<Self>, Error> {
        let Options { hooks, listens, has_record } = options;
        let (clock, process, id) = (Timer::new(clock), Process::this(), ClientId::draw()?);
        // Without a queue in the store there is nothing to listen to.
        let listens = listens && processor.queue().is_some();
        let limits = processor.limits();
        let core = Arc::new_cyclic(|this: &Weak<Self>| {
            let worker = |name, round| Worker::new(name, &clock, process, this, round);
            let keys = Arc::<KeyTable>::default();
            let events = Arc::new(Events::new(clock.clone(), hooks));
            let renewals = Arc::new(Renewals::new(&clock, limits.command, worker("dlock-lease", renewals::round)));
            let retries = Arc::new(Retries::new(&clock, worker("dlock-retry", retries::round)));
            let subscription = Arc::new(Subscription::new(listens, &clock, process, this));
            Self {
                releases: Releases::default(),
                slow_nodes: SlowNodeWorkers::new(
                    worker("dlock-lease-2", renewals::round_on_slow_nodes),
                    worker("dlock-retry-2", retries::round_on_slow_nodes),
                ),
                record: Record::new(has_record),
                describe: Describe::default(),
                server: Arc::new(ServerWatch::new(&clock, &keys, &events, &renewals, &retries, &subscription)),
                activity: Activity::default(),
                this: Weak::clone(this),
                is_down: Mutex::new(false),
                limits,
                processor,
                clock: clock.clone(),
                id,
                process,
                keys,
                events,
                renewals,
                retries,
                subscription,
            }
        });
        // The store is given `ServerWatch`, and not the core: see there for the reason.
        let server = Arc::downgrade(&core.server);
        core.processor.on_new_server(Box::new(move |number| {
            if let Some(server) = server.upgrade() {
                server.note(number);
            }
        }));
        Ok(core)
    }

    /// Returns a fresh locker for a tenure with these settings.
    pub(crate) fn next_locker(&self, settings: &DLockConfig) -> Arc<str> {
        let linger = if self.subscription.hands_over { settings.linger } else { Duration::ZERO };
        self.id.current().next_locker(settings.lock_delay, linger).into()
    }

    /// Returns whether a locker belongs to this client.
    pub(crate) fn is_ours(&self, locker: &str) -> bool {
        self.id.current().owns(locker)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.activity.is_closed()
    }
}

/// What is asked of the store.
impl Core {
    /// Describes a tenure of this client to the store, which keeps the key for it for the time `kept`.
    pub(crate) fn claim<'a>(&'a self, key: &'a str, locker: &'a str, kept: Duration) -> Claim<'a> {
        Claim::new(key, self.id.current().as_str(), locker, kept)
    }

    /// Describes a tenure of this client that ends.
    pub(crate) fn ending<'a>(&'a self, key: &'a str, tenure: &'a Tenure) -> Claim<'a> {
        Claim { poller_gap: tenure.gap, ..self.claim(key, &tenure.locker, tenure.kept()) }
    }

    /// Sends one request.
    pub(crate) fn run(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        let sent_at = self.events.metered_now();
        // Call the store in the box, and not the box, which is a `LockProcessor` itself.
        let result = (*self.processor).run_one(*request, Limit::Call(limit));
        self.events.note_request(request, limit, sent_at, &result);
        result
    }

    /// Sends many requests at once. Returns exactly one result for each, whatever the store returns, and also if it panics: a panic that ended the
    /// round would leave each tenure of the batch unrenewed until its deadline.
    pub(crate) fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let sent_at = self.events.metered_now();
        let run = || self.processor.run(requests, Limit::Attempt(limit));
        let mut results = catch_panic(run).unwrap_or_else(|| {
            log::error!(CLIENT, "the store has panicked in a batch of requests; please report it");
            Vec::new()
        });
        self.events.note_batch(requests, sent_at, &results);
        results.resize_with(requests.len(), || Err(unanswered()));
        results
    }

    /// Returns the part of the store that answers people's questions.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the store has none.
    pub(crate) fn directory(&self) -> Result<&dyn Directory, Error> {
        let lacks = || Error::unsupported("the store neither lists locks nor names who waits: it has no directory");
        self.processor.directory().ok_or_else(lacks)
    }
}

/// How a hold begins and ends.
impl Core {
    /// Gives the hold to a thread. The caller must have the turn, or the phase must be `Waiting`.
    pub(crate) fn grant(&self, key: &Arc<Key>, state: &mut State, mut tenure: Tenure, to: Taker<'_>, now: Moment) {
        tenure.begin(now);
        if let Some(about) = state.about()
            && about.locker == tenure.locker
        {
            if about.contended {
                tenure.note_waiting(1, now);
            }
            if about.broken {
                tenure.lease.told_broken(now);
            }
        }
        state.rest();
        // An earlier server may have granted the key, while its reply was on its way.
        if self.server.is_earlier(tenure.lease.renewed_at) {
            tenure.lease.doubt(now);
        }
        self.renewals.put(key, &tenure);
        key.hold.begin(to.thread, to.settings, &tenure);
        state.phase = Phase::Held(tenure);
    }

    /// Returns whether what the client knows of a tenure is enough to tell a thread of its hold.
    pub(super) fn counts(&self, tenure: &Tenure) -> bool {
        tenure.lease.is_answered || !self.limits.extends_heard_grants
    }

    /// Ends the current hold and enters `phase`. Returns the tenure and the loss channels of the hold, or `None` if
    /// there is no hold. Call it with the key's mutex held.
    pub(crate) fn end_hold(&self, key: &Key, state: &mut State, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
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
