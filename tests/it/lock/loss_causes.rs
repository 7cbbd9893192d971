//! How a lease gets lost, how soon that is noticed, and that it is final.

use crate::support::cause;
use crate::support::crew::eventually;
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, Watch, When};
use redis_dlock::{BackendFailure, DLockConfig, DLockGuard, LossCause};
use std::time::Duration;

on_both_stores!(
    a_deletion_is_noticed_before_the_next_extension,
    a_take_over_is_noticed_before_the_next_extension,
    without_probes_the_next_extension_notices,
    an_overwritten_lease_is_noticed_by_the_unlock_at_the_latest,
    a_store_that_fails_costs_the_lease_at_its_deadline,
    a_store_that_is_silent_costs_the_lease_at_its_deadline,
    a_store_that_comes_back_in_time_costs_nothing,
    an_extension_whose_answer_is_late_does_not_bring_a_lost_lease_back,
    an_extension_whose_answer_is_late_is_a_loss_even_if_nobody_looked,
);

fn wait_for_loss(lab: &Lab, guard: &DLockGuard<'_>) {
    lab.time.recv(&guard.lost());
    assert!(!guard.is_valid());
}

/// Makes a hold lose its lease, and tells how often it was probed and extended until it was told, and why it is lost.
fn noticed(lab: &Lab, config: DLockConfig, lose: impl FnOnce(&str)) -> ([usize; 2], LossCause) {
    let (lock, watch) = lab.watched_lock(config);
    let guard = lock.lock().unwrap();
    lose(lock.key());
    wait_for_loss(lab, &guard);
    ([Kind::Probe, Kind::Extend].map(|kind| watch.count_of(kind)), cause(guard.unlock()))
}

/// Shows: G5.
fn a_deletion_is_noticed_before_the_next_extension(lab: &Lab) {
    assert_eq!(noticed(lab, config("x", 3000), |key| lab.delete(key)), ([1, 0], LossCause::Deleted));
}

/// Shows: G5.
fn a_take_over_is_noticed_before_the_next_extension(lab: &Lab) {
    let by = "10.0.0.7-main".to_owned();
    let found = noticed(lab, config("x", 3000), |key| lab.overwrite(key, &by, Duration::from_secs(600)));
    assert_eq!(found, ([1, 0], LossCause::TakenOver { by }));
}

/// Shows: G6.
fn without_probes_the_next_extension_notices(lab: &Lab) {
    let config = config("x", 3000).with_probe(false).with_renew_at(0.2);
    assert_eq!(noticed(lab, config, |key| lab.delete(key)), ([0, 1], LossCause::Deleted));
}

/// Shows: G6.
fn an_overwritten_lease_is_noticed_by_the_unlock_at_the_latest(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 600_000)).unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    lab.delete(lock.key());
    assert!(guard.is_valid(), "nobody has looked yet");
    assert_eq!(cause(guard.unlock()), LossCause::Deleted);
    let _ = lost.recv();
}

/// Lets the store stop working while a lock is held, and tells how often its extension was tried before it was lost.
fn tries_until_lost(lab: &Lab, stop: impl FnOnce(&Watch)) -> usize {
    let (lock, watch) = lab.watched_lock(config("x", 900).with_probe(false));
    let guard = lock.lock().unwrap();
    let acquired = watch.calls()[0].at;
    stop(&watch);
    let mut valid_until = acquired;
    lab.time.until("the loss", || {
        let now = lab.time.now();
        if guard.is_valid() {
            valid_until = now;
        }
        !guard.is_valid()
    });
    assert!(valid_until.since(acquired) < Duration::from_millis(900), "valid beyond its lease");
    let tries = watch.count_of(Kind::Extend);
    wait_for_loss(lab, &guard);
    assert_eq!(cause(guard.ensure_valid()), LossCause::Deadline);
    watch.heal();
    assert!(!guard.is_valid());
    assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    lab.time.during(|| lock.lock().unwrap().unlock().unwrap());
    lab.time.until("the lock is free", || lab.leftovers().is_empty());
    tries
}

/// Shows: G3, G5.
fn a_store_that_fails_costs_the_lease_at_its_deadline(lab: &Lab) {
    let tries = tries_until_lost(lab, |watch| watch.fail(BackendFailure::NotExecuted));
    assert!(tries >= 3, "{tries}");
}

/// Shows: G3, G5.
fn a_store_that_is_silent_costs_the_lease_at_its_deadline(lab: &Lab) {
    let tries = tries_until_lost(lab, Watch::silence);
    assert!(tries >= 3, "{tries}");
}

/// Shows: G3.
fn a_store_that_comes_back_in_time_costs_nothing(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 3000).with_renew_at(0.1));
    let guard = lock.lock().unwrap();
    for failure in [BackendFailure::NotExecuted, BackendFailure::Unknown, BackendFailure::Refused] {
        watch.fail(failure);
        watch.wait_for_more(Kind::Extend, 2);
        watch.heal();
        watch.wait_for_more(Kind::Extend, 2);
        assert!(guard.is_valid() && guard.lost().try_recv().is_err());
    }
    guard.unlock().unwrap();
}

/// In milliseconds, of the holds whose extension is answered late.
const LEASE: u64 = 600;

/// Lets time pass until the deadline has come that a hold has by the last answer, while the answer to the last request is kept back.
fn pass_the_deadline(lab: &Lab, watch: &Watch, lease: u64) {
    let calls = watch.calls();
    // The lease counts from the sending, which comes before the record.
    let deadline = calls[calls.len() - 2].at + Duration::from_millis(lease);
    lab.time.jump(deadline.since(lab.time.now()));
    assert!(lab.time.now() >= deadline);
}

/// Shows: G6, L2.
fn an_extension_whose_answer_is_late_does_not_bring_a_lost_lease_back(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", LEASE).with_probe(false)).unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let extended = watch.stop_next(Kind::Extend, When::Coming);
    extended.wait_till_due();
    pass_the_deadline(lab, &watch, LEASE);
    eventually("the deadline is noticed", || !guard.is_valid());
    lab.time.recv(&lost);
    extended.open();
    let elsewhere = generator.generate_with(config("metronome", 1500)).unwrap();
    let ticking = elsewhere.lock().unwrap();
    watch.wait_for_more(Kind::Probe, 3);
    assert!(!guard.is_valid());
    ticking.unlock().unwrap();
    assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    // What the store may still keep of it is given back.
    assert_eq!(watch.calls_of(Kind::Release).iter().filter(|call| call.key == lock.key()).count(), 1);
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G5, G6.
fn an_extension_whose_answer_is_late_is_a_loss_even_if_nobody_looked(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", LEASE).with_probe(false));
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let extended = watch.stop_next(Kind::Extend, When::Coming);
    extended.wait_till_due();
    // Nobody looks at the guard, and the lease thread waits for the answer.
    pass_the_deadline(lab, &watch, LEASE);
    assert!(lost.is_empty());
    extended.open();
    // Either it is lost now, or it goes on and is extended again.
    eventually("the answer is heard", || !lost.is_empty() || watch.count_of(Kind::Extend) > 1);
    assert_eq!(lost.try_recv(), Ok(()));
    assert_eq!(cause(guard.unlock()), LossCause::Deadline);
}
