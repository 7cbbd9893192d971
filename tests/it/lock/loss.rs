//! A lost lease: who hears of it, and what the stale hold still does, and does not.

use crate::support::crew::{Member, spawn, wait_by};
use crate::support::journal;
use crate::support::lab::{Lab, config, on_both_stores};
use redis_dlock::{Error, LossCause};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

on_both_stores!(
    everybody_hears_of_it,
    every_receiver_hears_of_it_and_none_of_a_normal_end,
    the_log_warns_once_with_the_reason,
    a_stale_hold_keeps_local_threads_out_until_it_unlocks,
    a_stale_hold_counts_down_like_any_other,
    a_stale_unlock_leaves_the_others_key_alone,
    the_lock_works_again_afterwards,
);

/// Shows: G5, G6.
fn everybody_hears_of_it(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 3000)).unwrap();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let locker = lab.holder(lock.key()).unwrap().holder;
    assert!(outer.is_valid() && outer.ensure_valid().is_ok() && !outer.remaining().is_zero());
    lab.delete(lock.key());
    lab.time.recv(&outer.lost());
    for guard in [&outer, &inner] {
        assert!(!guard.is_valid());
        assert!(guard.remaining().is_zero());
        let Err(Error::LeaseLost(loss)) = guard.ensure_valid() else { panic!("{:?}", guard.ensure_valid()) };
        assert_eq!((loss.key.as_str(), &loss.locker, &loss.cause), (lock.key(), &locker, &LossCause::Deleted));
    }
    assert!(!lock.unguarded().is_valid());
    // Neither way in, for the thread that believes to be in.
    assert!(matches!(lock.lock(), Err(Error::LeaseLost(_))));
    assert!(matches!(lock.try_lock(), Err(Error::LeaseLost(_))));
    assert!(matches!(lock.unguarded().try_lock_for(Duration::MAX), Err(Error::LeaseLost(_))));
    assert_eq!(lock.hold_count(), 2);
    assert!(matches!(inner.unlock(), Err(Error::LeaseLost(_))));
    assert!(matches!(outer.unlock(), Err(Error::LeaseLost(_))));
    assert!(!lock.is_held_by_current_thread());
}

/// Shows: G6.
fn every_receiver_hears_of_it_and_none_of_a_normal_end(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 3000)).unwrap();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let normal = [outer.lost(), inner.lost()];
    inner.unlock().unwrap();
    assert!(normal.iter().all(|lost| lost.try_recv() == Err(crossbeam_channel::TryRecvError::Empty)));
    outer.unlock().unwrap();
    assert!(normal.iter().all(|lost| lost.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)));

    let guard = lock.lock().unwrap();
    let lost = [guard.lost(), guard.lost(), guard.lost()];
    let elsewhere = lost.clone().map(|lost| spawn(move || lost.recv()));
    let watcher = guard.lost();
    lab.delete(lock.key());
    lab.time.recv(&watcher);
    // Clones of one receiver share its one message; here each thread took one.
    assert_eq!(elsewhere.map(Member::join), [Ok(()); 3]);
    // Who asks late hears it, too.
    lab.time.recv(&guard.lost());
    assert!(guard.unlock().is_err());
    assert!(lost[0].recv().is_err(), "once only");
}

/// Shows: G6.
fn the_log_warns_once_with_the_reason(lab: &Lab) {
    journal::keep();
    // One journal for all tests, so a key that no other test has.
    static LOGGED: AtomicU32 = AtomicU32::new(0);
    let target = format!("logged-{}", LOGGED.fetch_add(1, Ordering::Relaxed));
    let settings = config(&target, 3000).with_reason("nightly billing");
    let lock = lab.generator().generate_with(settings).unwrap();
    let guard = lock.lock().unwrap();
    lab.delete(lock.key());
    lab.time.recv(&guard.lost());
    let _ = (guard.is_valid(), guard.ensure_valid(), lock.lock().is_err());
    assert!(guard.unlock().is_err());
    let warnings = journal::warnings(lock.key());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("deleted") && warnings[0].contains("nightly billing"), "{warnings:?}");
}

/// Shows: S13.
fn a_stale_hold_keeps_local_threads_out_until_it_unlocks(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 3000)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 3000)).unwrap();
    let guard = lock.lock().unwrap();
    let waiter = wait_by(&lock, move |other| other.lock().unwrap().unlock());
    lab.delete(lock.key());
    lab.time.recv(&guard.lost());
    // Another process gets in and out; the local thread stays where it is.
    for _ in 0..5 {
        elsewhere.try_lock().unwrap().expect("the key is free").unlock().unwrap();
    }
    let tried = lock.clone();
    assert!(spawn(move || tried.try_lock().unwrap().is_none()).join());
    assert!(!waiter.is_finished());
    assert_eq!(lock.queue_length(), 1);
    assert!(matches!(guard.unlock(), Err(Error::LeaseLost(_))));
    waiter.join().unwrap();
}

/// Shows: G6.
fn a_stale_hold_counts_down_like_any_other(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 3000)).unwrap();
    let unguarded = lock.unguarded();
    for _ in 0..3 {
        unguarded.lock().unwrap();
    }
    lab.delete(lock.key());
    lab.time.until("the loss is noticed", || !unguarded.is_valid());
    for left in [2, 1, 0] {
        assert!(matches!(unguarded.unlock(), Err(Error::LeaseLost(_))));
        assert_eq!(lock.hold_count(), left);
    }
    assert!(matches!(unguarded.unlock(), Err(Error::NotHeld { .. })));
}

/// Shows: G2, G6, S3.
fn a_stale_unlock_leaves_the_others_key_alone(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let metronome = generator.generate_with(config("metronome", 2000).with_renew_at(0.1)).unwrap();
    let _ticking = metronome.lock().unwrap();
    for noticed in [true, false] {
        let guard = lock.lock().unwrap();
        lab.overwrite(lock.key(), "usurper", Duration::from_secs(600));
        let before = lab.holder(lock.key()).unwrap();
        if noticed {
            lab.time.recv(&guard.lost());
        }
        // With a loss that was not noticed before, it is the release that finds out.
        let Err(Error::LeaseLost(loss)) = guard.unlock() else { panic!("the loss stays unnoticed") };
        assert_eq!(loss.cause, LossCause::TakenOver { by: "usurper".to_owned() });
        // Whatever a thread of ours would still do, it would do now.
        watch.wait_for_more(crate::support::watched::Kind::Extend, 4);
        let after = lab.holder(lock.key()).unwrap();
        assert_eq!(after.holder, "usurper");
        let (before, after) = (before.remaining.unwrap(), after.remaining.unwrap());
        assert!(after <= before && after > Duration::from_secs(300), "{before:?} {after:?}");
        lab.delete(lock.key());
    }
}

/// Shows: G7, L2.
fn the_lock_works_again_afterwards(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 3000)).unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        assert!(guard.is_valid() && guard.fencing_token() > last);
        last = guard.fencing_token();
        lab.delete(lock.key());
        lab.time.recv(&guard.lost());
        drop(guard);
        assert_eq!(lab.leftovers(), [""; 0]);
    }
    lock.lock().unwrap().unlock().unwrap();
}
