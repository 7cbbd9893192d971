//! The core of a client: its store, its clock, its identity, and the keys in use. The [parts](super::parts) of the client stand above it.

use super::activity::Activity;
use super::events::{Events, Hooks};
use crate::clock::{Clock, Timer};
use crate::config::DLockConfig;
use crate::error::Error;
use crate::log;
use crate::port::{Claim, Directory, Limit, LockProcessor, Outcome, Request, StoreLimits, unanswered};
use crate::process::Process;
use crate::state::key::KeyTable;
use crate::state::locker::ClientId;
use crate::state::tenure::Tenure;
use crate::sync::catch_panic;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Core {
    pub(crate) processor: Box<dyn LockProcessor>,
    /// The limits that the store declares.
    pub(crate) limits: StoreLimits,
    pub(crate) clock: Timer,
    /// The identity. Another one may take its place: see [`ClientId::current`].
    pub(crate) id: Arc<ClientId>,
    pub(crate) process: Process,
    pub(crate) keys: Arc<KeyTable>,
    /// Whether waiters are handed the lock: by messages between processes, and by other threads within this process. Only then the client listens.
    pub(super) hands_over: bool,
    /// Who uses the store.
    pub(crate) activity: Activity,
    /// The events of the client, calls of the store among them.
    pub(crate) events: Arc<Events>,
}

impl Core {
    /// Creates the core of a client that works on a store. Fails with [`Error::Backend`] when the operating system has no random numbers.
    pub(super) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        hooks: Hooks,
        listens: bool,
    ) -> Result<Self, Error> {
        let clock = Timer::new(clock);
        Ok(Self {
            limits: processor.limits().in_range(),
            // Without a queue in the store there is nothing to listen to.
            hands_over: listens && processor.queue().is_some(),
            processor,
            id: Arc::new(ClientId::draw()?),
            process: Process::this(),
            keys: Arc::default(),
            activity: Activity::default(),
            events: Arc::new(Events::new(clock.clone(), hooks)),
            clock,
        })
    }

    /// Returns a fresh locker for a tenure with these settings.
    pub(crate) fn next_locker(&self, settings: &DLockConfig) -> Arc<str> {
        let linger = if self.hands_over { settings.linger } else { Duration::ZERO };
        self.id.current().next_locker(settings.lock_delay, linger).into()
    }

    /// Returns whether a locker belongs to this client.
    pub(crate) fn is_ours(&self, locker: &str) -> bool {
        self.id.current().owns(locker)
    }

    /// Describes a tenure of this client to the store, which keeps the key for it for the time `kept`.
    pub(crate) fn claim<'a>(&'a self, key: &'a str, locker: &'a str, kept: Duration) -> Claim<'a> {
        Claim::new(key, self.id.current().as_str(), locker, kept)
    }

    /// Describes a tenure of this client that ends.
    pub(crate) fn ending<'a>(&'a self, key: &'a str, tenure: &'a Tenure) -> Claim<'a> {
        Claim { poller_gap: tenure.gap, ..self.claim(key, &tenure.locker, tenure.store_time()) }
    }

    /// Sends one request.
    pub(crate) fn run(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        let sent_at = self.events.metered_now();
        // Call the store in the box, and not the box, which is a `LockProcessor` itself.
        let results = (*self.processor).run(std::slice::from_ref(request), Limit::Call(limit));
        let result = results.into_iter().next().unwrap_or_else(|| Err(unanswered()));
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

    /// Returns whether the server of this key may keep a request waiting: see [`LockProcessor::keeps_waiting`]. A store that panics says no: the panic
    /// would lose the keys and orders that a round has taken.
    pub(crate) fn keeps_waiting(&self, key: &str) -> bool {
        catch_panic(|| (*self.processor).keeps_waiting(key)).unwrap_or_else(|| {
            log::error!(
                CLIENT,
                "the store has panicked when it was asked whether it keeps {key:?} waiting; please report it"
            );
            false
        })
    }

    /// Has the store do what may wait until a round is over. A panic of it leaves that undone.
    pub(crate) fn between_rounds(&self, limit: Duration) {
        if catch_panic(|| (*self.processor).between_rounds(limit)).is_none() {
            log::error!(CLIENT, "the store has panicked between rounds of requests; please report it");
        }
    }

    /// Returns the part of the store that answers people's questions. Fails with [`Error::Unsupported`] if the store has none.
    pub(crate) fn directory(&self) -> Result<&dyn Directory, Error> {
        let lacks = || Error::unsupported("the store neither lists locks nor names who waits: it has no directory");
        self.processor.directory().ok_or_else(lacks)
    }
}
