//! `lock_all` and its other forms: several locks, all or none.

use crate::support::cause;
use crate::support::crew::{answered, eventually, spawn, spawn_with};
use crate::support::lab::{Lab, config, is_listener_on, on_both_stores};
use crate::support::watched::{Kind, Watch, When};
use futures_lite::future::{block_on, poll_once};
use redis_dlock::{BackendFailure, CancelToken, DLockConfig, DLockGenerator, DLockGuards, Error, Holds, LossCause};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

on_both_stores!(
    all_are_taken_or_none,
    whoever_waits_for_one_keeps_those_before_it,
    each_has_a_token_in_the_order_of_the_list,
    a_list_names_each_lock_once_and_at_least_one,
    a_thread_enters_again_what_it_holds,
    holds_belong_to_no_thread,
    a_limit_and_a_token_end_the_wait_for_the_last,
    once_the_limit_is_over_the_next_is_not_asked_for,
    what_was_taken_in_vain_goes_back_without_the_caller,
    the_loss_of_one_is_the_loss_of_all,
    a_task_is_told_of_the_loss_of_one,
    the_limit_of_a_task_counts_from_the_call,
    a_loss_ends_the_wait_for_the_next_and_all_are_taken_anew,
    what_is_lost_before_all_are_taken_is_taken_anew,
    an_attempt_whose_lock_is_lost_meanwhile_fails,
    a_reentered_lock_that_is_lost_ends_the_call,
    all_go_back_in_one_batch,
    releases_that_fail_are_tried_again_in_one_batch,
    threads_of_the_process_are_next_for_each_lock,
    callers_with_crossed_lists_never_wait_for_one_another,
    a_closed_generator_ends_the_wait_and_gives_all_back,
);

const LONG: u64 = 30_000;

fn list<const N: usize>(targets: [&str; N]) -> [DLockConfig; N] {
    targets.map(|target| config(target, LONG))
}

fn key(target: &str) -> String {
    config(target, LONG).unique_key().to_owned()
}

/// The limit of a wait that the test ends otherwise.
const HOUR: Duration = Duration::from_secs(3600);

/// The targets of the locks that somebody holds.
fn held(lab: &Lab, targets: &[&str]) -> Vec<String> {
    targets.iter().filter(|target| lab.holder(&key(target)).is_some()).map(|target| (*target).to_owned()).collect()
}

/// Whether the store has nothing of any lock. It may have what clients that live say of themselves.
fn is_free(lab: &Lab) -> bool {
    lab.leftovers().iter().all(|key| key.contains(":client:"))
}

/// Waits until the releases of a dropped guard have come.
#[track_caller]
fn expect_free(lab: &Lab) {
    eventually("all are given back", || is_free(lab));
}

/// Shows: G1.
fn all_are_taken_or_none(lab: &Lab) {
    let (one, other) = (lab.generator(), lab.generator());
    let both = one.try_lock_all(list(["d", "b"])).unwrap().expect("both are free");
    assert!(other.try_lock_all(list(["a", "b", "c"])).unwrap().is_none());
    eventually("what came before it is given back", || held(lab, &["a", "b", "c", "d"]) == ["b", "d"]);
    let apart = other.try_lock_all(list(["c", "a"])).unwrap().expect("nobody has these");
    assert!(apart.is_valid() && both.is_valid());
    drop(both);
    let all = other.lock_all(list(["d", "c", "b", "a"]), HOUR).unwrap().expect("all are free, or our own");
    drop(apart);
    assert_eq!(held(lab, &["a", "b", "c", "d"]).len(), 4);
    drop(all);
    expect_free(lab);
}

/// Shows: G3.
fn whoever_waits_for_one_keeps_those_before_it(lab: &Lab) {
    let (one, (other, watch)) = (lab.generator(), lab.watched_generator());
    let last = one.try_lock_all(list(["b"])).unwrap().unwrap();
    let waiter = other.generate_with(config("b", LONG)).unwrap();
    let waiting = spawn(move || {
        let guards = other.lock_all([config("b", LONG), config("c", LONG), config("a", 1500)], HOUR);
        let guards = guards.unwrap().expect("within the hour");
        let tokens: Vec<_> = guards.fencing_tokens().collect();
        guards.unlock().unwrap();
        tokens
    });
    eventually("it waits", || waiter.queue_length() == 1);
    assert_eq!(held(lab, &["a", "b", "c"]), ["a", "b"], "in the order of the keys");
    let is_renewed = || watch.calls_of(Kind::Extend).iter().filter(|call| call.key == key("a")).count() > 1;
    lab.time.until("the lease of the first one is renewed", is_renewed);
    assert_eq!(held(lab, &["a", "b", "c"]), ["a", "b"]);
    let token = last.fencing_tokens().next().unwrap();
    last.unlock().unwrap();
    let tokens = lab.join(waiting);
    assert!(tokens.len() == 3 && tokens[0] > token);
    expect_free(lab);
}

