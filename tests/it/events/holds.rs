//! The events of a lock, on both stores.

use super::{next, next_acquired, next_lost, next_released, told};
use crate::support::crew::{HANG, answered, eventually, spawn, spawn_with, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use crossbeam_channel::{Receiver, unbounded};
use redis_dlock::event::{HoldEnd, How};
use redis_dlock::{DLockConfig, DLockGenerator, Event, LossCause};
use std::collections::HashMap;
use std::time::Duration;

on_both_stores!(
    a_free_lock_is_acquired_and_given_back,
    a_lock_is_passed_on_in_the_process,
    a_lock_is_granted_by_another_process,
    a_lock_lingers_and_is_taken_up,
    a_lost_lock_is_lost_once_and_then_released,
    a_loss_that_only_a_posted_release_shows_follows_it,
    a_slow_wait_is_told_to_both_functions,
    what_nobody_gets_is_not_told,
    the_events_of_a_key_are_in_order,
);

/// A client whose events are told.
fn client(lab: &Lab) -> (DLockGenerator, Receiver<Event>) {
    let (builder, events) = told();
    (lab.time.set(builder).build(lab.processor()).unwrap(), events)
}

fn a_free_lock_is_acquired_and_given_back(lab: &Lab) {
    let (generator, events) = client(lab);
    let lock = generator.generate_with(config("x", 3000).with_reason("billing")).unwrap();
    let guard = lock.lock().unwrap();
    // A reentry is no event.
    lock.lock().unwrap().unlock().unwrap();
    let acquired = next_acquired(&events, How::Free);
    assert_eq!((acquired.lock.unique_key(), acquired.lock.lock_type()), ("DLOCK_TEST_x", "TEST"));
    assert_eq!((acquired.token, acquired.lock.reason()), (guard.fencing_token(), Some("billing")));
    guard.unlock().unwrap();
    let released = next_released(&events, HoldEnd::GivenBack);
    assert_eq!((released.lock.unique_key(), released.token), ("DLOCK_TEST_x", acquired.token));

    drop(lock.lock().unwrap());
    let acquired = next_acquired(&events, How::Free);
    assert_eq!(next_released(&events, HoldEnd::Sent).token, acquired.token);
    drop((lock, generator));
    assert!(events.recv_timeout(HANG).is_err(), "no more, and the thread ends");
}

fn a_lock_is_passed_on_in_the_process(lab: &Lab) {
    let (generator, events) = client(lab);
    let [lock, next_one] =
        ["first", "second"].map(|reason| generator.generate_with(config("x", 3000).with_reason(reason)).unwrap());
    // When the inbox opens, the holder assumes that others wait, and may not pass the lock on.
    let is_passed_on = || {
        let guard = lock.lock().unwrap();
        let waiter = spawn_with(&next_one, move |lock| lock.lock().unwrap().unlock().unwrap());
        eventually("it waits", || lock.queue_length() == 1);
        let token = guard.fencing_token();
        guard.unlock().unwrap();
        waiter.join();
        assert_eq!(next_acquired(&events, How::Free).token, token);
        let Event::Released(released) = next(&events) else { panic!("not released") };
        let Event::Acquired(acquired) = next(&events) else { panic!("not acquired") };
        let is_passed_on = released.end == HoldEnd::PassedOn;
        assert_eq!(acquired.how, if is_passed_on { How::PassedOn } else { How::Granted });
        assert!(released.token == token && acquired.token > token);
        let last = next_released(&events, HoldEnd::GivenBack);
        assert_eq!(last.token, acquired.token);
        // Each with the settings of its own handle.
        let reasons = [&released.lock, &acquired.lock, &last.lock].map(|lock| lock.reason());
        assert_eq!(reasons, [Some("first"), Some("second"), Some("second")]);
        is_passed_on
    };
    eventually("it is passed on", is_passed_on);
}

fn a_lock_is_granted_by_another_process(lab: &Lab) {
    let (generator, events) = client(lab);
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let holder = lab.generator().generate_with(config("x", 3000)).unwrap();
    let guard = holder.lock().unwrap();
    let waiter = wait_by(&lock, move |lock| lock.lock().unwrap().unlock().unwrap());
    guard.unlock().unwrap();
    let acquired = next_acquired(&events, How::Granted);
    assert!(acquired.waited > Duration::ZERO || lab.time.is_by_hand());
    next_released(&events, HoldEnd::GivenBack);
    waiter.join();
}

fn a_lock_lingers_and_is_taken_up(lab: &Lab) {
    let (builder, events) = told();
    let lingering = config("x", 3000).with_linger(HANG);
    let lock = lab.time.set(builder).build(lab.processor()).unwrap().generate_with(lingering).unwrap();
    // It lingers once the client hears whether others want it.
    let lingers = || {
        lock.lock().unwrap().unlock().unwrap();
        next_acquired(&events, How::Free);
        matches!(next(&events), Event::Released(released) if released.end == HoldEnd::Lingers)
    };
    eventually("it lingers", lingers);
    lock.lock().unwrap().unlock().unwrap();
    let acquired = next_acquired(&events, How::TakenUp);
    assert_eq!(next_released(&events, HoldEnd::Lingers).token, acquired.token);
}

/// Shows: G6.
fn a_lost_lock_is_lost_once_and_then_released(lab: &Lab) {
    let (builder, events) = told();
    let (say, losses) = unbounded();
    let builder = builder.on_lost(move |loss| say.send(loss.clone()).unwrap());
    let generator = lab.time.set(builder).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let guard = lock.lock().unwrap();
    let acquired = next_acquired(&events, How::Free);
    lab.delete(lock.key());
    lab.time.until("the loss is told", || !events.is_empty());
    let loss = next_lost(&events);
    assert_eq!((&*loss.key, &loss.cause), (lock.key(), &LossCause::Deleted));
    assert!(guard.unlock().is_err());
    assert_eq!(next_released(&events, HoldEnd::Lost).token, acquired.token);
    assert_eq!(lab.time.recv(&losses), loss, "both functions are told the same");

    // A loss that only the release shows: the next probe is ten seconds away.
    let lock = generator.generate_with(config("y", 60_000)).unwrap();
    let guard = lock.lock().unwrap();
    next_acquired(&events, How::Free);
    lab.overwrite(lock.key(), "somebody", Duration::from_millis(100));
    assert!(guard.unlock().is_err());
    assert_eq!(next_lost(&events).cause, LossCause::TakenOver { by: "somebody".to_owned() });
    next_released(&events, HoldEnd::Lost);
}

/// Shows: G6.
fn a_loss_that_only_a_posted_release_shows_follows_it(lab: &Lab) {
    let (generator, events) = client(lab);
    let lock = generator.generate_with(config("x", 60_000).with_probe(false)).unwrap();
    let guard = lock.lock().unwrap();
    let acquired = next_acquired(&events, How::Free);
    lab.delete(lock.key());
    drop(guard);
    assert_eq!(next_released(&events, HoldEnd::Sent).token, acquired.token);
    lab.time.until("the answer to the release is taken in", || !events.is_empty());
    assert_eq!(next_lost(&events).cause, LossCause::Deleted);
}

fn a_slow_wait_is_told_to_both_functions(lab: &Lab) {
    let (builder, events) = told();
    let (say, waits) = unbounded();
    let builder = builder.on_slow_wait(Duration::from_secs(9000), move |wait| say.send(wait.clone()).unwrap());
    let builder = builder.slow_wait_after(Duration::from_millis(30));
    let lock = lab.time.set(builder).build(lab.processor()).unwrap().generate_with(config("x", 3000)).unwrap();
    let holder = lab.generator().generate_with(config("x", 3000)).unwrap();
    let guard = holder.lock().unwrap();
    let waiter = spawn_with(&lock, move |lock| drop(lock.lock().unwrap()));
    lab.time.until("it is told", || !events.is_empty());
    let Event::SlowWait(wait) = next(&events) else { panic!("no slow wait") };
    assert_eq!(wait.key, lock.key());
    assert!(wait.waited >= Duration::from_millis(30));
    assert_eq!(format!("{:?}", lab.time.recv(&waits)), format!("{wait:?}"));
    guard.unlock().unwrap();
    waiter.join();
    next_acquired(&events, How::Granted);
    next_released(&events, HoldEnd::Sent);
}

fn what_nobody_gets_is_not_told(lab: &Lab) {
    let (generator, events) = client(lab);
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let holder = lab.generator().generate_with(config("x", 3000)).unwrap();
    let guard = holder.lock().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    assert!(lab.time.during(|| answered(|| lock.try_lock_for(Duration::from_millis(5))).is_none()));
    guard.unlock().unwrap();
    drop((lock, generator));
    let left: Vec<_> = events.iter().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Threads of two processes contend for keys that linger, are passed on, granted and lost.
///
/// Shows: G2.
fn the_events_of_a_key_are_in_order(lab: &Lab) {
    let settings = |n: usize| {
        let config = DLockConfig::new("TEST", format!("{n}")).with_lease(Duration::from_millis(400));
        if n == 0 { config.with_linger(Duration::from_millis(5)) } else { config }
    };
    let contend = |generator: &DLockGenerator, rounds: usize| {
        (0..4)
            .map(|thread| {
                let locks = [0, 1].map(|n| generator.generate_with(settings(n)).unwrap());
                spawn(move || {
                    for round in 0..rounds {
                        let guard = locks[(round + thread) % 2].lock().unwrap();
                        if round % 3 == 0 { drop(guard) } else { drop(guard.unlock()) }
                    }
                })
            })
            .collect::<Vec<_>>()
    };
    let (builder, events) = told();
    let (ours, others) = (lab.time.set(builder).build(lab.processor()).unwrap(), lab.generator());
    let threads: Vec<_> = contend(&ours, 100).into_iter().chain(contend(&others, 20)).collect();
    for round in 0..10 {
        let key = settings(round % 2).unique_key().to_owned();
        lab.overwrite(&key, "somebody", Duration::from_millis(20));
        lab.time.pass(Duration::from_millis(5));
    }
    threads.into_iter().for_each(|thread| lab.time.join(thread));
    drop((ours, others));
    let (mut held, mut last, mut acquired, mut kinds) = (HashMap::new(), HashMap::new(), 0, HashMap::new());
    for event in &events {
        match event {
            Event::Acquired(now) => {
                let key = now.lock.unique_key().to_owned();
                assert!(held.insert(key.clone(), now.token).is_none(), "two at a time: {now:?}");
                assert!(last.insert(key, now.token).unwrap_or(0) < now.token, "{now:?}");
                *kinds.entry(now.how).or_insert(0) += 1;
                acquired += 1;
            }
            Event::Released(ended) => {
                assert_eq!(held.remove(ended.lock.unique_key()), Some(ended.token), "{ended:?}");
            }
            Event::Lost(_) | Event::RenewedLate(_) | Event::SlowWait(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(acquired, 4 * 100, "each hold is told: {kinds:?}");
    assert!(held.is_empty(), "and its end: {held:?}");
}
