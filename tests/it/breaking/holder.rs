//! How a holder is told that its hold was broken, and by whom.

use super::orders::{HOUR, WHY, assert_broken, break_lock, operator, probed, seen, take_from_holder, unlooked};
use crate::support::cause;
use crate::support::crew::{HANG, eventually};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, Watch, Watched, When};
use crossbeam_channel::unbounded;
use redis_dlock::{BreakOutcome, Error, LossCause, Moment};
use std::time::Duration;

on_both_stores!(
    it_is_told_by_its_probe,
    it_is_told_by_a_message_long_before_a_probe,
    one_that_hears_nothing_is_told_by_its_probe,
    without_probes_it_is_told_by_its_next_extension,
    it_is_told_by_its_unlock_at_the_latest,
    a_reason_that_comes_late_is_told_by_the_unlock,
    a_message_before_the_answer_that_made_it_the_holder_is_not_lost,
    its_hook_is_told_once,
    many_that_lose_their_locks_are_told_of_the_right_ones,
    who_gave_the_order_is_named,
    whatever_the_reason_contains_is_one_short_line,
    what_lingers_is_taken_too,
    names_that_cannot_be_are_refused,
);

/// The kind of the one call by which a client has looked since a break, and found it. If there is none, the last call was under way before.
fn look_since(watch: &Watch, broken: Moment) -> Kind {
    let mut calls = watch.calls();
    calls.retain(|call| !call.unanswered);
    assert!(calls.iter().filter(|call| call.at > broken).count() <= 1, "{calls:?}");
    calls.last().expect("a call").kind
}

/// Shows: G5, G6.
fn it_is_told_by_its_probe(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(probed());
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    assert_eq!(take_from_holder(lab, &lock), None);
    let broken = lab.time.now();
    lab.time.recv(&lost);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert_eq!(look_since(&watch, broken), Kind::Probe);
    assert_broken(&guard.loss().unwrap().cause);
    assert_broken(&cause(guard.ensure_valid()));
    assert_broken(&cause(lock.lock()));
    let locker = guard.loss().unwrap().locker;
    assert_broken(&cause(guard.unlock()));
    assert!(lab.holder(lock.key()).is_none());
    // Only that tenure was broken.
    let guard = lock.lock().unwrap();
    assert_ne!(seen(&lock), locker);
    guard.unlock().unwrap();
}

/// Its next probe would come in ten minutes.
fn it_is_told_by_a_message_long_before_a_probe(lab: &Lab) {
    if !crate::support::lab::is_listener_on() {
        return;
    }
    let (generator, _) = lab.listening_generator();
    for probes in [true, false] {
        let lock = generator.generate_with(unlooked().with_probe(probes)).unwrap();
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        take_from_holder(lab, &lock);
        lost.recv_timeout(HANG).expect("it is told");
        assert_broken(&cause(guard.unlock()));
    }
}

/// Shows: G5.
fn one_that_hears_nothing_is_told_by_its_probe(lab: &Lab) {
    let (lock, _) = lab.deaf_lock(probed());
    let guard = lock.lock().unwrap();
    take_from_holder(lab, &lock);
    lab.time.recv(&guard.lost());
    assert_broken(&cause(guard.unlock()));
}

fn without_probes_it_is_told_by_its_next_extension(lab: &Lab) {
    let (generator, watch) = lab.deaf_generator();
    let lock = generator.generate_with(probed().with_probe(false).with_renew_at(0.2)).unwrap();
    let guard = lock.lock().unwrap();
    take_from_holder(lab, &lock);
    let broken = lab.time.now();
    // Somebody else has it by now.
    let elsewhere = lab.generator().generate_with(unlooked()).unwrap();
    let other = elsewhere.lock().unwrap();
    lab.time.recv(&guard.lost());
    assert_eq!((look_since(&watch, broken), watch.count_of(Kind::Probe)), (Kind::Extend, 0));
    assert_broken(&cause(guard.unlock()));
    assert!(other.is_valid());
    other.unlock().unwrap();
}

fn it_is_told_by_its_unlock_at_the_latest(lab: &Lab) {
    let lock = lab.generator().generate_with(unlooked()).unwrap();
    let guard = lock.lock().unwrap();
    take_from_holder(lab, &lock);
    assert!(guard.is_valid(), "nobody has looked yet");
    assert_broken(&cause(guard.unlock()));
}

/// Who has noticed the loss does not wait for it.
fn a_reason_that_comes_late_is_told_by_the_unlock(lab: &Lab) {
    let (lock, watch) = lab.deaf_lock(probed());
    watch.delay_reason(lab.processor().limits().command);
    let guard = lock.lock().unwrap();
    take_from_holder(lab, &lock);
    lab.time.recv(&guard.lost());
    assert_broken(&cause(guard.unlock()));
}

/// The hold is broken when the store has granted it and the holder does not know that yet.
fn a_message_before_the_answer_that_made_it_the_holder_is_not_lost(lab: &Lab) {
    if !crate::support::lab::is_listener_on() {
        return;
    }
    let (lock, watch) = lab.listening_lock(unlooked());
    let acquired = watch.stop_next(Kind::Acquire, When::Coming);
    let heard = watch.heard();
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            guard.lost().recv_timeout(HANG).expect("it is told");
            assert_broken(&cause(guard.unlock()));
        });
        acquired.wait();
        take_from_holder(lab, &lock);
        eventually("the message is heard", || watch.heard() > heard);
        acquired.open();
        holder.join().unwrap();
    });
}

