//! The threads of one process pass the lock on among themselves without the store, until others wait.

use crate::support::crew::{Member, eventually, spawn, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::Kind;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_both_stores!(
    threads_take_turns_without_the_store_each_with_its_own_token,
    another_process_is_let_in_after_so_many_more_holds,
    each_thread_may_hold_for_the_whole_time,
);

const HOUR: u64 = 3_600_000;

/// Shows: G7.
fn threads_take_turns_without_the_store_each_with_its_own_token(lab: &Lab) {
    const THREADS: usize = 8;
    const ROUNDS: usize = 150;
    let (lock, watch) = lab.listening_lock(config("x", HOUR));
    let before = watch.count();
    let guard = lock.lock().unwrap();
    // A server has a number for each microsecond.
    lab.time.pass(Duration::from_millis(20));
    let tokens = Arc::new(Mutex::new(vec![guard.fencing_token()]));
    let crew: Vec<_> = (0..THREADS)
        .map(|_| {
            let (lock, tokens) = (lock.clone(), Arc::clone(&tokens));
            spawn(move || {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().unwrap();
                    let held = {
                        let mut tokens = tokens.lock();
                        tokens.push(guard.fencing_token());
                        tokens.len() - 1
                    };
                    assert!(guard.is_valid());
                    // All others that still want it.
                    let others = (THREADS - 1).min(THREADS * ROUNDS - held);
                    eventually("the others wait", || lock.queue_length() == others);
                }
            })
        })
        .collect();
    eventually("all wait", || lock.queue_length() == THREADS);
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    let tokens = tokens.lock();
    assert_eq!(tokens.len(), THREADS * ROUNDS + 1);
    assert!(tokens.is_sorted_by(|a, b| a < b), "in the order of the holds: {tokens:?}");
    let asked: Vec<_> = watch.calls()[before..].iter().map(|call| call.kind).collect();
    // The extension brings fresh numbers after 1024 holds.
    assert_eq!(asked, [Kind::Acquire, Kind::Extend, Kind::Release]);
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G8, G10, L4.
fn another_process_is_let_in_after_so_many_more_holds(lab: &Lab) {
    const PASSES: u32 = 3;
    let (lock, told) = lab.listening_lock(config("x", HOUR).with_local_passes(PASSES));
    let (other, watch) = lab.listening_generator();
    let elsewhere = other.generate_with(config("x", HOUR)).unwrap();
    let entered = Arc::new(AtomicUsize::new(0));
    let guard = lock.lock().unwrap();
    let crew: Vec<_> = (1..=20)
        .map(|_| {
            let entered = Arc::clone(&entered);
            wait_by(&lock, move |other| {
                let _guard = other.lock().unwrap();
                entered.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    let heard = told.heard();
    let (remote, seen) = (elsewhere.clone(), Arc::clone(&entered));
    let waiter = spawn(move || {
        let _guard = remote.lock().unwrap();
        seen.load(Ordering::SeqCst)
    });
    eventually("the other process waits, and the holder is told", || told.heard() > heard);
    guard.unlock().unwrap();
    let before = waiter.join();
    assert!(before <= PASSES as usize, "{before} holds came before");
    crew.into_iter().for_each(Member::join);
    assert_eq!(entered.load(Ordering::SeqCst), 20, "and those that waited on got it afterwards");
    assert_eq!(watch.count_of(Kind::Poll), 0);
    eventually("nothing is left", || lab.leftovers().is_empty());
}

fn each_thread_may_hold_for_the_whole_time(lab: &Lab) {
    const LIMIT: Duration = Duration::from_millis(700);
    let (lock, _) = lab.listening_lock(config("x", HOUR).with_max_hold(LIMIT));
    let first = lock.lock().unwrap();
    let time = lab.time.clone();
    let second = wait_by(&lock, move |waiting| {
        let guard = waiting.lock().unwrap();
        let remaining = guard.remaining();
        time.recv(&guard.lost());
        (remaining, guard.unlock().is_err())
    });
    lab.time.pass(LIMIT / 2);
    let left = first.remaining();
    first.unlock().unwrap();
    let (remaining, lost) = second.join();
    assert!(remaining > left, "{remaining:?} after {left:?}");
    assert!(lost);
}
