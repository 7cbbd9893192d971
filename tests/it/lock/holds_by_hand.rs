//! Holds that belong to no thread, on the embedded store: what it takes a clock that is moved by hand, or a directory, to see.

use crate::support::cause;
use crate::support::crew::{eventually, spawn_named};
use crate::support::journal;
use crate::support::lab::{Lab, config};
use redis_dlock::{Hold, LossCause};
use std::time::Duration;

/// It is named once, also if its lease is over by then: it keeps its process out of the lock for good.
#[test]
fn a_forgotten_hold_that_is_lost_is_named_too() {
    journal::keep();
    let lab = Lab::memory();
    let limited = config("lost for good", 1500).with_max_hold(Duration::from_millis(500));
    let lock = lab.generator().generate_with(limited.with_hold_warning(Duration::from_secs(60))).unwrap();
    std::mem::forget(lock.hold().unwrap());
    lab.time.until("it is named", || {
        journal::warnings(lock.key()).iter().any(|line| line.contains("its lease is lost, and"))
    });
    lab.time.pass(Duration::from_secs(120));
    let named = journal::warnings(lock.key()).into_iter().filter(|line| line.contains("has held it for")).count();
    assert_eq!(named, 1);
    assert!(lock.try_lock().unwrap().is_none() && lab.holder(lock.key()).is_none());
}

/// What the process has slept through is a loss, and no long hold.
#[test]
fn a_standstill_is_told_as_a_loss() {
    journal::keep();
    let lab = Lab::memory();
    let long = config("slept", 30_000).with_hold_warning(Duration::from_secs(300));
    let hold = lab.generator().generate_with(long).unwrap().hold().unwrap();
    let lost = hold.lost();
    lab.time.jump(Duration::from_secs(200));
    lab.time.recv(&lost);
    assert!(!journal::warnings(hold.lock().key()).iter().any(|line| line.contains("has held it for")));
}

/// The name that the program has given, or else that of the thread that took it.
#[test]
fn it_is_described_with_its_name() {
    let lab = Lab::memory();
    let generator = lab.builder().build(lab.processor()).unwrap();
    for (name, shown) in [(Some("session 17"), "session 17"), (None, "taker")] {
        let plain = config("x", 30_000);
        let named = name.map_or(plain.clone(), |name| plain.with_holder_name(name));
        let lock = generator.generate_with(named).unwrap();
        let taker = lock.clone();
        let hold = spawn_named("taker", move || taker.hold().unwrap()).join();
        let waiting = lock.clone();
        let waiter = spawn_named("taker", move || waiting.hold().unwrap());
        eventually("it waits", || lock.queue_length() == 1);
        let told = generator.describe("TEST", "x").unwrap().holder.unwrap().told.unwrap();
        assert_eq!((told.thread.as_deref(), told.hold_count), (Some(shown), 1));
        assert_eq!(told.token, Some(hold.fencing_token()));
        assert_eq!(told.waiters[0].thread.as_deref(), Some(shown));
        assert_eq!((told.thread_id.is_some(), told.waiters[0].thread_id.is_some()), (name.is_none(), name.is_none()));
        hold.release().unwrap();
        drop(lab.join(waiter));
    }
    assert_eq!(cause(lost_hold(&lab).release()), LossCause::Deadline);
}

/// A hold whose lease has ended because the process stood still.
fn lost_hold(lab: &Lab) -> Hold {
    let hold = lab.generator().generate_with(config("still", 1000)).unwrap().hold().unwrap();
    lab.time.jump(Duration::from_secs(2));
    hold
}
