//! Handles: those of one key from one generator are one lock; those of two generators are two processes.

use crate::support::crew::{eventually, spawn};
use crate::support::lab::{Lab, config, on_both_stores};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

on_both_stores!(
    handles_of_one_generator_are_one_lock,
    other_keys_are_other_locks,
    two_generators_exclude_each_other,
    a_waiter_of_another_generator_gets_in_after_the_unlock,
    threads_of_three_generators_are_never_inside_together,
    a_key_whose_handles_went_is_made_anew,
    a_hold_has_the_lease_of_the_handle_that_asked,
);

fn handles_of_one_generator_are_one_lock(lab: &Lab) {
    let generator = lab.generator();
    let first = generator.generate_with(config("x", 30_000)).unwrap();
    // Blanks around a target do not count.
    let again = generator.generate("TEST", " x\t").unwrap();
    let clone = again.clone();
    let unguarded = first.unguarded();

    let guard = first.lock().unwrap();
    // Attempts, so that it fails and does not hang if they are several locks.
    let more = [&again, &clone].map(|lock| lock.try_lock().unwrap().expect("it is this thread's already"));
    assert!(unguarded.clone().try_lock().unwrap());
    assert_eq!([first.hold_count(), again.hold_count(), clone.hold_count()], [4; 3]);
    assert_eq!(unguarded.fencing_token(), Some(guard.fencing_token()));

    let waiters = [first.clone(), again.clone(), generator.generate("TEST", "x").unwrap()]
        .map(|handle| spawn(move || drop(handle.lock().unwrap())));
    eventually("all wait", || first.queue_length() == 3);
    assert_eq!([again.queue_length(), clone.queue_length()], [3; 2]);

    drop(more);
    drop(guard);
    assert_eq!(again.hold_count(), 1);
    again.unguarded().unlock().unwrap();
    for waiter in waiters {
        waiter.join();
    }
    assert_eq!(clone.queue_length(), 0);
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn other_keys_are_other_locks(lab: &Lab) {
    let generator = lab.generator();
    let locks = ["x", "y", "X", ""].map(|target| generator.generate("TEST", target).unwrap());
    let guards = locks.each_ref().map(|lock| lock.lock().unwrap());
    assert!(locks.iter().all(|lock| lock.hold_count() == 1));
    let others = locks.clone();
    assert!(spawn(move || others.iter().all(|lock| lock.try_lock().unwrap().is_none())).join());
    drop(guards);
}

/// Shows: G1, G7.
fn two_generators_exclude_each_other(lab: &Lab) {
    let [a, b] = [(); 2].map(|()| lab.generator().generate_with(config("x", 30_000)).unwrap());
    let guard = a.lock().unwrap();
    assert_eq!((a.hold_count(), b.hold_count()), (1, 0), "even in one thread");
    assert!(b.try_lock().unwrap().is_none());
    assert!(b.is_locked().unwrap());
    let first = guard.fencing_token();
    guard.unlock().unwrap();
    let guard = b.try_lock().unwrap().unwrap();
    assert!(guard.fencing_token() > first);
    assert!(a.try_lock().unwrap().is_none());
}

/// Shows: G1.
fn a_waiter_of_another_generator_gets_in_after_the_unlock(lab: &Lab) {
    let [a, b] = [(); 2].map(|()| lab.generator().generate_with(config("x", 3000)).unwrap());
    let guard = a.lock().unwrap();
    let unlocked = Arc::new(AtomicBool::new(false));
    let (seen, other) = (Arc::clone(&unlocked), b.clone());
    let waiter = spawn(move || {
        let _guard = other.lock().unwrap();
        seen.load(Ordering::SeqCst)
    });
    eventually("b waits", || b.queue_length() == 1);
    unlocked.store(true, Ordering::SeqCst);
    guard.unlock().unwrap();
    assert!(lab.join(waiter), "it got in before the unlock");
}

/// Shows: G1.
fn threads_of_three_generators_are_never_inside_together(lab: &Lab) {
    const ROUNDS: u32 = 40;
    let inside = Arc::new(AtomicU32::new(0));
    let entered = Arc::new(AtomicU32::new(0));
    let crew: Vec<_> = (0..3)
        .flat_map(|_| {
            let lock = lab.generator().generate_with(config("x", 2000)).unwrap();
            [lock.clone(), lock]
        })
        .map(|lock| {
            let (inside, rounds) = (Arc::clone(&inside), Arc::clone(&entered));
            spawn(move || {
                for _ in 0..ROUNDS {
                    let _guard = lock.lock().unwrap();
                    let alone = inside.fetch_add(1, Ordering::SeqCst) == 0;
                    rounds.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    let still_alone = inside.fetch_sub(1, Ordering::SeqCst) == 1;
                    assert!(alone && still_alone);
                }
            })
        })
        .collect();
    for member in crew {
        lab.join(member);
    }
    assert_eq!(entered.load(Ordering::SeqCst), 6 * ROUNDS);
}

/// Shows: G7.
fn a_key_whose_handles_went_is_made_anew(lab: &Lab) {
    let generator = lab.generator();
    let mut last = 0;
    for _ in 0..10 {
        let lock = generator.generate("TEST", "x").unwrap();
        let guard = lock.lock().unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        assert_eq!(lock.hold_count(), 1);
    }
}

fn a_hold_has_the_lease_of_the_handle_that_asked(lab: &Lab) {
    let generator = lab.generator();
    let [short, long] = [20_000, 200_000].map(|lease| generator.generate_with(config("x", lease)).unwrap());
    for (outer, inner, at_most, at_least) in [(&short, &long, 20, 0), (&long, &short, 200, 100)] {
        let _guards = [outer.lock().unwrap(), inner.lock().unwrap()];
        let remaining = lab.holder(short.key()).unwrap().remaining.unwrap();
        assert!(
            remaining <= Duration::from_secs(at_most) && remaining > Duration::from_secs(at_least),
            "{remaining:?}"
        );
    }
}
