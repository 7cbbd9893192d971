//! A process that forks while it holds: the lock is the parent's, and its child does it no harm.

use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::support::fork::in_child;
use crate::support::lab::{Lab, connect};
use crate::support::process::{alone, threads_named};
use redis_dlock::{
    DLockConfig, DLockGenerator, DLockGuard, DistributedReentrantLock, Error, Hold, MemoryLockProcessor,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(6);

/// Settings by which a lease is extended long before its end.
fn config(target: &str) -> DLockConfig {
    DLockConfig::new("FORK", target).with_lease(LEASE).with_renew_at(0.1)
}

fn is_forked<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked))
}

/// What a child finds that goes on as if nothing had happened.
fn as_if_nothing_had_happened(generator: DLockGenerator, guard: DLockGuard<'_>, hold: Hold, url: &str) {
    let lock = generator.generate_with(config("other")).unwrap();
    assert!(is_forked(&lock.lock()));
    assert!(is_forked(&lock.try_lock()));
    assert!(is_forked(&lock.try_lock_for(Duration::from_secs(5))));
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(is_forked(&guard.ensure_valid()));
    assert!(is_forked(&guard.unlock()));
    assert!(!hold.is_valid() && is_forked(&hold.ensure_valid()) && is_forked(&hold.lock().try_hold()));
    assert!(is_forked(&hold.release()));
    generator.close();
    drop((lock, generator));
    let own = connect(url);
    assert!(own.generate_with(config("held")).unwrap().try_lock().unwrap().is_none(), "it is the parent's");
    assert!(own.generate_with(config("a hold")).unwrap().try_lock().unwrap().is_none(), "it is the parent's");
    own.generate_with(config("other")).unwrap().lock().unwrap().unlock().unwrap();
}

/// Shows: G3.
#[test]
fn a_child_has_nothing_of_its_parents_lock_and_the_parent_keeps_it() {
    alone(concat!(module_path!(), "::a_child_has_nothing_of_its_parents_lock_and_the_parent_keeps_it"), || {
        let server = RedisServer::start();
        let generator = connect(&server.url());
        let lock = generator.generate_with(config("held")).unwrap();
        let other = generator.generate_with(config("other")).unwrap();
        let hold = generator.generate_with(config("a hold")).unwrap().hold().unwrap();
        let mut copies = (Some(generator), Some(lock.lock().unwrap()), Some(hold));
        // All threads and connections are there: for commands, for messages and, from the first probe on, for renewals.
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock_for(Duration::from_millis(50)).unwrap().is_none()));
        });
        let clients = || server.run::<String>(&["CLIENT", "LIST"]);
        let ids = |list: &str| -> Vec<String> {
            let named = list.lines().filter(|line| line.contains("name=redis-dlock"));
            named.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
        };
        // Calls that come at once open a further one.
        eventually("three connections", || ids(&clients()).len() >= 3);
        let before = ids(&clients());
        let url = server.url();
        // The child takes out of its own copy of the memory.
        assert!(in_child(|| {
            let (generator, guard, hold) = (copies.0.take(), copies.1.take(), copies.2.take());
            as_if_nothing_had_happened(generator.unwrap(), guard.unwrap(), hold.unwrap(), &url);
        }));
        let (guard, hold) = (copies.1.take().unwrap(), copies.2.take().unwrap());
        assert!(guard.is_valid());
        let token = guard.fencing_token();
        let (mut last, mut extended) = (guard.remaining(), 0);
        eventually("it is extended as ever", || {
            let now = guard.remaining();
            extended += usize::from(now > last);
            last = now;
            extended == 3
        });
        assert!(guard.is_valid() && hold.is_valid());
        // None has ended. A further one may have been opened, for calls that came at once.
        let after = ids(&clients());
        assert!(before.iter().all(|id| after.contains(id)), "on the same connections: {before:?}, {after:?}");
        guard.unlock().unwrap();
        hold.release().unwrap();
        assert!(other.lock().unwrap().fencing_token() > token);
    });
}

/// A lock that may linger, whose generator has started nothing yet.
fn lingering(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    let settings = DLockConfig::new("FORK", target).with_lease(Duration::from_secs(60));
    generator.generate_with(settings.with_linger(Duration::from_secs(60))).unwrap()
}

#[test]
fn a_child_that_is_refused_starts_no_threads_and_hears_no_grants_of_its_parent() {
    alone(
        concat!(module_path!(), "::a_child_that_is_refused_starts_no_threads_and_hears_no_grants_of_its_parent"),
        || {
            let server = RedisServer::start();
            let generator = connect(&server.url());
            assert!(in_child(|| {
                let lock = lingering(&generator, "x");
                assert!(is_forked(&lock.lock()));
                assert!(is_forked(&lock.try_lock()));
                assert!(is_forked(&lock.holder()));
                assert!(is_forked(&lock.is_locked()));
                assert_eq!(threads_named("dlock-"), 0);
            }));
            let subscribers = server.run::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            assert_eq!(subscribers, "");
        },
    );
}

