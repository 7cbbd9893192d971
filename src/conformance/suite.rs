//! The words in which conformance cases are written: a suite has clients, a client has tenures, a tenure asks.

use super::store::{Need, Store};
use crate::error::{BackendFailure, Error};
use crate::store::processor::{
    AcquireOutcome, Busy, Claim, DeadWaiters, ExtendOutcome, Extension, Gap, Grant, Inbox, Inspection, LockProcessor,
    Message, NotOurs, PollOutcome, ProbeOutcome, ReleaseOutcome, StoreLimits, WaitQueue,
};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shortest lease that a case lets end. Long enough that on a busy machine everything that must precede its end is in time.
const SHORT: Duration = Duration::from_millis(600);

/// The shortest lease that must not end in a case.
const LONG: Duration = Duration::from_secs(120);

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to listen for what must not happen.
const SILENCE: Duration = Duration::from_millis(30);

/// The store of one case, and the tenures that the case created.
pub struct Suite {
    store: Box<dyn Store>,
    /// Two processors, so that clients share only the store.
    processors: [Arc<dyn LockProcessor>; 2],
    pub(super) limits: StoreLimits,
    clients: AtomicU64,
    /// Key, locker and lease of every tenure, to end them all.
    tenures: Mutex<Vec<(String, String, Duration)>>,
}

impl Suite {
    /// Begins a case on a store.
    pub fn on(store: impl Store + 'static) -> Self {
        let processors = [store.processor(), store.processor()];
        let limits = processors[0].limits();
        Self { store: Box::new(store), processors, limits, clients: AtomicU64::new(0), tenures: Mutex::default() }
    }

    /// Begins a case whose next clients get the same names as those of another.
    pub fn beside(other: &Self, store: impl Store + 'static) -> Self {
        let suite = Self::on(store);
        suite.clients.store(other.clients.load(Ordering::SeqCst), Ordering::SeqCst);
        suite
    }

    /// Returns a lease whose end a case awaits.
    pub fn short(&self) -> Duration {
        SHORT.max(self.limits.shortest_lease)
    }

    /// Returns a lease longer than any case takes.
    pub fn long(&self) -> Duration {
        LONG.max(self.limits.shortest_lease * 12).min(self.limits.longest_lease)
    }

    /// Returns whether a reported remaining time is plausible: at most `at_most`, or unknown if the store's limits say so.
    pub fn is_left(&self, remaining: Option<Duration>, at_most: Duration) -> bool {
        remaining.map_or(!self.limits.remaining_known, |left| left <= at_most)
    }

    /// Whether the store has what a case needs.
    pub(super) fn has(&self, need: Need) -> bool {
        let store = &self.processors[0];
        match need {
            Need::Queue => store.queue().is_some(),
            Need::Numbers => store.numbers().is_some(),
            Need::Gaps => self.limits.poller_gaps,
            Need::DeadAtOnce => self.limits.dead_waiters == DeadWaiters::AtOnce,
            Need::Keeps => !self.limits.keeps_unheard.is_zero(),
            Need::Denials => self.store.deny(&[]),
            Need::Posting => store.posting().is_some(),
            Need::Settling => store.settling().is_some(),
        }
    }

    /// Returns the store, for actions of an administrator.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// A new client, dead until it opens its inbox.
    pub fn client(&self) -> Client<'_> {
        let n = self.clients.fetch_add(1, Ordering::SeqCst);
        let processor = self.processors[usize::try_from(n).unwrap() % self.processors.len()].clone();
        Client { suite: self, processor, id: format!("host-{n}-c0ffee"), tenures: AtomicU64::new(0) }
    }

    /// Who holds a key, and how many wait.
    pub fn inspect(&self, key: &str) -> Inspection {
        self.processors[0].inspect(key, PATIENCE).unwrap()
    }

    /// How many wait for a key.
    pub fn waiting(&self, key: &str) -> u64 {
        self.inspect(key).waiting
    }

    /// The locker that holds a key.
    pub fn holder(&self, key: &str) -> Option<String> {
        self.inspect(key).holder
    }

    /// Releases every locker, and panics if the store still keeps anything.
    pub fn assert_nothing_is_left(&self) {
        for (key, locker, lease) in self.tenures.lock().drain(..) {
            let client = locker.rsplit_once('-').map_or("", |(client, _)| client);
            self.processors[0].release(&Claim::new(&key, client, &locker, lease), PATIENCE).unwrap();
        }
        assert_eq!(self.store.leftovers(), [""; 0], "left in the store");
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("store", &self.store.name()).finish_non_exhaustive()
    }
}

