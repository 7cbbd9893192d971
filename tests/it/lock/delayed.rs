//! `unlock_after` and `release_after`: the hold ends, and nobody gets the lock before a time since its beginning is over.

use crate::support::cause;
use crate::support::crew::{eventually, spawn, wait_by};
use crate::support::lab::{Lab, config, is_listener_on, on_both_stores};
use crate::support::watched::Kind;
use redis_dlock::{BackendFailure, DLockConfig, DelayedRelease, DistributedReentrantLock, Error, LossCause};
use std::time::Duration;

on_both_stores!(
    nobody_gets_the_lock_before_the_time_since_the_beginning_is_over,
    a_time_that_is_over_releases_the_lock,
    an_inner_unlock_is_remembered_and_the_longest_time_counts,
    a_guard_that_is_dropped_after_an_inner_unlock_keeps_the_time,
    threads_and_processes_that_wait_are_served_afterwards_in_their_order,
    a_lock_that_would_linger_is_kept_from_its_own_process_too,
    holds_and_owned_guards_do_the_same,
    a_lost_hold_keeps_nobody_out,
    a_time_that_no_store_keeps_unlocks_and_says_so,
    a_lost_reply_changes_nothing,
    a_store_that_fails_is_asked_again_and_never_frees_the_lock_instead,
    a_closed_client_leaves_the_lock_to_its_time,
);

const AT_LEAST: Duration = Duration::from_secs(2);

fn long() -> DLockConfig {
    config("x", 30_000)
}

/// The lock in two clients.
fn in_two_clients(lab: &Lab) -> [DistributedReentrantLock; 2] {
    [(); 2].map(|()| lab.generator().generate_with(long()).unwrap())
}

/// What the key says of a hold that has ended.
fn delayed(lab: &Lab) -> Option<DelayedRelease> {
    DelayedRelease::of_locker(&lab.holder(long().unique_key())?.holder)
}

#[track_caller]
fn assert_kept_from(locks: &[DistributedReentrantLock]) {
    for lock in locks {
        let holder = lock.holder().unwrap().expect("the mark");
        assert!(holder.delayed_release().is_some() && lock.hold_count() == 0, "{holder:?}");
        assert!(lock.try_lock().unwrap().is_none() && lock.try_hold().unwrap().is_none());
    }
}

