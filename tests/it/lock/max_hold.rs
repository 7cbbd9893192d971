//! A limit on holding: the holder is told when it is reached, and the others come in when the lease has run out.

use crate::support::crew::{eventually, spawn};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::Kind;
use redis_dlock::{DLockConfig, Error, LossCause};
use std::time::Duration;

on_both_stores!(
    who_holds_too_long_is_told_while_the_store_still_keeps_the_others_out,
    after_it_the_lease_is_not_extended_and_another_process_gets_the_lock,
    who_comes_back_in_time_notices_nothing,
    each_thread_has_the_whole_time,
    a_hold_that_follows_on_lingering_has_the_whole_time,
);

const LIMIT: Duration = Duration::from_millis(700);

fn limited(target: &str, lease_ms: u64) -> DLockConfig {
    config(target, lease_ms).with_max_hold(LIMIT)
}

fn cause(error: Error) -> LossCause {
    match error {
        Error::LeaseLost(loss) => loss.cause,
        other => panic!("{other:?}"),
    }
}

fn who_holds_too_long_is_told_while_the_store_still_keeps_the_others_out(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(limited("x", 60_000)).unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.remaining() <= LIMIT);
    let again = lock.lock().unwrap();
    let lost = guard.lost();
    assert_eq!(lost.recv(), Ok(()));
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert_eq!(cause(guard.ensure_valid().unwrap_err()), LossCause::HeldTooLong);
    assert_eq!(cause(lock.lock().unwrap_err()), LossCause::HeldTooLong, "no reentry");
    // For most of a minute.
    assert!(lab.holder(lock.key()).is_some());
    assert!(lab.generator().generate_with(config("x", 60_000)).unwrap().try_lock().unwrap().is_none());
    assert_eq!(cause(again.unlock().unwrap_err()), LossCause::HeldTooLong);
    assert_eq!(cause(guard.unlock().unwrap_err()), LossCause::HeldTooLong);
    assert_eq!(lab.leftovers(), [""; 0], "unlocking gives it back all the same");
}

fn after_it_the_lease_is_not_extended_and_another_process_gets_the_lock(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(limited("x", 400)).unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let other = lab.generator().generate_with(config("x", 400)).unwrap();
    let next = other.lock().unwrap();
    assert_eq!(lost.try_recv(), Ok(()), "it was told before");
    let extended = watch.count_of(Kind::Extend);
    assert!(extended >= 1, "until then it was extended");
    assert!(next.is_valid() && next.fencing_token() > guard.fencing_token());
    assert_eq!(cause(guard.unlock().unwrap_err()), LossCause::HeldTooLong);
    assert_eq!(watch.count_of(Kind::Extend), extended);
    assert!(next.is_valid());
}

fn who_comes_back_in_time_notices_nothing(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 300).with_max_hold(Duration::from_secs(3600))).unwrap();
    let guard = lock.lock().unwrap();
    watch.wait_for_more(Kind::Extend, 3);
    guard.unlock().unwrap();
}

fn each_thread_has_the_whole_time(lab: &Lab) {
    let (generator, _) = lab.listening_generator();
    let lock = generator.generate_with(limited("x", 60_000)).unwrap();
    let first = lock.lock().unwrap();
    let waiting = lock.clone();
    let second = spawn(move || {
        let guard = waiting.lock().unwrap();
        let remaining = guard.remaining();
        guard.lost().recv().unwrap();
        (remaining, cause(guard.unlock().unwrap_err()))
    });
    eventually("it waits", || lock.queue_length() == 1);
    std::thread::sleep(LIMIT / 2);
    let left = first.remaining();
    first.unlock().unwrap();
    let (remaining, cause) = second.join();
    assert!(remaining > left, "{remaining:?} after {left:?}");
    assert_eq!(cause, LossCause::HeldTooLong);
}

fn a_hold_that_follows_on_lingering_has_the_whole_time(lab: &Lab) {
    let (generator, watch) = lab.listening_generator();
    // Neither an extension nor a probe is due in this test.
    let lock = generator.generate_with(limited("x", 3_600_000).with_linger(Duration::from_secs(3600))).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let before = watch.count();
    std::thread::sleep(LIMIT);
    let guard = lock.lock().unwrap();
    assert!(guard.is_valid() && guard.remaining() > LIMIT / 2);
    assert_eq!(guard.lost().recv(), Ok(()), "and no more");
    assert_eq!(watch.count(), before);
    assert_eq!(cause(guard.unlock().unwrap_err()), LossCause::HeldTooLong);
}
