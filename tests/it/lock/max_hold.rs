//! A limit on holding: the holder is told when it is reached, and the others come in when the lease has run out.

use crate::support::cause;
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::Kind;
use redis_dlock::{DLockConfig, LossCause};
use std::time::Duration;

on_both_stores!(
    who_holds_too_long_is_told_while_the_store_still_keeps_the_others_out,
    after_it_the_lease_is_not_extended_and_another_process_gets_the_lock,
    who_comes_back_in_time_notices_nothing,
);

const LIMIT: Duration = Duration::from_millis(700);

fn limited(target: &str, lease_ms: u64) -> DLockConfig {
    config(target, lease_ms).with_max_hold(LIMIT)
}

/// Shows: G6.
fn who_holds_too_long_is_told_while_the_store_still_keeps_the_others_out(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(limited("x", 60_000)).unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.remaining() <= LIMIT);
    let again = lock.lock().unwrap();
    let lost = guard.lost();
    lab.time.recv(&lost);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert_eq!(cause(guard.ensure_valid()), LossCause::HeldTooLong);
    assert_eq!(cause(lock.lock()), LossCause::HeldTooLong, "no reentry");
    // For most of a minute.
    assert!(lab.holder(lock.key()).is_some());
    assert!(lab.generator().generate_with(config("x", 60_000)).unwrap().try_lock().unwrap().is_none());
    assert_eq!(cause(again.unlock()), LossCause::HeldTooLong);
    assert_eq!(cause(guard.unlock()), LossCause::HeldTooLong);
    assert_eq!(lab.leftovers(), [""; 0], "unlocking gives it back all the same");
}

fn after_it_the_lease_is_not_extended_and_another_process_gets_the_lock(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    // Twice extended within the limit, each time long before its end.
    let lock = generator.generate_with(limited("x", 1200).with_renew_at(0.25)).unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let other = lab.generator().generate_with(config("x", 6000)).unwrap();
    let next = lab.time.during(|| other.lock().unwrap());
    assert_eq!(lost.try_recv(), Ok(()), "it was told before");
    let extended = watch.count_of(Kind::Extend);
    assert!(extended >= 1, "until then it was extended");
    assert!(next.is_valid() && next.fencing_token() > guard.fencing_token());
    assert_eq!(cause(guard.unlock()), LossCause::HeldTooLong);
    assert_eq!(watch.count_of(Kind::Extend), extended);
    assert!(next.is_valid());
}

fn who_comes_back_in_time_notices_nothing(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock =
        generator.generate_with(config("x", 1500).with_renew_at(0.2).with_max_hold(Duration::from_secs(3600))).unwrap();
    let guard = lock.lock().unwrap();
    watch.wait_for_more(Kind::Extend, 3);
    guard.unlock().unwrap();
}
