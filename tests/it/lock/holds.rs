//! `hold()` and its other forms: a hold that belongs to no thread.

use crate::support::cause;
use crate::support::crew::{answered, eventually, spawn, spawn_named, spawn_with, wait_by};
use crate::support::journal;
use crate::support::lab::{Lab, config, is_listener_on, on_both_stores};
use crate::support::watched::Kind;
use crossbeam_channel::unbounded;
use redis_dlock::{CancelToken, DistributedReentrantLock, Error, Hold, Moment};
use std::collections::HashMap;
use std::time::{Duration, Instant};

on_both_stores!(
    any_thread_may_query_it_and_release_it,
    a_map_of_holds_outlives_the_threads_that_took_them,
    nobody_enters_it_again,
    every_way_to_take_one_ends_with_it_or_by_its_limit,
    holds_and_guards_are_served_in_the_order_in_which_they_came,
    it_is_handed_over_between_clients,
    a_hold_that_is_dropped_gives_the_lock_back,
    it_is_told_of_its_loss,
    it_lingers_and_is_taken_up_again,
    one_that_is_forgotten_is_renewed_until_its_limit,
    one_that_lasts_long_is_named_in_the_log_once,
    a_closed_client_ends_with_its_last_hold,
    a_thread_that_waits_for_its_own_lock_is_told_of_the_circle,
);

fn any_thread_may_query_it_and_release_it(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let hold = lock.hold().unwrap();
    let token = hold.fencing_token();
    let hold = spawn(move || {
        assert!(hold.is_valid() && hold.ensure_valid().is_ok() && !hold.remaining().is_zero());
        assert_eq!((hold.fencing_token(), hold.loss()), (token, None));
        hold
    })
    .join();
    assert!(lab.holder(lock.key()).is_some());
    let lost = hold.lost();
    spawn(move || hold.release().unwrap()).join();
    assert!(lost.recv().is_err(), "it has ended without a loss");
    assert_eq!(lab.leftovers(), [""; 0]);
    assert!(lock.hold().unwrap().fencing_token() > token);
}

