//! Stores that can do less than Redis, or more: what a client makes of the optional parts of the port.

use crate::conformance::minimal_store::MinimalProcessor;
use crate::support::crew::{HANG, eventually, queue_by, spawn, spawn_with};
use crate::support::journal;
use crate::support::owned::OwnedRequest;
use crossbeam_channel::unbounded;
use parking_lot::Mutex;
use redis_dlock::processor::{
    Inbox, InboxBreaker, Limit, LockProcessor, Message, Operations, Outcome, Request, StoreLimits, WaitQueue,
};
use redis_dlock::{
    BackendFailure, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LossCause, ManualClock,
    MemoryLockProcessor, SystemClock,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// So long that no time but that of a clock moved by hand ends it.
const LEASE: Duration = Duration::from_secs(1000);

/// A function to call when another server answers.
type Told = Box<dyn Fn(u64) + Send + Sync>;

/// Whatever a test turns on in a [`Special`] store, and what it counts.
#[derive(Default)]
struct Switches {
    /// Who is told when another server answers.
    told: Mutex<Vec<Told>>,
    /// How many acquires and polls are executed and not answered.
    unanswered: AtomicUsize,
    /// How many extensions make the store panic.
    panics: AtomicUsize,
    /// Whether an inbox tells only that something has changed.
    tells_changes_only: bool,
    /// Whether lockers are ended for certain, by a store that limits no command and no outage.
    settles: bool,
    /// Whether grants of a key are heard only after the client has got ready for it.
    hears_when_ready: bool,
    ready: AtomicBool,
    joins: AtomicUsize,
    probes: AtomicUsize,
    polls: AtomicUsize,
    releases: AtomicUsize,
    settled: Mutex<Vec<String>>,
    /// The requests that ask for a lock.
    asked: Mutex<Vec<OwnedRequest>>,
}

/// The embedded store with some parts replaced.
#[derive(Clone)]
struct Special {
    inner: MemoryLockProcessor,
    switches: Arc<Switches>,
}

impl fmt::Debug for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Special").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Special {
    fn new(clock: Arc<ManualClock>, switches: Switches) -> Self {
        Self { inner: MemoryLockProcessor::with_clock(clock), switches: Arc::new(switches) }
    }

    fn record(&self, request: Request<'_>) {
        self.switches.asked.lock().push(OwnedRequest::of(&request));
    }

    /// Another server answers from now on.
    fn replace(&self, number: u64) {
        self.switches.told.lock().iter().for_each(|told| told(number));
    }

    fn execute(&self, request: Request<'_>, limit: Limit) -> Result<Outcome, Error> {
        let Switches { joins, probes, polls, releases, settled, .. } = &*self.switches;
        let count = |counter: &AtomicUsize| _ = counter.fetch_add(1, Ordering::SeqCst);
        let run = |request| self.inner.run_one(request, limit);
        match request {
            Request::Acquire(_) => {
                self.record(request);
                self.answer(run(request))
            }
            Request::Join(claim) => {
                assert!(self.hears(claim.client, claim.key), "whoever joins the queue hears");
                count(joins);
                self.record(request);
                self.answer(run(request))
            }
            Request::Poll(_) => {
                count(polls);
                self.answer(run(request))
            }
            Request::Extend(_) if self.switches.panics.load(Ordering::SeqCst) > 0 => {
                self.switches.panics.fetch_sub(1, Ordering::SeqCst);
                panic!("the store panics");
            }
            Request::Probe(_) => {
                count(probes);
                run(request)
            }
            Request::Release(_) => {
                count(releases);
                run(request)
            }
            Request::HandOver(..) => {
                self.record(request);
                run(request)
            }
            Request::Settle(claim) => {
                run(Request::Release(claim))?;
                settled.lock().push(claim.locker.to_owned());
                Ok(Outcome::Settle(()))
            }
            other => run(other),
        }
    }

    fn answer(&self, outcome: Result<Outcome, Error>) -> Result<Outcome, Error> {
        let unanswered = &self.switches.unanswered;
        if unanswered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::backend(BackendFailure::Unknown, "the test loses this answer"));
        }
        outcome
    }
}