fn its_hook_is_told_once(lab: &Lab) {
    let (say, losses) = unbounded();
    let builder = lab.builder().on_lost(move |loss| say.send(loss.clone()).unwrap());
    let generator = builder.build(Watched::unseen(lab.processor())).unwrap();
    let lock = generator.generate_with(probed()).unwrap();
    let guard = lock.lock().unwrap();
    let locker = seen(&lock);
    take_from_holder(lab, &lock);
    let loss = lab.time.recv(&losses);
    assert_eq!((loss.key.as_str(), loss.locker), (lock.key(), locker));
    assert_broken(&loss.cause);
    assert!(guard.unlock().is_err());
    drop((lock, generator));
    assert!(losses.recv_timeout(HANG).is_err(), "once, and the thread has ended");
}

/// All are lost in one round of the lease thread.
fn many_that_lose_their_locks_are_told_of_the_right_ones(lab: &Lab) {
    let (generator, _) = lab.deaf_generator();
    let locks: Vec<_> = (0..30).map(|n| generator.generate_with(config(&format!("x{n}"), 3000)).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let operator = operator(lab);
    for (n, lock) in locks.iter().enumerate() {
        match n % 3 {
            0 => {
                let reason = format!("{WHY} {n}");
                let outcome = operator.break_lock("TEST", lock.target(), &seen(lock), &reason).unwrap();
                assert!(matches!(outcome, BreakOutcome::Broken { .. }));
            }
            1 => lab.delete(lock.key()),
            _ => {}
        }
    }
    for (n, guard) in guards.into_iter().enumerate() {
        if n % 3 == 2 {
            guard.unlock().unwrap();
            continue;
        }
        lab.time.recv(&guard.lost());
        match cause(guard.unlock()) {
            LossCause::Broken { reason, .. } => assert_eq!((n % 3, reason), (0, format!("{WHY} {n}"))),
            LossCause::Deleted => assert_eq!(n % 3, 1),
            other => panic!("{n}: {other:?}"),
        }
    }
}

fn who_gave_the_order_is_named(lab: &Lab) {
    let lock = lab.generator().generate_with(unlooked()).unwrap();
    let operator = operator(lab);
    let own = operator.generate_with(config("of the operator", HOUR)).unwrap();
    let _held = own.lock().unwrap();
    let guard = lock.lock().unwrap();
    assert!(matches!(break_lock(&operator, &lock, &seen(&lock)), BreakOutcome::Broken { .. }));
    let LossCause::Broken { by, .. } = cause(guard.unlock()) else { panic!("another cause") };
    assert_eq!(seen(&own).rsplit_once('-').unwrap().0, by);
}

fn whatever_the_reason_contains_is_one_short_line(lab: &Lab) {
    let long = "\u{1b}[2J名".repeat(1_000_000);
    for reason in [
        "",
        " ",
        "two  spaces, and DLOCK_TEST_x broken a-1 DLOCK_TEST_x",
        "a\r\nb\0c\u{202e}d\u{1b}[31m",
        "{} %s $1 '; DROP \"quoted\" \\",
        &long,
    ] {
        let lock = lab.generator().generate_with(unlooked()).unwrap();
        let guard = lock.lock().unwrap();
        let outcome = operator(lab).break_lock("TEST", "x", &seen(&lock), reason).unwrap();
        assert!(matches!(outcome, BreakOutcome::Broken { next: None, waiting: 0, .. }));
        let error = guard.unlock().unwrap_err();
        let text = error.to_string();
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}') && text.len() < 4000, "{text}");
        let Error::LeaseLost(loss) = error else { panic!("{error:?}") };
        let LossCause::Broken { reason: told, .. } = loss.cause else { panic!("{loss:?}") };
        let is_plain = !reason.contains(|c: char| c.is_control() || c == '\u{202e}');
        assert!(told == reason || !is_plain, "{told:?}");
        assert!(reason.is_empty() == told.is_empty());
    }
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Nobody is inside, so nobody is told.
fn what_lingers_is_taken_too(lab: &Lab) {
    if !crate::support::lab::is_listener_on() {
        return;
    }
    let (generator, watch) = lab.listening_generator();
    let lock = generator.generate_with(unlooked().with_linger(Duration::from_secs(3600))).unwrap();
    let first = lock.lock().unwrap();
    let token = first.fencing_token();
    first.unlock().unwrap();
    let heard = watch.heard();
    take_from_holder(lab, &lock);
    eventually("the message is heard", || watch.heard() > heard);
    let elsewhere = lab.generator().generate_with(unlooked()).unwrap();
    let other = elsewhere.try_lock().unwrap().expect("it is free");
    eventually("it does not linger any more", || lock.try_lock().unwrap().is_none());
    assert!(other.fencing_token() > token && other.is_valid());
    other.unlock().unwrap();
    assert!(lock.lock().unwrap().fencing_token() > token);
}

fn names_that_cannot_be_are_refused(lab: &Lab) {
    let generator = operator(lab);
    let refused = generator.break_lock("", "x", "a-1", WHY).unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { .. }), "{refused}");
    generator.close();
    assert!(matches!(generator.break_lock("TEST", "x", "a-1", WHY), Err(Error::ShutDown)));
}