/// Shows: G3.
fn a_map_of_holds_outlives_the_threads_that_took_them(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let locks: Vec<_> = (0..3).map(|n| generator.generate_with(config(&format!("x{n}"), 1500)).unwrap()).collect();
    let mut sessions: HashMap<String, Hold> = HashMap::new();
    for lock in &locks {
        let lock = lock.clone();
        let hold = spawn(move || lock.hold().unwrap()).join();
        sessions.insert(hold.lock().key().to_owned(), hold);
    }
    let extended = watch.count_of(Kind::Extend);
    // Each of them twice, at least.
    lab.time.until("their leases are renewed", || watch.count_of(Kind::Extend) >= extended + 6);
    for lock in &locks {
        let hold = sessions.remove(lock.key()).unwrap();
        assert!(hold.is_valid());
        hold.release().unwrap();
    }
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn nobody_enters_it_again(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let hold = lock.hold().unwrap();
    assert!(lock.try_hold().unwrap().is_none() && lock.try_lock().unwrap().is_none());
    assert!(!lock.unguarded().try_lock().unwrap());
    assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
    assert!(matches!(lock.unguarded().unlock(), Err(Error::NotHeld { .. })), "it is not the thread's");
    assert!(hold.is_valid());
    hold.release().unwrap();
    let guard = lock.lock().unwrap();
    assert!(lock.try_hold().unwrap().is_none(), "the thread's own hold is another one");
    assert_eq!(lock.hold_count(), 1);
    drop(guard);
    assert!(generator.generate_with(config("x", 30_000).with_reentry(false)).unwrap().try_hold().unwrap().is_some());
}

/// Shows: G12.
fn every_way_to_take_one_ends_with_it_or_by_its_limit(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let soon = Duration::from_millis(20);
    let cancelled = CancelToken::new();
    let ways: [&dyn Fn() -> Result<Option<Hold>, Error>; 4] =
        [&|| lock.try_hold(), &|| lock.try_hold_for(soon), &|| lock.try_hold_until(Instant::now() + soon), &|| {
            lock.try_hold_cancellable_for(soon, &CancelToken::new())
        }];
    let takes = || ways.map(|way| answered(way).map(Hold::release));
    assert!(takes().into_iter().all(|got| got.is_some_and(|released| released.is_ok())));
    lock.hold_cancellable(&cancelled).unwrap().unwrap().release().unwrap();
    let _guard = lock.lock().unwrap();
    assert!(lab.time.during(takes).iter().all(Option::is_none));
    let token = cancelled.clone();
    let waiter = wait_by(&lock, move |other| other.hold_cancellable(&token).unwrap().is_some());
    cancelled.cancel();
    assert!(!waiter.join());
    assert!(lock.hold_cancellable(&cancelled).unwrap().is_none(), "before it asks");
    assert_eq!(lock.queue_length(), 0);
}

/// How a lock is taken for a hold, and how the hold ends: for a thread, or for a task.
pub(super) struct Way {
    pub(super) take: fn(&DistributedReentrantLock) -> Hold,
    pub(super) release: fn(Hold),
    /// Ends a hold for which others wait.
    pub(super) pass: fn(Hold),
}

const BLOCKING: Way = Way {
    take: |lock| lock.hold().unwrap(),
    release: |hold| spawn(move || hold.release().unwrap()).join(),
    pass: |hold| spawn(move || hold.release().unwrap()).join(),
};

fn holds_and_guards_are_served_in_the_order_in_which_they_came(lab: &Lab) {
    are_served_in_order(lab, &BLOCKING);
}

/// Lets holds and guards wait by turns.
/// Shows: G7, G8.
pub(super) fn are_served_in_order(lab: &Lab, way: &Way) {
    let (generator, watch) = if is_listener_on() { lab.listening_generator() } else { lab.watched_generator() };
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let first = (way.take)(&lock);
    let (say, order) = unbounded();
    let waiters: Vec<_> = (0..6)
        .map(|n| {
            let say = say.clone();
            let waiter = spawn({
                let (lock, take, release) = (lock.clone(), way.take, way.release);
                move || {
                    if n % 2 == 0 {
                        let hold = take(&lock);
                        say.send((n, hold.fencing_token())).unwrap();
                        release(hold);
                    } else {
                        let guard = lock.lock().unwrap();
                        say.send((n, guard.fencing_token())).unwrap();
                    }
                }
            });
            eventually("it waits", || lock.queue_length() == n + 1);
            waiter
        })
        .collect();
    let released = watch.count_of(Kind::Release);
    let token = first.fencing_token();
    (way.pass)(first);
    waiters.into_iter().for_each(|waiter| lab.join(waiter));
    let order: Vec<_> = order.try_iter().collect();
    assert!(order.iter().map(|(n, _)| *n).eq(0..6), "{order:?}");
    assert!(order[0].1 > token && order.is_sorted_by(|a, b| a.1 < b.1), "{order:?}");
    if is_listener_on() {
        assert_eq!(watch.count_of(Kind::Release), released + 1, "it is passed on in the process");
    }
}

fn it_is_handed_over_between_clients(lab: &Lab) {
    is_handed_over(lab, &BLOCKING);
}

/// Shows: G8, G10.
pub(super) fn is_handed_over(lab: &Lab, way: &Way) {
    let [one, two] = [(); 2].map(|()| lab.generator().generate_with(config("x", 30_000)).unwrap());
    let mut hold = (way.take)(&one);
    for n in 0..4 {
        let (next, take) = (if n % 2 == 0 { two.clone() } else { one.clone() }, way.take);
        let waiter = spawn(move || take(&next));
        eventually("it waits in the store", || !is_listener_on() || lab.waiting(one.key()) == 1);
        let token = hold.fencing_token();
        (way.pass)(hold);
        hold = lab.join(waiter);
        assert!(hold.fencing_token() > token);
    }
    (way.release)(hold);
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn a_hold_that_is_dropped_gives_the_lock_back(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let hold = lock.hold().unwrap();
    spawn(move || drop(hold)).join();
    eventually("it is given back", || lab.holder(lock.key()).is_none());
    let panicking = lock.clone();
    let thread = spawn_named("panics", move || {
        let _hold = panicking.hold().unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.join())).is_err());
    assert!(lock.hold().unwrap().is_valid());
    eventually("it is given back", || lab.leftovers().is_empty());
}

/// Shows: G5, G6.
fn it_is_told_of_its_loss(lab: &Lab) {
    let lock = lab.generator().generate_with(config("x", 1500)).unwrap();
    let hold = lock.hold().unwrap();
    let lost = hold.lost();
    lab.delete(lock.key());
    lab.time.recv(&lost);
    assert!(!hold.is_valid() && hold.remaining().is_zero());
    assert!(hold.lost().try_recv().is_ok(), "at once");
    assert_eq!(cause(hold.ensure_valid()), hold.loss().unwrap().cause);
    assert!(lock.try_lock().unwrap().is_none(), "a lost hold keeps others of its process out");
    assert!(matches!(spawn(move || hold.release()).join(), Err(Error::LeaseLost(_))));
    assert!(lock.try_hold().unwrap().is_some());
}

fn it_lingers_and_is_taken_up_again(lab: &Lab) {
    let (generator, watch) = lab.listening_generator();
    let lock = generator.generate_with(config("x", 30_000).with_linger(Duration::from_secs(3600))).unwrap();
    let first = lock.hold().unwrap();
    let token = first.fencing_token();
    let asked = watch.count();
    first.release().unwrap();
    let second = lock.hold().unwrap();
    assert!(second.fencing_token() > token);
    second.release().unwrap();
    assert!(lock.lock().unwrap().fencing_token() > token + 1);
    assert_eq!(watch.count(), asked, "{:?}", watch.calls());
    let other = lab.generator().generate_with(config("x", 30_000)).unwrap();
    assert!(other.hold().unwrap().is_valid(), "others end it");
}

/// Shows: G6.
fn one_that_is_forgotten_is_renewed_until_its_limit(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let limited = config("x", 1200).with_renew_at(0.25).with_max_hold(Duration::from_millis(700));
    let lock = generator.generate_with(limited).unwrap();
    let other = lab.generator().generate_with(config("x", 6000)).unwrap();
    spawn_with(&lock, move |forgotten| std::mem::forget(forgotten.hold().unwrap())).join();
    let next = lab.time.during(|| other.hold().unwrap());
    assert!(watch.count_of(Kind::Extend) >= 1, "until its limit it was extended, although its thread had ended");
    assert!(next.is_valid());
    next.release().unwrap();
    assert!(lock.try_lock().unwrap().is_none() && lock.try_hold().unwrap().is_none(), "its own process stays out");
    assert!(other.try_lock().unwrap().is_some());
}

/// However it begins: with the tenure, taken up from a linger, or passed on within the process.
fn one_that_lasts_long_is_named_in_the_log_once(lab: &Lab) {
    const AFTER: Duration = Duration::from_millis(300);
    journal::keep();
    let (generator, watch) = lab.listening_generator();
    // Nothing else is due for minutes.
    let long = config(&format!("long hold on {}", lab.name()), 1_000_000).with_probe(false).with_hold_warning(AFTER);
    let long = long.with_linger(Duration::from_secs(3600)).with_reason("checkout");
    let lock = generator.generate_with(long.with_holder_name("session\n17")).unwrap();
    let named = |count: usize, hold: &Hold, since: Moment| {
        lab.time.until_soon("it is named", || journal::warnings(lock.key()).len() == count);
        assert!(!lab.time.is_by_hand() || lab.time.now().since(since) <= AFTER + Duration::from_millis(20));
        let (warnings, token) = (journal::warnings(lock.key()), format!("token {}", hold.fencing_token()));
        let last = warnings.last().unwrap();
        assert!(last.contains(r#""session\n17""#) && last.contains("checkout") && last.contains(&token), "{last}");
    };
    // One that ends in time is not named.
    lock.hold().unwrap().release().unwrap();
    let (first, since) = (lock.hold().unwrap(), lab.time.now());
    named(1, &first, since);
    let waiter = wait_by(&lock, move |other| other.hold().unwrap());
    lab.time.pass(2 * AFTER);
    assert_eq!(journal::warnings(lock.key()).len(), 1, "once");
    let since = lab.time.now();
    first.release().unwrap();
    let second = lab.join(waiter);
    named(2, &second, since);
    second.release().unwrap();
    let (third, since) = (lock.hold().unwrap(), lab.time.now());
    named(3, &third, since);
    assert_eq!(watch.count_of(Kind::Extend), 0, "{:?}", watch.calls());
}

/// Shows: L6.
fn a_closed_client_ends_with_its_last_hold(lab: &Lab) {
    let generator = lab.generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let hold = lock.hold().unwrap();
    let waiter = wait_by(&lock, move |other| other.hold().map(drop));
    generator.close();
    assert!(matches!(waiter.join(), Err(Error::ShutDown)));
    assert!(matches!(lock.try_hold(), Err(Error::ShutDown)));
    assert!(hold.is_valid() && lock.is_locked().unwrap(), "until the last hold ends, the client is at work");
    spawn(move || hold.release().unwrap()).join();
    // The embedded store answers after its client has closed it.
    assert!(lab.time.is_by_hand() || matches!(lock.is_locked(), Err(Error::ShutDown)));
    assert_eq!(lab.leftovers(), [""; 0]);
    // The last handle of a client is a hold.
    let alone = lab.generator().generate_with(config("x", 30_000)).unwrap().hold().unwrap();
    spawn(move || alone.release().unwrap()).join();
    assert_eq!(lab.leftovers(), [""; 0]);
}

fn a_thread_that_waits_for_its_own_lock_is_told_of_the_circle(lab: &Lab) {
    let (say, waits) = unbounded();
    let builder = lab.builder().on_slow_wait(Duration::from_secs(3600), move |wait| say.send(wait.clone()).unwrap());
    let lock = builder.build(lab.processor()).unwrap().generate_with(config("x", 30_000)).unwrap();
    let (other, cancel) = (lock.clone(), CancelToken::new());
    let waiter = spawn_with(&cancel, move |token| {
        let _guard = other.lock().unwrap();
        assert!(other.hold_cancellable(token).unwrap().is_none());
        assert_eq!(other.hold_count(), 1);
    });
    assert_eq!(lab.time.recv(&waits).circle, [lock.key()]);
    cancel.cancel();
    waiter.join();
}
