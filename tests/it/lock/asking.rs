//! What a program can ask without waiting, and the handles that ask.

use crate::support::crew::{HANG, Member, answered, eventually, spawn};
use crate::support::lab::{Lab, config, is_listener_on, on_both_stores};
use redis_dlock::{BackendFailure, CancelToken, DistributedReentrantLock, Error, LockProcessor, LossCause};
use std::sync::Arc;
use std::time::{Duration, Instant};

on_both_stores!(
    one_question_tells_the_holder_and_how_many_wait,
    a_handle_knows_its_names_and_settings,
    a_guard_tells_how_it_was_lost,
    a_wait_ends_by_its_limit_or_by_its_token,
    a_clone_of_a_generator_is_the_same_client,
    a_shared_store_serves_several_generators,
    pairs_know_what_guards_know,
);

fn one_question_tells_the_holder_and_how_many_wait(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let free = lock.inspect().unwrap();
    assert!(free.holder.is_none() && free.waiting == 0);
    let guard = lock.lock().unwrap();
    let cancel = CancelToken::new();
    let waiters: Vec<Member<bool>> = (0..3)
        .map(|_| {
            let (other, cancel) = (lab.generator().generate_with(config("x", 30_000)).unwrap(), cancel.clone());
            spawn(move || other.lock_cancellable(&cancel).unwrap().is_some())
        })
        .collect();
    if is_listener_on() {
        eventually("all stand in the queue", || lock.inspect().unwrap().waiting == 3);
    }
    let before = watch.count();
    let state = lock.inspect().unwrap();
    assert_eq!(watch.count(), before + 1, "one round trip");
    let holder = state.holder.unwrap();
    assert!(holder.is_local && holder.remaining.unwrap() > Duration::from_secs(20));
    assert_eq!(lock.holder().unwrap().unwrap().locker, holder.locker);
    assert!(lock.is_locked().unwrap());
    cancel.cancel();
    assert!(!waiters.into_iter().any(Member::join));
    guard.unlock().unwrap();
}

fn a_handle_knows_its_names_and_settings(lab: &Lab) {
    let lock = lab.generator().generate_with(config(" 47 11_\t", 1234)).unwrap();
    assert_eq!((lock.lock_type(), lock.target(), lock.key()), ("TEST", "47 11_", "DLOCK_TEST_47 11_"));
    assert_eq!(lock.config().lease(), Duration::from_millis(1234));
    assert_eq!((lock.config().lock_type(), lock.config().target()), ("TEST", "47 11_"));
}

/// Shows: G5, G6.
fn a_guard_tells_how_it_was_lost(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 6_000)).unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.loss().is_none());
    lab.overwrite(lock.key(), "somebody", Duration::from_secs(600));
    lab.time.recv(&guard.lost());
    let loss = guard.loss().unwrap();
    assert_eq!((loss.key.as_str(), loss.cause), (lock.key(), LossCause::TakenOver { by: "somebody".to_owned() }));
    drop(guard);
}

/// Shows: G12, L3.
fn a_wait_ends_by_its_limit_or_by_its_token(lab: &Lab) {
    let [lock, elsewhere] = [(); 2].map(|()| lab.generator().generate_with(config("x", 30_000)).unwrap());
    let guard = elsewhere.lock().unwrap();
    let cancel = CancelToken::new();
    let short = Duration::from_millis(20);
    assert!(lab.time.during(|| answered(|| lock.try_lock_cancellable_for(short, &cancel)).is_none()));
    let until = || Instant::now() + short;
    assert!(lab.time.during(|| answered(|| lock.try_lock_cancellable_until(until(), &cancel)).is_none()));
    assert!(!cancel.is_cancelled());
    let wait = |lock: &DistributedReentrantLock| {
        let (other, cancel) = (lock.clone(), cancel.clone());
        spawn(move || other.try_lock_cancellable_for(100 * HANG, &cancel).unwrap().is_some())
    };
    // Behind another process, and behind a thread of the same one.
    let waiters = [wait(&lock), wait(&elsewhere)];
    eventually("they wait", || lock.queue_length() == 1 && elsewhere.queue_length() == 1);
    cancel.cancel();
    assert!(!waiters.into_iter().any(Member::join));
    guard.unlock().unwrap();
    assert!(lock.try_lock_cancellable_for(HANG, &CancelToken::new()).unwrap().is_some());
    assert!(lock.try_lock_cancellable_for(Duration::MAX, &CancelToken::new()).unwrap().is_some());
    assert!(lock.try_lock_cancellable_for(HANG, &cancel).unwrap().is_none(), "it was cancelled before");
}

