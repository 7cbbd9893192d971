//! A copy of a running process, whose client makes the same lockers: imitated by keys that contain the locker that comes next.

use crate::support::crew::{HANG, Member, eventually, spawn, spawn_with};
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, When};
use crossbeam_channel::RecvTimeoutError;
use redis_dlock::{DLockGuard, DistributedReentrantLock, Error, LossCause};
use std::time::Duration;

on_both_stores!(
    who_meets_its_twin_loses_what_it_has_and_goes_on_under_another_name,
    a_thread_that_waits_goes_on_under_another_name,
    a_place_that_was_asked_for_when_it_met_its_twin_is_left_to_that,
    a_lock_that_was_asked_for_when_it_met_its_twin_is_left_to_that,
    who_meets_its_twin_while_its_inbox_is_opened_hears_under_its_new_name,
    a_locker_that_it_has_never_made_is_a_twins,
    a_hold_that_a_locker_has_replaced_which_it_has_never_made_is_lost_to_a_twin,
);

const MINUTE: Duration = Duration::from_secs(60);

fn client_of(locker: &str) -> &str {
    locker.rsplit_once('-').unwrap().0
}

/// The locker that comes after this one.
fn next_of(locker: &str) -> String {
    later_than(locker, 1)
}

/// The locker that comes so many after this one.
fn later_than(locker: &str, count: u64) -> String {
    let (client, n) = locker.rsplit_once('-').unwrap();
    format!("{client}-{}", n.parse::<u64>().unwrap() + count)
}

/// Shows: G1, G2, G6.
fn who_meets_its_twin_loses_what_it_has_and_goes_on_under_another_name(lab: &Lab) {
    let generator = lab.generator();
    let [held, twin] = ["held", "twin"].map(|target| generator.generate_with(config(target, 60_000)).unwrap());
    let guard = held.lock().unwrap();
    let lost = guard.lost();
    let mine = lab.holder(held.key()).unwrap().holder;
    let theirs = next_of(&mine);
    lab.overwrite(twin.key(), &theirs, MINUTE);
    let met = twin.lock();
    assert!(matches!(&met, Err(Error::Cloned { locker, .. }) if *locker == theirs), "{met:?}");
    drop(met);
    assert_ne!(lost.recv_timeout(HANG), Err(RecvTimeoutError::Timeout));
    assert!(!guard.is_valid());
    assert_eq!(guard.loss().map(|loss| loss.cause), Some(LossCause::Cloned));
    assert!(matches!(guard.unlock(), Err(Error::LeaseLost(loss)) if loss.cause == LossCause::Cloned));
    // Nothing of the twin's was released: neither what it alone has, nor what both have had.
    assert_eq!(lab.holder(twin.key()).unwrap().holder, theirs);
    assert_eq!(lab.holder(held.key()).unwrap().holder, mine);
    assert!(twin.try_lock().unwrap().is_none(), "it is the twin's");
    let other = generator.generate_with(config("other", 60_000)).unwrap();
    let guard = other.lock().unwrap();
    let fresh = lab.holder(other.key()).unwrap().holder;
    assert_ne!(client_of(&fresh), client_of(&mine));
    // It hears of grants under the new name.
    let waiter = lab.generator().generate_with(config("other", 60_000)).unwrap();
    let waiter = spawn(move || waiter.with(|_| ()).unwrap());
    eventually("it waits", || lab.waiting(other.key()) == 1);
    guard.unlock().unwrap();
    waiter.join();
}

fn a_thread_that_waits_goes_on_under_another_name(lab: &Lab) {
    let generator = lab.generator();
    let [wanted, twin, probe] =
        ["wanted", "twin", "probe"].map(|target| generator.generate_with(config(target, 60_000)).unwrap());
    let holder = lab.generator().generate_with(config("wanted", 60_000)).unwrap();
    let guard = holder.lock().unwrap();
    let waiter = spawn_with(&wanted, move |wanted| wanted.with(|_| wanted.holder().unwrap().unwrap().locker).unwrap());
    eventually("it waits", || lab.waiting(wanted.key()) == 1);
    let guard_of_probe = probe.lock().unwrap();
    let mine = lab.holder(probe.key()).unwrap().holder;
    lab.overwrite(twin.key(), &next_of(&mine), MINUTE);
    drop(guard_of_probe);
    assert!(matches!(twin.try_lock(), Err(Error::Cloned { .. })));
    unlock_for_a_new_name(lab, &holder, guard, client_of(&mine));
    let locker = lab.time.join(waiter);
    assert_ne!(client_of(&locker), client_of(&mine));
}

/// Unlocks when a waiter that has met its twin has a place under its new name. The place under the old name is left to the twin, which may hear of
/// a grant for as long as the inbox of that name is open.
fn unlock_for_a_new_name(lab: &Lab, holder: &DistributedReentrantLock, guard: DLockGuard<'_>, old: &str) {
    // Not every store names who waits.
    lab.time.until_soon("it has another place", || lab.waiting(holder.key()) == 2);
    guard.unlock().unwrap();
    if lab.holder(holder.key()).is_some_and(|found| client_of(&found.holder) == old) {
        // A consensus store passes over no place whose session lives: the twin comes first. A client that finds the key free gives it on.
        lab.delete(holder.key());
        assert!(holder.try_lock().unwrap().is_none());
    }
}

