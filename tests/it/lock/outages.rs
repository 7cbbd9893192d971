//! A store that fails for a while: who waits it out, and who is told.

use crate::support::crew::{spawn_with, wait_by};
use crate::support::journal;
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use redis_dlock::{BackendFailure, CancelToken, DLockGuard, DistributedReentrantLock, Error};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

on_both_stores!(
    lock_waits_an_outage_out,
    attempts_fail_by_name,
    a_cancelled_wait_for_a_failing_store_is_no_error,
    an_acquire_without_an_answer_is_asked_about_again,
    a_release_without_an_answer_is_repeated,
    a_release_that_is_not_confirmed_keeps_the_result_of_the_work,
    the_log_names_what_is_on_the_clean_up_list,
    the_log_has_one_warning_of_renewals_that_fail_in_a_row,
);

/// One journal for all tests, so targets that no other test has.
fn logged(what: &str) -> String {
    static LOGGED: AtomicU32 = AtomicU32::new(0);
    journal::keep();
    format!("{what}-{}", LOGGED.fetch_add(1, Ordering::Relaxed))
}

/// Shows: L2, L3.
fn lock_waits_an_outage_out(lab: &Lab) {
    for failure in [BackendFailure::NotExecuted, BackendFailure::Unknown, BackendFailure::Refused] {
        let (lock, watch) = lab.watched_lock(config("x", 300));
        lock.lock().unwrap().unlock().unwrap();
        watch.fail(failure);
        let waiter = spawn_with(&lock, |other| other.lock().unwrap().unlock());
        let before = watch.count();
        lab.time.until("some tries", || watch.count() > before + 5);
        assert!(!waiter.is_finished());
        watch.heal();
        lab.time.join(waiter).unwrap();
        lab.time.until("the lock is free", || lab.leftovers().is_empty());
    }
}

fn attempts_fail_by_name(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 300));
    for wanted in [BackendFailure::NotExecuted, BackendFailure::Unknown, BackendFailure::Refused] {
        watch.fail(wanted);
        let is_named = |error: Error| matches!(error, Error::Backend { failure, .. } if failure == wanted);
        assert!(is_named(lock.try_lock().unwrap_err()));
        assert!(is_named(lock.try_lock_for(Duration::ZERO).unwrap_err()));
        assert!(is_named(lab.time.during(|| lock.try_lock_for(Duration::from_millis(30)).unwrap_err())));
        assert!(is_named(lock.unguarded().try_lock().unwrap_err()));
        assert_eq!((lock.hold_count(), lock.queue_length()), (0, 0));
        watch.heal();
    }
    lock.lock().unwrap().unlock().unwrap();
}

fn a_cancelled_wait_for_a_failing_store_is_no_error(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 300));
    // A store that has never answered is not waited for.
    lock.lock().unwrap().unlock().unwrap();
    watch.fail(BackendFailure::NotExecuted);
    let cancel = CancelToken::new();
    let token = cancel.clone();
    let waiter = wait_by(&lock, move |other| other.lock_cancellable(&token).map(|guard| guard.is_none()));
    cancel.cancel();
    assert!(waiter.join().unwrap());
    watch.heal();
}

/// Shows: G11.
fn an_acquire_without_an_answer_is_asked_about_again(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    watch.lose_next_answer(Kind::Acquire);
    let guard = lock.lock().unwrap();
    let asked: Vec<_> = watch.calls().into_iter().map(|call| (call.kind, call.locker)).collect();
    assert_eq!((asked[0].0, asked[1].0, asked.len()), (Kind::Acquire, Kind::Poll, 2));
    assert_eq!(asked[0].1, asked[1].1);
    assert_eq!(lab.holder(lock.key()).unwrap().holder, asked[0].1);
    guard.unlock().unwrap();

    // One attempt is not over before it knows.
    watch.lose_next_answer(Kind::Acquire);
    lock.try_lock().unwrap().expect("it was got").unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);

    // That it could not ask again says nothing of the acquire. Each call has a client of its own, with no clean-up under way.
    type Call = fn(&DistributedReentrantLock) -> Error;
    let calls: [Call; 3] = [
        |lock| lock.try_lock().unwrap_err(),
        |lock| lock.try_hold().unwrap_err(),
        // Long enough for the acquire and the poll on a busy machine.
        |lock| lock.try_lock_for(Duration::from_secs(1)).unwrap_err(),
    ];
    let failures = [BackendFailure::NotExecuted, BackendFailure::Refused];
    for (call, failure) in calls.iter().flat_map(|call| failures.map(|failure| (call, failure))) {
        let (lock, watch) = lab.watched_lock(config("y", 30_000));
        watch.lose_next_answer(Kind::Acquire);
        let polling = watch.stop_next(Kind::Poll, When::Going);
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                polling.wait();
                watch.fail(failure);
                polling.open();
            });
            lab.time.during(|| call(&lock))
        });
        assert!(matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. }), "{error}");
        watch.heal();
        lab.time.until("the lock is free", || lab.leftovers().is_empty());
    }
}

