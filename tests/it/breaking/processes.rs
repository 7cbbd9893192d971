//! Holders that are processes of their own.

use super::orders::{WHY, break_lock, ms};
use crate::support::RedisServer;
use crate::support::crew::{eventually, wait_for};
use crate::support::holder::Holder;
use crate::support::lab::{connect, is_listener_on};
use redis_dlock::{BreakOutcome, DLockConfig};
use rustix::process::Signal;
use std::time::Duration;

fn config(lease: Duration) -> DLockConfig {
    DLockConfig::new("BROKEN", "one").with_lease(lease)
}

/// Shows: G5, G10.
#[test]
fn a_process_loses_the_lock_to_the_next_one_and_gets_it_again() {
    let server = RedisServer::start();
    let mut holder = Holder::holding(&server, &config(ms(3000)));
    let operator = connect(&server.url());
    let lock = operator.generate_with(config(ms(3000))).unwrap();
    let mut waiting = Holder::waiting(&server, &config(ms(3000)));
    if is_listener_on() {
        eventually("it waits", || lock.inspect().unwrap().waiting == 1);
    }
    let locker = lock.holder().unwrap().unwrap().locker;
    assert!(matches!(break_lock(&operator, &lock, &locker), BreakOutcome::Broken { .. }));
    waiting.answer_about("held");
    let cause = holder.answer_about("lost");
    assert!(cause.contains("broken by") && cause.ends_with(WHY), "{cause}");
    assert_eq!(holder.obey("unlock"), format!("lost: {cause}"));
    holder.tell("lock");
    assert_eq!(waiting.obey("unlock"), "fine");
    holder.answer_about("lock");
    assert_eq!(holder.obey("unlock"), "fine");
    eventually("it is free", || lock.holder().unwrap().is_none());
}

/// What a break is made for. The process learns of it when it runs again: its message is long gone, or comes then.
/// Shows: G5, S1.
#[test]
fn a_process_that_stands_still_is_broken_and_told_when_it_runs_again() {
    let server = RedisServer::start();
    let mut hanging = Holder::holding(&server, &config(ms(60_000)));
    let operator = connect(&server.url());
    let lock = operator.generate_with(config(ms(60_000))).unwrap();
    hanging.signal(Signal::STOP);
    let waiter = wait_for(&lock);
    if is_listener_on() {
        eventually("in the queue", || lock.inspect().unwrap().waiting == 1);
    }
    let locker = lock.holder().unwrap().unwrap().locker;
    assert!(matches!(break_lock(&operator, &lock, &locker), BreakOutcome::Broken { .. }));
    waiter.join();
    hanging.signal(Signal::CONT);
    let unlocked = hanging.obey("unlock");
    assert!(unlocked.contains("broken by") && unlocked.ends_with(WHY), "{unlocked}");
}

/// A lock of a dead process need not be waited for.
#[test]
fn the_lock_of_a_killed_process_is_free_at_once() {
    let server = RedisServer::start();
    let mut dead = Holder::holding(&server, &config(Duration::from_secs(3600)));
    let operator = connect(&server.url());
    let lock = operator.generate_with(config(ms(3000))).unwrap();
    dead.kill();
    assert!(lock.try_lock().unwrap().is_none());
    let locker = lock.holder().unwrap().unwrap().locker;
    assert_eq!(break_lock(&operator, &lock, "somebody-1"), BreakOutcome::NotHeldBy { holder: Some(locker.clone()) });
    assert!(matches!(break_lock(&operator, &lock, &locker), BreakOutcome::Broken { next: None, waiting: 0, .. }));
    assert!(lock.try_lock().unwrap().is_some());
}
