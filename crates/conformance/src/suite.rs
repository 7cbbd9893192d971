//! The words in which conformance cases are written: a suite has clients, and a client has tenures.

use super::inbox_reader::InboxReader;
use super::store::{Need, Store};
use super::tenure::{PATIENCE, Tenure};
use parking_lot::Mutex;
use redis_dlock::port::{Claim, DeadWaiters, Inspection, LockProcessor, Operations, StoreLimits, WaitQueue};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shortest lease that a case lets end. Long enough that on a busy machine everything that must precede its end is in time.
const SHORT: Duration = Duration::from_millis(600);

/// The shortest lease that must not end in a case.
const LONG: Duration = Duration::from_secs(120);

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
            Need::Numbers => self.limits.numbers,
            Need::Gaps => self.limits.poller_gaps,
            Need::DeadAtOnce => self.limits.dead_waiters == DeadWaiters::AtOnce,
            Need::Keeps => !self.limits.keeps_unheard.is_zero(),
            Need::Denials => self.store.deny(&[]),
            Need::Directory => store.directory().is_some(),
            Need::Posting => store.posting().is_some(),
            Need::Settling => self.limits.settles,
            Need::Breaking => self.limits.breaks,
            Need::Delays => !self.limits.longest_release_delay.is_zero(),
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

    /// A new client, and its inbox.
    pub(crate) fn listener(&self) -> (Client<'_>, InboxReader) {
        let client = self.client();
        let inbox = client.listen();
        (client, inbox)
    }

    /// A tenure of a new client that waits for the key, and the client's inbox.
    pub(crate) fn heard_waiter(&self, key: &str) -> (Tenure, InboxReader) {
        let (client, inbox) = self.listener();
        (client.waiter(key), inbox)
    }

    /// Does something while the store denies commands.
    pub(crate) fn while_denied<T>(&self, commands: &[&'static str], work: impl FnOnce() -> T) -> T {
        self.store.deny(commands);
        let done = work();
        self.store.deny(&[]);
        done
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

    /// How many of these waiters stay in the queue when they are passed over as dead: none, if the store keeps no places.
    pub(crate) fn kept(&self, waiters: u64) -> u64 {
        if self.limits.keeps_unheard.is_zero() { 0 } else { waiters }
    }

    /// Lets the time be over for which the waiters of a key that were passed over keep their places. The next hand-over drops them.
    pub(crate) fn outlast_the_unheard(&self, key: &str) {
        self.store().pass_time_of_gaps(key, self.limits.keeps_unheard);
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
        if let Some(queue) = processor.queue() {
            get_ready(queue, &client, key);
        }
        Tenure { processor, key: key.to_owned(), client, locker, lease }
    }

    /// A tenure that holds the key.
    pub fn holder(&self, key: &str) -> Tenure {
        self.holder_with(key, self.suite.long())
    }

    /// A tenure that holds the key, with this lease.
    pub(crate) fn holder_with(&self, key: &str, lease: Duration) -> Tenure {
        let tenure = self.tenure_with(key, lease);
        tenure.acquire();
        tenure
    }

    /// A tenure that waits for the key.
    pub fn waiter(&self, key: &str) -> Tenure {
        let tenure = self.tenure(key);
        tenure.wait();
        tenure
    }

    /// Opens the inbox. The client counts as alive until the returned inbox is dropped.
    pub fn listen(&self) -> InboxReader {
        let queue = self.processor.queue().expect("the case needs a queue");
        let inbox = queue.open_inbox(&self.id, PATIENCE).unwrap();
        let inbox = InboxReader::on(inbox, queue.hears(&self.id, "any key"));
        let is_own = |locker: &str| locker.rsplit_once('-').is_some_and(|(client, _)| client == self.id);
        let tenures = self.suite.tenures.lock().clone();
        tenures.iter().filter(|(_, locker, _)| is_own(locker)).for_each(|(key, _, _)| get_ready(queue, &self.id, key));
        inbox
    }
}

/// Gets a client ready to hear of a key, if it has an open inbox.
fn get_ready(queue: &dyn WaitQueue, client: &str, key: &str) {
    if !queue.hears(client, key) {
        // A client without an inbox cannot get ready.
        let _ = queue.get_ready_to_hear(client, key, PATIENCE);
    }
}
