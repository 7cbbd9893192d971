//! The retry thread: when it asks, for whom, and in how many round trips.

use crate::support::crew::{Member, eventually, spawn};
use crate::support::lab::{Lab, config, on_both_stores, wait_with};
use crate::support::watched::{Call, Kind, When};
use redis_dlock::CancelToken;
use std::collections::HashMap;
use std::time::Duration;

on_both_stores!(
    it_asks_first_after_a_tenth_and_then_every_sixth_of_the_lease,
    it_asks_when_the_holders_lease_ends,
    it_asks_for_all_that_is_due_in_one_round_trip,
    it_asks_once_for_many_waiters_of_one_key,
);

fn gaps(calls: &[Call]) -> Vec<Duration> {
    calls.windows(2).map(|pair| pair[1].at.since(pair[0].at)).collect()
}

/// Shows: G10.
fn it_asks_first_after_a_tenth_and_then_every_sixth_of_the_lease(lab: &Lab) {
    const LEASE: Duration = Duration::from_millis(2400);
    let (lock, watch) = lab.deaf_lock(config("x", 2400));
    lab.overwrite(lock.key(), "somebody", Duration::from_secs(600));
    let cancel = CancelToken::new();
    let waiter = wait_with(&lock, &cancel, 1);
    lab.time.until("five retries", || watch.count_of(Kind::Question) >= 6);
    cancel.cancel();
    assert!(!waiter.join());

    let gaps = gaps(&watch.calls_of(Kind::Question));
    let (first, mut later) = (gaps[0], gaps[1..].to_vec());
    later.sort();
    let median = later[later.len() / 2];
    assert!(first >= LEASE / 10 && later[0] >= LEASE / 6, "never early: {gaps:?}");
    // A busy machine may be late in real time.
    if lab.time.is_by_hand() {
        assert!(first < median, "the first is the shortest: {gaps:?}");
        assert!(median < LEASE / 4, "a sixth, not a quarter: {gaps:?}");
    }
}

/// Shows: G4.
fn it_asks_when_the_holders_lease_ends(lab: &Lab) {
    const LEASE: Duration = Duration::from_secs(600);
    let (lock, watch) = lab.deaf_lock(config("x", 600_000));
    lab.overwrite(lock.key(), "somebody", Duration::from_millis(150));
    // A tenth of its own lease is a minute.
    lab.time.during_wait(&lock, || lock.lock().unwrap().unlock().unwrap());
    let asked = watch.calls_of(Kind::Question);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(gaps(&asked)[0] < LEASE / 10);
}

fn it_asks_for_all_that_is_due_in_one_round_trip(lab: &Lab) {
    const KEYS: usize = 20;
    let (generator, watch) = lab.watched_generator();
    let locks: Vec<_> = (0..KEYS).map(|n| generator.generate_with(config(&format!("x{n}"), 600)).unwrap()).collect();
    for lock in &locks {
        lab.overwrite(lock.key(), "somebody", Duration::from_secs(600));
    }
    let cancel = CancelToken::new();
    let waiters: Vec<_> = locks
        .iter()
        .map(|lock| {
            let (other, token) = (lock.clone(), cancel.clone());
            spawn(move || other.lock_cancellable(&token).unwrap().is_some())
        })
        .collect();
    eventually("all wait", || locks.iter().all(|lock| lock.queue_length() == 1));
    // While one round trip is under way, all others fall due.
    let busy = watch.stop_next(Kind::Question, When::Going);
    busy.wait_till_due();
    lab.time.jump(Duration::from_millis(200));
    let before = watch.calls().last().unwrap().trip;
    busy.open();
    let mut trips = HashMap::<usize, usize>::new();
    eventually("every key is asked for", || {
        trips.clear();
        watch
            .calls()
            .iter()
            .filter(|call| call.trip > before)
            .for_each(|call| *trips.entry(call.trip).or_default() += 1);
        trips.values().sum::<usize>() >= KEYS
    });
    // The keys of the first round trip are due later than the others, and a busy machine may part them further.
    assert!(trips.len() <= KEYS / 4, "{trips:?}");
    cancel.cancel();
    assert!(!waiters.into_iter().any(Member::join));
}

fn it_asks_once_for_many_waiters_of_one_key(lab: &Lab) {
    let (lock, watch) = lab.deaf_lock(config("x", 300));
    lab.overwrite(lock.key(), "somebody", Duration::from_secs(600));
    let cancel = CancelToken::new();
    let waiters: Vec<_> = (1..=10).map(|place| wait_with(&lock, &cancel, place)).collect();
    watch.wait_for_more(Kind::Question, 3);
    let asked = watch.calls_of(Kind::Question);
    // Were it asked for each waiter, there would be gaps of nothing.
    assert!(gaps(&asked).iter().all(|gap| *gap >= Duration::from_millis(30)), "{asked:?}");
    cancel.cancel();
    assert!(!waiters.into_iter().any(Member::join));
}
