//! `hold_async()` and its other forms: a hold that a task awaits.

use super::holds::{Way, are_served_in_order, is_handed_over};
use crate::support::cause;
use crate::support::crew::{answered, eventually, spawn};
use crate::support::lab::{Lab, config, is_listener_on, on_both_stores};
use crate::support::watched::{Kind, When};
use futures_lite::future::{block_on, poll_once};
use redis_dlock::{BackendFailure, Error};
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

on_both_stores!(
    a_task_gets_a_hold_and_releases_it,
    a_single_attempt_and_a_limit_end_without_the_lock,
    tasks_and_threads_are_served_in_the_order_in_which_they_came,
    it_is_handed_over_between_clients,
    a_dropped_future_leaves_nothing,
    a_dropped_future_that_was_given_the_lock_gives_it_back,
    it_is_told_of_its_loss,
    it_lingers_and_is_taken_up_again,
    a_closed_client_sends_waiting_tasks_away_and_ends_with_its_last_hold,
    an_unreachable_store_refuses_it,
    several_are_awaited_together,
    tasks_that_end_together_give_back_in_one_batch,
    a_leader_is_awaited,
);

fn a_task_gets_a_hold_and_releases_it(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let hold = block_on(lock.hold_async()).unwrap();
    assert!(hold.is_valid() && hold.ensure_valid().is_ok());
    assert!(lab.holder(lock.key()).is_some());
    let token = hold.fencing_token();
    block_on(hold.release_async()).unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
    let hold = block_on(lock.hold_async()).unwrap();
    assert!(hold.fencing_token() > token);
    drop(hold);
    let hold = block_on(lock.try_hold_async()).unwrap().expect("free once the release is sent");
    assert!(hold.fencing_token() > token + 1);
    // A blocking release is as good, and another thread may do it.
    spawn(move || hold.release().unwrap()).join();
    eventually("nothing is left", || lab.leftovers().is_empty());
}

/// Shows: G12.
fn a_single_attempt_and_a_limit_end_without_the_lock(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let other = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let held = other.lock().unwrap();
    assert!(block_on(lock.try_hold_async()).unwrap().is_none());
    assert!(block_on(lock.try_hold_async_for(Duration::ZERO)).unwrap().is_none());
    assert!(watch.count() > 0);
    let soon = Duration::from_millis(50);
    assert!(lab.time.during(|| answered(|| block_on(lock.try_hold_async_for(soon)))).is_none());
    assert!(lab.time.during(|| answered(|| block_on(lock.try_hold_async_until(Instant::now() + soon)))).is_none());
    drop(held);
    assert!(lab.time.during(|| block_on(lock.try_hold_async_for(Duration::from_secs(3600))).unwrap()).is_some());
}

const AWAITED: Way = Way {
    take: |lock| block_on(lock.hold_async()).unwrap(),
    release: |hold| block_on(hold.release_async()).unwrap(),
    pass: drop,
};

fn tasks_and_threads_are_served_in_the_order_in_which_they_came(lab: &Lab) {
    are_served_in_order(lab, &AWAITED);
}

fn it_is_handed_over_between_clients(lab: &Lab) {
    is_handed_over(lab, &AWAITED);
}

fn a_dropped_future_leaves_nothing(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    drop(lock.hold_async());
    let other = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let held = other.lock().unwrap();
    let mut waits = Box::pin(lock.hold_async());
    assert!(block_on(poll_once(&mut waits)).is_none());
    eventually("it waits in the store", || !is_listener_on() || lab.waiting(lock.key()) == 1);
    drop(waits);
    assert_eq!(lock.queue_length(), 0);
    eventually("its place is given back", || lab.waiting(lock.key()) == 0);
    held.unlock().unwrap();
    eventually("nothing is left", || lab.leftovers().is_empty());
}

fn a_dropped_future_that_was_given_the_lock_gives_it_back(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let mut given = Box::pin(lock.hold_async());
    assert!(block_on(poll_once(&mut given)).is_none());
    eventually("it is given the lock", || lab.holder(lock.key()).is_some());
    drop(given);
    assert!(lab.time.during(|| block_on(lock.try_hold_async()).unwrap()).is_some());
    eventually("nothing is left", || lab.leftovers().is_empty());
}

