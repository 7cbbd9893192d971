//! The threads of a generator: three at the most, from first need to the end, and what is left afterwards: nothing.

use crate::support::crew::{Member, eventually, spawn, spawn_with, wait_by};
use crate::support::lab::{Lab, ON_CLUSTER, alone_on_both_stores, config, is_listener_on};
use crate::support::process::{descriptors, tasks, threads, threads_named};
use redis_dlock::{CancelToken, DistributedReentrantLock};
use std::time::Duration;

alone_on_both_stores!(
    each_starts_when_it_is_needed,
    three_serve_hundreds_of_locks,
    closing_ends_them,
    the_last_unlock_after_the_closing_ends_them,
    the_last_handle_ends_them,
    a_holder_that_drops_the_last_handle_ends_them,
    a_waiter_that_drops_the_last_handle_ends_them,
    nothing_is_left_of_a_hundred_generators,
);

/// How many retry and lease threads there are. Whoever waits starts the listener as well.
fn workers() -> (usize, usize) {
    let tasks = tasks(std::process::id());
    let named = |name: &str| tasks.iter().filter(|task| task.name == name).count();
    (named("dlock-retry"), named("dlock-lease"))
}

/// How many threads there are for the keys of a server that keeps the others waiting. On one server there are none. A node of a Cluster may be
/// such a server where this machine is busy.
fn apart() -> usize {
    let apart = threads_named("dlock-retry-2") + threads_named("dlock-lease-2");
    assert!(apart == 0 || std::env::var_os(ON_CLUSTER).is_some());
    apart
}

fn wait_with(lock: DistributedReentrantLock, cancel: &CancelToken) -> Member<bool> {
    spawn_with(cancel, move |cancel| lock.lock_cancellable(cancel).unwrap().is_some())
}

fn each_starts_when_it_is_needed(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let held = generator.generate_with(config("held", 30_000)).unwrap();
    lab.overwrite(held.key(), "somebody", Duration::from_secs(600));
    assert!(!lock.is_locked().unwrap());
    assert_eq!(workers(), (0, 0));
    let guard = lock.lock().unwrap();
    eventually("the lease thread", || workers() == (0, 1));
    // A local wait needs nobody to ask.
    let cancel = CancelToken::new();
    let waiter = wait_with(lock.clone(), &cancel);
    eventually("it waits", || lock.queue_length() == 1);
    assert!(held.try_lock().unwrap().is_none());
    assert!(held.try_lock_for(Duration::ZERO).unwrap().is_none());
    assert_eq!(workers(), (0, 1));
    let other = wait_with(held.clone(), &cancel);
    eventually("it waits", || held.queue_length() == 1);
    eventually("the retry thread", || workers() == (1, 1));
    cancel.cancel();
    assert!(!waiter.join() && !other.join());
    guard.unlock().unwrap();
}

fn three_serve_hundreds_of_locks(lab: &Lab) {
    const LEASE: Duration = Duration::from_millis(5000);
    let generator = lab.generator();
    let make = |name: &str, n: usize| {
        generator.generate_with(config(&format!("{name}{n}"), 5000).with_renew_at(0.25)).unwrap()
    };
    let held: Vec<_> = (0..200).map(|n| make("held", n)).collect();
    let waited_for: Vec<_> = (0..50).map(|n| make("waited", n)).collect();
    for lock in &waited_for {
        lab.overwrite(lock.key(), "somebody", Duration::from_secs(600));
    }
    // A connection is opened by a thread that ends.
    eventually("the connections are open", || threads_named("dlock-connect") + threads_named("dlock-map") == 0);
    let before = threads();
    let guards: Vec<_> = held.iter().map(|lock| lock.lock().unwrap()).collect();
    let cancel = CancelToken::new();
    let waiters: Vec<_> = waited_for.iter().map(|lock| wait_with(lock.clone(), &cancel)).collect();
    eventually("all wait", || waited_for.iter().all(|lock| lock.queue_length() == 1));
    // A new thread takes its name only when it runs.
    eventually("the workers", || workers() == (1, 1));
    // For longer than a lease, so that all were extended and asked for.
    for _ in 0..11 {
        lab.time.pass(LEASE / 10);
        // A thread for the keys of a node that keeps others waiting has the name of its parent until it runs.
        eventually("no more workers", || workers() == (1, 1));
    }
    let listeners = threads_named("dlock-listen");
    assert_eq!(listeners, usize::from(is_listener_on()));
    eventually("no other thread", || threads() == before + 2 + apart() + listeners + waiters.len());
    assert!(guards.iter().all(redis_dlock::DLockGuard::is_valid));
    cancel.cancel();
    assert!(!waiters.into_iter().any(Member::join));
}

