//! The words in which conformance cases are written: a suite has clients, a client has tenures, a tenure asks.

mod memory_store;
mod redis_store;
mod store;

pub(crate) use memory_store::{MemoryStore, take};
pub(crate) use redis_store::{RedisStore, prove};
pub(crate) use store::Store;

use parking_lot::Mutex;
use redis_dlock::{
    AcquireOutcome, AcquireRequest, BackendFailure, Busy, Error, ExtendOutcome, ExtendRequest, Gap, Grant, Inbox,
    Inspection, LockProcessor, Message, NotOurs, PollOutcome, PollRequest, ProbeOutcome, ProbeRequest, ReleaseOutcome,
    ReleaseRequest,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A lease that ends during no test.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A lease whose end a test awaits; so long that nothing which must happen before is late, on a busy machine either.
pub(crate) const SHORT: Duration = Duration::from_millis(600);

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to listen for what must not happen.
const SILENCE: Duration = Duration::from_millis(30);

/// One case's store, and all that the case asked it for.
pub(crate) struct Suite {
    store: Box<dyn Store>,
    /// Two, so that clients meet in the store and nowhere else.
    processors: [Arc<dyn LockProcessor>; 2],
    clients: AtomicU64,
    /// Key, locker and lease of every tenure, to end them all.
    tenures: Mutex<Vec<(String, String, Duration)>>,
}

/// Runs one case on a store of its own. Once every locker was released, whatever became of it, the store must be empty.
pub(crate) fn run(store: impl Store + 'static, case: impl FnOnce(&Suite)) {
    let suite = Suite::on(store);
    case(&suite);
    suite.assert_nothing_is_left();
}

impl Suite {
    pub(crate) fn on(store: impl Store + 'static) -> Self {
        let processors = [store.processor(), store.processor()];
        Self { store: Box::new(store), processors, clients: AtomicU64::new(0), tenures: Mutex::default() }
    }

    /// A suite whose next clients get the same names as those of another.
    pub(crate) fn beside(other: &Self, store: impl Store + 'static) -> Self {
        let suite = Self::on(store);
        suite.clients.store(other.clients.load(Ordering::Relaxed), Ordering::Relaxed);
        suite
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// A new client, dead until it opens its inbox.
    pub(crate) fn client(&self) -> Client<'_> {
        let n = self.clients.fetch_add(1, Ordering::Relaxed);
        let processor = self.processors[usize::try_from(n).unwrap() % self.processors.len()].clone();
        Client { suite: self, processor, id: format!("host-{n}-c0ffee"), tenures: AtomicU64::new(0) }
    }

    pub(crate) fn inspect(&self, key: &str) -> Inspection {
        self.processors[0].inspect(key, PATIENCE).unwrap()
    }

    pub(crate) fn waiting(&self, key: &str) -> u64 {
        self.inspect(key).waiting
    }

    /// The locker that holds a key.
    pub(crate) fn holder(&self, key: &str) -> Option<String> {
        self.inspect(key).holder.map(|busy| busy.holder)
    }

    /// Releases every locker and looks what the store still keeps.
    pub(crate) fn assert_nothing_is_left(&self) {
        for (key, locker, lease) in self.tenures.lock().drain(..) {
            let request = ReleaseRequest { key: &key, locker: &locker, lease, next: None, gap: None };
            self.processors[0].release(&request, PATIENCE).unwrap();
        }
        assert_eq!(self.store.leftovers(), [""; 0], "left in the store");
    }
}

pub(crate) struct Client<'s> {
    suite: &'s Suite,
    pub(crate) processor: Arc<dyn LockProcessor>,
    pub(crate) id: String,
    tenures: AtomicU64,
}

impl Client<'_> {
    /// A tenure that was not sent yet, with a long lease.
    pub(crate) fn tenure(&self, key: &str) -> Tenure {
        self.tenure_with(key, LONG)
    }

    pub(crate) fn tenure_with(&self, key: &str, lease: Duration) -> Tenure {
        let locker = format!("{}-{}", self.id, self.tenures.fetch_add(1, Ordering::Relaxed) + 1);
        self.suite.tenures.lock().push((key.to_owned(), locker.clone(), lease));
        Tenure { processor: self.processor.clone(), key: key.to_owned(), locker, lease }
    }

    /// A tenure that holds the key.
    pub(crate) fn holder(&self, key: &str) -> Tenure {
        let tenure = self.tenure(key);
        tenure.acquire();
        tenure
    }

    /// A tenure that waits for the key.
    pub(crate) fn waiter(&self, key: &str) -> Tenure {
        let tenure = self.tenure(key);
        tenure.wait();
        tenure
    }

    /// Opens the inbox: the client is alive until it is dropped.
    pub(crate) fn listen(&self) -> Ear {
        Ear(self.processor.open_inbox(&self.id, PATIENCE).unwrap())
    }
}

/// An open inbox.
pub(crate) struct Ear(Box<dyn Inbox>);

impl Ear {
    pub(crate) fn hear(&mut self) -> Message {
        self.0.next(PATIENCE).unwrap().expect("a message")
    }

    pub(crate) fn hear_within(&mut self, limit: Duration) -> Option<Message> {
        self.0.next(limit).unwrap()
    }

    /// Hears that the tenure was granted its key, and nothing before.
    pub(crate) fn hear_granted(&mut self, tenure: &Tenure) -> Grant {
        match self.hear() {
            Message::Granted { key, locker, grant } if key == tenure.key && locker == tenure.locker => grant,
            other => panic!("instead of a grant to {tenure:?}: {other:?}"),
        }
    }