/// Shows: G5, G6.
fn it_is_told_of_its_loss(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 1500)).unwrap();
    let hold = block_on(lock.hold_async()).unwrap();
    let mut lost = hold.lost_async();
    assert!(block_on(poll_once(&mut lost)).is_none());
    lab.delete(lock.key());
    lab.time.during(|| block_on(lost));
    assert!(!hold.is_valid() && hold.remaining().is_zero());
    assert!(block_on(poll_once(hold.lost_async())).is_some(), "at once");
    assert_eq!(cause(hold.ensure_valid()), hold.loss().unwrap().cause);
    assert!(block_on(lock.try_hold_async()).unwrap().is_none(), "a lost hold keeps others of its process out");
    assert!(matches!(block_on(hold.release_async()), Err(Error::LeaseLost(_))));
    assert!(block_on(lock.try_hold_async()).unwrap().is_some());
}

fn it_lingers_and_is_taken_up_again(lab: &Lab) {
    let (lock, watch) = lab.listening_lock(config("x", 30_000).with_linger(Duration::from_secs(3600)));
    let first = block_on(lock.hold_async()).unwrap();
    let token = first.fencing_token();
    let asked = watch.count();
    drop(first);
    let second = block_on(poll_once(lock.hold_async())).expect("at once").unwrap();
    assert!(second.fencing_token() > token);
    block_on(second.release_async()).unwrap();
    assert_eq!(watch.count(), asked, "{:?}", watch.calls());
    let other = lab.listening_generator().0.generate_with(config("x", 30_000)).unwrap();
    // A recall is short, and fails now and then on a busy machine. Without one, none would succeed within the hour.
    let recalled = (0..50).any(|_| block_on(other.try_hold_async()).unwrap().is_some());
    assert!(recalled, "a single attempt recalls it");
}

/// Shows: L6.
fn a_closed_client_sends_waiting_tasks_away_and_ends_with_its_last_hold(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let hold = block_on(lock.hold_async()).unwrap();
    let mut waits = Box::pin(lock.hold_async());
    assert!(block_on(poll_once(&mut waits)).is_none());
    // On the thread that polls the tasks: it waits for none of them.
    generator.close();
    assert!(matches!(block_on(waits), Err(Error::ShutDown)));
    assert!(matches!(block_on(lock.hold_async()), Err(Error::ShutDown)));
    assert!(hold.is_valid());
    drop(hold);
    eventually("nothing is left", || lab.leftovers().is_empty());
}

fn an_unreachable_store_refuses_it(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 30_000));
    watch.fail(BackendFailure::NotExecuted);
    assert!(matches!(block_on(lock.try_hold_async()), Err(Error::Backend { .. })));
    let soon = Duration::from_millis(50);
    assert!(lab.time.during(|| block_on(lock.try_hold_async_for(soon))).is_err());
    watch.silence();
    // The client's thread waits for the store, and the task does not.
    assert!(lab.time.during(|| block_on(lock.try_hold_async_for(soon))).is_err());
    watch.heal();
    assert!(lab.time.during(|| block_on(lock.hold_async()).unwrap()).is_valid());
}

/// A task that nobody polls when it is woken.
struct Ignored;

impl Wake for Ignored {
    fn wake(self: Arc<Self>) {}
}