impl LockProcessor for Special {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        requests.iter().map(|request| self.execute(*request, limit)).collect()
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = self.inner.limits();
        limits.settles = self.switches.settles;
        if self.switches.settles {
            (limits.command, limits.outage) = (Duration::MAX, Duration::MAX);
        }
        limits
    }

    fn on_new_server(&self, told: Told) {
        self.switches.told.lock().push(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }
}

impl WaitQueue for Special {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        let inbox = self.inner.open_inbox(client, limit)?;
        Ok(if self.switches.tells_changes_only { Box::new(Vague(inbox)) } else { inbox })
    }

    fn hears(&self, _client: &str, _key: &str) -> bool {
        !self.switches.hears_when_ready || self.switches.ready.load(Ordering::SeqCst)
    }

    fn get_ready_to_hear(&self, _client: &str, _key: &str, _limit: Duration) -> Result<(), Error> {
        self.switches.ready.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// An inbox that says of every message only that something has changed, of every other one not even for which key.
struct Vague(Box<dyn Inbox>);

impl Inbox for Vague {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        Ok(self.0.next(limit)?.map(|message| match message {
            Message::Granted { .. } => Message::Changed { key: None },
            Message::Contended { key, .. } => Message::Changed { key: Some(key) },
            other => other,
        }))
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        self.0.breaker()
    }
}

fn lock_in(store: &Special, clock: &Arc<ManualClock>) -> (DLockGenerator, DistributedReentrantLock) {
    let generator = DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap();
    let lock = generator.generate_with(DLockConfig::new("OTHER", "x").with_lease(LEASE)).unwrap();
    (generator, lock)
}

