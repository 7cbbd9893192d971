//! Holds whose thread has ended without unlocking: noticed, told, and not extended for ever.

use crate::support::crew::{HANG, eventually, spawn, spawn_with};
use crate::support::journal;
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::Kind;
use crossbeam_channel::unbounded;
use redis_dlock::{DistributedReentrantLock, LossCause};
use std::mem;
use std::time::Duration;

on_both_stores!(
    a_thread_that_ends_while_it_holds_is_noticed_and_its_lease_runs_out,
    a_thread_that_panics_while_it_holds_is_noticed,
    a_guard_that_was_forgotten_is_noticed_when_its_thread_ends,
    a_waiting_thread_of_the_same_process_gets_the_lock,
    one_that_was_lost_before_keeps_nobody_out,
    a_thread_that_unlocked_as_often_as_it_locked_is_none,
    each_of_its_locks_is_noticed,
    closing_does_not_wait_for_it,
);

const LEASE: u64 = 900;

/// Takes the lock twice on a thread that ends, and never unlocks it.
fn orphan(lock: &DistributedReentrantLock) {
    let lock = lock.unguarded();
    spawn(move || {
        lock.lock().unwrap();
        lock.lock().unwrap();
    })
    .join();
}

fn a_thread_that_ends_while_it_holds_is_noticed_and_its_lease_runs_out(lab: &Lab) {
    journal::keep();
    let (say, losses) = unbounded();
    let (processor, watch) = lab.watched();
    let told = move |loss: &redis_dlock::LeaseLoss| say.send(loss.clone()).unwrap();
    let generator = lab.builder().on_lost(told).build(processor).unwrap();
    let target = format!("orphan {:?}", std::thread::current().id());
    let lock = generator.generate_with(config(&target, LEASE).with_reason("the monthly bill")).unwrap();
    orphan(&lock);
    let loss = lab.time.recv(&losses);
    assert_eq!((&*loss.key, loss.cause), (lock.key(), LossCause::ThreadEnded));
    let (extended, released) = (watch.count_of(Kind::Extend), watch.count_of(Kind::Release));
    let other = lab.generator().generate_with(config(&target, LEASE)).unwrap();
    lab.time.during(|| other.lock().unwrap().unlock().unwrap());
    assert_eq!((watch.count_of(Kind::Extend), watch.count_of(Kind::Release)), (extended, released), "it ran out");
    let warnings = journal::warnings(lock.key());
    let about = |line: &&String| line.contains("has ended without unlocking") && line.contains("the monthly bill");
    assert_eq!(warnings.iter().filter(about).count(), 1, "{warnings:?}");
    assert!(!lock.is_locked().unwrap());
    lock.lock().unwrap().unlock().unwrap();
}

fn a_thread_that_panics_while_it_holds_is_noticed(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", LEASE)).unwrap();
    let pairs = lock.unguarded();
    let panicked = std::thread::spawn(move || {
        pairs.lock().unwrap();
        panic!("the test wants it so");
    });
    assert!(panicked.join().is_err());
    let other = lab.generator().generate_with(config("x", LEASE)).unwrap();
    assert!(lab.time.during(|| other.try_lock_for(HANG).unwrap().is_some()));
}

fn a_guard_that_was_forgotten_is_noticed_when_its_thread_ends(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    // Extended long before its end, on a busy machine too.
    let lock = generator.generate_with(config("x", LEASE).with_renew_at(0.25)).unwrap();
    let (go, wait) = unbounded::<()>();
    let member = spawn_with(&lock, move |forgetful| {
        mem::forget(forgetful.lock().unwrap());
        let _ = wait.recv();
    });
    // As long as the thread is there, nobody can tell.
    watch.wait_for_more(Kind::Extend, 3);
    drop(go);
    member.join();
    let other = lab.generator().generate_with(config("x", LEASE)).unwrap();
    assert!(lab.time.during(|| other.try_lock_for(HANG).unwrap().is_some()));
}

fn a_waiting_thread_of_the_same_process_gets_the_lock(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", LEASE)).unwrap();
    orphan(&lock);
    let other = lock.clone();
    let token = lab.time.join(spawn(move || other.lock().unwrap().fencing_token()));
    assert!(lock.lock().unwrap().fencing_token() >= token);
}

fn one_that_was_lost_before_keeps_nobody_out(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", LEASE)).unwrap();
    let pairs = lock.unguarded();
    let (say, key) = (pairs.clone(), lock.key().to_owned());
    let (go, wait) = unbounded::<()>();
    let member = spawn(move || {
        pairs.lock().unwrap();
        let _ = wait.recv();
    });
    eventually("it is held", || lab.holder(&key).is_some());
    lab.delete(&key);
    lab.time.until("the loss is noticed", || say.fencing_token().is_none() || !say.is_valid());
    drop(go);
    member.join();
    assert!(lab.time.during(|| lock.try_lock_for(HANG).unwrap().is_some()));
}

fn a_thread_that_unlocked_as_often_as_it_locked_is_none(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let kept = generator.generate_with(config("kept", LEASE)).unwrap();
    let guard = kept.lock().unwrap();
    let lock = generator.generate_with(config("x", LEASE)).unwrap().unguarded();
    spawn(move || {
        for _ in 0..3 {
            lock.lock().unwrap();
            lock.lock().unwrap();
            lock.unlock().unwrap();
            lock.unlock().unwrap();
        }
    })
    .join();
    watch.wait_for_more(Kind::Extend, 2);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

fn each_of_its_locks_is_noticed(lab: &Lab) {
    let generator = lab.generator();
    let locks: Vec<_> = (0..5).map(|n| generator.generate_with(config(&format!("x{n}"), LEASE)).unwrap()).collect();
    let pairs: Vec<_> = locks.iter().map(DistributedReentrantLock::unguarded).collect();
    spawn(move || pairs.iter().for_each(|lock| lock.lock().unwrap())).join();
    for lock in &locks {
        assert!(lab.time.during(|| lock.try_lock_for(HANG).unwrap().is_some()));
    }
}

fn closing_does_not_wait_for_it(lab: &Lab) {
    let (generator, _) = lab.watched_generator();
    let lock = generator.generate_with(config("x", LEASE)).unwrap();
    orphan(&lock);
    generator.close();
    lab.time.until("it ran out", || lab.leftovers().is_empty());
    // The last of the client: nothing of it is left that would extend anything.
    lab.time.pass(Duration::from_millis(LEASE));
    assert!(lab.leftovers().is_empty());
}