/// A client that meets its twin while a question of another thread is under way.
fn meet_during<R>(
    lab: &Lab,
    target: &str,
    ask: impl FnOnce(DistributedReentrantLock) -> R + Send + 'static,
) -> (String, Member<R>)
where
    R: Send + 'static,
{
    let (generator, watch) = lab.listening_generator();
    let [wanted, twin, probe] =
        [target, "twin", "probe"].map(|target| generator.generate_with(config(target, 3_600_000)).unwrap());
    let guard = probe.lock().unwrap();
    let mine = lab.holder(probe.key()).unwrap().holder;
    guard.unlock().unwrap();
    let asking = watch.stop_next(Kind::Acquire, When::Coming);
    let asks = spawn(move || ask(wanted));
    asking.wait();
    lab.overwrite(twin.key(), &later_than(&mine, 1000), MINUTE);
    assert!(matches!(twin.try_lock(), Err(Error::Cloned { .. })));
    asking.open();
    (client_of(&mine).to_owned(), asks)
}

/// The twin may stand there. The thread asks for another place, as soon as the inbox of the new name is open.
/// Shows: L1.
fn a_place_that_was_asked_for_when_it_met_its_twin_is_left_to_that(lab: &Lab) {
    // In a Cluster the client hears of this key alone, and a question about another one joins no queue.
    let holder = lab.generator().generate_with(config("x", 3_600_000)).unwrap();
    let guard = holder.lock().unwrap();
    let (client, waiter) =
        meet_during(lab, "x", |wanted| wanted.with(|_| wanted.holder().unwrap().unwrap().locker).unwrap());
    unlock_for_a_new_name(lab, &holder, guard, &client);
    assert_ne!(client_of(&lab.time.join(waiter)), client);
}

/// The twin may have it.
/// Shows: G1.
fn a_lock_that_was_asked_for_when_it_met_its_twin_is_left_to_that(lab: &Lab) {
    let (client, asks) = meet_during(lab, "wanted", |wanted| wanted.lock().map(drop));
    let got = asks.join();
    assert!(matches!(got, Err(Error::Cloned { .. })), "{got:?}");
    let wanted = lab.generator().generate_with(config("wanted", 3_600_000)).unwrap();
    assert_eq!(client_of(&lab.holder(wanted.key()).unwrap().holder), client);
}

/// The inbox that was opened is that of the name before.
/// Shows: L1.
fn who_meets_its_twin_while_its_inbox_is_opened_hears_under_its_new_name(lab: &Lab) {
    let (processor, watch) = lab.watched();
    let generator = lab.builder().build(processor).unwrap();
    let [wanted, twin, probe] =
        ["wanted", "twin", "probe"].map(|target| generator.generate_with(config(target, 3_600_000)).unwrap());
    let holder = lab.generator().generate_with(config("wanted", 3_600_000)).unwrap();
    let guard = holder.lock().unwrap();
    probe.lock().unwrap().unlock().unwrap();
    let probed = probe.lock().unwrap();
    let theirs = later_than(&lab.holder(probe.key()).unwrap().holder, 1000);
    drop(probed);
    let opening = watch.stop_next(Kind::Inbox, When::Coming);
    let waiter = spawn(move || wanted.with(|_| wanted.holder().unwrap().unwrap().locker).unwrap());
    opening.wait();
    lab.overwrite(twin.key(), &theirs, MINUTE);
    assert!(matches!(twin.try_lock(), Err(Error::Cloned { .. })));
    opening.open();
    eventually("it has a place", || lab.waiting(holder.key()) == 1);
    eventually("it listens", || watch.listening() > 0);
    // No time passes in which it would ask: it is told.
    guard.unlock().unwrap();
    assert_ne!(client_of(&waiter.join()), client_of(&theirs));
}

/// The twin has made more lockers.
fn a_locker_that_it_has_never_made_is_a_twins(lab: &Lab) {
    let generator = lab.generator();
    let [held, twin] = ["held", "twin"].map(|target| generator.generate_with(config(target, 60_000)).unwrap());
    let guard = held.lock().unwrap();
    let mine = lab.holder(held.key()).unwrap().holder;
    // A hold that was lost before, and whose locker holds again.
    let gone = generator.generate_with(config("gone", 3000)).unwrap();
    let lost = gone.lock().unwrap();
    let earlier = lab.holder(gone.key()).unwrap().holder;
    lab.delete(gone.key());
    lab.time.recv(&lost.lost());
    lab.overwrite(gone.key(), &earlier, MINUTE);
    let theirs = later_than(&mine, 1000);
    lab.overwrite(twin.key(), &theirs, MINUTE);
    let met = twin.try_lock();
    assert!(matches!(&met, Err(Error::Cloned { locker, .. }) if *locker == theirs), "{met:?}");
    drop(met);
    assert_eq!(guard.loss().map(|loss| loss.cause), Some(LossCause::Cloned));
    drop((guard, lost));
    let found = [&held, &gone, &twin].map(|lock| lab.holder(lock.key()).unwrap().holder);
    assert_eq!(found, [mine, earlier, theirs]);
}

/// Both had the lock when the copy was made. The twin has given it back, and has got it once more.
fn a_hold_that_a_locker_has_replaced_which_it_has_never_made_is_lost_to_a_twin(lab: &Lab) {
    let generator = lab.generator();
    let [lock, other] = ["held", "other"].map(|target| generator.generate_with(config(target, 3000)).unwrap());
    let (guard, also) = (lock.lock().unwrap(), other.lock().unwrap());
    let told = [&guard, &also].map(|guard| guard.lost());
    let theirs = later_than(&lab.holder(other.key()).unwrap().holder, 1);
    lab.overwrite(lock.key(), &theirs, MINUTE);
    // One hold is lost after the other.
    for lost in &told {
        lab.time.recv(lost);
    }
    assert_eq!(
        [&guard, &also].map(|guard| guard.loss().map(|loss| loss.cause)),
        [const { Some(LossCause::Cloned) }; 2]
    );
    drop((guard, also));
    assert_eq!(lab.holder(lock.key()).unwrap().holder, theirs);
}