/// A generator with both threads at work, and a lock of it that nobody holds.
fn at_work(lab: &Lab) -> (redis_dlock::DLockGenerator, DistributedReentrantLock) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    lab.overwrite(lock.key(), "somebody", Duration::from_millis(300));
    lab.time.during_wait(&lock, || lock.lock().unwrap().unlock().unwrap());
    eventually("both threads", || workers() == (1, 1));
    (generator, lock)
}

/// Shows: L6.
fn closing_ends_them(lab: &Lab) {
    let open = descriptors();
    let (generator, _lock) = at_work(lab);
    generator.close();
    assert_eq!(workers(), (0, 0), "it waits for their end");
    assert_eq!(threads_named("dlock-"), 0);
    assert_eq!(descriptors(), open, "and the handles that are left keep no socket");
}

/// Shows: L6.
fn the_last_unlock_after_the_closing_ends_them(lab: &Lab) {
    let open = descriptors();
    let (generator, lock) = at_work(lab);
    let other = generator.generate_with(config("y", 3000)).unwrap();
    let (first, second) = (lock.lock().unwrap(), other.lock().unwrap());
    let inner = lock.lock().unwrap();
    generator.close();
    inner.unlock().unwrap();
    first.unlock().unwrap();
    assert_eq!(workers().1, 1, "there is still something to be renewed");
    second.unlock().unwrap();
    assert_eq!(workers(), (0, 0));
    assert_eq!(descriptors(), open);
}

/// Shows: L6.
fn the_last_handle_ends_them(lab: &Lab) {
    let (generator, lock) = at_work(lab);
    let (clone, unguarded) = (lock.clone(), lock.unguarded());
    drop(generator);
    drop(lock);
    drop(clone);
    unguarded.lock().unwrap();
    unguarded.unlock().unwrap();
    assert_eq!(workers(), (1, 1));
    drop(unguarded);
    // Unless one of them was at work just then, and so had the last handle itself.
    eventually("their end", || threads_named("dlock-") == 0);
}

/// Shows: L6.
fn a_holder_that_drops_the_last_handle_ends_them(lab: &Lab) {
    let (generator, lock) = at_work(lab);
    let (go, may_go) = crossbeam_channel::bounded::<()>(0);
    let holder = spawn(move || {
        let guard = lock.lock().unwrap();
        may_go.recv().unwrap();
        drop(guard);
        drop(lock);
    });
    drop(generator);
    assert_eq!(workers(), (1, 1));
    go.send(()).unwrap();
    holder.join();
    eventually("their end", || threads_named("dlock-") == 0);
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: L6.
fn a_waiter_that_drops_the_last_handle_ends_them(lab: &Lab) {
    let (generator, lock) = at_work(lab);
    lab.overwrite(lock.key(), "somebody", Duration::from_secs(600));
    let cancel = CancelToken::new();
    let waiter = wait_with(lock, &cancel);
    drop(generator);
    lab.time.pass(Duration::from_millis(100));
    assert_eq!(workers(), (1, 1), "it is waited for");
    cancel.cancel();
    assert!(!waiter.join());
    eventually("their end", || threads_named("dlock-") == 0);
}

/// Shows: L2, L6.
fn nothing_is_left_of_a_hundred_generators(lab: &Lab) {
    // What the process opens once and for all is opened now.
    drop(at_work(lab));
    eventually("their end", || threads_named("dlock-") == 0);
    let (open, running) = (descriptors(), threads());
    for n in 0..100 {
        let generator = lab.generator();
        let lock = generator.generate_with(config("x", 3000)).unwrap();
        let guard = lock.lock().unwrap();
        let waiter = wait_by(&lock, move |other| drop(other.lock()));
        match n % 3 {
            0 => generator.close(),
            1 => drop(generator),
            _ => {}
        }
        drop(guard);
        waiter.join();
    }
    eventually("the end of all threads", || threads() == running);
    assert_eq!(descriptors(), open);
    assert_eq!(lab.leftovers(), [""; 0]);
}