/// Shows: G7.
fn each_has_a_token_in_the_order_of_the_list(lab: &Lab) {
    let generator = lab.generator();
    let mut last = 0;
    for targets in [["c", "a", "b"], ["b", "c", "a"]] {
        let guards = generator.lock_all(list(targets), HOUR).unwrap().unwrap();
        assert!(guards.locks().map(|lock| lock.target()).eq(targets));
        for (lock, token) in guards.locks().zip(guards.fencing_tokens()) {
            assert_eq!(lock.try_lock().unwrap().unwrap().fencing_token(), token);
            assert!(token > last);
        }
        last = guards.fencing_tokens().max().unwrap();
        guards.unlock().unwrap();
    }
    let short = config("b", 5_000);
    let guards = generator.try_lock_all([config("a", LONG), short]).unwrap().unwrap();
    assert!(guards.remaining() <= Duration::from_secs(5) && !guards.remaining().is_zero(), "the shortest");
    let lost = guards.lost();
    drop(guards);
    // The answers to the releases are taken in a while later.
    assert!(lab.time.during(|| lost.recv().is_err()), "all have ended without a loss");
}

fn a_list_names_each_lock_once_and_at_least_one(lab: &Lab) {
    let generator = lab.generator();
    let twice = generator.try_lock_all(list(["a", "b", "a"])).unwrap_err();
    assert!(matches!(&twice, Error::InvalidConfig { value, .. } if *value == key("a")), "{twice}");
    let none: [(&str, &str); 0] = [];
    assert!(matches!(generator.lock_all(none, HOUR), Err(Error::InvalidConfig { .. })));
    assert!(matches!(generator.hold_all([("", "x")], HOUR), Err(Error::InvalidConfig { .. })));
    assert!(is_free(lab));
}

/// Shows: G9.
fn a_thread_enters_again_what_it_holds(lab: &Lab) {
    let generator = lab.generator();
    let inner = generator.generate_with(config("b", LONG)).unwrap();
    let guard = inner.lock().unwrap();
    let guards = generator.try_lock_all(list(["c", "b"])).unwrap().unwrap();
    assert_eq!(guards.fencing_tokens().nth(1), Some(guard.fencing_token()));
    assert_eq!(inner.hold_count(), 2);
    guards.unlock().unwrap();
    assert_eq!((inner.hold_count(), held(lab, &["b", "c"])), (1, vec!["b".to_owned()]));
    let once = config("b", LONG).with_reentry(false);
    let refusing = generator.generate_with(once.clone().with_reason("to differ")).unwrap();
    drop(guard);
    let guard = refusing.lock().unwrap();
    assert!(matches!(generator.try_lock_all([config("a", LONG), once]), Err(Error::AlreadyHeld { .. })));
    drop(guard);
    expect_free(lab);
}

fn holds_belong_to_no_thread(lab: &Lab) {
    let generator = lab.generator();
    let holds = generator.hold_all(list(["b", "a"]), HOUR).unwrap().unwrap();
    let tokens: Vec<_> = holds.fencing_tokens().collect();
    assert!(generator.try_hold_all(list(["c", "a"])).unwrap().is_none(), "nobody enters a hold again");
    assert!(generator.try_lock_all(list(["c", "a"])).unwrap().is_none());
    let released = spawn(move || {
        assert!(holds.is_valid() && holds.ensure_valid().is_ok() && holds.loss().is_none());
        holds.release()
    });
    released.join().unwrap();
    let again = generator.try_hold_all(list(["b", "a"])).unwrap().unwrap();
    assert!(again.fencing_tokens().zip(tokens).all(|(now, before)| now > before));
    spawn(move || drop(again)).join();
    expect_free(lab);
}

