//! The inbox is a connection of its own: the word that others wait may come before the answer that brings the lock. It counts
//! all the same; else the threads of this process would pass the lock on among themselves for as long as they want it.

use crate::support::crew::{Member, eventually, spawn, spawn_with, wait_by};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use redis_dlock::DistributedReentrantLock;
use std::thread;
use std::time::Duration;

on_both_stores!(
    who_waits_behind_an_acquire_whose_answer_is_late_is_let_in,
    who_waits_behind_a_single_attempt_whose_answer_is_late_is_let_in,
    who_waits_behind_a_next_locker_whose_answer_is_late_is_let_in,
);

const HOUR: u64 = 3_600_000;

/// Threads that want the lock, more than may have it when others wait.
const CROWD: usize = 40;

/// The first one, and 16 that it is passed on to.
const TURN: usize = 17;

/// Threads that wait, one hold each: their tokens.
fn crowd(lock: &DistributedReentrantLock) -> Vec<Member<u64>> {
    (0..CROWD).map(|_| wait_by(lock, |lock| lock.lock().unwrap().fencing_token())).collect()
}

fn behind_a_late_acquire(lab: &Lab, take: fn(&DistributedReentrantLock) -> u64) {
    let (here, watch) = lab.listening_generator();
    let (there, _) = lab.listening_generator();
    let [here, there] = [&here, &there].map(|client| client.generate_with(config("x", HOUR)).unwrap());
    let answer = watch.stop_next(Kind::Acquire, When::Coming);
    let first = spawn_with(&here, take);
    answer.wait();
    let crowd = crowd(&here);
    let heard = watch.heard();
    let other = spawn(move || there.lock().unwrap().fencing_token());
    eventually("it is told that another process waits", || watch.heard() > heard);
    answer.open();
    let (first, other) = (first.join(), other.join());
    let before = crowd.into_iter().map(Member::join).filter(|token| (first..other).contains(token)).count();
    assert!(before < TURN, "{before} holds after the first");
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G8, L4.
fn who_waits_behind_an_acquire_whose_answer_is_late_is_let_in(lab: &Lab) {
    behind_a_late_acquire(lab, |lock| lock.lock().unwrap().fencing_token());
}

/// Shows: G8, L4.
fn who_waits_behind_a_single_attempt_whose_answer_is_late_is_let_in(lab: &Lab) {
    behind_a_late_acquire(lab, |lock| lock.try_lock().unwrap().unwrap().fencing_token());
}

/// Shows: G8, L4.
fn who_waits_behind_a_next_locker_whose_answer_is_late_is_let_in(lab: &Lab) {
    let (here, watch) = lab.listening_generator();
    let (there, _) = lab.listening_generator();
    let [here, there] = [&here, &there].map(|client| client.generate_with(config("x", HOUR)).unwrap());
    let guard = here.lock().unwrap();
    let crowd = crowd(&here);
    let heard = watch.heard();
    let other = spawn(move || [(); 2].map(|()| there.lock().unwrap().fencing_token()));
    eventually("it is told that another process waits", || watch.heard() == heard + 1);
    // After 10 ms it passes the lock on no more.
    lab.time.pass(Duration::from_millis(30));
    let answer = watch.stop_next(Kind::Release, When::Coming);
    let releasing = thread::scope(|scope| {
        let opener = scope.spawn(|| {
            answer.wait();
            eventually("it is given the lock back, and told that the other waits again", || watch.heard() == heard + 3);
            answer.open();
        });
        guard.unlock().unwrap();
        opener.join()
    });
    releasing.unwrap();
    let [first, second] = other.join();
    let before = crowd.into_iter().map(Member::join).filter(|token| (first..second).contains(token)).count();
    assert!(before <= TURN, "{before} holds between the two of the other process");
    eventually("nothing is left", || lab.leftovers().is_empty());
}
