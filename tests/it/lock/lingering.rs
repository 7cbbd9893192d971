//! A tenure that is kept after its last hold: cheap for its own process, given up as soon as another wants it.

use crate::support::crew::{eventually, spawn, spawn_with, wait_by, wait_for};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use redis_dlock::{BackendFailure, DLockConfig, DLockGenerator};
use std::time::{Duration, Instant};

on_both_stores!(
    a_thread_that_comes_back_again_and_again_asks_the_store_once,
    a_client_that_begins_to_listen_does_not_find_its_own_lock_busy,
    other_threads_of_the_process_take_it_up_too,
    another_process_that_waits_is_given_it_at_once,
    a_single_attempt_of_another_process_recalls_it,
    a_single_attempt_of_a_process_that_hears_nothing_recalls_it_too,
    a_single_attempt_leaves_the_queue_when_somebody_is_inside,
    a_single_attempt_on_a_lock_that_does_not_linger_is_answered_at_once,
    it_ends_by_itself,
    its_lease_is_renewed,
    closing_gives_it_back_while_another_lock_is_held,
    dropping_the_last_handle_gives_it_back,
    who_lost_it_meanwhile_asks_anew,
    who_finds_its_deadline_passed_asks_anew,
    those_that_began_to_wait_before_the_hold_began_are_not_forgotten,
    it_does_not_linger_while_others_wait,
    without_an_inbox_it_does_not_linger,
    the_next_hold_may_last_for_the_whole_time,
    a_thread_that_waits_beside_it_is_not_forgotten,
    closing_gives_it_back_later_if_the_store_fails_now,
);

const HOUR: u64 = 3_600_000;

/// Five milliseconds are short on a busy machine, so an attempt recalls the lock now and then there: so many attempts have to
/// succeed, of so many at most. Without a recall none does within the hour.
const RECALLED: usize = 5;
const TRIED: usize = 200;

/// A lock that lingers for an hour.
fn lingering(target: &str) -> DLockConfig {
    config(target, HOUR).with_linger(Duration::from_secs(3600))
}

