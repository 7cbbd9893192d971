//! Our processes beside one that asks as JVM DLock does: every lease/6 whether the key is free, and if so for the key.
//!
//! Whoever asks so is never given the lock by those that hand it over; but it must exclude and be excluded, and get the lock
//! when they do not want it. How often it gets it while they do is printed (`--nocapture`).

use crate::support::crew::{Member, eventually, spawn, wait_for};
use crate::support::lab::Lab;
use crate::support::time::Time;
use crate::support::watched::{Kind, Watched};
use crate::support::{Jvm, LONG, RedisServer};
use redis_dlock::{DLockConfig, DLockGenerator};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(1200);

/// How long all of them contend.
const CONTEST: Duration = Duration::from_secs(5);

/// How long each stays inside.
const INSIDE: Duration = Duration::from_millis(2);

fn config() -> DLockConfig {
    DLockConfig::new("CUSTOMER_LOCK", "7").with_lease(LEASE)
}

fn gaps() -> DLockConfig {
    config().with_poller_gap(LEASE)
}

/// What the lock guards: it shows whether two were inside at once.
#[derive(Default)]
struct Guarded {
    inside: AtomicU64,
    entries: AtomicU64,
    overlaps: AtomicU64,
}

impl Guarded {
    /// Goes in and out, in a way that loses entries if somebody else is inside.
    fn enter(&self) {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        let before = self.entries.load(Ordering::SeqCst);
        thread::sleep(INSIDE);
        self.entries.store(before + 1, Ordering::SeqCst);
        self.overlaps.fetch_add(others, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How often each side was inside while both wanted to.
#[derive(Debug)]
struct Tally {
    ours: u64,
    jvm: u64,
}

/// A thread that locks and unlocks in a loop, as the JVM does, until told; answers how often it was inside by then.
/// It goes on until it was inside once more.
fn poller(server: &RedisServer, time: &Time, guarded: &Arc<Guarded>, stop: &Arc<AtomicBool>) -> Member<(u64, u64)> {
    let (mut jvm, time, guarded, stop) = (Jvm::new(server), time.clone(), Arc::clone(guarded), Arc::clone(stop));
    spawn(move || {
        let key = config().unique_key().to_owned();
        let (mut during, mut after) = (0, 0);
        while after == 0 {
            time.keep_up_with(|| {
                if jvm.is_lock_free(&key) && jvm.update_for_lock(&key, LEASE) {
                    guarded.enter();
                    assert!(jvm.update_for_unlock(&key));
                    let count = if stop.load(Ordering::SeqCst) { &mut after } else { &mut during };
                    *count += 1;
                }
            });
            time.sleep(LEASE / 6);
        }
        (during, after)
    })
}

/// So many clients of ours with so many threads each, and one poller, all in a loop. Ours pause after each hold, and make a handle for each use, if
/// told so.
#[allow(clippy::print_stdout, reason = "the figures are what one wants to read")]
fn contend(
    name: &str,
    (clients, threads): (usize, usize),
    pause: Duration,
    config: &DLockConfig,
    handle_a_use: bool,
) -> Tally {
    let (lab, server) = Lab::redis_and_server();
    let (guarded, stop) = (Arc::new(Guarded::default()), Arc::new(AtomicBool::new(false)));
    let crew: Vec<_> = (0..clients)
        .flat_map(|_| {
            let generator = Arc::new(listening(&lab, Watched::unseen(lab.processor())));
            (0..threads).map(move |_| Arc::clone(&generator))
        })
        .map(|generator| {
            let (guarded, stop, config) = (Arc::clone(&guarded), Arc::clone(&stop), config.clone());
            spawn(move || {
                let mut holds = 0;
                let mut lock = generator.generate_with(config.clone()).unwrap();
                while !stop.load(Ordering::SeqCst) {
                    if handle_a_use {
                        drop(lock);
                        lock = generator.generate_with(config.clone()).unwrap();
                    }
                    let guard = lock.lock().unwrap();
                    guarded.enter();
                    guard.unlock().unwrap();
                    holds += 1;
                    thread::sleep(pause);
                }
                holds
            })
        })
        .collect();
    // Once they are at it.
    lab.time.until_slowly("they take turns", || guarded.entries.load(Ordering::SeqCst) > 20);
    let poller = poller(&server, &lab.time, &guarded, &stop);
    let end = lab.time.now() + CONTEST;
    lab.time.until_slowly("the contest is over", || lab.time.now() >= end);
    stop.store(true, Ordering::SeqCst);
    let ours = crew.into_iter().map(|member| lab.time.join(member)).sum();
    // It gets the lock when we do not want it.
    let (jvm, after) = lab.time.join(poller);
    println!("{name}: {ours} holds of ours, {jvm} of the poller in {CONTEST:?}, lease {LEASE:?}");
    assert_eq!(guarded.overlaps.load(Ordering::SeqCst), 0, "two were inside at once");
    assert_eq!(guarded.entries.load(Ordering::SeqCst), ours + jvm + after, "entries were lost");
    Tally { ours, jvm }
}

/// Without gaps ours go first, and the poller gets the lock in the end.
fn assert_ours_lead(tally: &Tally) {
    assert!(tally.ours > tally.jvm, "{tally:?}");
}

/// What must come of a gap at most every lease, for lease/6: fewer than there are gaps, for ours may be inside when one is due.
fn assert_both_live(tally: &Tally) {
    let gaps = u64::try_from(CONTEST.as_millis() / LEASE.as_millis()).unwrap();
    assert!(tally.jvm >= gaps / 3, "of some {gaps} gaps: {tally:?}");
    assert_ours_lead(tally);
}

/// Makes a test of each contest: clients, threads of each, their pause, their settings, and what must come of it.
macro_rules! contests {
    ($(fn $name:ident() $who:expr, $pause:expr, $config:expr, $check:expr;)+) => {
        $(
            /// Shows: G1.
            #[test]
            fn $name() {
                let tally = contend(stringify!($name), $who, $pause, &$config, stringify!($name).contains("a_handle_for_each_use"));
                $check(&tally);
            }
        )+
    };
}

const NONE: Duration = Duration::ZERO;

contests! {
    fn two_clients_that_hand_the_lock_over_exclude_a_poller_and_leave_it_the_lock_in_the_end()
        (2, 1), NONE, config(), assert_ours_lead;
    fn threads_that_pass_the_lock_on_exclude_a_poller_and_leave_it_the_lock_in_the_end()
        (1, 4), NONE, config(), assert_ours_lead;
    fn a_thread_that_lingers_between_its_holds_excludes_a_poller_and_leaves_it_the_lock_in_the_end()
        (1, 1), NONE, config().with_linger(LEASE), assert_ours_lead;
    fn clients_that_pause_and_a_poller_exclude_one_another()
        (2, 1), 10 * INSIDE, config(), |tally: &Tally| assert!(tally.ours > 0 && tally.jvm > 0, "{tally:?}");
    fn with_gaps_two_clients_that_hand_the_lock_over_let_a_poller_in() (2, 1), NONE, gaps(), assert_both_live;
    fn with_gaps_threads_that_pass_the_lock_on_let_a_poller_in() (1, 4), NONE, gaps(), assert_both_live;
    fn with_gaps_a_thread_that_lingers_between_its_holds_lets_a_poller_in()
        (1, 1), NONE, gaps().with_linger(LEASE), assert_both_live;
    fn with_gaps_two_clients_that_linger_let_a_poller_in() (2, 1), NONE, gaps().with_linger(LEASE), assert_both_live;
    fn with_gaps_code_that_makes_a_handle_for_each_use_lets_a_poller_in() (2, 1), NONE, gaps(), assert_both_live;
}

/// A client that always hears of grants.
fn listening(lab: &Lab, store: Watched) -> DLockGenerator {
    lab.time.builder().listener(true).build(store).unwrap()
}

#[test]
fn a_lone_hold_that_lingered_makes_no_gap() {
    let lab = Lab::redis();
    let (processor, watch) = lab.watched();
    let generator = listening(&lab, processor);
    let settings = config().with_linger(Duration::from_millis(20)).with_poller_gap(LEASE);
    let lock = generator.generate_with(settings).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    eventually("it listens", || watch.listening() == 1);
    for _ in 0..3 {
        lab.time.pass(LEASE);
        let released = watch.count_of(Kind::Release);
        lock.lock().unwrap().unlock().unwrap();
        lab.time.until("it is given back", || watch.count_of(Kind::Release) > released);
        lock.lock().unwrap().unlock().unwrap();
    }
    assert_eq!(watch.count_of(Kind::Poll), 0, "nobody had to wait");
}

/// Shows: L1.
#[test]
fn a_waiter_of_ours_finds_what_a_poller_gave_back_by_its_next_look() {
    // The lease of the poller is far longer: its end is not what is waited for.
    let lease = Duration::from_secs(6);
    let (lab, server) = Lab::redis_and_server();
    let mut jvm = Jvm::new(&server);
    let (processor, watch) = lab.watched();
    let lock = listening(&lab, processor).generate_with(config().with_lease(lease)).unwrap();
    assert!(jvm.update_for_lock(lock.key(), lease * 20));
    let waiter = wait_for(&lock);
    watch.wait_for_more(Kind::Poll, 2);
    let looks = watch.count_of(Kind::Poll);
    assert!(jvm.update_for_unlock(lock.key()));
    lab.time.join(waiter);
    // One may have been under way.
    assert!(watch.count_of(Kind::Poll) <= looks + 2);
    assert!(jvm.is_lock_free(lock.key()));
}

/// A JVM sees a holder, and gets the lock when the time is over.
/// Shows: G13.
#[test]
fn a_lock_that_is_kept_is_held_for_a_jvm() {
    const KEPT: Duration = Duration::from_millis(600);
    let (lab, server) = Lab::redis_and_server();
    let mut jvm = Jvm::new(&server);
    let lock = lab.generator().generate_with(config()).unwrap();
    lock.lock().unwrap().unlock_after(KEPT).unwrap();
    lab.time.pass(KEPT);
    assert!(!jvm.is_lock_free(lock.key()) && !jvm.update_for_lock(lock.key(), LEASE));
    assert!(!jvm.expand_lock_expire(lock.key(), LEASE) && !jvm.update_for_unlock(lock.key()));
    // Redis counts milliseconds, and drops a key in the one after its end.
    lab.time.pass(Duration::from_millis(1));
    assert!(jvm.update_for_lock(lock.key(), LONG));
    assert!(lock.try_lock().unwrap().is_none() && jvm.update_for_unlock(lock.key()));
}
