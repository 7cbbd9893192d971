//! Another server answers: what is asked, heard and released at once. No time passes, so whatever waits for its time does nothing.

use crate::support::crew::{eventually, queue_by, spawn, spawn_with};
use parking_lot::Mutex;
use redis_dlock::processor::{Inbox, Limit, LockProcessor, Operations, Outcome, Request, WaitQueue};
use redis_dlock::{
    BackendFailure, Clock, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, ManualClock,
    MemoryLockProcessor,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What is done between the answer to an acquire and its delivery.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// A function to call when another server answers.
type Told = Box<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
struct Switches {
    server: AtomicU64,
    told: Mutex<Vec<Told>>,
    probes: Mutex<Vec<String>>,
    /// How often a lock was asked for.
    acquires: AtomicU64,
    failed_releases: AtomicU64,
    failed_inboxes: AtomicU64,
    opened_inboxes: AtomicU64,
    /// Whether an inbox ends as soon as it is open.
    ends_inboxes: AtomicBool,
    meanwhile: Mutex<Option<Meanwhile>>,
    /// What is done while a probe is under way, which then fails.
    breaks_probe: Mutex<Option<Meanwhile>>,
}

/// The embedded store, which counts, and whose server may be another one.
#[derive(Clone)]
struct Replaced(MemoryLockProcessor, Arc<Switches>);

impl Replaced {
    /// Another server answers from now on.
    fn replace(&self) {
        let number = self.1.server.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.told.lock().iter().for_each(|told| told(number));
    }

    fn execute(&self, request: Request<'_>, limit: Limit) -> Result<Outcome, Error> {
        if let Request::Probe(claim) = &request {
            self.1.probes.lock().push(claim.key.to_owned());
            let breaks = self.1.breaks_probe.lock().take();
            if let Some(breaks) = breaks {
                breaks();
                return Err(Error::backend(BackendFailure::Unknown, "the connection was cut"));
            }
        }
        let outcome = self.0.run_one(request, limit);
        match request {
            Request::Acquire(_) => {
                self.1.acquires.fetch_add(1, Ordering::SeqCst);
                let meanwhile = self.1.meanwhile.lock().take();
                if let Some(meanwhile) = meanwhile {
                    meanwhile();
                }
            }
            Request::Release(_) => {
                self.1.failed_releases.fetch_add(u64::from(outcome.is_err()), Ordering::SeqCst);
            }
            _ => {}
        }
        outcome
    }
}

impl fmt::Debug for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replaced")
    }
}

impl LockProcessor for Replaced {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        requests.iter().map(|request| self.execute(*request, limit)).collect()
    }

    fn on_new_server(&self, told: Told) {
        self.1.told.lock().push(told);
    }

    fn queue(&self) -> Option<&dyn WaitQueue> {
        Some(self)
    }
}

impl WaitQueue for Replaced {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        let ends = self.1.ends_inboxes.load(Ordering::SeqCst);
        if ends {
            // A server that does not say who it is counts as another one at each connection.
            self.replace();
        }
        let inbox = self.0.queue().expect("a queue").open_inbox(client, limit);
        let count = if inbox.is_ok() { &self.1.opened_inboxes } else { &self.1.failed_inboxes };
        count.fetch_add(1, Ordering::SeqCst);
        if ends {
            inbox.iter().for_each(|inbox| inbox.breaker().cut());
        }
        inbox
    }
}

/// A clock, a store, two connections to it of which the second one may be cut, and the lock of a client on each.
fn scene() -> (Arc<ManualClock>, MemoryLockProcessor, Replaced, [DistributedReentrantLock; 2]) {
    let clock = Arc::new(ManualClock::new());
    clock.advance(Duration::from_secs(5));
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let replaced = Replaced(store.another_connection(), Arc::default());
    let lock = |generator: DLockGenerator| {
        generator.generate_with(DLockConfig::new("CHANGE", "x").with_lease(Duration::from_secs(1000))).unwrap()
    };
    let here = lock(DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap());
    let there = lock(DLockGenerator::builder().clock(clock.clone()).build(replaced.clone()).unwrap());
    (clock, store, replaced, [here, there])
}

/// A waiter that nobody hears when the lock is released may lose its place. It subscribes again as soon as another server answers.
/// Shows: G10, L1.
#[test]
fn a_client_that_could_not_subscribe_tries_again_when_another_server_answers() {
    let (clock, _store, replaced, [here, there]) = scene();
    let guard = here.lock().unwrap();
    let waits = queue_by(&there, |lock| lock.lock().map(|guard| guard.unlock()));
    replaced.0.set_reachable(false);
    eventually("it cannot subscribe", || {
        clock.advance(Duration::from_millis(10));
        replaced.1.failed_inboxes.load(Ordering::SeqCst) >= 8
    });
    // From here on it waits for a second of a clock that stands still.
    assert_eq!(replaced.1.opened_inboxes.load(Ordering::SeqCst), 1);
    replaced.0.set_reachable(true);
    replaced.replace();
    eventually("it subscribes", || replaced.1.opened_inboxes.load(Ordering::SeqCst) == 2);
    // It keeps its place, and is told.
    guard.unlock().unwrap();
    waits.join().unwrap().unwrap();
}