    /// Hears that others wait for what the tenure holds, and nothing before.
    pub(crate) fn hear_contended(&mut self, tenure: &Tenure) {
        match self.hear() {
            Message::Contended { key, locker } if key == tenure.key && locker == tenure.locker => {}
            other => panic!("instead of contention for {tenure:?}: {other:?}"),
        }
    }

    pub(crate) fn hear_nothing(&mut self) {
        assert_eq!(self.hear_within(SILENCE), None);
    }
}

/// One locker. Its methods ask once; those whose names say an outcome insist on it.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) processor: Arc<dyn LockProcessor>,
    pub(crate) key: String,
    pub(crate) locker: String,
    pub(crate) lease: Duration,
}

impl Tenure {
    pub(crate) fn acquire_request(&self, wait: bool) -> AcquireRequest<'_> {
        AcquireRequest { key: &self.key, locker: &self.locker, lease: self.lease, wait }
    }

    pub(crate) fn poll_request(&self) -> PollRequest<'_> {
        PollRequest { key: &self.key, locker: &self.locker, lease: self.lease }
    }

    pub(crate) fn extend_request(&self, fresh_numbers: bool) -> ExtendRequest<'_> {
        ExtendRequest { key: &self.key, locker: &self.locker, lease: self.lease, fresh_numbers }
    }

    pub(crate) fn release_request<'a>(&'a self, next: Option<&'a Tenure>) -> ReleaseRequest<'a> {
        let next = next.map(|next| (&*next.locker, next.lease));
        ReleaseRequest { key: &self.key, locker: &self.locker, lease: self.lease, next, gap: None }
    }

    pub(crate) fn probe_request(&self) -> ProbeRequest<'_> {
        ProbeRequest { key: &self.key, locker: &self.locker }
    }

    pub(crate) fn ask(&self, wait: bool) -> AcquireOutcome {
        self.processor.acquire(&self.acquire_request(wait), PATIENCE).unwrap()
    }

    /// Takes the key without waiting.
    pub(crate) fn acquire(&self) -> Grant {
        match self.ask(false) {
            AcquireOutcome::Acquired(grant) => grant,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Finds the key busy, without waiting.
    pub(crate) fn fail(&self) -> Busy {
        match self.ask(false) {
            AcquireOutcome::Busy(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Finds the key busy and stands in the queue.
    pub(crate) fn wait(&self) -> Busy {
        match self.ask(true) {
            AcquireOutcome::Busy(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// Asks while something is denied.
    pub(crate) fn ask_denied(&self, wait: bool) {
        let outcome = self.processor.acquire(&self.acquire_request(wait), PATIENCE);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Polls while something is denied.
    pub(crate) fn poll_denied(&self) {
        let outcome = self.processor.poll(&self.poll_request(), PATIENCE);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Is to be released while something is denied.
    pub(crate) fn release_denied(&self, next: Option<&Tenure>) {
        let outcome = self.processor.release(&self.release_request(next), PATIENCE);
        assert!(matches!(outcome, Err(Error::Denied { .. })), "{self:?}: {outcome:?}");
    }

    /// Is to be released while something is denied, and what would undo the operation, too.
    pub(crate) fn release_unknown(&self) {
        let outcome = self.processor.release(&self.release_request(None), PATIENCE);
        assert!(
            matches!(outcome, Err(Error::Backend { failure: BackendFailure::Unknown, .. })),
            "{self:?}: {outcome:?}"
        );
    }

    pub(crate) fn poll(&self) -> PollOutcome {
        self.processor.poll(&self.poll_request(), PATIENCE).unwrap()
    }

    pub(crate) fn poll_acquired(&self) -> Grant {
        match self.poll() {
            PollOutcome::Acquired(grant) => grant,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    pub(crate) fn poll_waiting(&self) -> Busy {
        match self.poll() {
            PollOutcome::Waiting(busy) => busy,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    pub(crate) fn poll_gone(&self) {
        assert_eq!(self.poll(), PollOutcome::Gone, "{self:?}");
    }

    pub(crate) fn extend(&self) -> ExtendOutcome {
        self.processor.extend(&self.extend_request(false), PATIENCE).unwrap()
    }

    pub(crate) fn extend_fresh(&self) -> ExtendOutcome {
        self.processor.extend(&self.extend_request(true), PATIENCE).unwrap()
    }

    pub(crate) fn release(&self) -> ReleaseOutcome {
        self.processor.release(&self.release_request(None), PATIENCE).unwrap()
    }

    pub(crate) fn release_to(&self, next: &Tenure) -> ReleaseOutcome {
        self.processor.release(&self.release_request(Some(next)), PATIENCE).unwrap()
    }

    /// Asks for a gap with the release.
    pub(crate) fn release_with(&self, next: Option<&Tenure>, gap: Gap) -> ReleaseOutcome {
        let request = ReleaseRequest { gap: Some(gap), ..self.release_request(next) };
        self.processor.release(&request, PATIENCE).unwrap()
    }

    pub(crate) fn probe(&self) -> ProbeOutcome {
        self.processor.probe(&self.probe_request(), PATIENCE).unwrap()
    }

    pub(crate) fn holds(&self) -> bool {
        self.probe() == ProbeOutcome::Ours
    }

    /// What everybody else hears while this tenure holds its key.
    pub(crate) fn not_yours(&self) -> NotOurs {
        NotOurs { holder: Some(self.locker.clone()) }
    }
}