fn a_limit_and_a_token_end_the_wait_for_the_last(lab: &Lab) {
    let (one, other) = (lab.generator(), lab.generator());
    let _last = one.try_lock_all(list(["z"])).unwrap().unwrap();
    let limit = Duration::from_millis(50);
    assert!(lab.time.during(|| answered(|| other.lock_all(list(["z", "a"]), limit))).is_none());
    assert!(lab.time.during(|| answered(|| other.hold_all(list(["z", "a"]), limit))).is_none());
    assert!(other.lock_all(list(["z", "a"]), Duration::ZERO).unwrap().is_none());
    let waiter = other.generate_with(config("z", LONG)).unwrap();
    let cancel = CancelToken::new();
    for is_hold in [false, true] {
        let (other, token) = (other.clone(), cancel.clone());
        let waiting = spawn(move || match is_hold {
            true => other.hold_all_cancellable(list(["z", "a"]), HOUR, &token).unwrap().is_some(),
            false => other.lock_all_cancellable(list(["z", "a"]), HOUR, &token).unwrap().is_some(),
        });
        eventually("it waits, or does not begin to", || waiter.queue_length() == 1 || cancel.is_cancelled());
        cancel.cancel();
        assert!(!waiting.join());
    }
    eventually("all are given back", || lab.waiting(&key("z")) == 0 && held(lab, &["a", "z"]) == ["z"]);
}

/// The answer about the first one comes when the limit is over. A task is granted the first one before that, and polled after it.
/// Shows: G12.
fn once_the_limit_is_over_the_next_is_not_asked_for(lab: &Lab) {
    let limit = Duration::from_secs(5);
    let expect_one_call = |watch: &Watch| {
        let asked: Vec<_> = watch.calls_of(Kind::Acquire).into_iter().map(|call| call.key).collect();
        assert_eq!(asked, [key("a")]);
        expect_free(lab);
    };
    let forms: [fn(&DLockGenerator, Duration) -> bool; 2] = [
        |generator, limit| generator.lock_all(list(["a", "z"]), limit).unwrap().is_some(),
        |generator, limit| generator.hold_all(list(["a", "z"]), limit).unwrap().is_some(),
    ];
    for form in forms {
        let (generator, watch) = lab.watched_generator();
        let asking = watch.stop_next(Kind::Acquire, When::Coming);
        let waiting = spawn(move || form(&generator, limit));
        asking.wait();
        lab.time.jump(limit);
        asking.open();
        assert!(!lab.join(waiting));
        expect_one_call(&watch);
    }
    let (generator, watch) = lab.watched_generator();
    let first = generator.generate_with(config("a", LONG)).unwrap();
    let mut waiting = generator.hold_all_async(list(["a", "z"]), limit);
    assert!(block_on(poll_once(&mut waiting)).is_none());
    eventually("it is granted", || first.queue_length() == 0);
    lab.time.jump(limit);
    assert!(block_on(waiting).unwrap().is_none());
    expect_one_call(&watch);
}

/// Others of the process wait for it, so the answer to its release decides who is next.
/// Shows: G12.
fn what_was_taken_in_vain_goes_back_without_the_caller(lab: &Lab) {
    for (_, form) in FORMS.iter().filter(|(has_token, _)| *has_token) {
        let (one, (other, watch), cancel) = (lab.generator(), lab.watched_generator(), CancelToken::new());
        let last = one.try_lock_all(list(["z"])).unwrap().unwrap();
        let [first, waiter] = ["a", "z"].map(|target| other.generate_with(config(target, LONG)).unwrap());
        let waiting = spawn_with(&cancel, move |token| form(&other, list(["z", "b", "a"]), token));
        eventually("it waits", || waiter.queue_length() == 1);
        let behind = spawn_with(&first, |lock| lock.lock().unwrap().unlock());
        eventually("another thread waits for what it has", || first.queue_length() == 1);
        let release = watch.stop_next(Kind::Release, When::Going);
        cancel.cancel();
        assert!(!lab.join(waiting).unwrap(), "though no release is answered");
        release.wait();
        release.open();
        lab.join(behind).unwrap();
        last.unlock().unwrap();
        expect_free(lab);
    }
}

/// Shows: G5, G6.
fn the_loss_of_one_is_the_loss_of_all(lab: &Lab) {
    let generator = lab.generator();
    let locks = ["a", "b", "c"].map(|target| config(target, 3000));
    let guards = generator.lock_all(locks, HOUR).unwrap().unwrap();
    let lost = guards.lost();
    lab.delete(&key("b"));
    lab.time.recv(&lost);
    assert!(!guards.is_valid() && guards.remaining().is_zero());
    assert_eq!(guards.loss().map(|loss| (loss.key, loss.cause)), Some((key("b"), LossCause::Deleted)));
    assert!(matches!(guards.ensure_valid(), Err(Error::LeaseLost(loss)) if loss.key == key("b")));
    assert!(guards.lost().recv().is_ok(), "one that asks later is told at once");
    let outcome = guards.unlock();
    assert!(matches!(&outcome, Err(Error::LeaseLost(loss)) if loss.key == key("b")), "{outcome:?}");
    assert_eq!(cause(outcome), LossCause::Deleted);
    assert!(is_free(lab), "the others are given back");
}

