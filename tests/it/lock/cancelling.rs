//! `lock_cancellable`, as `lockInterruptibly` on the JVM.

use crate::support::crew::{Member, eventually, wait_by};
use crate::support::lab::{Lab, config, on_both_stores, wait_with};
use crate::support::watched::{Kind, When};
use parking_lot::Mutex;
use redis_dlock::CancelToken;
use std::sync::Arc;

on_both_stores!(
    cancelled_before_it_does_not_even_ask,
    cancelled_while_waiting,
    cancelled_while_asking,
    one_token_ends_all_its_waits,
    a_cancelled_waiter_in_the_middle_leaves_the_order_of_the_others,
    cancelling_after_the_lock_was_got_changes_nothing,
    a_token_may_be_used_again_and_again,
);

fn cancelled_before_it_does_not_even_ask(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    let cancel = CancelToken::new();
    assert!(!cancel.is_cancelled());
    cancel.cancel();
    cancel.cancel();
    assert!(cancel.is_cancelled());
    assert!(lock.lock_cancellable(&cancel).unwrap().is_none());
    assert_eq!(watch.count(), 0);
    assert!(lock.lock_cancellable(&CancelToken::new()).unwrap().is_some());
}

/// Shows: L2, L3.
fn cancelled_while_waiting(lab: &Lab) {
    for (is_held_here, case) in [(true, "for a local thread"), (false, "for another process")] {
        let [lock, elsewhere] = [(); 2].map(|()| lab.generator().generate_with(config(case, 30_000)).unwrap());
        let guard = if is_held_here { lock.lock().unwrap() } else { elsewhere.lock().unwrap() };
        let cancel = CancelToken::new();
        let waiter = wait_with(&lock, &cancel, 1);
        // By a clone.
        cancel.clone().cancel();
        assert!(!waiter.join(), "{case}");
        assert_eq!(lock.queue_length(), 0, "{case}");
        assert!(guard.is_valid(), "{case}");
        guard.unlock().unwrap();
        eventually("nothing is left", || lab.leftovers().is_empty());
    }
}

/// Shows: L3.
fn cancelled_while_asking(lab: &Lab) {
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let _guard = elsewhere.lock().unwrap();
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    let asking = watch.stop_next(Kind::Acquire, When::Coming);
    let cancel = CancelToken::new();
    let waiter = wait_with(&lock, &cancel, 0);
    asking.wait();
    cancel.cancel();
    asking.open();
    assert!(!waiter.join());
    assert_eq!(lock.queue_length(), 0);
}

/// Shows: L3.
fn one_token_ends_all_its_waits(lab: &Lab) {
    let (generator, elsewhere) = (lab.generator(), lab.generator());
    let [here, there] = ["here", "there"].map(|target| generator.generate_with(config(target, 30_000)).unwrap());
    let remote = elsewhere.generate_with(config("there", 30_000)).unwrap();
    let (local_guard, remote_guard) = (here.lock().unwrap(), remote.lock().unwrap());
    let (cancel, other) = (CancelToken::new(), CancelToken::new());
    let cancelled: Vec<_> = (1..=6).flat_map(|place| [&here, &there].map(|l| wait_with(l, &cancel, place))).collect();
    let kept = wait_with(&here, &other, 7);
    cancel.cancel();
    assert!(!cancelled.into_iter().any(Member::join));
    assert_eq!((here.queue_length(), there.queue_length()), (1, 0));
    local_guard.unlock().unwrap();
    remote_guard.unlock().unwrap();
    assert!(kept.join(), "another token is another matter");
}

/// Shows: G8, L3.
fn a_cancelled_waiter_in_the_middle_leaves_the_order_of_the_others(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    let entered = Arc::new(Mutex::new(Vec::new()));
    let tokens: Vec<_> = (0..9).map(|_| CancelToken::new()).collect();
    let crew: Vec<_> = (0..9)
        .map(|number| {
            let (cancel, entered) = (tokens[number].clone(), Arc::clone(&entered));
            wait_by(&lock, move |other| {
                let guard = other.lock_cancellable(&cancel).unwrap();
                if guard.is_some() {
                    entered.lock().push(number);
                }
            })
        })
        .collect();
    // The first, two in the middle, and the last.
    for (left, number) in [(8, 4), (7, 0), (6, 5), (5, 8)] {
        tokens[number].cancel();
        eventually("it leaves", || lock.queue_length() == left);
    }
    guard.unlock().unwrap();
    crew.into_iter().for_each(Member::join);
    assert_eq!(*entered.lock(), [1, 2, 3, 6, 7]);
}

fn cancelling_after_the_lock_was_got_changes_nothing(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let cancel = CancelToken::new();
    let guard = lock.lock_cancellable(&cancel).unwrap().unwrap();
    cancel.cancel();
    assert!(guard.is_valid());
    assert_eq!(lock.hold_count(), 1);
    guard.unlock().unwrap();
}

fn a_token_may_be_used_again_and_again(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let cancel = CancelToken::new();
    for _ in 0..20 {
        let guard = lock.lock_cancellable(&cancel).unwrap().unwrap();
        let waiter = wait_with(&lock, &cancel, 1);
        guard.unlock().unwrap();
        assert!(waiter.join());
    }
    // Nobody parked is forgotten in it.
    assert!(format!("{cancel:?}").contains("parked: Sleepers(Some(0))"), "{cancel:?}");
}