/// Shows: G7, S14.
fn a_thread_that_comes_back_again_and_again_asks_the_store_once(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    let before = watch.count();
    let mut last = 0;
    for n in 0..5000 {
        let guard = lock.lock().unwrap();
        if n == 0 {
            // A server has a number for each microsecond.
            lab.time.pass(Duration::from_millis(20));
        }
        assert!(guard.is_valid() && guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.unlock().unwrap();
        assert_eq!(lock.hold_count(), 0);
        drop(lock.try_lock().unwrap().expect("nobody else wants it"));
    }
    let asked: Vec<_> = watch.calls()[before..].iter().map(|call| call.kind).collect();
    // The extension brings numbers for the 1025th hold and ten million more.
    assert_eq!(asked, [Kind::Acquire, Kind::Extend]);
    assert!(lock.is_locked().unwrap(), "others have to wait, or to recall it");
}

/// What was held before the client listened may be wanted by others, and ends with its hold. What lingers is not recalled for that.
fn a_client_that_begins_to_listen_does_not_find_its_own_lock_busy(lab: &Lab) {
    for _ in 0..10 {
        let (generator, watch) = lab.watched_generator();
        // So many that it takes a while to look at all of them.
        let others: Vec<_> =
            (0..3000).map(|n| generator.generate_with(config(&n.to_string(), HOUR)).unwrap()).collect();
        let lock = generator.generate_with(lingering("x")).unwrap();
        let take = || assert!(lock.try_lock().unwrap().is_some(), "nobody else wants it");
        eventually("it listens", || {
            take();
            watch.listening() == 1
        });
        (0..10).for_each(|_| take());
        drop(others);
    }
}

fn other_threads_of_the_process_take_it_up_too(lab: &Lab) {
    let (generator, watch) = lab.listening_generator();
    let lock = generator.generate_with(lingering("x")).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let before = watch.count();
    let other = generator.generate_with(config("x", HOUR)).unwrap();
    spawn(move || drop(other.lock().unwrap())).join();
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(watch.count(), before);
}

/// Shows: G10, L4.
fn another_process_that_waits_is_given_it_at_once(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    let (elsewhere, seen) = lab.listening_lock(config("x", HOUR));
    let released = watch.count_of(Kind::Release);
    for round in 1..=20 {
        lock.lock().unwrap().unlock().unwrap();
        // With leases and a linger of an hour.
        elsewhere.lock().unwrap().unlock().unwrap();
        assert_eq!(watch.count_of(Kind::Release), released + round);
    }
    assert_eq!(seen.count_of(Kind::Poll), 0, "it was told, and missed no message");
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Lets another client recall the lock by single attempts, and tells how many those were.
fn recall(lab: &Lab, other: &DLockGenerator) -> usize {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    let elsewhere = other.generate_with(config("x", HOUR)).unwrap();
    let (mut recalled, mut tried) = (0, 0);
    while recalled < RECALLED {
        tried += 1;
        assert!(tried <= TRIED, "{recalled} of {TRIED}");
        lock.lock().unwrap().unlock().unwrap();
        assert!(lock.holder().unwrap().expect("it lingers").locker.ends_with('L'));
        let released = watch.count_of(Kind::Release);
        recalled += usize::from(elsewhere.try_lock().unwrap().is_some());
        eventually("it is given back", || watch.count_of(Kind::Release) > released);
        eventually("nothing is left", || lab.leftovers().is_empty());
    }
    tried
}

/// Shows: L4.
fn a_single_attempt_of_another_process_recalls_it(lab: &Lab) {
    let (other, seen) = lab.listening_generator();
    let tried = recall(lab, &other);
    let polls = seen.count_of(Kind::Poll);
    // By a clock that stands, the count of the questions alone ends an attempt.
    let most = if lab.time.is_by_hand() { 10 } else { 6 };
    assert!(polls <= tried * most, "{polls} polls");
}

/// Shows: L4.
fn a_single_attempt_of_a_process_that_hears_nothing_recalls_it_too(lab: &Lab) {
    recall(lab, &lab.deaf_generator().0);
}

/// Shows: G1, L2.
fn a_single_attempt_leaves_the_queue_when_somebody_is_inside(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    let guard = lock.lock().unwrap();
    let (elsewhere, seen) = lab.listening_lock(config("x", HOUR));
    // On a busy machine its few milliseconds may be over sooner, and it asks less often then. If the first round trip was slow, they are
    // more, and it asks more often: at most ten times, after the three questions that find out that the lock may linger. Before each of
    // the ten it pauses: 200 µs before the first, and twice as long before each further one. The end of its time cuts the last pause short.
    eventually("an attempt that asks a few times", || {
        let (before, began) = (seen.count_of(Kind::Question), Instant::now());
        assert!(elsewhere.try_lock().unwrap().is_none());
        let (asked, took) = (seen.count_of(Kind::Question) - before, began.elapsed());
        assert!(asked <= 13, "{asked} questions");
        // By a clock that stands, each pause may last for as long as its whole time.
        let longest = if lab.time.is_by_hand() { Duration::from_millis(5) } else { Duration::MAX };
        let pauses = (0..asked.saturating_sub(3 + 1)).map(|n| (Duration::from_micros(200) * (1 << n)).min(longest));
        assert!(took >= pauses.sum::<Duration>(), "{asked} questions in {took:?}");
        eventually("it has left the queue", || lab.waiting(lock.key()) == 0);
        asked >= 3
    });
    assert!(guard.is_valid());
    // It was asked for, so it lingers no longer than until its process has heard of that.
    let released = watch.count_of(Kind::Release);
    guard.unlock().unwrap();
    eventually("it is given back", || watch.count_of(Kind::Release) == released + 1);
    eventually("nothing is left", || lab.leftovers().is_empty());
}

fn a_single_attempt_on_a_lock_that_does_not_linger_is_answered_at_once(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    for holder in ["a-1", "a-L", "7d8e:17", "L", "b-1l"] {
        lab.overwrite(lock.key(), holder, Duration::from_secs(600));
        let before = watch.count();
        assert!(lock.try_lock().unwrap().is_none());
        assert_eq!(watch.count() - before, 1, "{holder}");
    }
}

/// Shows: S10.
fn it_ends_by_itself(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(config("x", HOUR).with_linger(Duration::from_millis(50)));
    let released = watch.count_of(Kind::Release);
    for round in 1..=3 {
        lock.lock().unwrap().unlock().unwrap();
        lab.time.until("it is given back", || {
            watch.count_of(Kind::Release) == released + round && lab.leftovers().is_empty()
        });
    }
}

/// Shows: G3.
fn its_lease_is_renewed(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(config("x", 1200).with_linger(Duration::from_secs(3600)));
    lock.lock().unwrap().unlock().unwrap();
    let holder = lab.holder(lock.key()).expect("it lingers").holder;
    // Each extension moves the end by three quarters of the lease.
    watch.wait_for_more(Kind::Extend, 3);
    assert_eq!(lab.holder(lock.key()).expect("it lingers still").holder, holder);
    let acquired = watch.count_of(Kind::Acquire);
    assert!(lock.lock().unwrap().is_valid());
    assert_eq!(watch.count_of(Kind::Acquire), acquired);
}

/// Shows: L6.
fn closing_gives_it_back_while_another_lock_is_held(lab: &Lab) {
    let (generator, _) = lab.listening_generator();
    let lock = generator.generate_with(lingering("x")).unwrap();
    let other = generator.generate_with(lingering("y")).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let guard = other.lock().unwrap();
    generator.close();
    assert!(lab.holder(lock.key()).is_none());
    assert!(lab.holder(other.key()).is_some() && guard.is_valid());
    guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0], "after the closing nothing lingers");
}