/// Shows: G6.
fn a_task_is_told_of_the_loss_of_one(lab: &Lab) {
    let generator = lab.generator();
    let holds = generator.hold_all(["a", "b"].map(|target| config(target, 3000)), HOUR).unwrap().unwrap();
    let mut lost = holds.lost_async();
    assert!(block_on(poll_once(&mut lost)).is_none());
    lab.delete(&key("b"));
    lab.time.join(spawn(move || block_on(lost)));
    assert!(block_on(poll_once(holds.lost_async())).is_some(), "one that asks later is told at once");
    assert_eq!(holds.loss().map(|loss| loss.key), Some(key("b")));
}

/// The future needs no generator.
/// Shows: G12.
fn the_limit_of_a_task_counts_from_the_call(lab: &Lab) {
    let limit = Duration::from_millis(200);
    let last = lab.generator().try_lock_all(list(["z"])).unwrap().unwrap();
    let over = lab.generator().hold_all_async(list(["a", "z"]), limit);
    lab.time.pass(limit);
    // Without that, it would be over only in a time that nobody passes.
    assert!(block_on(over).unwrap().is_none());
    last.unlock().unwrap();
    let waits = lab.generator().hold_all_async(list(["a", "z"]), HOUR);
    assert!(lab.join(spawn(move || block_on(waits))).unwrap().is_some());
    let unpolled = lab.generator().hold_all_async(list(["a", "z"]), HOUR);
    drop(unpolled);
    expect_free(lab);
}

/// A form that waits for the locks of a list, and gives them back. It returns whether it had them before the token was cancelled.
type Form = fn(&DLockGenerator, [DLockConfig; 3], &CancelToken) -> Result<bool, Error>;

/// Each with whether it has a token.
const FORMS: [(bool, Form); 5] = [
    (false, |generator, locks, _| of_thread(generator.lock_all(locks, HOUR)?)),
    (true, |generator, locks, cancel| of_thread(generator.lock_all_cancellable(locks, HOUR, cancel)?)),
    (false, |generator, locks, _| of_nobody(generator.hold_all(locks, HOUR)?)),
    (true, |generator, locks, cancel| of_nobody(generator.hold_all_cancellable(locks, HOUR, cancel)?)),
    (false, |generator, locks, _| of_nobody(block_on(generator.hold_all_async(locks, HOUR))?)),
];

fn of_thread(guards: Option<DLockGuards>) -> Result<bool, Error> {
    let Some(guards) = guards else { return Ok(false) };
    guards.ensure_valid().and_then(|()| guards.unlock()).map(|()| true)
}

fn of_nobody(holds: Option<Holds>) -> Result<bool, Error> {
    let Some(holds) = holds else { return Ok(false) };
    holds.ensure_valid().and_then(|()| holds.release()).map(|()| true)
}

/// The last one is held elsewhere all the time. What was lost is held elsewhere, too, and then waited for.
/// Shows: G1, G5, L3.
fn a_loss_ends_the_wait_for_the_next_and_all_are_taken_anew(lab: &Lab) {
    let plays = FORMS
        .iter()
        .flat_map(|(has_token, form)| [(form, false), (form, true)].into_iter().take(1 + usize::from(*has_token)));
    for (form, is_cancelled) in plays {
        let (one, other, cancel) = (lab.generator(), lab.generator(), CancelToken::new());
        let last = one.try_lock_all(list(["z"])).unwrap().unwrap();
        let waiter = other.generate_with(config("z", LONG)).unwrap();
        let waiting = spawn_with(&cancel, move |token| {
            form(&other, [config("z", LONG), config("b", LONG), config("a", 1500)], token)
        });
        eventually("it waits", || waiter.queue_length() == 1);
        lab.delete(&key("a"));
        let first = lab.generator().try_lock_all(list(["a"])).unwrap().expect("nobody has it");
        let is_given_up = || waiter.queue_length() == 0 && lab.waiting(&key("z")) == 0 && held(lab, &["b"]).is_empty();
        lab.time.until("it gives up the wait, and what it has", is_given_up);
        assert!(last.is_valid() && !waiting.is_finished());
        drop(lab.generator().try_lock_all(list(["b"])).unwrap().expect("it keeps nobody from it"));
        first.unlock().unwrap();
        lab.time.until_soon("it waits again", || waiter.queue_length() == 1);
        assert_eq!(held(lab, &["a", "b", "z"]).len(), 3);
        if is_cancelled {
            cancel.cancel();
            assert!(!lab.join(waiting).unwrap());
            last.unlock().unwrap();
        } else {
            last.unlock().unwrap();
            assert!(lab.join(waiting).unwrap());
        }
        expect_free(lab);
    }
}

