//! Machines that are suspended while they hold a lock, wait for one, or keep one for whoever comes next. Their clock has gone on
//! when they come back, and so has the store's; their threads have not run.

use crate::support::crew::{HANG, eventually, spawn_with};
use crate::support::lab::{config, is_listener_on};
use crate::support::watched::{Kind, Watch, Watched, When};
use crate::support::worker;
use redis_dlock::{
    Clock, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LossCause, MemoryLockProcessor, Moment,
    SystemClock,
};
use std::io::{self, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A busy machine ends none, but for those that are slept through.
const LEASE: Duration = Duration::from_secs(3);

/// Real time, and what was slept.
#[derive(Debug, Default)]
struct SleepyClock(AtomicU64);

impl SleepyClock {
    fn suspend(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for SleepyClock {
    fn now(&self) -> Moment {
        SystemClock.now() + Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A machine that may sleep, and another one that comes when it does.
struct Scene {
    clock: Arc<SleepyClock>,
    store: MemoryLockProcessor,
    watch: Arc<Watch>,
    lock: DistributedReentrantLock,
    other: DistributedReentrantLock,
}

impl Scene {
    /// The settings are those of the machine that may sleep.
    fn set(settings: impl Fn(DLockConfig) -> DLockConfig) -> Self {
        let clock = Arc::new(SleepyClock::default());
        let store = MemoryLockProcessor::with_clock(clock.clone());
        let (processor, watch) = Watched::new(Arc::new(store.clone()));
        let client = || DLockGenerator::builder().clock(clock.clone()).listener(is_listener_on());
        let config = config("x", LEASE.as_millis().try_into().unwrap());
        let lock = client().build(processor).unwrap().generate_with(settings(config.clone())).unwrap();
        // It lingers nowhere: while a client gives back what has lingered, its own `try_lock` finds the lock busy.
        let other = client().build(store.clone()).unwrap().generate_with(config).unwrap();
        Self { clock, store, watch, lock, other }
    }
}

#[track_caller]
fn is_over(result: Result<(), Error>) {
    match result {
        Err(Error::LeaseLost(loss)) if loss.cause == LossCause::Deadline => {}
        other => panic!("{other:?}"),
    }
}

/// Shows: G2, G5, G6, G7.
#[test]
fn a_holder_that_slept_knows_at_its_first_look_and_does_no_harm() {
    let scene = Scene::set(|config| config);
    let guard = scene.lock.lock().unwrap();
    let lost = guard.lost();
    scene.clock.suspend(LEASE * 2);
    assert!(!guard.is_valid(), "before any thread of the library has run");
    let next = scene.other.lock().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost.recv(), Ok(()));
    is_over(scene.lock.lock().map(drop));
    is_over(guard.unlock());
    assert!(next.is_valid());
    assert!(scene.lock.try_lock().unwrap().is_none());
    next.unlock().unwrap();
    assert!(scene.store.keys().is_empty());
}

/// The machine sleeps with an extension under way.
fn slept_while_extending(when: When) {
    let scene = Scene::set(|config| config.with_renew_at(0.2));
    let guard = scene.lock.lock().unwrap();
    let lost = guard.lost();
    let extending = scene.watch.stop_next(Kind::Extend, when);
    extending.wait();
    scene.clock.suspend(LEASE * 2);
    let next = scene.other.lock().unwrap();
    let extended = scene.watch.count_of(Kind::Extend);
    extending.open();
    // By whoever reads the answer: nobody else looks.
    assert_eq!(lost.recv_timeout(HANG), Ok(()));
    assert!(!guard.is_valid());
    is_over(guard.unlock());
    assert!(next.is_valid() && scene.lock.try_lock().unwrap().is_none());
    assert_eq!(scene.watch.count_of(Kind::Extend), extended, "what is over is not extended");
    next.unlock().unwrap();
}

/// Shows: G2, G6, S3.
#[test]
fn an_extension_that_slept_on_its_way_extends_nothing() {
    slept_while_extending(When::Going);
}

/// Shows: G6.
#[test]
fn an_answer_that_slept_makes_no_hold_valid_again() {
    slept_while_extending(When::Coming);
}

/// Shows: L1.
#[test]
fn a_waiter_that_slept_gets_the_lock_although_the_store_has_forgotten_it() {
    let scene = Scene::set(|config| config);
    scene.store.overwrite(scene.lock.key(), "elsewhere-1", Some(LEASE * 1000));
    let waiter = spawn_with(&scene.lock, |lock| lock.lock().unwrap().fencing_token());
    scene.watch.wait_for_more(Kind::Poll, 1);
    // The store's queue lives for two leases.
    scene.clock.suspend(LEASE * 3);
    let asked = scene.watch.count_of(Kind::Question);
    eventually("it asks anew", || scene.watch.count_of(Kind::Question) > asked + 1);
    assert!(!waiter.is_finished());
    scene.store.delete(scene.lock.key());
    let token = waiter.join();
    assert!(scene.other.lock().unwrap().fencing_token() > token);
}

/// Shows: G5, G7, S1.
#[test]
fn a_waiter_that_was_given_the_lock_in_its_sleep_does_not_take_it() {
    let scene = Scene::set(|config| config);
    let guard = scene.other.lock().unwrap();
    let waiter = spawn_with(&scene.lock, |lock| {
        let guard = lock.lock().unwrap();
        (guard.is_valid(), guard.fencing_token())
    });
    scene.watch.wait_for_more(Kind::Poll, 1);
    // Its last question is answered when it is awake again: of a time before it was given the lock.
    let asking = scene.watch.stop_next(Kind::Question, When::Coming);
    asking.wait();
    let before = guard.fencing_token();
    guard.unlock().unwrap();
    scene.clock.suspend(LEASE * 2);
    let next = scene.other.lock().unwrap();
    asking.open();
    assert!(next.is_valid());
    let given = next.fencing_token();
    assert!(given > before);
    next.unlock().unwrap();
    let (is_valid, token) = waiter.join();
    assert!(is_valid && token > given, "{is_valid}: {token}, after {given}");
}

/// Shows: G1, S13.
#[test]
fn a_lock_that_was_kept_for_the_next_one_is_not_taken_up_after_a_sleep() {
    if !is_listener_on() {
        // Without an inbox nothing is kept.
        return;
    }
    let scene = Scene::set(|config| config.with_linger(LEASE * 1000));
    let lingering = || scene.lock.holder().unwrap().is_some();
    eventually("it lingers", || {
        drop(scene.lock.lock().unwrap());
        lingering()
    });
    for _ in 0..20 {
        let last = scene.lock.lock().unwrap();
        let before = last.fencing_token();
        last.unlock().unwrap();
        assert!(lingering());
        scene.clock.suspend(LEASE * 2);
        let next = scene.other.try_lock().unwrap().expect("its lease is over");
        assert!(scene.lock.try_lock().unwrap().is_none(), "it is the other machine's now");
        assert!(next.is_valid() && next.fencing_token() > before);
        next.unlock().unwrap();
        scene.clock.suspend(LEASE * 2);
    }
}

#[test]
#[ignore = "the process of the test beside it"]
fn process() {
    if worker::settings().is_some() {
        worker::answer(&SystemClock.now().as_nanos().to_string());
    }
}

/// The clocks of a machine that was suspended for many days: those that count it are ahead of those that do not. Where the system lets
/// nobody make such a machine, nothing is judged.
/// Shows: G5.
#[test]
fn the_time_of_a_suspend_counts() {
    const SLEPT: Duration = Duration::from_secs(100_000_000);
    let suspended = Command::new("unshare")
        .args(["--user", "--map-root-user", "--time", "--boottime", &SLEPT.as_secs().to_string()])
        .arg(std::env::current_exe().unwrap())
        .args(["endurance::suspend::process", "--exact", "--ignored", "--nocapture"])
        .env(worker::SETTINGS, "now")
        .output();
    let out = suspended.map(|child| String::from_utf8_lossy(&child.stdout).into_owned()).unwrap_or_default();
    match out.lines().find_map(|line| line.strip_prefix(worker::MARK)) {
        Some(now) => {
            let there = Duration::from_nanos(now.parse().unwrap());
            assert!(there >= SLEPT, "{there:?}");
        }
        None => {
            let _ = writeln!(io::stderr(), "SKIPPED: no namespaces of time here: which clock it is, is not judged");
        }
    }
}
