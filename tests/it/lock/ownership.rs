//! Who may unlock, and what ends a hold.

use crate::support::crew::{eventually, spawn};
use crate::support::lab::{Lab, config, on_both_stores};
use redis_dlock::{DLockGuard, Error};
use std::panic::{AssertUnwindSafe, catch_unwind};

on_both_stores!(
    unlock_by_another_thread_changes_nothing,
    unlock_without_a_lock_is_refused,
    one_unlock_too_many_is_refused,
    a_guard_outlives_the_hold_that_unguarded_ended,
    guards_may_be_dropped_in_any_order,
    a_panic_unlocks,
    others_may_look_at_a_guard,
);

fn unlock_by_another_thread_changes_nothing(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guards = [lock.lock().unwrap(), lock.lock().unwrap()];
    let holder = lab.holder(lock.key()).unwrap().holder;
    let (other, key) = (lock.unguarded(), lock.key().to_owned());
    let refused = spawn(move || other.unlock()).join();
    assert!(matches!(refused, Err(Error::NotHeld { key: refused, .. }) if refused == key));
    assert_eq!(lock.hold_count(), 2);
    assert_eq!(lab.holder(lock.key()).unwrap().holder, holder);
    assert!(guards.iter().all(DLockGuard::is_valid));
    for guard in guards {
        guard.unlock().unwrap();
    }
}

fn unlock_without_a_lock_is_refused(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    assert!(matches!(lock.unguarded().unlock(), Err(Error::NotHeld { .. })));
    assert_eq!(watch.count(), 0);

    // Somebody else's hold is none of ours either.
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = elsewhere.lock().unwrap();
    assert!(matches!(lock.unguarded().unlock(), Err(Error::NotHeld { .. })));
    assert!(guard.is_valid() && elsewhere.is_locked().unwrap());
}

fn one_unlock_too_many_is_refused(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let unguarded = lock.unguarded();
    for _ in 0..3 {
        unguarded.lock().unwrap();
    }
    for _ in 0..3 {
        unguarded.unlock().unwrap();
    }
    assert!(matches!(unguarded.unlock(), Err(Error::NotHeld { .. })));
    assert_eq!(lock.hold_count(), 0);
    // Nothing was upset by it.
    let guard = lock.lock().unwrap();
    assert_eq!(lock.hold_count(), 1);
    guard.unlock().unwrap();
}

/// Also when the thread holds the lock anew.
fn a_guard_outlives_the_hold_that_unguarded_ended(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    for holds_anew in [false, true] {
        let (dropped, asked) = (lock.lock().unwrap(), lock.lock().unwrap());
        let unguarded = lock.unguarded();
        unguarded.unlock().unwrap();
        assert!(asked.is_valid());
        unguarded.unlock().unwrap();
        let next = holds_anew.then(|| lock.lock().unwrap());
        assert!(next.as_ref().is_none_or(|next| next.fencing_token() > asked.fencing_token()));
        assert!(!asked.is_valid());
        assert!(asked.remaining().is_zero());
        assert!(matches!(asked.ensure_valid(), Err(Error::NotHeld { .. })));
        assert!(asked.lost().recv().is_err(), "it ended without a loss");
        assert!(matches!(asked.unlock(), Err(Error::NotHeld { .. })));
        drop(dropped);
        assert_eq!((lock.hold_count(), lock.is_locked().unwrap()), (usize::from(holds_anew), holds_anew));
        if let Some(next) = next {
            assert!(next.is_valid());
            next.unlock().unwrap();
        }
    }
}

fn guards_may_be_dropped_in_any_order(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut guards = [(); 3].map(|()| Some(lock.lock().unwrap()));
        for (left, index) in (0..3).rev().zip(order) {
            drop(guards[index].take());
            assert_eq!(lock.hold_count(), left);
            assert!(guards.iter().flatten().all(DLockGuard::is_valid));
            assert_eq!(lab.holder(lock.key()).is_some(), left > 0);
        }
    }
}

fn a_panic_unlocks(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let (panicking, waiting) = (lock.clone(), lock.clone());
    let (inside, is_inside) = crossbeam_channel::bounded(0);
    let (go, may_go) = crossbeam_channel::bounded::<()>(0);
    let panicker = spawn(move || {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _outer = panicking.lock().unwrap();
            let _inner = panicking.lock().unwrap();
            inside.send(()).unwrap();
            may_go.recv().unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        (caught.is_err(), panicking.hold_count())
    });
    is_inside.recv().unwrap();
    let waiter = spawn(move || waiting.lock().unwrap().unlock());
    eventually("the waiter waits", || lock.queue_length() == 1);
    go.send(()).unwrap();
    assert_eq!(panicker.join(), (true, 0));
    waiter.join().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn others_may_look_at_a_guard(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = lock.lock().unwrap();
    let (seen, token) = std::thread::scope(|scope| {
        let looker = scope.spawn(|| (guard.is_valid() && guard.ensure_valid().is_ok(), guard.fencing_token()));
        looker.join().unwrap()
    });
    assert!(seen);
    assert_eq!(token, guard.fencing_token());
}