/// The question about the last one is under way when the first one is lost, and is answered with a grant. It is the calling thread that asks: while
/// a client's thread asks for a task, a clock that is moved by hand stands still.
/// Shows: G1, G5.
fn what_is_lost_before_all_are_taken_is_taken_anew(lab: &Lab) {
    for (_, form) in &FORMS[..4] {
        let is_lost = Arc::new(AtomicBool::new(false));
        let (lost, (processor, watch)) = (Arc::clone(&is_lost), lab.watched());
        let generator = lab.builder().on_lost(move |_| lost.store(true, Ordering::SeqCst)).build(processor).unwrap();
        let gates = ["a", "b", "z"].map(|_| watch.stop_next(Kind::Acquire, When::Going));
        let waiting = spawn(move || {
            form(&generator, [config("a", 1500), config("b", LONG), config("z", 3_600_000)], &CancelToken::new())
        });
        for (n, gate) in gates.into_iter().enumerate() {
            gate.wait();
            if n == 2 {
                lab.delete(&key("a"));
                lab.time.until_soon("the loss is told", || is_lost.load(Ordering::SeqCst));
            }
        }
        assert!(lab.join(waiting).unwrap());
        let asked = watch.calls_of(Kind::Acquire).into_iter().map(|call| call.key).filter(|asked| *asked == key("a"));
        assert_eq!(asked.count(), 2);
        expect_free(lab);
    }
}

fn an_attempt_whose_lock_is_lost_meanwhile_fails(lab: &Lab) {
    let is_lost = Arc::new(AtomicBool::new(false));
    let (lost, (processor, watch)) = (Arc::clone(&is_lost), lab.watched());
    let generator = lab.builder().on_lost(move |_| lost.store(true, Ordering::SeqCst)).build(processor).unwrap();
    let first = watch.stop_next(Kind::Acquire, When::Going);
    let attempt = spawn(move || {
        // The question about the last one is under way for a while, and its lease counts from before that.
        let locks = [config("a", 3000), config("z", 3_600_000)];
        generator.try_lock_all(locks).map(|guards| guards.is_some())
    });
    first.wait();
    let last = watch.stop_next(Kind::Acquire, When::Going);
    first.open();
    last.wait();
    lab.delete(&key("a"));
    lab.time.until_soon("the loss is told", || is_lost.load(Ordering::SeqCst));
    last.open();
    let failed = attempt.join().unwrap_err();
    assert!(matches!(&failed, Error::Backend { failure: BackendFailure::Unknown, .. }), "{failed}");
    assert!(failed.to_string().contains(&key("a")), "{failed}");
    expect_free(lab);
}

fn a_reentered_lock_that_is_lost_ends_the_call(lab: &Lab) {
    let generator = lab.generator();
    let inner = generator.generate_with(config("b", 3000)).unwrap();
    let guard = inner.lock().unwrap();
    let lost = guard.lost();
    lab.delete(&key("b"));
    lab.time.recv(&lost);
    let failed = generator.lock_all(list(["a", "b", "c"]), HOUR).unwrap_err();
    assert!(matches!(&failed, Error::LeaseLost(loss) if loss.key == key("b")), "{failed}");
    assert!(guard.unlock().is_err());
    expect_free(lab);
}

/// The numbers of the round trips that carried releases.
fn trips(watch: &Watch) -> HashSet<usize> {
    watch.calls_of(Kind::Release).iter().map(|call| call.trip).collect()
}

