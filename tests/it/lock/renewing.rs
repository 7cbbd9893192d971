//! The lease thread: what it extends and probes, when, and in how many round trips.

use crate::support::crew::{eventually, spawn};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

on_both_stores!(
    a_hold_outlives_ten_leases,
    it_extends_at_three_quarters_and_probes_in_between,
    without_probes_it_only_extends,
    it_keeps_all_that_is_due_in_one_round_trip,
    what_a_store_does_between_rounds_keeps_no_outcome,
    a_client_that_is_closed_has_its_store_do_nothing_between_rounds,
    it_lets_go_of_what_was_unlocked,
);

/// Shows: G1, G3.
fn a_hold_outlives_ten_leases(lab: &Lab) {
    // Long enough for a machine on which many others want to run.
    const LEASE: Duration = Duration::from_millis(500);
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 500).with_renew_at(0.25)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 500)).unwrap();
    let guard = lock.lock().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let intruder = spawn(move || {
        let mut tries = 0;
        while !stop.load(Ordering::SeqCst) {
            assert!(elsewhere.try_lock().unwrap().is_none(), "after {tries} tries");
            tries += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let first = watch.calls()[0].at;
    lab.time.until("ten leases", || {
        assert!(guard.is_valid());
        let extended = watch.calls_of(Kind::Extend);
        extended.last().is_some_and(|call| call.at.since(first) > LEASE * 10)
    });
    over.store(true, Ordering::SeqCst);
    intruder.join();
    guard.unlock().unwrap();
}

/// Shows: G3, G5.
fn it_extends_at_three_quarters_and_probes_in_between(lab: &Lab) {
    const LEASE: Duration = Duration::from_millis(4000);
    let (lock, watch) = lab.watched_lock(config("x", 4000));
    let guard = lock.lock().unwrap();
    watch.wait_for_more(Kind::Extend, 2);
    let calls = watch.calls();
    guard.unlock().unwrap();
    let mut start = calls[0].at;
    let mut probes = 0;
    for call in &calls[1..] {
        match call.kind {
            Kind::Probe => probes += 1,
            Kind::Extend => {
                let after = call.at.since(start);
                // The lease counts from before the call that set it, which is noted somewhat later.
                assert!(after + LEASE / 50 >= LEASE * 3 / 4 && after < LEASE, "{after:?}");
                // Every sixth: four of them, or three on a busy machine.
                assert!((3..=4).contains(&probes), "{calls:?}");
                (start, probes) = (call.at, 0);
            }
            _ => panic!("{call:?}"),
        }
    }
}

fn without_probes_it_only_extends(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 1200).with_probe(false).with_renew_at(0.2));
    let guard = lock.lock().unwrap();
    watch.wait_for_more(Kind::Extend, 4);
    guard.unlock().unwrap();
    assert_eq!(watch.count_of(Kind::Probe), 0);
}

fn it_keeps_all_that_is_due_in_one_round_trip(lab: &Lab) {
    const KEYS: usize = 30;
    let (generator, watch) = lab.watched_generator();
    let locks: Vec<_> = (0..KEYS)
        .map(|n| config(&format!("x{n}"), 5000).with_renew_at(0.1).with_probe(false))
        .map(|settings| generator.generate_with(settings).unwrap())
        .collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    // While one round trip is under way, all others fall due.
    let busy = watch.stop_next(Kind::Extend, When::Going);
    busy.wait_till_due();
    lab.time.jump(Duration::from_millis(300));
    let before = watch.calls().last().unwrap().trip;
    busy.open();
    let mut trips = HashMap::<usize, usize>::new();
    let first = watch.calls_of(Kind::Extend).len();
    eventually("every lease is extended", || {
        trips.clear();
        watch
            .calls()
            .iter()
            .filter(|call| call.trip > before)
            .for_each(|call| *trips.entry(call.trip).or_default() += 1);
        trips.values().sum::<usize>() + first >= KEYS
    });
    let most = trips.values().copied().max().unwrap_or(0);
    assert!(most + first >= KEYS, "{trips:?} after {first}");
    assert!(guards.iter().all(redis_dlock::DLockGuard::is_valid));
}

/// Shows: G3.
fn what_a_store_does_between_rounds_keeps_no_outcome(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 4000).with_probe(false));
    let guard = lock.lock().unwrap();
    let extended = watch.stop_next(Kind::Extend, When::Coming);
    extended.wait_till_due();
    let before = guard.remaining();
    let between = watch.stop_next(Kind::Between, When::Going);
    extended.open();
    between.wait();
    assert!(guard.remaining() > before, "the lease has not been told of its extension");
    between.open();
    guard.unlock().unwrap();
}

fn a_client_that_is_closed_has_its_store_do_nothing_between_rounds(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 4000).with_probe(false)).unwrap();
    let guard = lock.lock().unwrap();
    let extended = watch.stop_next(Kind::Extend, When::Coming);
    extended.wait_till_due();
    generator.close();
    // Nobody opens it, so no later round would come.
    let _between = watch.stop_next(Kind::Between, When::Going);
    extended.open();
    watch.wait_for_more(Kind::Extend, 2);
    guard.unlock().unwrap();
}

fn it_lets_go_of_what_was_unlocked(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let [lock, metronome] = ["x", "metronome"].map(|target| generator.generate_with(config(target, 1200)).unwrap());
    let ticking = metronome.lock().unwrap();
    let guard = lock.lock().unwrap();
    watch.wait_for_more(Kind::Probe, 3);
    guard.unlock().unwrap();
    let calls = || watch.calls().iter().filter(|call| call.key == lock.key()).count();
    // One that was being prepared may come after the release, with a locker that is of no use any more.
    watch.wait_for_more(Kind::Probe, 1);
    let before = calls();
    watch.wait_for_more(Kind::Probe, 8);
    assert_eq!(calls(), before);
    ticking.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}