#[test]
fn a_child_that_drops_its_copy_of_a_guard_gives_nothing_back_however_long_it_may_linger() {
    alone(
        concat!(
            module_path!(),
            "::a_child_that_drops_its_copy_of_a_guard_gives_nothing_back_however_long_it_may_linger"
        ),
        || {
            let server = RedisServer::start();
            let generator = connect(&server.url());
            let other = lingering(&generator, "other");
            let _other = other.lock().unwrap();
            let listens = || server.run::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).contains("sub=1");
            eventually("it listens", listens);
            let lock = lingering(&generator, "x");
            let mut guard = Some(lock.lock().unwrap());
            let holder = server.run::<Option<String>>(&["GET", lock.key()]);
            assert!(in_child(|| {
                assert!(is_forked(&guard.take().unwrap().unlock()));
                assert_eq!(threads_named("dlock-"), 0);
            }));
            assert_eq!(server.run::<Option<String>>(&["GET", lock.key()]), holder);
            assert!(guard.unwrap().is_valid());
        },
    );
}

/// Shows: G3.
#[test]
fn a_child_does_not_take_up_what_lingers_in_its_parent() {
    alone(concat!(module_path!(), "::a_child_does_not_take_up_what_lingers_in_its_parent"), || {
        let lab = Lab::redis();
        // What lingers when a client begins to listen counts as wanted by others, and ends.
        let (generator, _) = lab.listening_generator();
        let lock = lingering(&generator, "x");
        let token = lock.with(|guard| guard.fencing_token()).unwrap();
        assert!(in_child(|| {
            assert!(is_forked(&lock.lock()));
            assert!(is_forked(&lock.try_lock()));
            assert!(is_forked(&lock.try_lock_for(Duration::from_secs(5))));
            assert!(is_forked(&lock.with(|_| ())));
            assert_eq!(lock.hold_count(), 0);
        }));
        let next = lock.lock().unwrap();
        assert!(next.is_valid());
        assert_eq!(next.fencing_token(), token + 1, "it has lingered in the parent all along");
    });
}

/// The threads of the parent hold each mutex now and then, also at the moment of a fork.
#[test]
fn a_child_of_a_busy_process_waits_for_no_thread_that_it_does_not_have() {
    const FORKS: usize = 200;
    alone(concat!(module_path!(), "::a_child_of_a_busy_process_waits_for_no_thread_that_it_does_not_have"), || {
        let generator = DLockGenerator::builder().on_event(|_| {}).build(MemoryLockProcessor::new()).unwrap();
        let lock = generator.generate("FORK", "held").unwrap();
        let hold = generator.generate("FORK", "a hold").unwrap().hold().unwrap();
        let mut copies = (Some(lock.lock().unwrap()), Some(hold));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Stop(&is_over);
            for n in 0..2 {
                let (generator, lock, is_over) = (&generator, &lock, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(lock.try_lock().unwrap().is_none());
                        let other = generator.generate("FORK", n.to_string()).unwrap();
                        let guard = other.lock().unwrap();
                        assert!(lock.queue_length() == 0 && guard.held_for() < Duration::MAX);
                        drop((guard.lost(), generator.generate("FORK", "a hold").unwrap().try_hold().unwrap()));
                    }
                });
            }
            for n in 0..FORKS {
                let through = in_child(|| {
                    let (guard, hold) = (copies.0.take().unwrap(), copies.1.take().unwrap());
                    let _ = (lock.queue_length(), guard.held_for(), guard.lost(), hold.held_for(), guard.loss());
                    assert!(is_forked(&lock.is_locked()) && is_forked(&generator.describe("FORK", "held")));
                    assert!(is_forked(&generator.generate("FORK", "0").unwrap().try_lock()));
                    // Each ends in another way.
                    match n % 3 {
                        0 => assert!(is_forked(&guard.unlock()) && is_forked(&hold.release())),
                        1 => assert!(is_forked(&guard.unlock_after(LEASE))),
                        _ => drop((guard, hold)),
                    }
                    generator.close();
                    assert!(is_forked(&lock.try_hold()));
                    if n % 2 == 0 {
                        // The destructors of the thread run.
                        std::process::exit(0);
                    }
                });
                assert!(through, "child {n}");
            }
        });
        assert!(copies.0.unwrap().is_valid() && copies.1.unwrap().is_valid());
    });
}

/// Ends the threads of a test, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