/// Shows: G1, G7, G13.
fn nobody_gets_the_lock_before_the_time_since_the_beginning_is_over(lab: &Lab) {
    let locks = in_two_clients(lab);
    let begun = lab.time.now();
    let guard = locks[0].lock().unwrap();
    let (locker, token) = (lab.holder(locks[0].key()).unwrap().holder, guard.fencing_token());
    lab.time.pass(AT_LEAST / 4);
    assert!(guard.held_for() >= AT_LEAST / 4);
    assert!(locks[1].holder().unwrap().is_some_and(|holder| holder.delayed_release().is_none()), "it is held");
    let left = guard.unlock_after(AT_LEAST).unwrap();
    assert!(left > AT_LEAST / 4 && left <= AT_LEAST * 3 / 4, "{left:?}");
    assert_kept_from(&locks);
    let mark = delayed(lab).expect("a hold that has ended");
    assert_eq!((mark.locker, mark.pid), (locker, Some(std::process::id())));
    assert!(mark.held_for >= AT_LEAST / 4 && mark.delay + mark.held_for >= AT_LEAST - Duration::from_millis(2));
    let next = lab.time.during(|| locks[1].lock().unwrap());
    assert!(lab.time.now().since(begun) >= AT_LEAST && next.fencing_token() > token);
    next.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn a_time_that_is_over_releases_the_lock(lab: &Lab) {
    let [here, there] = in_two_clients(lab);
    let guard = here.lock().unwrap();
    lab.time.pass(Duration::from_millis(20));
    assert_eq!(guard.unlock_after(Duration::from_millis(20)).unwrap(), Duration::ZERO);
    assert_eq!(lab.leftovers(), [""; 0]);
    there.try_lock().unwrap().expect("it is free").unlock().unwrap();
    assert_eq!(here.lock().unwrap().unlock_after(Duration::ZERO).unwrap(), Duration::ZERO);
    // The time of one hold says nothing of the next.
    here.lock().unwrap().unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G9, G13.
fn an_inner_unlock_is_remembered_and_the_longest_time_counts(lab: &Lab) {
    let locks = in_two_clients(lab);
    let outer = locks[0].lock().unwrap();
    for time in [AT_LEAST, AT_LEAST / 4] {
        let inner = locks[0].lock().unwrap();
        assert_eq!(inner.unlock_after(time).unwrap(), Duration::ZERO);
    }
    assert!(delayed(lab).is_none() && outer.is_valid() && locks[0].hold_count() == 1, "the hold goes on");
    let left = outer.unlock_after(AT_LEAST / 2).unwrap();
    assert!(left > AT_LEAST / 2, "{left:?}");
    assert_kept_from(&locks);
    lab.time.during(|| locks[1].lock().unwrap()).unlock().unwrap();
    // An ordinary unlock keeps the time, too.
    let outer = locks[1].lock().unwrap();
    locks[1].lock().unwrap().unlock_after(AT_LEAST).unwrap();
    outer.unlock().unwrap();
    assert_kept_from(&locks);
}

fn a_guard_that_is_dropped_after_an_inner_unlock_keeps_the_time(lab: &Lab) {
    let locks = in_two_clients(lab);
    let outer = locks[0].lock().unwrap();
    locks[0].lock().unwrap().unlock_after(AT_LEAST).unwrap();
    drop(outer);
    assert_kept_from(&locks);
    assert!(delayed(lab).is_some());
}

/// Shows: G7, G8, G13.
fn threads_and_processes_that_wait_are_served_afterwards_in_their_order(lab: &Lab) {
    let [here, there] = in_two_clients(lab);
    let begun = lab.time.now();
    let guard = here.lock().unwrap();
    let waiter = |lock: &DistributedReentrantLock| {
        let time = lab.time.clone();
        wait_by(lock, move |other| {
            let guard = other.lock().unwrap();
            let got = (guard.fencing_token(), time.now());
            guard.unlock().unwrap();
            got
        })
    };
    let of_another_process = waiter(&there);
    eventually("it waits in the store", || !is_listener_on() || lab.waiting(here.key()) == 1);
    let of_this_process = waiter(&here);
    let token = guard.fencing_token();
    guard.unlock_after(AT_LEAST).unwrap();
    let (first, at) = lab.time.join(of_another_process);
    let (second, then) = lab.time.join(of_this_process);
    assert!(at.since(begun) >= AT_LEAST && then.since(begun) >= AT_LEAST, "nobody was let in before");
    assert!(first > token && second > token);
    assert!(!is_listener_on() || first < second, "the process that waits in the store comes first");
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn a_lock_that_would_linger_is_kept_from_its_own_process_too(lab: &Lab) {
    let (generator, _watch) = if is_listener_on() { lab.listening_generator() } else { lab.watched_generator() };
    let lock = generator.generate_with(long().with_linger(Duration::from_secs(3600))).unwrap();
    lock.lock().unwrap().unlock_after(AT_LEAST).unwrap();
    assert_kept_from(&[lock]);
}

fn holds_and_owned_guards_do_the_same(lab: &Lab) {
    let locks = in_two_clients(lab);
    let hold = locks[0].hold().unwrap();
    let left = spawn(move || {
        assert!(hold.held_for() < Duration::from_secs(60));
        hold.release_after(AT_LEAST).unwrap()
    })
    .join();
    assert!(!left.is_zero() && left <= AT_LEAST);
    assert_kept_from(&locks);
    let owned = lab.time.during(|| locks[1].lock_owned().unwrap());
    lab.time.pass(Duration::from_millis(5));
    assert!(owned.held_for() >= Duration::from_millis(5));
    // The clock may have gone on since, by more than that.
    assert!(!owned.unlock_after(AT_LEAST * 300).unwrap().is_zero());
    assert_kept_from(&locks);
}

/// Shows: G6, S3.
fn a_lost_hold_keeps_nobody_out(lab: &Lab) {
    let [here, there] = in_two_clients(lab);
    let guard = here.lock().unwrap();
    lab.delete(here.key());
    assert_eq!(cause(guard.unlock_after(AT_LEAST)), LossCause::Deleted);
    let guard = there.try_lock().unwrap().expect("it is free");
    lab.overwrite(there.key(), "somebody-1", Duration::from_secs(60));
    let lost = guard.lost();
    lab.time.recv(&lost);
    assert!(matches!(cause(guard.unlock_after(AT_LEAST)), LossCause::TakenOver { by } if by == "somebody-1"));
    assert_eq!(lab.holder(here.key()).unwrap().holder, "somebody-1");
}

fn a_time_that_no_store_keeps_unlocks_and_says_so(lab: &Lab) {
    let [here, there] = in_two_clients(lab);
    let refused = here.lock().unwrap().unlock_after(Duration::MAX);
    assert!(matches!(&refused, Err(Error::InvalidConfig { .. })), "{refused:?}");
    let refused = there.hold().unwrap().release_after(Duration::MAX);
    assert!(matches!(&refused, Err(Error::InvalidConfig { .. })), "{refused:?}");
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G11, G13.
fn a_lost_reply_changes_nothing(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(long()).unwrap();
    let guard = lock.lock().unwrap();
    watch.lose_next_answer(Kind::Release);
    assert!(!guard.unlock_after(AT_LEAST).unwrap().is_zero());
    assert_eq!(watch.count_of(Kind::Release), 2, "it was asked again");
    assert_kept_from(&[lock, lab.generator().generate_with(long()).unwrap()]);
    assert!(delayed(lab).is_some());
}

/// The release is repeated in the background, as it was asked for. So the lock is never free for somebody else.
/// Shows: G11.
fn a_store_that_fails_is_asked_again_and_never_frees_the_lock_instead(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(long());
    let guard = lock.lock().unwrap();
    watch.fail(BackendFailure::NotExecuted);
    let failed = guard.unlock_after(AT_LEAST * 300);
    assert!(
        matches!(&failed, Err(Error::Backend { message, .. }) if message.contains("may not be kept")),
        "{failed:?}"
    );
    assert!(lock.hold_count() == 0 && delayed(lab).is_none());
    watch.heal();
    lab.time.until_soon("it was repeated", || {
        assert!(lab.holder(lock.key()).is_some(), "it was free");
        delayed(lab).is_some()
    });
    assert_kept_from(&[lock]);
}

/// Shows: L6.
fn a_closed_client_leaves_the_lock_to_its_time(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(long()).unwrap();
    let there = lab.generator().generate_with(long()).unwrap();
    lock.lock().unwrap().unlock_after(AT_LEAST).unwrap();
    generator.close();
    assert_kept_from(std::slice::from_ref(&there));
    lab.time.during(|| there.lock().unwrap()).unlock().unwrap();
    // One whose release was not answered repeats it when it is closed.
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(long()).unwrap();
    let guard = lock.lock().unwrap();
    let bar = watch.bar(Kind::Release);
    watch.fail(BackendFailure::NotExecuted);
    guard.unlock_after(AT_LEAST * 300).unwrap_err();
    watch.heal();
    drop(bar);
    generator.close();
    assert_kept_from(&[there]);
    assert!(delayed(lab).is_some());
}