/// A client of the store: it has tenures, and an inbox while it listens.
#[derive(Debug)]
pub struct Client<'s> {
    suite: &'s Suite,
    processor: Arc<dyn LockProcessor>,
    id: String,
    tenures: AtomicU64,
}

impl Client<'_> {
    /// The processor that this client asks.
    pub fn processor(&self) -> &dyn LockProcessor {
        &*self.processor
    }

    /// A tenure that was not sent yet, with a long lease.
    pub fn tenure(&self, key: &str) -> Tenure {
        self.tenure_with(key, self.suite.long())
    }

    /// A tenure that was not sent yet, with this lease.
    pub fn tenure_with(&self, key: &str, lease: Duration) -> Tenure {
        let locker = format!("{}-{}", self.id, self.tenures.fetch_add(1, Ordering::SeqCst) + 1);
        self.suite.tenures.lock().push((key.to_owned(), locker.clone(), lease));
        let (processor, client) = (self.processor.clone(), self.id.clone());
        Tenure { processor, key: key.to_owned(), client, locker, lease }
    }

    /// A tenure that holds the key.
    pub fn holder(&self, key: &str) -> Tenure {
        let tenure = self.tenure(key);
        tenure.acquire();
        tenure
    }

    /// A tenure that waits for the key.
    pub fn waiter(&self, key: &str) -> Tenure {
        let tenure = self.tenure(key);
        tenure.wait();
        tenure
    }

    /// Opens the inbox. The client counts as alive until the returned ear is dropped.
    pub fn listen(&self) -> Ear {
        Ear(self.processor.queue().expect("the case needs a queue").open_inbox(&self.id, PATIENCE).unwrap())
    }
}

/// An open inbox.
pub struct Ear(Box<dyn Inbox>);

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ear")
    }
}

impl Ear {
    /// Hears the next message.
    pub fn hear(&mut self) -> Message {
        self.hear_within(PATIENCE).expect("a message")
    }

    /// Hears the next message, if one comes in this time.
    pub fn hear_within(&mut self, limit: Duration) -> Option<Message> {
        loop {
            match self.0.next(limit).unwrap() {
                // It asks the client to look, which no case needs to be told.
                Some(Message::Changed { .. }) => {}
                other => return other,
            }
        }
    }

    /// Hears that the tenure was granted its key, and nothing before.
    pub fn hear_granted(&mut self, tenure: &Tenure) -> Grant {
        match self.hear() {
            Message::Granted { key, locker, grant } if key == tenure.key && locker == tenure.locker => grant,
            other => panic!("instead of a grant to {tenure:?}: {other:?}"),
        }
    }

    /// Hears that others wait for what the tenure holds, and nothing before.
    pub fn hear_contended(&mut self, tenure: &Tenure) {
        match self.hear() {
            Message::Contended { key, locker } if key == tenure.key && locker == tenure.locker => {}
            other => panic!("instead of contention for {tenure:?}: {other:?}"),
        }
    }

    /// Hears nothing for a moment.
    pub fn hear_nothing(&mut self) {
        assert_eq!(self.hear_within(SILENCE), None);
    }
}

/// One locker. Each method sends one request; a method named after an outcome panics on any other.
#[derive(Debug)]
pub struct Tenure {
    processor: Arc<dyn LockProcessor>,
    /// The lock's unique key.
    pub key: String,
    client: String,
    /// The locker.
    pub locker: String,
    /// The lease with which the tenure asks.
    pub lease: Duration,
}

impl Tenure {
    /// The processor that the tenure's client asks.
    pub fn processor(&self) -> &dyn LockProcessor {
        &*self.processor
    }

