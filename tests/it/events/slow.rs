//! Functions that are slow, block, panic or lock.

use super::{next, next_lost};
use crate::support::crew::{HANG, spawn_with, wait_for};
use crate::support::lab::{Lab, config, on_both_stores};
use crossbeam_channel::{bounded, unbounded};
use parking_lot::Mutex;
use redis_dlock::{DLockGenerator, DistributedReentrantLock, Event};
use std::sync::Arc;
use std::time::Duration;

on_both_stores!(
    one_that_blocks_costs_no_lock_anything,
    a_panic_keeps_no_event_from_another_one_and_one_that_blocks_delays_no_loss,
    one_may_lock,
    one_may_hold_the_last_handle,
    what_is_left_at_the_end_is_told_afterwards,
);

/// How many acquisitions and releases wait for a function, and how many other events.
const ROOM: u64 = 4096;

/// Shows: G6.
#[test]
fn a_blocked_one_is_told_how_much_it_missed_and_of_each_loss() {
    let lab = Lab::memory();
    let (say, events) = unbounded();
    let (arrive, arrived) = bounded(1);
    let (leave, left) = bounded::<()>(0);
    let told = move |event: &Event| {
        let _ = arrive.try_send(());
        let _ = left.recv();
        say.send(event.clone()).unwrap();
    };
    let generator = lab.time.builder().on_event(told).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 600)).unwrap();
    let rounds = ROOM;
    for round in 0..rounds {
        lock.lock().unwrap().unlock().unwrap();
        if round == 0 {
            arrived.recv_timeout(HANG).unwrap();
        }
    }
    // The function has one of them in hand.
    let dropped = 2 * rounds - ROOM - 1;
    assert_eq!(generator.dropped_events(), dropped);
    let victim = generator.generate_with(config("victim", 300)).unwrap();
    let guard = victim.lock().unwrap();
    lab.delete(victim.key());
    // The channel is told after the event is queued.
    lab.time.recv(&guard.lost());
    assert!(guard.unlock().is_err());
    drop(leave);
    for n in 0..=ROOM {
        let event = next(&events);
        assert!(matches!(event, Event::Acquired(_) | Event::Released(_)), "{n}: {event:?}");
    }
    // With the victim's two.
    let Event::Dropped(missed) = next(&events) else { panic!("it is not told") };
    assert_eq!(next_lost(&events).key, victim.key());
    assert_eq!(missed.count, dropped + 1);
    // What was dropped after that is told when nothing else is left.
    let Event::Dropped(missed) = next(&events) else { panic!("it is not told") };
    assert_eq!(missed.count, 1);
    assert_eq!(generator.dropped_events(), dropped + 2);
    lock.lock().unwrap().unlock().unwrap();
    assert!(matches!(next(&events), Event::Acquired(_)), "from now on it is told again");
}

/// Shows: G3.
fn one_that_blocks_costs_no_lock_anything(lab: &Lab) {
    let (arrive, arrived) = bounded(1);
    let (leave, left) = bounded::<()>(0);
    let (say, losses) = unbounded();
    let told = move |_: &Event| {
        let _ = arrive.try_send(());
        let _ = left.recv();
    };
    let builder = lab.time.builder().on_event(told).on_lost(move |loss| say.send(loss.key.clone()).unwrap());
    let generator = builder.build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let guard = lock.lock().unwrap();
    arrived.recv_timeout(HANG).unwrap();
    let waiter = wait_for(&lock);
    guard.unlock().unwrap();
    waiter.join();
    let victim = generator.generate_with(config("victim", 300)).unwrap();
    let guard = victim.lock().unwrap();
    lab.delete(victim.key());
    assert_eq!(lab.time.recv(&losses), victim.key(), "the other function is told");
    assert!(guard.unlock().is_err());
    generator.close();
    drop(leave);
}

