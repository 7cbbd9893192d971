//! Waiters that give up: they leave no trace, and pass on a turn that was given them meanwhile.

use crate::support::crew::{Member, eventually, spawn, spawn_with};
use crate::support::lab::{Lab, config, on_both_stores, wait_with};
use crate::support::watched::{Gate, Kind, Watch, When};
use redis_dlock::{CancelToken, DistributedReentrantLock, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

on_both_stores!(
    those_who_gave_up_leave_no_trace,
    the_only_waiter_gives_up_while_the_lock_is_being_granted,
    the_first_waiter_gives_up_while_the_lock_is_being_granted,
    all_waiters_give_up_while_the_lock_is_being_asked_for,
    the_next_in_line_gives_up_while_the_holder_releases,
    the_asker_gives_up_and_the_next_asks,
    nobody_hangs_among_many_impatient_threads,
);

/// Shows: G12, L2, L3.
fn those_who_gave_up_leave_no_trace(lab: &Lab) {
    let elsewhere = lab.generator();
    let [held, other] = ["x", "metronome"].map(|target| elsewhere.generate_with(config(target, 30_000)).unwrap());
    let guards = [held.lock().unwrap(), other.lock().unwrap()];
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 300)).unwrap();

    let cancel = CancelToken::new();
    let cancelled: Vec<_> = (1..=4).map(|place| wait_with(&lock, &cancel, place)).collect();
    let timed_out: Vec<_> = (0..4)
        .map(|n| spawn_with(&lock, move |lock| lock.try_lock_for(Duration::from_millis(20 * n + 1)).unwrap().is_some()))
        .collect();
    assert!(!timed_out.into_iter().any(|member| lab.time.join(member)));
    cancel.cancel();
    assert!(!cancelled.into_iter().any(Member::join));
    assert_eq!(lock.queue_length(), 0);

    // The retry thread goes on for another key, and asks for this one no more.
    let metronome = generator.generate_with(config("metronome", 300)).unwrap();
    let ticking = CancelToken::new();
    let ticker = wait_with(&metronome, &ticking, 1);
    let asked = || watch.calls_of(Kind::Question).iter().filter(|call| call.key == lock.key()).count();
    watch.wait_for_more(Kind::Question, 1);
    let before = asked();
    watch.wait_for_more(Kind::Question, 4);
    assert_eq!(asked(), before);

    ticking.cancel();
    assert!(!ticker.join());
    for guard in guards {
        guard.unlock().unwrap();
    }
    eventually("nothing is left", || lab.leftovers().is_empty());
    // Nor in their own generator: nobody is taken for waiting, or for asking, any more. The retry thread may be in the middle of its last
    // question, and a single attempt does not wait for that.
    eventually("the lock is free", || lock.try_lock().unwrap().is_some());
    eventually("the other one is free", || metronome.try_lock().unwrap().is_some());
}

/// Lets another process hold the lock and one waiter, or two, wait for it; stops the retry thread when it has got the
/// lock for them, and does not know it yet.
fn granted_behind_a_gate(
    lab: &Lab,
    lock: &DistributedReentrantLock,
    watch: &Watch,
    tokens: &[CancelToken],
) -> (Gate, Vec<Member<bool>>) {
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = elsewhere.lock().unwrap();
    let waiters = tokens.iter().enumerate().map(|(n, token)| wait_with(lock, token, n + 1)).collect();
    let asking = watch.stop_next(Kind::Question, When::Going);
    asking.wait_till_due();
    guard.unlock().unwrap();
    let granted = watch.stop_next(Kind::Question, When::Coming);
    asking.open();
    granted.wait();
    assert!(lab.holder(lock.key()).is_some());
    (granted, waiters)
}

/// Shows: L2.
fn the_only_waiter_gives_up_while_the_lock_is_being_granted(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config("x", 300));
    let token = CancelToken::new();
    let (granted, waiters) = granted_behind_a_gate(lab, &lock, &watch, std::slice::from_ref(&token));
    token.cancel();
    assert!(!waiters.into_iter().any(Member::join));
    assert_eq!(lock.queue_length(), 0);
    let released = watch.count_of(Kind::Release);
    granted.open();
    // It is given back, not left to its lease.
    eventually("the release", || watch.count_of(Kind::Release) > released);
    eventually("the lock is free", || lab.leftovers().is_empty());
    assert!(lab.time.during(|| lock.try_lock_for(Duration::from_secs(1000)).unwrap().is_some()));
}

/// Shows: L2, L3.
fn the_first_waiter_gives_up_while_the_lock_is_being_granted(lab: &Lab) {
    // The lease lasts while the gate is closed: with one that is over, the second waiter would ask again.
    let (lock, watch) = lab.watched_lock(config("x", 2_000));
    let tokens = [CancelToken::new(), CancelToken::new()];
    let (granted, mut waiters) = granted_behind_a_gate(lab, &lock, &watch, &tokens);
    let second = waiters.pop().unwrap();
    tokens[0].cancel();
    assert!(!waiters.pop().unwrap().join());
    assert!(!second.is_finished());
    let asked = watch.count_of(Kind::Question);
    granted.open();
    assert!(second.join());
    assert_eq!(watch.count_of(Kind::Question), asked, "it was given what had been got for the first");
    eventually("the lock is free", || lab.leftovers().is_empty());
}

