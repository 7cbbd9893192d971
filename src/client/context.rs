//! What every part of a client is given: the store, the clock, the identity, the keys in use, and who is told what happens.

use super::events::{Events, Hooks};
use crate::clock::Clock;
use crate::error::Error;
use crate::port::{Claim, Directory, Limit, LockProcessor, Operations, Outcome, Request, StoreLimits, unanswered};
use crate::state::key::KeyTable;
use crate::state::locker::ClientId;
use crate::state::tenure::Tenure;
use crate::timer::Timer;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) processor: Box<dyn LockProcessor>,
    /// What the store can keep to.
    pub(crate) limits: StoreLimits,
    pub(crate) clock: Timer,
    id: ClientId,
    pub(crate) process: Process,
    pub(crate) keys: Arc<KeyTable>,
    pub(super) events: Arc<Events>,
}

impl Context {
    /// Creates the context of a new client.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] when the operating system has no random numbers.
    pub(super) fn new(processor: Box<dyn LockProcessor>, clock: Arc<dyn Clock>, hooks: Hooks) -> Result<Self, Error> {
        let clock = Timer::new(clock);
        Ok(Self {
            limits: processor.limits(),
            processor,
            id: ClientId::draw()?,
            process: Process::this(),
            keys: Arc::new(KeyTable::new()),
            events: Arc::new(Events::new(clock.clone(), hooks)),
            clock,
        })
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

    /// Sends one request.
    pub(crate) fn run(&self, request: &Request<'_>, limit: Duration) -> Result<Outcome, Error> {
        // Not through the box, which is a store, too.
        let store = &*self.processor;
        self.events.observe_request(request, limit, || store.run_one(*request, Limit::Call(limit)))
    }

    /// Sends many requests at once. Returns exactly one result for each, whatever the store returns.
    pub(crate) fn batch(&self, requests: &[Request<'_>], limit: Duration) -> Vec<Result<Outcome, Error>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let mut results = self.events.observe_batch(requests, || self.processor.run(requests, Limit::Attempt(limit)));
        results.resize_with(requests.len(), || Err(unanswered()));
        results
    }

    /// Returns what the store tells people.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it tells nothing.
    pub(crate) fn directory(&self) -> Result<&dyn Directory, Error> {
        let lacks = || Error::unsupported("the store neither lists locks nor names who waits: it has no directory");
        self.processor.directory().ok_or_else(lacks)
    }
}

/// The process that has a client's threads and connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(super) fn this() -> Self {
        Self(std::process::id())
    }

    /// Returns whether the calling process is a forked child of this one, with a copy of its memory. Costs a system call.
    pub(crate) fn is_forked(self) -> bool {
        std::process::id() != self.0
    }

    /// Checks that the calling process may use the client. A forked child would use its parent's connection, and wait for
    /// threads that it does not have.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}