fn all_go_back_in_one_batch(lab: &Lab) {
    const LOCKS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let (generator, watch) = lab.watched_generator();
    generator.lock_all(list(LOCKS), HOUR).unwrap().unwrap().unlock().unwrap();
    assert_eq!((watch.count_of(Kind::Release), trips(&watch).len()), (5, 1));
    drop(generator.lock_all(list(LOCKS), HOUR).unwrap().unwrap());
    assert_eq!((watch.count_of(Kind::Release), trips(&watch).len()), (10, 2));
    generator.hold_all(list(LOCKS), HOUR).unwrap().unwrap().release().unwrap();
    assert_eq!((watch.count_of(Kind::Release), trips(&watch).len()), (15, 3));
    let last = lab.generator().try_lock_all(list(["e"])).unwrap().unwrap();
    assert!(generator.try_lock_all(list(LOCKS)).unwrap().is_none());
    assert_eq!((watch.count_of(Kind::Release), trips(&watch).len()), (19, 4), "what was taken before the last");
    drop(last);
    expect_free(lab);
}

/// Shows: G11, L2.
fn releases_that_fail_are_tried_again_in_one_batch(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let guards = generator.lock_all(list(["a", "b", "c"]), HOUR).unwrap().unwrap();
    watch.lose_next_answer(Kind::Release);
    guards.unlock().unwrap();
    assert_eq!((watch.count_of(Kind::Release), trips(&watch).len()), (6, 2));
    let guards = generator.lock_all(list(["a", "b", "c"]), HOUR).unwrap().unwrap();
    watch.fail(BackendFailure::NotExecuted);
    let failed = guards.unlock().unwrap_err();
    assert!(failed.is_transient() && failed.to_string().contains(&key("a")), "{failed}");
    watch.heal();
    lab.time.until("the clean-up list releases them", || is_free(lab));
}

/// Shows: G8.
fn threads_of_the_process_are_next_for_each_lock(lab: &Lab) {
    let generator = lab.generator();
    let guards = generator.lock_all(list(["a", "b"]), HOUR).unwrap().unwrap();
    let tokens: Vec<_> = guards.fencing_tokens().collect();
    let locks = ["a", "b"].map(|target| generator.generate_with(config(target, LONG)).unwrap());
    let waiters = locks.clone().map(|lock| {
        spawn(move || {
            let guard = lock.lock().unwrap();
            let token = guard.fencing_token();
            guard.unlock().unwrap();
            token
        })
    });
    eventually("they wait", || locks.iter().all(|lock| lock.queue_length() == 1));
    let other = lab.generator();
    let elsewhere = spawn_with(&other, move |all| all.lock_all(list(["b", "a"]), HOUR).unwrap().unwrap().unlock());
    if is_listener_on() {
        eventually("another process waits, too", || lab.waiting(&key("a")) == 1);
    }
    guards.unlock().unwrap();
    for (waiter, before) in waiters.into_iter().zip(tokens) {
        assert!(lab.join(waiter) > before);
    }
    lab.join(elsewhere).unwrap();
    expect_free(lab);
}

/// Shows: G1, L1.
fn callers_with_crossed_lists_never_wait_for_one_another(lab: &Lab) {
    const ROUNDS: usize = 30;
    let inside: [Arc<AtomicBool>; 3] = Default::default();
    let clients: [DLockGenerator; 2] = [lab.generator(), lab.generator()];
    let members: Vec<_> = (0..6)
        .map(|n| {
            let (generator, inside) = (clients[n % 2].clone(), inside.clone());
            spawn(move || {
                for round in 0..ROUNDS {
                    // Two of three, in either order.
                    let (one, other) = ((n + round) % 3, (n + round + 1 + round % 2) % 3);
                    let targets = [["a", "b", "c"][one], ["a", "b", "c"][other]];
                    let guards = generator.lock_all(list(targets), HOUR).unwrap().unwrap();
                    for place in [one, other] {
                        assert!(!inside[place].swap(true, Ordering::SeqCst), "two are inside");
                    }
                    for place in [one, other] {
                        inside[place].store(false, Ordering::SeqCst);
                    }
                    if round % 2 == 0 { drop(guards) } else { guards.unlock().unwrap() }
                }
            })
        })
        .collect();
    for member in members {
        lab.join(member);
    }
    expect_free(lab);
}

fn a_closed_generator_ends_the_wait_and_gives_all_back(lab: &Lab) {
    let (one, other) = (lab.generator(), lab.generator());
    let last = one.try_lock_all(list(["z"])).unwrap().unwrap();
    let waiter = other.generate_with(config("z", LONG)).unwrap();
    let closing = other.clone();
    let waiting = spawn(move || other.lock_all(list(["a", "z"]), HOUR).map(|guards| guards.is_some()));
    eventually("it waits", || waiter.queue_length() == 1);
    closing.close();
    assert!(matches!(waiting.join(), Err(Error::ShutDown)));
    drop(last);
    expect_free(lab);
}