/// `on_event` and `on_slow_wait` wait for one another, and `on_lost` for neither.
fn a_panic_keeps_no_event_from_another_one_and_one_that_blocks_delays_no_loss(lab: &Lab) {
    let (arrive, arrived) = unbounded();
    let (leave, left) = bounded::<()>(0);
    let (say, losses) = unbounded();
    let builder = DLockGenerator::builder()
        .on_event(|event| assert!(!matches!(event, Event::SlowWait(_)), "the test wants it so"))
        .on_slow_wait(Duration::from_millis(30), move |wait| {
            arrive.send(wait.key.clone()).unwrap();
            let _ = left.recv();
        })
        .on_lost(move |loss| say.send(loss.key.clone()).unwrap());
    let generator = lab.time.set(builder).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let guard = lock.lock().unwrap();
    let waiter = spawn_with(&lock, move |lock| drop(lock.lock().unwrap()));
    lab.time.until("the second function is told", || !arrived.is_empty());
    let victim = generator.generate_with(config("victim", 300)).unwrap();
    let held = victim.lock().unwrap();
    lab.delete(victim.key());
    assert_eq!(lab.time.recv(&losses), victim.key(), "the third function is told");
    assert!(held.unlock().is_err());
    guard.unlock().unwrap();
    waiter.join();
    drop(leave);
}

/// The function takes the very lock of which it is told, and another one.
fn one_may_lock(lab: &Lab) {
    let locks: Arc<Mutex<Vec<DistributedReentrantLock>>> = Arc::default();
    let (say, tokens) = unbounded();
    let told = {
        let locks = Arc::clone(&locks);
        move |event: &Event| {
            let locks = locks.lock().clone();
            if let (Event::Released(released), [x, y]) = (event, &*locks)
                // Not for what it does itself.
                && released.lock.reason() == Some("the program")
            {
                let _x = x.lock().unwrap();
                y.lock().unwrap().unlock().unwrap();
                say.send(released.token).unwrap();
            }
        }
    };
    let generator = lab.time.builder().on_event(told).build(lab.processor()).unwrap();
    let lock = |target: &str, reason: &str| generator.generate_with(config(target, 3000).with_reason(reason)).unwrap();
    *locks.lock() = vec![lock("x", "the function"), lock("y", "the function")];
    let x = lock("x", "the program");
    for _ in 0..20 {
        let guard = x.lock().unwrap();
        let token = guard.fencing_token();
        guard.unlock().unwrap();
        assert_eq!(tokens.recv_timeout(HANG).unwrap(), token);
    }
    // The function's own handles keep the generator alive.
    locks.lock().clear();
}

/// Shows: L6.
fn one_may_hold_the_last_handle(lab: &Lab) {
    let kept: Arc<Mutex<Option<(DistributedReentrantLock, DLockGenerator)>>> = Arc::default();
    let (say, dropped) = bounded(1);
    let (go, gone) = bounded::<()>(0);
    let told = {
        let kept = Arc::clone(&kept);
        move |event: &Event| {
            if matches!(event, Event::Released(_)) {
                let _ = gone.recv();
                // The end of the client runs here.
                drop(kept.lock().take());
                say.send(()).unwrap();
            }
        }
    };
    let generator = lab.time.builder().on_event(told).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    {
        let guard = lock.lock().unwrap();
        *kept.lock() = Some((lock.clone(), generator));
        guard.unlock().unwrap();
    }
    drop((lock, go));
    dropped.recv_timeout(HANG).unwrap();
    drop(kept);
    assert!(dropped.recv_timeout(HANG).is_err(), "its thread ends");
}

fn what_is_left_at_the_end_is_told_afterwards(lab: &Lab) {
    let (leave, left) = bounded::<()>(0);
    let (say, events) = unbounded();
    let told = move |event: &Event| {
        let _ = left.recv();
        say.send(event.clone()).unwrap();
    };
    let generator = lab.time.builder().on_event(told).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    (0..3).for_each(|_| lock.lock().unwrap().unlock().unwrap());
    // It does not wait for the function.
    generator.close();
    drop((lock, generator));
    assert!(events.recv_timeout(Duration::from_millis(1)).is_err());
    drop(leave);
    assert_eq!(events.iter().count(), 6);
}