#[test]
fn a_token_tells_on_a_channel() {
    let cancel = CancelToken::new();
    let (before, clone) = (cancel.cancelled(), cancel.clone());
    assert!(before.is_empty());
    clone.cancel();
    assert_eq!(before.recv_timeout(HANG), Ok(()));
    assert_eq!(cancel.cancelled().recv_timeout(HANG), Ok(()), "also who asks afterwards");
    let gone = CancelToken::new().cancelled();
    assert!(gone.recv_timeout(HANG).is_err_and(|error| error.is_disconnected()));
}

fn a_clone_of_a_generator_is_the_same_client(lab: &Lab) {
    let generator = lab.generator();
    let clone = generator.clone();
    let [lock, same] = [&generator, &clone].map(|generator| generator.generate_with(config("x", 30_000)).unwrap());
    drop(generator);
    let guard = lock.lock().unwrap();
    assert_eq!(same.hold_count(), 1, "the same lock, so the thread holds it");
    drop(guard);
    clone.close();
    assert!(matches!(lock.lock(), Err(Error::ShutDown)));
}

/// Shows: G1.
fn a_shared_store_serves_several_generators(lab: &Lab) {
    let store: Arc<dyn LockProcessor> = lab.processor();
    let [lock, other] =
        [(); 2].map(|()| lab.builder().build(Arc::clone(&store)).unwrap().generate("TEST", "x").unwrap());
    let guard = lock.lock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    // The end of one generator is not the end of the store.
    let guard = lock.lock().unwrap();
    let last = lab.builder().build(Arc::clone(&store)).unwrap();
    drop(last.generate("TEST", "y").unwrap().lock().unwrap());
    last.close();
    drop((last, other));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    drop(lock.lock().unwrap());
    let boxed: Box<dyn LockProcessor> = Box::new(store);
    let third = lab.builder().build(boxed).unwrap().generate("TEST", "x").unwrap();
    assert!(third.try_lock().unwrap().is_some());
}

/// Shows: G5, G6.
fn pairs_know_what_guards_know(lab: &Lab) {
    let generator = lab.generator();
    let pair = generator.generate_with(config("x", 6_000)).unwrap().unguarded();
    let cancelled = CancelToken::new();
    cancelled.cancel();
    assert!(pair.ensure_valid().is_err_and(|error| matches!(error, Error::NotHeld { .. })));
    assert!(pair.remaining().is_zero() && pair.hold_count() == 0 && !pair.is_held_by_current_thread());
    assert!(pair.lost().recv_timeout(HANG).is_err_and(|error| error.is_disconnected()));
    assert!(!pair.lock_cancellable(&cancelled).unwrap());
    assert!(pair.try_lock_until(Instant::now() + HANG).unwrap());
    assert!(pair.lock_cancellable(&CancelToken::new()).unwrap());
    assert_eq!((pair.hold_count(), pair.key()), (2, pair.guarded().key()));
    assert!(pair.is_held_by_current_thread() && pair.ensure_valid().is_ok());
    assert!(pair.remaining() > Duration::from_secs(3));
    let lost = pair.lost();
    lab.delete(pair.key());
    lab.time.recv(&lost);
    assert!(pair.ensure_valid().is_err_and(|error| error.is_lost()) && pair.remaining().is_zero());
    assert!(pair.unlock().is_err() && pair.unlock().is_err());
    assert_eq!(pair.hold_count(), 0);
}

#[test]
fn errors_that_pass_are_told_from_those_that_do_not() {
    let backend = |failure| Error::backend(failure, "down");
    assert!(backend(BackendFailure::NotExecuted).is_transient() && backend(BackendFailure::Unknown).is_transient());
    assert!(!backend(BackendFailure::Refused).is_transient(), "an operator has to help");
    assert!(!Error::ShutDown.is_transient() && !Error::ShutDown.is_lost());
}