/// Shows: G11, S12.
fn the_log_names_what_is_on_the_clean_up_list(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = |what: &str| generator.generate_with(config(&logged(what), 30_000)).unwrap();
    let is_named = |lock: &DistributedReentrantLock, locker: &str, why: &str| {
        let notes = journal::notes(lock.key());
        let named = format!("lock {:?}: locker {locker:?} goes on the clean-up list ({why})", lock.key());
        assert!(notes.contains(&named), "{notes:?}");
    };

    // An acquire whose outcome nobody knows when its caller leaves.
    let abandoned = lock("abandoned");
    watch.fail(BackendFailure::Unknown);
    abandoned.try_lock().unwrap_err();
    watch.heal();
    let asked = watch.calls().into_iter().find(|call| call.kind == Kind::Acquire).unwrap();
    is_named(&abandoned, &asked.locker, "its acquire was not answered");

    // A release that the store did not answer.
    let unfinished = lock("unfinished");
    let guard = unfinished.lock().unwrap();
    let locker = lab.holder(unfinished.key()).unwrap().holder;
    watch.fail(BackendFailure::NotExecuted);
    guard.unlock().unwrap_err();
    watch.heal();
    is_named(&unfinished, &locker, "its release was not answered");
    let warnings = journal::warnings(unfinished.key());
    assert!(warnings.iter().any(|line| line.contains("failed, retrying in background")), "{warnings:?}");
    lab.time.until("both are cleaned up", || lab.leftovers().is_empty());
}

fn the_log_has_one_warning_of_renewals_that_fail_in_a_row(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config(&logged("unrenewed"), 4000));
    let guard = lock.lock().unwrap();
    for rows in 1..=2 {
        let before = watch.count();
        watch.fail(BackendFailure::NotExecuted);
        lab.time.until("some fail", || watch.count() >= before + 3);
        watch.heal();
        let before = watch.count();
        lab.time.until("the next two are answered", || watch.count() >= before + 2);
        let warnings = journal::warnings(lock.key());
        let failed = warnings.iter().filter(|line| line.contains("lease renewal failed"));
        assert_eq!(failed.count(), rows, "{warnings:?}");
    }
    guard.unlock().unwrap();
}

/// Shows: G11, L2.
fn a_release_without_an_answer_is_repeated(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    let guard = lock.lock().unwrap();
    watch.lose_next_answer(Kind::Release);
    guard.unlock().unwrap();
    assert_eq!(watch.count_of(Kind::Release), 2);
    assert_eq!(lab.leftovers(), [""; 0]);

    // Not even when the store is away for longer than three tries take.
    let guard = lock.lock().unwrap();
    let releasing = watch.stop_next(Kind::Release, When::Going);
    watch.fail(BackendFailure::NotExecuted);
    releasing.open();
    assert!(matches!(guard.unlock(), Err(Error::Backend { .. })));
    assert_eq!(lock.hold_count(), 0);
    assert!(lab.holder(lock.key()).is_some());
    watch.heal();
    lab.time.until("the lock is free", || lab.leftovers().is_empty());

    // The first try may have been executed, whatever becomes of the others. Another client has no clean-up under way whose releases would count.
    let (lock, watch) = lab.watched_lock(config("y", 30_000));
    let guard = lock.lock().unwrap();
    watch.lose_next_answer(Kind::Release);
    let releasing = watch.stop_next(Kind::Release, When::Coming);
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            releasing.wait();
            watch.fail(BackendFailure::NotExecuted);
            releasing.open();
        });
        guard.unlock().unwrap_err()
    });
    assert!(matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. }), "{error}");
    watch.heal();
    lab.time.until("the lock is free", || lab.leftovers().is_empty());
}

/// What was done under the lock was done alone, whatever becomes of the release.
/// Shows: G6, L2.
fn a_release_that_is_not_confirmed_keeps_the_result_of_the_work(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    let patient = CancelToken::new();
    for failure in [BackendFailure::NotExecuted, BackendFailure::Unknown, BackendFailure::Refused] {
        let work = |_: &DLockGuard<'_>| {
            watch.fail(failure);
            7
        };
        type Way<'a> = &'a dyn Fn() -> Result<Option<i32>, Error>;
        let ways: [Way<'_>; 4] = [
            &|| lock.with(work).map(Some),
            &|| lock.try_with(work),
            &|| lock.try_with_for(Duration::from_secs(25), work),
            &|| lock.with_cancellable(&patient, work),
        ];
        for way in ways {
            assert_eq!(way().unwrap(), Some(7), "{failure:?}");
            assert_eq!(lock.hold_count(), 0);
            watch.heal();
            lab.time.until("the release is repeated", || lab.leftovers().is_empty());
        }
    }
}