/// Shows: L6.
fn dropping_the_last_handle_gives_it_back(lab: &Lab) {
    let (generator, _) = lab.listening_generator();
    let lock = generator.generate_with(lingering("x")).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    drop(generator);
    assert!(lab.holder(lock.key()).is_some());
    drop(lock);
    // At once, unless the retry thread is awake just then: it goes last, and gives it back.
    eventually("it is given back", || lab.leftovers().is_empty());
}

/// Shows: G5, G7, S13.
fn who_lost_it_meanwhile_asks_anew(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(config("x", 600).with_linger(Duration::from_secs(3600)));
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    lab.delete(lock.key());
    let released = watch.count_of(Kind::Release);
    // It is probed every sixth of the lease.
    lab.time.until("it is found lost", || watch.count_of(Kind::Release) > released);
    let acquired = watch.count_of(Kind::Acquire);
    let guard = lock.lock().unwrap();
    assert_eq!(watch.count_of(Kind::Acquire), acquired + 1);
    assert!(guard.is_valid() && guard.fencing_token() > token);
}

/// Shows: G5, S13.
fn who_finds_its_deadline_passed_asks_anew(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(config("x", 300).with_linger(Duration::from_secs(3600)));
    lock.lock().unwrap().unlock().unwrap();
    // The lease thread stands still, as on a stopped machine.
    let renewal = watch.stop_next(Kind::Extend, When::Going);
    renewal.wait_till_due();
    lab.time.jump(Duration::from_millis(300));
    eventually("the lease ends", || lab.holder(lock.key()).is_none());
    let acquired = watch.count_of(Kind::Acquire);
    let guard = lock.lock().unwrap();
    assert_eq!(watch.count_of(Kind::Acquire), acquired + 1);
    renewal.open();
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

/// Shows: L4.
fn those_that_began_to_wait_before_the_hold_began_are_not_forgotten(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    let (elsewhere, seen) = lab.listening_lock(config("x", HOUR));
    let heard = watch.heard();
    let answer = watch.stop_next(Kind::Acquire, When::Coming);
    let holder = lock.clone();
    let first = spawn(move || drop(holder.lock().unwrap()));
    // The lock is taken, and its thread does not know it yet.
    answer.wait();
    let second = spawn_with(&elsewhere, |waiting| drop(waiting.lock().unwrap()));
    eventually("it waits, and the holder's process is told", || watch.heard() > heard);
    answer.open();
    first.join();
    second.join();
    assert_eq!(seen.count_of(Kind::Poll), 0);
}

/// Shows: G10, L4.
fn it_does_not_linger_while_others_wait(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(lingering("x"));
    let (elsewhere, seen) = lab.listening_lock(config("x", HOUR));
    let (guard, heard) = (lock.lock().unwrap(), watch.heard());
    let waiter = spawn_with(&elsewhere, |waiting| drop(waiting.lock().unwrap()));
    eventually("it waits, and the holder is told", || watch.heard() > heard);
    let released = watch.count_of(Kind::Release);
    guard.unlock().unwrap();
    waiter.join();
    assert_eq!((watch.count_of(Kind::Release), seen.count_of(Kind::Poll)), (released + 1, 0));
}

fn without_an_inbox_it_does_not_linger(lab: &Lab) {
    let (lock, watch) = lab.deaf_lock(lingering("x"));
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(watch.count_of(Kind::Release), 1);
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn the_next_hold_may_last_for_the_whole_time(lab: &Lab) {
    const LIMIT: Duration = Duration::from_millis(700);
    let (generator, watch) = lab.listening_generator();
    // Neither an extension nor a probe is due in this test.
    let lock = generator.generate_with(lingering("x").with_max_hold(LIMIT)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let before = watch.count();
    lab.time.pass(LIMIT);
    let guard = lock.lock().unwrap();
    assert!(guard.is_valid() && guard.remaining() > LIMIT / 2);
    lab.time.recv(&guard.lost());
    assert_eq!(watch.count(), before);
    assert!(guard.unlock().is_err());
}

/// Shows: L3.
fn a_thread_that_waits_beside_it_is_not_forgotten(lab: &Lab) {
    let (generator, watch) = lab.listening_generator();
    let lock = generator.generate_with(config("x", 1500).with_linger(Duration::from_secs(3600))).unwrap();
    let (other, _) = lab.listening_generator();
    let busy_here = other.generate_with(config("busy", 3000)).unwrap();
    let held_there = busy_here.lock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
    // The retry thread is kept by another key.
    let poll = watch.stop_next(Kind::Poll, When::Coming);
    let busy = generator.generate_with(config("busy", 3000)).unwrap();
    let slow = wait_by(&busy, move |other_busy| other_busy.try_lock_for(Duration::from_secs(20)).unwrap().is_some());
    poll.wait_till_due();
    // A single attempt elsewhere recalls what lingers, and is gone again.
    let heard = watch.heard();
    let elsewhere = other.generate_with(config("x", 1500)).unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none());
    eventually("it is heard", || watch.heard() > heard);
    eventually("it has left", || lab.waiting(lock.key()) == 0);
    let waiter = wait_for(&lock);
    // Now an extension says that nobody waits. The retry thread stands at its gate.
    let extended = watch.count_of(Kind::Extend);
    lab.time.jump(Duration::from_millis(1500 * 3 / 4));
    eventually("it is extended", || watch.count_of(Kind::Extend) > extended);
    poll.open();
    waiter.join();
    drop(held_there);
    assert!(slow.join());
}

/// Shows: G11, L6.
fn closing_gives_it_back_later_if_the_store_fails_now(lab: &Lab) {
    let (generator, watch) = lab.listening_generator();
    let lock = generator.generate_with(lingering("x")).unwrap();
    let other = generator.generate_with(config("y", HOUR)).unwrap();
    let _held = other.lock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
    watch.fail(BackendFailure::NotExecuted);
    generator.close();
    assert!(lab.holder(lock.key()).is_some());
    watch.heal();
    lab.time.until("it is given back", || lab.holder(lock.key()).is_none());
}
