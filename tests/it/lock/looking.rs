//! What a lock tells about itself.

use crate::support::crew::{eventually, spawn_with, wait_for};
use crate::support::lab::{Lab, config, on_both_stores};
use redis_dlock::{CancelToken, DLockGenerator};
use std::time::Duration;

on_both_stores!(
    a_holder_is_named_with_its_process_and_lease,
    a_strangers_locker_is_told_as_it_is,
    the_queue_is_that_of_this_generator,
    looking_at_the_queue_and_the_count_asks_nobody,
    everything_can_be_printed_at_any_time,
);

fn a_holder_is_named_with_its_process_and_lease(lab: &Lab) {
    let [here, there] = [(); 2].map(|()| lab.generator().generate_with(config("x", 30_000)).unwrap());
    assert_eq!(here.holder().unwrap(), None);
    assert!(!here.is_locked().unwrap());
    let guard = here.lock().unwrap();
    let (seen_here, seen_there) = (here.holder().unwrap().unwrap(), there.holder().unwrap().unwrap());
    assert!(here.is_locked().unwrap() && there.is_locked().unwrap());
    assert_eq!(seen_here.locker, seen_there.locker);
    assert_eq!((seen_here.is_local, seen_there.is_local), (true, false));
    // {host}-{pid}-{random}-{n}
    let parts: Vec<_> = seen_here.locker.rsplitn(4, '-').collect();
    assert_eq!(parts[2], std::process::id().to_string(), "{seen_here:?}");
    let remaining = seen_here.remaining.unwrap();
    assert!(remaining <= here_lease() && remaining > here_lease() / 2, "{remaining:?}");
    guard.unlock().unwrap();
    assert_eq!(there.holder().unwrap(), None);
}

fn here_lease() -> Duration {
    Duration::from_secs(30)
}

fn a_strangers_locker_is_told_as_it_is(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    lab.overwrite(lock.key(), "10.0.0.7-main", Duration::from_secs(30));
    let holder = lock.holder().unwrap().unwrap();
    assert_eq!((holder.locker.as_str(), holder.is_local), ("10.0.0.7-main", false));
    assert!(lock.try_lock().unwrap().is_none());
}

fn the_queue_is_that_of_this_generator(lab: &Lab) {
    let [here, there] = [(); 2].map(|()| lab.generator().generate_with(config("x", 3000)).unwrap());
    let guard = here.lock().unwrap();
    let waiters = [&here, &here, &there].map(wait_for);
    assert_eq!((here.queue_length(), there.queue_length()), (2, 1));
    guard.unlock().unwrap();
    for waiter in waiters {
        lab.join(waiter);
    }
    assert_eq!((here.queue_length(), there.queue_length()), (0, 0));
}

fn looking_at_the_queue_and_the_count_asks_nobody(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config(" x ", 600_000));
    assert_eq!((lock.queue_length(), lock.hold_count(), lock.is_held_by_current_thread()), (0, 0, false));
    assert_eq!(lock.key(), "DLOCK_TEST_x");
    assert_eq!(watch.count(), 0);
    let guard = lock.lock().unwrap();
    assert!(guard.is_valid() && guard.ensure_valid().is_ok() && !guard.remaining().is_zero());
    assert!(guard.lost().try_recv().is_err());
    assert!(lock.is_held_by_current_thread());
    assert_eq!(watch.count(), 1);
}

fn everything_can_be_printed_at_any_time(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 300)).unwrap();
    let elsewhere = lab.generator().generate_with(config("y", 30_000)).unwrap();
    let (guard, remote) = (lock.lock().unwrap(), elsewhere.lock().unwrap());
    let cancel = CancelToken::new();
    let waiting = generator.generate_with(config("y", 300)).unwrap();
    let waiters = [lock.clone(), waiting.clone()]
        .map(|lock| spawn_with(&cancel, move |cancel| drop(lock.lock_cancellable(cancel))));
    eventually("both wait", || lock.queue_length() + waiting.queue_length() == 2);

    for (printed, named) in [
        (format!("{generator:?}"), "DLockGenerator"),
        (format!("{:?}", DLockGenerator::builder()), "GeneratorBuilder"),
        (format!("{lock:?}"), "DistributedReentrantLock { key: \"DLOCK_TEST_x\", lease: 300ms, hold_count: 1"),
        (format!("{:?}", lock.unguarded()), "UnguardedLock"),
        (format!("{guard:?}"), "DLockGuard { handle: Handle(\"DLOCK_TEST_x\"), token"),
        (format!("{cancel:?}"), "CancelToken"),
        (format!("{:?}", lock.holder()), "Holder"),
        (format!("{:?}", config("x", 300)), "DLockConfig"),
    ] {
        assert!(printed.contains(named), "{printed}");
    }
    cancel.cancel();
    for waiter in waiters {
        waiter.join();
    }
    drop((guard, remote));
}
