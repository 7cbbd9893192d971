//! The builder's `on_slow_wait`: told once of each wait that lasts, while the waiter keeps its place.

use crate::support::crew::{HANG, answered, eventually, spawn_named, wait_for};
use crate::support::journal;
use crate::support::lab::{Lab, config, on_both_stores};
use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use redis_dlock::{CancelToken, DLockGenerator, SlowWait};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

on_both_stores!(
    each_wait_is_told_of_once_and_keeps_its_place,
    short_waits_are_not_told_of,
    threads_that_wait_for_one_another_are_told_of_their_circle,
);

const SLOW: Duration = Duration::from_millis(50);

fn told(lab: &Lab, after: Duration) -> (DLockGenerator, Receiver<SlowWait>) {
    let (say, waits) = unbounded();
    let builder = lab.builder().on_slow_wait(after, move |wait| say.send(wait.clone()).unwrap());
    (builder.build(lab.processor()).unwrap(), waits)
}

/// Shows: G8.
fn each_wait_is_told_of_once_and_keeps_its_place(lab: &Lab) {
    let (generator, waits) = told(lab, SLOW);
    let (holder, lock) = (lab.generator(), generator.generate_with(config("x", 3000).with_reason("billing")).unwrap());
    let guard = holder.generate_with(config("x", 3000)).unwrap();
    let guard = guard.lock().unwrap();
    let (say, order) = unbounded();
    let waiters: Vec<_> = ["first", "second"]
        .map(|name| {
            let (lock, say) = (lock.clone(), say.clone());
            let before = lock.queue_length();
            let waiter = spawn_named(name, {
                let lock = lock.clone();
                move || {
                    let guard = lock.lock().unwrap();
                    say.send(name).unwrap();
                    // Nobody is told of a reentry.
                    drop(lock.lock().unwrap());
                    drop(guard);
                }
            });
            eventually("it waits", || lock.queue_length() > before);
            waiter
        })
        .into();
    let mut told: Vec<_> = (0..2).map(|_| lab.time.recv(&waits)).collect();
    told.sort_by(|a, b| a.thread.cmp(&b.thread));
    for (wait, name) in told.iter().zip(["first", "second"]) {
        assert_eq!((&*wait.key, wait.thread.as_deref()), (lock.key(), Some(name)));
        assert_eq!(wait.reason.as_deref(), Some("billing"));
        assert!(wait.waited >= SLOW, "{wait:?}");
    }
    guard.unlock().unwrap();
    waiters.into_iter().for_each(|waiter| lab.join(waiter));
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["first", "second"]);
    drop((lock, generator));
    assert_eq!(waits.recv_timeout(HANG).err(), Some(RecvTimeoutError::Disconnected), "each once, and its thread ends");
}

fn short_waits_are_not_told_of(lab: &Lab) {
    let (generator, waits) = told(lab, HANG);
    let (holder, lock) = (lab.generator(), generator.generate_with(config("x", 3000)).unwrap());
    let guard = holder.generate_with(config("x", 3000)).unwrap();
    let guard = guard.lock().unwrap();
    assert!(lab.time.during(|| answered(|| lock.try_lock_for(SLOW)).is_none()));
    assert!(lock.try_lock().unwrap().is_none());
    let waiter = wait_for(&lock);
    guard.unlock().unwrap();
    lab.join(waiter);
    drop((lock, generator));
    assert_eq!(waits.recv_timeout(HANG).err(), Some(RecvTimeoutError::Disconnected), "nobody was told");
}

fn threads_that_wait_for_one_another_are_told_of_their_circle(lab: &Lab) {
    journal::keep();
    let (generator, waits) = told(lab, Duration::from_secs(3600));
    let locks = ["a", "b", "c"].map(|target| generator.generate_with(config(target, 30_000)).unwrap());
    let (held, cancel) = (Barrier::new(3), CancelToken::new());
    thread::scope(|scope| {
        for n in 0..3 {
            let (mine, next, held, cancel) = (&locks[n], &locks[(n + 1) % 3], &held, &cancel);
            scope.spawn(move || {
                let _mine = mine.lock().unwrap();
                held.wait();
                let got = next.lock_cancellable(cancel).unwrap();
                assert!(got.is_none() || cancel.is_cancelled(), "nobody lets go");
            });
        }
        // A wait that leads into the circle, and is not part of it.
        let outside = scope.spawn(|| locks[0].lock_cancellable(&cancel).map(|got| got.is_some()));
        let wait = lab.time.during(|| waits.recv_timeout(HANG));
        cancel.cancel();
        outside.join().unwrap().unwrap();
        let wait = wait.unwrap();
        assert_eq!(wait.circle.first(), Some(&wait.key));
        let first = locks.iter().position(|lock| lock.key() == wait.key).unwrap();
        let around: Vec<_> = (0..3).map(|n| locks[(first + n) % 3].key().to_owned()).collect();
        assert_eq!(wait.circle, around);
        let warned = journal::warnings(&wait.key);
        let named = warned.iter().filter(|line| line.contains(": thread ") && line.contains("is in a deadlock"));
        assert!(named.count() > 0 && !warned.iter().any(|line| line.contains("thread \"\"")), "{warned:?}");
    });
    drop((locks, generator));
    assert_eq!(
        waits.recv_timeout(HANG).err(),
        Some(RecvTimeoutError::Disconnected),
        "only the thread that has closed it"
    );
}