/// Shows: G1, L2.
fn several_are_awaited_together(lab: &Lab) {
    let generator = lab.generator();
    let names = ["a", "b", "c"];
    let both = |wanted: [usize; 2]| wanted.map(|n| config(names[n], 30_000));
    let forever = Duration::MAX;
    let holds = block_on(generator.hold_all_async(both([2, 0]), forever)).unwrap().unwrap();
    assert!(holds.is_valid() && holds.fencing_tokens().len() == 2);
    // All or none: what was taken before the one that is held goes back.
    assert!(block_on(generator.hold_all_async(both([1, 2]), Duration::ZERO)).unwrap().is_none());
    let free = generator.generate_with(config("b", 30_000)).unwrap();
    assert!(lab.time.during(|| block_on(free.hold_async()).unwrap()).is_valid());
    // A future that is dropped when it has one of them, and waits for the other, leaves neither.
    let other = lab.generator();
    let (first, last) = (free.key(), other.generate_with(config("c", 30_000)).unwrap());
    let mut dropped = Box::pin(other.hold_all_async(both([2, 1]), forever));
    lab.time.until_soon("it has one, and waits for the other", || {
        block_on(poll_once(&mut dropped)).is_none() && lab.holder(first).is_some() && last.queue_length() == 1
    });
    drop(dropped);
    eventually("it leaves neither", || lab.holder(first).is_none() && lab.waiting(last.key()) == 0);
    // However many it has, a poll keeps the same few wakers: for the wait, for the losses, and for the limit.
    let names = (10..40).map(|n| n.to_string()).chain(["c".to_owned()]);
    let mut many = Box::pin(other.hold_all_async(names.map(|name| config(&name, 30_000)), Duration::from_secs(3600)));
    lab.time.until_soon("it waits for the last one", || {
        block_on(poll_once(&mut many)).is_none() && last.queue_length() == 1
    });
    let ignored = Arc::new(Ignored);
    let is_pending = many.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&ignored)))).is_pending();
    assert!(is_pending && Arc::strong_count(&ignored) <= 4, "{} kept", Arc::strong_count(&ignored) - 1);
    drop(many);
    assert_eq!(last.queue_length(), 0);
    let mut waits = Box::pin(generator.hold_all_async(both([0, 1]), forever));
    assert!(block_on(poll_once(&mut waits)).is_none());
    block_on(holds.release_async()).unwrap();
    let holds = lab.time.during(|| block_on(waits).unwrap().unwrap());
    drop(holds);
    eventually("nothing is left", || lab.leftovers().is_empty());
}

/// Ten hold, ten wait for the same locks, and all end while the thread that sends for them waits for an answer.
/// Shows: L2.
fn tasks_that_end_together_give_back_in_one_batch(lab: &Lab) {
    for waiters_end_first in [false, true] {
        let (generator, watch) = lab.watched_generator();
        let lock = |n: u32| generator.generate_with(config(&n.to_string(), 30_000)).unwrap();
        let locks: Vec<_> = (0..10).map(lock).collect();
        let holds: Vec<_> = locks.iter().map(|lock| block_on(lock.hold_async()).unwrap()).collect();
        let mut waits: Vec<_> = locks.iter().map(|lock| Box::pin(lock.hold_async())).collect();
        assert!(waits.iter_mut().all(|wait| block_on(poll_once(wait)).is_none()));
        let busy = watch.stop_next(Kind::Acquire, When::Going);
        let mut another = Box::pin(lock(10).hold_async());
        assert!(block_on(poll_once(&mut another)).is_none());
        busy.wait();
        if waiters_end_first {
            drop((waits, holds));
        } else {
            drop((holds, waits));
        }
        busy.open();
        drop(block_on(another).unwrap());
        eventually("nothing is left", || lab.leftovers().is_empty());
        let releases = watch.calls_of(Kind::Release);
        let of_ten: Vec<_> = releases.iter().filter(|call| call.key != lock(10).key()).collect();
        assert!(of_ten.len() == 10 && of_ten.iter().all(|call| call.trip == of_ten[0].trip), "{releases:?}");
    }
}

/// Shows: G5, G7.
fn a_leader_is_awaited(lab: &Lab) {
    let generator = lab.generator();
    let leader = generator.leader_with(config("x", 1500)).unwrap();
    let mut terms = Vec::new();
    let led = leader.run_async(async |term| {
        terms.push(term.token());
        match terms.len() {
            // A loss, a pause, and another campaign.
            1 => {
                lab.delete(leader.lock().key());
                term.lost_async().await;
                assert!(!term.is_valid());
                ControlFlow::Continue(())
            }
            2 => {
                term.resign_async().await.unwrap();
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    });
    lab.time.during(|| block_on(led)).unwrap();
    assert!(terms.len() == 3 && terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    // A campaign that is dropped leaves its place, and a closed client ends one.
    let held = leader.lock().lock().unwrap();
    let mut campaign = Box::pin(leader.run_async(async |_| ControlFlow::Break(())));
    assert!(block_on(poll_once(&mut campaign)).is_none());
    drop(campaign);
    assert_eq!(leader.lock().queue_length(), 0);
    let mut campaign = Box::pin(leader.run_async(async |_| ControlFlow::Break(())));
    assert!(block_on(poll_once(&mut campaign)).is_none());
    generator.close();
    assert!(matches!(block_on(campaign), Err(Error::ShutDown)));
    drop(held);
}