/// An inbox that ends as soon as it is open is no success: the pauses before the next one grow, as those before an attempt that fails.
#[test]
fn inboxes_that_end_at_once_are_opened_ever_less_often() {
    let (clock, _store, replaced, [here, there]) = scene();
    replaced.1.ends_inboxes.store(true, Ordering::SeqCst);
    let guard = here.lock().unwrap();
    let waits = spawn_with(&there, |lock| lock.lock().map(|guard| guard.unlock()));
    let begin = clock.now();
    eventually("many have ended", || {
        clock.advance(Duration::from_millis(10));
        replaced.1.opened_inboxes.load(Ordering::SeqCst) >= 25
    });
    assert!(clock.now() > begin + Duration::from_secs(4), "{:?} after {begin:?}", clock.now());
    replaced.1.ends_inboxes.store(false, Ordering::SeqCst);
    guard.unlock().unwrap();
    eventually("it has had the lock", || {
        clock.advance(Duration::from_millis(10));
        waits.is_finished()
    });
    waits.join().unwrap().unwrap();
}

/// A release that an earlier server did not confirm is repeated as soon as another one answers: it may still have the lock.
/// Shows: L1, L2.
#[test]
fn an_unconfirmed_release_is_repeated_when_another_server_answers() {
    let (_clock, store, replaced, [here, there]) = scene();
    let guard = there.lock().unwrap();
    replaced.0.set_reachable(false);
    guard.unlock().unwrap_err();
    // The client has tried it again by itself, and waits for the clock.
    eventually("it is tried again", || replaced.1.failed_releases.load(Ordering::SeqCst) > 3);
    assert_eq!(store.keys(), [here.key()]);
    replaced.0.set_reachable(true);
    replaced.replace();
    eventually("it is released", || store.keys().is_empty());
}

/// The thread that notices the change does not know of the grant yet. No time passes: only the doubt makes a probe due.
/// Shows: G5.
#[test]
fn a_grant_that_was_on_its_way_is_checked_at_once() {
    let clock = Arc::new(ManualClock::new());
    clock.advance(Duration::from_secs(5));
    let store = Replaced(MemoryLockProcessor::with_clock(clock.clone()), Arc::default());
    let generator = DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap();
    let lock = generator.generate("CHANGE", "x").unwrap();
    let told = store.clone();
    *store.1.meanwhile.lock() = Some(Box::new(move || told.replace()));
    let guard = lock.lock().unwrap();
    eventually("the new server is asked about it", || store.1.probes.lock().iter().any(|key| key == lock.key()));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    // A grant of the server that is known is not: it is one that is asked for after the change.
    clock.advance(Duration::from_millis(1));
    store.1.probes.lock().clear();
    let calm = generator.generate("CHANGE", "z").unwrap();
    calm.lock().unwrap().unlock().unwrap();
    assert_eq!(*store.1.probes.lock(), [""; 0]);
}

/// The answer is that of the earlier server. No time passes, and the client hears nothing: only the other server makes a second question due.
/// Shows: L1.
#[test]
fn a_wait_whose_answer_was_on_its_way_is_asked_about_at_once() {
    let (clock, _, replaced, [here, _]) = scene();
    let guard = here.lock().unwrap();
    let generator = DLockGenerator::builder().clock(clock.clone()).listener(false).build(replaced.clone()).unwrap();
    let lock = generator.generate_with(here.config().clone()).unwrap();
    let told = replaced.clone();
    *replaced.1.meanwhile.lock() = Some(Box::new(move || told.replace()));
    let waiter = spawn(move || lock.lock().map(|guard| guard.unlock()));
    eventually("it is asked for again", || replaced.1.acquires.load(Ordering::SeqCst) == 2);
    guard.unlock().unwrap();
    eventually("time passes", || {
        clock.advance(Duration::from_secs(1));
        waiter.is_finished()
    });
    waiter.join().unwrap().unwrap();
}

/// The failure says nothing about the server that answers now, so there is no pause after it.
/// Shows: G5.
#[test]
fn a_probe_that_was_under_way_to_the_earlier_server_is_repeated_at_once() {
    let (clock, _store, replaced, _) = scene();
    let generator = DLockGenerator::builder().clock(clock.clone()).build(replaced.clone()).unwrap();
    let lock = |target: &str| {
        let config =
            DLockConfig::new("CHANGE", target).with_lease(Duration::from_secs(1000)).with_linger(Duration::ZERO);
        generator.generate_with(config).unwrap()
    };
    let (probed, asked, another, moves) = (lock("probed"), lock("asked"), replaced.clone(), clock.clone());
    let guard = probed.lock().unwrap();
    *replaced.1.breaks_probe.lock() = Some(Box::new(move || {
        moves.advance(Duration::from_millis(1));
        another.replace();
        // Another thread of the client notices it first.
        asked.lock().unwrap().unlock().unwrap();
    }));
    // A sixth of the lease is over, and the lock is probed.
    clock.advance(Duration::from_secs(200));
    eventually("it is probed again", || replaced.1.probes.lock().len() == 2);
    guard.ensure_valid().unwrap();
}