    /// What the tenure tells the store of itself.
    pub fn claim(&self) -> Claim<'_> {
        Claim::new(&self.key, &self.client, &self.locker, self.lease)
    }

    fn queue(&self) -> &dyn WaitQueue {
        self.processor.queue().expect("the case needs a queue")
    }

    fn try_ask(&self, wait: bool) -> Result<AcquireOutcome, Error> {
        if wait { self.queue().join(&self.claim(), PATIENCE) } else { self.processor.acquire(&self.claim(), PATIENCE) }
    }

    fn try_release(&self, next: Option<&Tenure>, gap: Option<Gap>) -> Result<ReleaseOutcome, Error> {
        let claim = self.claim().with_poller_gap(gap);
        match next {
            Some(next) => self.queue().hand_over(&claim, &next.claim(), PATIENCE),
            None => self.processor.release(&claim, PATIENCE),
        }
    }

    /// Asks once; with `wait`, for a place in the queue, too.
    pub fn ask(&self, wait: bool) -> AcquireOutcome {
        self.try_ask(wait).unwrap()
    }

    /// Takes the key without waiting.
    pub fn acquire(&self) -> Grant {
        match self.ask(false) {
            AcquireOutcome::Acquired(grant) => grant,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Finds the key busy, without waiting.
    pub fn fail(&self) -> Busy {
        match self.ask(false) {
            AcquireOutcome::Busy(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Finds the key busy and stands in the queue.
    pub fn wait(&self) -> Busy {
        match self.ask(true) {
            AcquireOutcome::Busy(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Asks while something is denied.
    pub fn ask_denied(&self, wait: bool) {
        let outcome = self.try_ask(wait);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Polls while something is denied.
    pub fn poll_denied(&self) {
        let outcome = self.processor.poll(&self.claim(), PATIENCE);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Releases the tenure while something is denied, which must fail.
    pub fn release_denied(&self, next: Option<&Tenure>) {
        let outcome = self.try_release(next, None);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Releases the tenure while something is denied, and what would undo the operation, too. The outcome must be unknown.
    pub fn release_unknown(&self) {
        let outcome = self.try_release(None, None);
        assert!(
            matches!(outcome, Err(Error::Backend { failure: BackendFailure::Unknown, .. })),
            "{self:?}: {outcome:?}"
        );
    }

    /// Asks what became of the tenure.
    pub fn poll(&self) -> PollOutcome {
        self.processor.poll(&self.claim(), PATIENCE).unwrap()
    }

    /// Polls, and expects to hold the key.
    pub fn poll_acquired(&self) -> Grant {
        match self.poll() {
            PollOutcome::Acquired(grant) => grant,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Polls, and expects to wait.
    pub fn poll_waiting(&self) -> Busy {
        match self.poll() {
            PollOutcome::Waiting(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Polls, and expects to be unknown.
    pub fn poll_gone(&self) {
        assert_eq!(self.poll(), PollOutcome::Gone, "{self:?}");
    }

    /// Renews the lease.
    pub fn extend(&self) -> ExtendOutcome {
        self.processor.extend(&self.claim(), PATIENCE).unwrap()
    }

    /// Renews the lease of a tenure that holds its key.
    pub fn extended(&self) -> Extension {
        match self.extend() {
            ExtendOutcome::Extended(extension) => extension,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Renews the lease, and asks for fresh numbers if the store issues ranges of them.
    pub fn extend_fresh(&self) -> ExtendOutcome {
        match self.processor.numbers() {
            Some(numbers) => numbers.extend_with_numbers(&self.claim(), PATIENCE).unwrap(),
            None => self.extend(),
        }
    }

    /// Releases the key.
    pub fn release(&self) -> ReleaseOutcome {
        self.try_release(None, None).unwrap()
    }

    /// Releases the key, and asks for it again for `next`.
    pub fn release_to(&self, next: &Tenure) -> ReleaseOutcome {
        self.try_release(Some(next), None).unwrap()
    }

    /// Asks, with the release, that the key be left free for pollers.
    pub fn release_with(&self, next: Option<&Tenure>, gap: Gap) -> ReleaseOutcome {
        self.try_release(next, Some(gap)).unwrap()
    }

    /// Asks whether the key still contains the locker.
    pub fn probe(&self) -> ProbeOutcome {
        self.processor.probe(&self.claim(), PATIENCE).unwrap()
    }

    /// Returns whether the key still contains the locker.
    pub fn holds(&self) -> bool {
        self.probe() == ProbeOutcome::Ours
    }

    /// What everybody else hears while this tenure holds its key.
    pub fn not_yours(&self) -> NotOurs {
        NotOurs::new(Some(self.locker.clone()))
    }
}