/// Shows: G1, G4, G7, G9.
#[test]
fn a_store_with_the_required_methods_only_locks() {
    let store = MinimalProcessor::new(Arc::new(SystemClock));
    let generators: Vec<_> = (0..2).map(|_| DLockGenerator::new(store.clone()).unwrap()).collect();
    let config = || DLockConfig::new("OTHER", "x").with_lease(Duration::from_millis(200));
    let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let lock = generators[n % 2].generate_with(config()).unwrap();
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            spawn(move || {
                for _ in 0..10 {
                    let guard = lock.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody is inside");
                    assert!(guard.fencing_token() > last.swap(guard.fencing_token(), Ordering::SeqCst));
                    let inner = lock.lock().unwrap();
                    assert_eq!(inner.fencing_token(), guard.fencing_token());
                    drop(inner);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join());
    let lock = generators[0].generate_with(config()).unwrap();
    assert!(!lock.is_locked().unwrap());
}

/// Shows: G3, G5, G6.
#[test]
fn a_store_with_the_required_methods_only_keeps_a_lease_and_tells_of_its_loss() {
    let clock = Arc::new(ManualClock::new());
    let store = MinimalProcessor::new(clock.clone());
    let generator = DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap();
    let lock = generator.generate_with(DLockConfig::new("OTHER", "x").with_lease(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    for _ in 0..20 {
        let before = store.extensions();
        clock.advance(LEASE / 6);
        eventually("a probe, which extends here", || store.extensions() > before);
    }
    assert!(guard.is_valid());
    let lost = guard.lost();
    store.forget(lock.key());
    clock.advance(LEASE / 6);
    lost.recv_timeout(HANG).expect("told");
    assert!(matches!(guard.unlock(), Err(Error::LeaseLost(loss)) if loss.cause == LossCause::Deleted));
}

#[test]
fn what_a_store_cannot_keep_is_refused_by_name() {
    let generator = DLockGenerator::new(MinimalProcessor::new(Arc::new(SystemClock))).unwrap();
    let config = || DLockConfig::new("OTHER", "x").with_lease(LEASE);
    let refused = generator.generate_with(config().with_poller_gap(LEASE)).unwrap_err();
    assert!(matches!(&refused, Error::InvalidConfig { what: "poller_gap", .. }), "{refused}");
    generator.generate_with(config()).unwrap();
}

/// Returns the kind of a request, and the reason and the thread in its note. Checks that the note names the machine.
fn told<'a>(request: &Request<'a>) -> (&'static str, &'a str, Option<&'a str>) {
    let (what, claim) = match request {
        Request::HandOver(_, next) => ("hand over", next),
        Request::Join(claim) => ("join", claim),
        other => ("acquire", other.claim().expect("a claim")),
    };
    assert!(claim.note.host.is_some_and(|host| !host.is_empty()), "{request:?}");
    (what, claim.note.why.expect("a reason"), claim.note.thread)
}

#[test]
fn a_store_is_told_who_asks_and_why() {
    let clock = Arc::new(ManualClock::new());
    let store = Special::new(clock.clone(), Switches::default());
    let lock_of = |reason: &str| {
        let generator = DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap();
        let config = DLockConfig::new("OTHER", "x").with_lease(LEASE).with_local_passes(0).with_reason(reason);
        generator.generate_with(config).unwrap()
    };
    let (first, second) = (lock_of("monthly\nbill"), lock_of("yearly\u{1b}bill"));
    let wait_for = |lock: &DistributedReentrantLock, name: &str| {
        let lock = lock.clone();
        let wait = move || lock.lock().unwrap().unlock().unwrap();
        thread::Builder::new().name(name.to_owned()).spawn(wait).unwrap()
    };
    let me = thread::current();
    let expected = [
        ("acquire", "monthly\\nbill", me.name()),
        ("join", "yearly\\u{1b}bill", Some("elsewhere")),
        ("hand over", "monthly\\nbill", None),
    ];
    first.try_lock().unwrap().expect("free").unlock().unwrap();
    // While the inboxes are still closed, another thread joins the queue for the waiter, and the holder does not know that others wait.
    eventually("requests of each kind", || {
        let guard = first.lock().unwrap();
        let elsewhere = wait_for(&second, "elsewhere");
        eventually("it waits in the queue", || {
            clock.advance(Duration::from_millis(1));
            first.inspect().unwrap().waiting == 1
        });
        let beside = wait_for(&first, "beside");
        eventually("it waits in this process", || first.queue_length() == 1);
        guard.unlock().unwrap();
        [elsewhere, beside].into_iter().for_each(|waiter| waiter.join().unwrap());
        let asked = store.switches.asked.lock();
        expected.iter().all(|expected| asked.iter().any(|request| told(&request.request()) == *expected))
    });
}

/// Shows: G5, L1.
#[test]
fn another_server_makes_every_hold_checked_and_every_wait_asked_for_at_once() {
    let clock = Arc::new(ManualClock::new());
    let store = Special::new(clock.clone(), Switches::default());
    let (_generator, held) = lock_in(&store, &clock);
    let guard = held.lock().unwrap();
    let (_other, busy) = lock_in(&store, &clock);
    let waiter = queue_by(&busy, |lock| drop(lock.lock().unwrap()));
    let (probes, polls) = (store.switches.probes.load(Ordering::SeqCst), store.switches.polls.load(Ordering::SeqCst));
    // The clock stands still.
    store.replace(1);
    eventually("the hold is checked", || store.switches.probes.load(Ordering::SeqCst) > probes);
    eventually("the wait is asked for", || store.switches.polls.load(Ordering::SeqCst) > polls);
    assert!(guard.is_valid());
    // The other server has lost the key: the holder is told without a move of the clock.
    let lost = guard.lost();
    store.inner.delete(held.key());
    store.replace(2);
    lost.recv_timeout(HANG).expect("told");
    drop(guard.unlock());
    waiter.join();
}

/// Shows: G10, L1.
/// Shows: G3.
#[test]
fn a_store_that_panics_in_a_renewal_is_asked_again_before_the_lease_ends() {
    let clock = Arc::new(ManualClock::new());
    let store = Special::new(clock.clone(), Switches { panics: AtomicUsize::new(2), ..Switches::default() });
    let (_generator, lock) = lock_in(&store, &clock);
    let guard = lock.lock().unwrap();
    clock.pass(LEASE * 2);
    assert_eq!(store.switches.panics.load(Ordering::SeqCst), 0);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn messages_that_say_only_that_something_changed_are_enough() {
    let clock = Arc::new(ManualClock::new());
    let store = Special::new(clock.clone(), Switches { tells_changes_only: true, ..Switches::default() });
    let clients = [lock_in(&store, &clock), lock_in(&store, &clock)];
    let (tell, told) = unbounded();
    for _ in 0..20 {
        let guard = clients[0].1.lock().unwrap();
        let tell = tell.clone();
        let waiter = queue_by(&clients[1].1, move |lock| {
            let _guard = lock.lock().unwrap();
            tell.send(()).unwrap();
        });
        drop(guard);
        // No clock moves: it asks because it was told to.
        told.recv_timeout(HANG).expect("it holds the lock");
        waiter.join();
    }
}

/// Shows: G10.
#[test]
fn nobody_stands_in_a_queue_whose_grants_it_would_not_hear() {
    let clock = Arc::new(ManualClock::new());
    let store = Special::new(clock.clone(), Switches { hears_when_ready: true, ..Switches::default() });
    let clients = [lock_in(&store, &clock), lock_in(&store, &clock)];
    let guard = clients[0].1.lock().unwrap();
    let waiter = spawn_with(&clients[1].1, |lock| drop(lock.lock().unwrap()));
    // It polls until its inbox is open, and then gets ready for this key.
    eventually("it waits in the queue", || {
        clock.advance(Duration::from_millis(1));
        clients[0].1.inspect().unwrap().waiting == 1
    });
    assert!(store.switches.ready.load(Ordering::SeqCst) && store.switches.joins.load(Ordering::SeqCst) > 0);
    drop(guard);
    waiter.join();
}

/// Leaves a locker on the clean-up list whose acquire had no answer. Returns the store, its clock, and the lock.
fn with_an_unanswered_acquire(
    settles: bool,
) -> (Special, Arc<ManualClock>, (DLockGenerator, DistributedReentrantLock)) {
    // A log reads what a warning says of the limits.
    journal::keep();
    let clock = Arc::new(ManualClock::new());
    let store = Special::new(clock.clone(), Switches { settles, ..Switches::default() });
    let client = lock_in(&store, &clock);
    store.switches.unanswered.store(2, Ordering::SeqCst);
    client.1.try_lock().unwrap_err();
    eventually("nothing is left", || store.inner.keys().is_empty());
    (store, clock, client)
}

/// Shows: G11.
#[test]
fn a_store_that_ends_a_locker_for_certain_is_asked_once() {
    let (store, clock, client) = with_an_unanswered_acquire(true);
    eventually("it is ended", || store.switches.settled.lock().len() == 1);
    clock.advance(LEASE * 2);
    drop(client);
    assert_eq!(store.switches.settled.lock().len(), 1, "once is enough");
    assert_eq!(store.switches.releases.load(Ordering::SeqCst), 0);
}

/// Shows: G11.
#[test]
fn in_another_store_the_release_is_repeated_for_a_lease() {
    let (store, clock, client) = with_an_unanswered_acquire(false);
    for _ in 0..3 {
        let before = store.switches.releases.load(Ordering::SeqCst);
        clock.advance(LEASE / 6);
        eventually("it is repeated", || store.switches.releases.load(Ordering::SeqCst) > before);
    }
    assert!(store.switches.settled.lock().is_empty());
    drop(client);
}
