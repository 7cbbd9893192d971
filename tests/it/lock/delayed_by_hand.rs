//! Delayed releases on the embedded store: what people see of them, how they end one, and a store that has none.

use crate::conformance::minimal_store::MinimalProcessor;
use crate::support::crew::eventually;
use crate::support::lab::{Lab, config};
use redis_dlock::{BreakOutcome, DLockGenerator, Error, SystemClock};
use std::sync::Arc;
use std::time::Duration;

const AT_LEAST: Duration = Duration::from_secs(600);

/// Nobody is said to hold it.
#[test]
fn it_is_described_as_what_it_is() {
    let lab = Lab::memory();
    let client = || lab.builder().build(lab.processor()).unwrap();
    let generator = client();
    let lock = generator
        .generate_with(config("x", 30_000).with_holder_name("export of\nMonday").with_reason("the books"))
        .unwrap();
    let guard = lock.lock().unwrap();
    let locker = lab.holder(lock.key()).unwrap().holder;
    assert_eq!(generator.describe("TEST", "x").unwrap().delayed_release, None);
    lab.time.pass(Duration::from_secs(3));
    guard.unlock_after(AT_LEAST).unwrap();
    lab.time.pass(Duration::from_secs(7));
    let seen = client().describe("TEST", "x").unwrap();
    let listed = client().list("TEST_x").next().unwrap().unwrap();
    let ended = seen.delayed_release.clone().unwrap();
    assert_eq!(listed.delayed_release, seen.delayed_release);
    assert_eq!((listed.locker.as_deref(), seen.lock_delay), (seen.holder.as_ref().map(|party| &*party.locker), None));
    assert_eq!((&ended.locker, ended.pid), (&locker, Some(std::process::id())));
    assert_eq!(ended.holder_name.as_deref(), Some("export of\\nMonday"));
    assert_eq!(ended.reason.as_deref(), Some("the books"));
    assert!(ended.program.is_some() && ended.host.is_some() && ended.ended.is_none());
    assert!(ended.held_for >= Duration::from_secs(3) && ended.held_for < Duration::from_secs(4));
    let ago = ended.ended_ago(seen.remaining).unwrap();
    assert!(ago >= Duration::from_secs(7) && ago < Duration::from_secs(8), "by the clock of the store: {ago:?}");
    let holder = seen.holder.unwrap();
    assert!(!holder.is_local && holder.client.is_none() && holder.told.is_none());
}

/// The hold follows another one, without a request to the store, on a tenure that a handle of another name has got.
#[test]
fn it_has_the_name_of_the_hold_that_ended() {
    for has_hook in [false, true] {
        let lab = Lab::memory();
        let builder = if has_hook { lab.builder().on_event(|_| ()) } else { lab.builder() };
        let generator = builder.build(lab.processor()).unwrap();
        let named = |name: &str| config("x", 30_000).with_linger(Duration::from_secs(3600)).with_holder_name(name);
        let [weekly, nightly] = ["weekly", "nightly"].map(|name| generator.generate_with(named(name)).unwrap());
        eventually("it lingers", || {
            drop(weekly.lock().unwrap());
            lab.holder(weekly.key()).is_some()
        });
        nightly.lock().unwrap().unlock_after(AT_LEAST).unwrap();
        let ended = generator.describe("TEST", "x").unwrap().delayed_release.unwrap();
        assert_eq!(ended.holder_name.as_deref(), Some("nightly"), "{has_hook}");
    }
}

#[test]
fn an_operator_ends_it() {
    let lab = Lab::memory();
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let locker = || lab.holder(lock.key()).unwrap().holder;
    let guard = lock.lock().unwrap();
    let before = locker();
    guard.unlock_after(AT_LEAST).unwrap();
    let operator = lab.generator();
    let broken = |locker: &str| operator.break_lock("TEST", "x", locker, "it may run again").unwrap();
    assert!(matches!(broken(&before), BreakOutcome::NotHeldBy { holder: Some(_) }), "the hold has ended");
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(broken(&locker()), BreakOutcome::Broken { next: None, waiting: 0 });
    assert!(lock.try_lock().unwrap().is_some());
}

/// A store of others.
#[test]
fn a_store_that_cannot_is_named_and_the_lock_is_unlocked() {
    let lock = DLockGenerator::new(MinimalProcessor::new(Arc::new(SystemClock))).unwrap().generate("T", "x").unwrap();
    for _ in 0..2 {
        let refused = lock.try_lock().unwrap().expect("it was unlocked").unlock_after(AT_LEAST);
        assert!(
            matches!(&refused, Err(Error::Unsupported { message, .. }) if message.contains("keep a lock")),
            "{refused:?}"
        );
        let refused = lock.try_hold().unwrap().expect("it was unlocked").release_after(AT_LEAST);
        assert!(matches!(&refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
}