/// Shows: L3.
fn all_waiters_give_up_while_the_lock_is_being_asked_for(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 300)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let guard = elsewhere.lock().unwrap();
    let token = CancelToken::new();
    let waiters: Vec<_> = (1..=3).map(|place| wait_with(&lock, &token, place)).collect();
    let asked = watch.stop_next(Kind::Question, When::Coming);
    asked.wait_till_due();
    token.cancel();
    assert!(!waiters.into_iter().any(Member::join));
    // Busy, and nobody is left to wait; who comes next asks anew.
    asked.open();
    let newcomer = wait_with(&lock, &CancelToken::new(), 1);
    guard.unlock().unwrap();
    assert!(lab.time.join(newcomer));
}

/// Shows: L3.
fn the_next_in_line_gives_up_while_the_holder_releases(lab: &Lab) {
    // Nothing is passed on, so the release goes to the store, and the turn to the next in line.
    let (lock, watch) = lab.deaf_lock(config("x", 30_000).with_local_passes(0));
    let (releasing, locked) = (watch.stop_next(Kind::Release, When::Going), lock.clone());
    let (unlock, may_unlock) = crossbeam_channel::bounded::<()>(0);
    let holder = spawn(move || {
        let guard = locked.lock().unwrap();
        may_unlock.recv().unwrap();
        guard.unlock()
    });
    eventually("it is held", || lock.is_locked().unwrap());
    let tokens = [CancelToken::new(), CancelToken::new()];
    let [first, second] = [0, 1].map(|n| wait_with(&lock, &tokens[n], n + 1));
    unlock.send(()).unwrap();
    releasing.wait();
    tokens[0].cancel();
    assert!(!first.join());
    releasing.open();
    holder.join().unwrap();
    assert!(second.join());
}

/// Shows: L3.
fn the_asker_gives_up_and_the_next_asks(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config("x", 30_000)).unwrap();
    let elsewhere = lab.generator().generate_with(config("x", 30_000)).unwrap();
    let remote = elsewhere.lock().unwrap();
    let asking = watch.stop_next(Kind::Acquire, When::Coming);
    let first = spawn_with(&lock, |impatient| impatient.try_lock().unwrap().is_some());
    asking.wait();
    // It tries once, and has queued nobody but the one who came meanwhile.
    let second = wait_with(&lock, &CancelToken::new(), 1);
    let asked = watch.count_of(Kind::Acquire);
    remote.unlock().unwrap();
    asking.open();
    assert!(!first.join());
    assert!(second.join());
    assert_eq!(watch.count_of(Kind::Acquire), asked + 1);
}

/// Shows: G1, L2, L3.
fn nobody_hangs_among_many_impatient_threads(lab: &Lab) {
    const THREADS: u32 = 12;
    const ROUNDS: u32 = 150;
    let generators = [lab.generator(), lab.generator()];
    let lock = generators[0].generate_with(config("x", 5000)).unwrap();
    let inside = Arc::new(AtomicU32::new(0));
    let (done, in_vain) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let guard = lock.lock().unwrap();
    let crew: Vec<_> = (0..THREADS)
        .map(|n| {
            let lock = generators[usize::from(n % 4 == 0)].generate_with(config("x", 5000)).unwrap();
            let (inside, in_vain) = (Arc::clone(&inside), Arc::clone(&in_vain));
            spawn(move || {
                let mut got = 0;
                for round in 0..ROUNDS {
                    let limit = Duration::from_micros(u64::from((n * 7919 + round * 104_729) % 3000));
                    let tried = lock.try_lock_for(limit);
                    // A busy machine may let even the store's answer come too late.
                    assert!(matches!(tried, Ok(_) | Err(Error::Backend { .. })), "{tried:?}");
                    if matches!(tried, Ok(None)) {
                        in_vain.store(true, Ordering::SeqCst);
                    }
                    if let Ok(Some(_guard)) = tried {
                        let alone = inside.fetch_add(1, Ordering::SeqCst) == 0;
                        let still_alone = inside.fetch_sub(1, Ordering::SeqCst) == 1;
                        assert!(alone && still_alone);
                        got += 1;
                    }
                }
                got
            })
        })
        .collect();
    let (cycling, stop) = (lock.clone(), Arc::clone(&done));
    let cycler = spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            let _guard = cycling.lock().unwrap();
            std::thread::sleep(Duration::from_micros(700));
        }
    });
    // Time passes all the while, or no limit would end.
    let got: u32 = lab.time.during(|| {
        eventually("a thread has given up", || in_vain.load(Ordering::SeqCst));
        drop(guard);
        crew.into_iter().map(Member::join).sum()
    });
    done.store(true, Ordering::SeqCst);
    lab.join(cycler);
    // Both outcomes were there, or nothing was tried.
    assert!(got > 0 && got < THREADS * ROUNDS, "{got}");
    assert_eq!(lock.queue_length(), 0);
    eventually("the lock is free", || lab.leftovers().is_empty());
    lock.lock().unwrap().unlock().unwrap();
}
