//! The lock-delay: after a tenure that ended by its lease, the key stays taken for a while; after an orderly release it does not.

use crate::support::clock_shim::ServerByHand;
use crate::support::crew::{HANG, answered, eventually, spawn_with, wait_by, wait_for};
use crate::support::holder::Holder;
use crate::support::lab::{Lab, connect, is_listener_on, on_both_stores};
use crate::support::monitor::{Executed, Monitor};
use crate::support::time::Time;
use crate::support::watched::Watched;
use crate::support::{Jvm, RedisServer, cause};
use redis_dlock::processor::Operations;
use redis_dlock::{DLockConfig, DLockGenerator, LossCause, ManualClock, MemoryLockProcessor};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any test: whoever gets the lock did not wait for it.
const FOR_EVER: Duration = Duration::from_secs(60);

fn config(lease: Duration, delay: Duration) -> DLockConfig {
    DLockConfig::new("TEST", "x").with_lease(lease).with_lock_delay(delay)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

on_both_stores!(
    the_store_keeps_a_hold_for_its_lease_and_the_delay,
    an_orderly_release_gives_the_lock_away_at_once,
    a_hand_over_gives_a_waiter_its_own_lease_and_delay,
    an_extension_is_for_the_lease_and_the_delay,
    a_holder_that_has_lost_its_lease_gives_the_lock_away_when_it_unlocks,
    a_waiter_that_gives_up_leaves_nothing_behind,
    a_lock_that_lingers_is_given_away_at_once,
    a_lock_in_its_delay_is_described_and_listed_as_such,
);

/// What is left of the key in the store.
fn left(lab: &Lab) -> Duration {
    lab.holder(config(ms(1000), ms(0)).unique_key()).and_then(|held| held.remaining).unwrap_or_default()
}

/// Shows: G5.
fn the_store_keeps_a_hold_for_its_lease_and_the_delay(lab: &Lab) {
    let lock = lab.generator().generate_with(config(ms(20_000), ms(30_000))).unwrap();
    let guard = lock.lock().unwrap();
    assert!((ms(40_000)..=ms(50_000)).contains(&left(lab)), "{:?}", left(lab));
    assert!(guard.remaining() < ms(20_000), "the holder counts on the lease alone");
    guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// Shows: G10.
fn an_orderly_release_gives_the_lock_away_at_once(lab: &Lab) {
    let [here, there] = [(); 2].map(|()| lab.generator().generate_with(config(FOR_EVER, FOR_EVER)).unwrap());
    for dropped in [false, true] {
        let guard = here.lock().unwrap();
        let waiter = wait_by(&there, move |other| other.lock().unwrap().unlock().unwrap());
        if dropped {
            drop(guard);
        } else {
            guard.unlock().unwrap();
        }
        waiter.join();
        // So it does where nobody waits.
        drop(here.lock().unwrap());
        eventually("it is free", || lab.leftovers().is_empty());
        assert!(there.try_lock().unwrap().is_some());
        eventually("it is free", || lab.leftovers().is_empty());
    }
}

fn a_hand_over_gives_a_waiter_its_own_lease_and_delay(lab: &Lab) {
    let here = lab.generator().generate_with(config(ms(600), ms(0))).unwrap();
    let there = lab.generator().generate_with(config(ms(20_000), ms(30_000))).unwrap();
    let guard = here.lock().unwrap();
    let waiter = wait_by(&there, move |other| {
        let guard = other.lock().unwrap();
        let left = (guard.remaining(), other.holder().unwrap().unwrap().remaining.unwrap());
        guard.unlock().unwrap();
        left
    });
    if is_listener_on() {
        eventually("in the queue", || lab.waiting(here.key()) == 1);
    }
    guard.unlock().unwrap();
    let (counted, kept) = waiter.join();
    assert!(counted < ms(20_000), "{counted:?}");
    assert!((ms(40_000)..=ms(50_000)).contains(&kept), "{kept:?}");
    // And the other way round: the delay of the one before is not that of the next.
    let guard = there.lock().unwrap();
    let waiter = wait_for(&here);
    guard.unlock().unwrap();
    waiter.join();
    eventually("it is free", || lab.leftovers().is_empty());
}

/// Shows: G3.
fn an_extension_is_for_the_lease_and_the_delay(lab: &Lab) {
    let lock = lab.generator().generate_with(config(ms(900), ms(30_000)).with_renew_at(0.2)).unwrap();
    let guard = lock.lock().unwrap();
    // It does not fall below what the delay and the rest of a lease are, and it falls only between extensions.
    let mut before = left(lab);
    let mut rose = 0;
    lab.time.until("some extensions", || {
        let now = left(lab);
        assert!(now > ms(30_000), "{now:?}");
        rose += u32::from(now > before);
        before = now;
        rose == 3
    });
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

/// Shows: G6.
fn a_holder_that_has_lost_its_lease_gives_the_lock_away_when_it_unlocks(lab: &Lab) {
    let (generator, watch) = lab.watched_generator();
    let lock = generator.generate_with(config(ms(300), FOR_EVER)).unwrap();
    let guard = lock.lock().unwrap();
    watch.silence();
    lab.time.until("the deadline", || !guard.is_valid());
    watch.heal();
    assert!(left(lab) > ms(1000), "the key is still taken");
    assert_eq!(cause(guard.unlock()), LossCause::Deadline);
    assert!(lab.generator().generate_with(config(ms(300), ms(0))).unwrap().try_lock().unwrap().is_some());
}

fn a_waiter_that_gives_up_leaves_nothing_behind(lab: &Lab) {
    let [here, there] = [(); 2].map(|()| lab.generator().generate_with(config(FOR_EVER, FOR_EVER)).unwrap());
    let guard = here.lock().unwrap();
    for _ in 0..3 {
        assert!(lab.time.during(|| answered(|| there.try_lock_for(ms(30))).is_none()));
    }
    eventually("nobody waits", || lab.waiting(here.key()) == 0);
    guard.unlock().unwrap();
    eventually("it is free", || lab.leftovers().is_empty());
}

fn a_lock_that_lingers_is_given_away_at_once(lab: &Lab) {
    if !is_listener_on() {
        return;
    }
    let (generator, _) = lab.listening_generator();
    let here = generator.generate_with(config(FOR_EVER, FOR_EVER).with_linger(FOR_EVER)).unwrap();
    here.lock().unwrap().unlock().unwrap();
    assert!(here.is_locked().unwrap(), "it lingers");
    let there = lab.generator().generate_with(config(FOR_EVER, FOR_EVER)).unwrap();
    drop(there.try_lock_for(HANG).unwrap().expect("the lock"));
}

fn a_lock_in_its_delay_is_described_and_listed_as_such(lab: &Lab) {
    let (lock, watch) = lab.watched_lock(config(ms(600), FOR_EVER));
    let guard = lock.lock().unwrap();
    let other = lab.builder().build(lab.processor()).unwrap();
    let described = || other.describe("TEST", "x").unwrap();
    let listed = || other.list("TEST_x").next().expect("it is in the store").unwrap();
    let found = described();
    let locker = found.holder.expect("the holder").locker;
    assert_eq!((found.lock_delay, listed().lock_delay), (None, None), "a thread holds it");
    watch.silence();
    lab.time.until("its delay has begun", || described().lock_delay.is_some());
    assert!(!guard.is_valid(), "no thread holds it");
    let (found, listed) = (described(), listed());
    assert_eq!(found.lock_delay, found.remaining);
    assert!((ms(1)..=FOR_EVER).contains(&found.lock_delay.unwrap()), "{found:?}");
    assert_eq!(found.holder.map(|holder| holder.locker), Some(locker.clone()), "who held it");
    assert_eq!((listed.lock_delay, listed.locker), (listed.remaining, Some(locker)));
    assert!(listed.lock_delay <= found.lock_delay);
    watch.heal();
    drop(guard);
    eventually("the unlock has ended the delay", || described().lock_delay.is_none());
}

/// On a clock that is moved by hand, to the nanosecond.
#[test]
fn a_description_tells_the_delay_from_the_end_of_the_lease_on() {
    const LEASE: Duration = Duration::from_secs(1000);
    const DELAY: Duration = Duration::from_secs(50);
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let (processor, watch) = Watched::new(Arc::new(store.clone()));
    let holds = DLockGenerator::builder().clock(clock.clone()).build(processor).unwrap();
    let _guard = holds.generate_with(config(LEASE, DELAY)).unwrap().lock_owned().unwrap();
    watch.fail(redis_dlock::BackendFailure::NotExecuted);
    let asker = DLockGenerator::builder().clock(clock.clone()).build(store).unwrap();
    let delay = || asker.describe("TEST", "x").unwrap().lock_delay;
    let second = Duration::from_secs(1);
    clock.advance(LEASE - Duration::from_nanos(1));
    assert_eq!(delay(), None);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(delay(), Some(DELAY));
    clock.advance(DELAY - second);
    assert_eq!(delay(), Some(second));
    clock.advance(second);
    let free = asker.describe("TEST", "x").unwrap();
    assert_eq!((free.holder, free.lock_delay), (None, None));
}

/// What a thread left half done may still go on.
/// Shows: G4.
#[test]
fn a_thread_that_ends_without_unlocking_leaves_the_delay_to_its_end() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryLockProcessor::with_clock(clock.clone());
    let time = Time::by_hand(clock);
    let generator = time.builder().build(store.clone()).unwrap();
    let lock = generator.generate_with(config(ms(300), FOR_EVER)).unwrap();
    spawn_with(&lock, move |other| std::mem::forget(other.lock().unwrap())).join();
    let left = || store.inspect(lock.key(), HANG).unwrap().remaining.unwrap();
    // It is extended until the client notices that its thread has ended.
    time.until("its lease is over", || left() < FOR_EVER);
    assert!(lock.try_lock().unwrap().is_none());
    assert!(left() > ms(1000));
}

/// On a clock that is moved by hand, to the nanosecond.
/// Shows: G4.
#[test]
fn a_waiter_gets_the_lock_of_a_dead_holder_when_the_delay_is_over() {
    const LEASE: Duration = Duration::from_secs(1000);
    const DELAY: Duration = Duration::from_secs(50);
    for _ in 0..100 {
        let clock = Arc::new(ManualClock::new());
        let store = MemoryLockProcessor::with_clock(clock.clone());
        let lock = || {
            let (processor, watch) = Watched::new(Arc::new(store.clone()));
            let generator = DLockGenerator::builder().clock(clock.clone()).build(processor).unwrap();
            (generator.generate_with(config(LEASE, DELAY)).unwrap(), watch)
        };
        let ((here, silenced), (there, _watch)) = (lock(), lock());
        let guard = here.lock().unwrap();
        silenced.fail(redis_dlock::BackendFailure::NotExecuted);
        let waiter = wait_for(&there);
        clock.advance(LEASE);
        assert!(!guard.is_valid());
        let found = || store.inspect(there.key(), HANG).unwrap();
        let holder = found().holder;
        assert_eq!(found().remaining, Some(DELAY));
        clock.advance(DELAY - Duration::from_nanos(1));
        assert!(holder.is_some() && found().holder == holder && !waiter.is_finished());
        clock.advance(Duration::from_nanos(1));
        waiter.join();
        drop(guard);
    }
}

/// The tests move the server's clock by hand. The clock of the process that holds runs, and this lease is so long that the process extends nothing.
const LEASE: Duration = Duration::from_secs(3600);
const DELAY: Duration = Duration::from_secs(50);

/// A server whose clock is moved by hand.
fn server_by_hand() -> (ServerByHand, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    (ServerByHand::start(&clock), clock)
}

/// Who holds the key, and what is left of it.
fn key(server: &RedisServer) -> (Option<String>, Duration) {
    let key = config(LEASE, DELAY).unique_key().to_owned();
    let (value, ttl): (_, i64) = ::redis::pipe().get(&key).pttl(&key).query(&mut server.connection()).unwrap();
    (value, ms(u64::try_from(ttl).unwrap_or(0)))
}

/// When the server's clock began to count a lease of this locker for the last time, in microseconds, and for how long it was.
fn last_lease(executed: &[Executed], of: &str) -> (u64, Duration) {
    let key = config(LEASE, DELAY).unique_key().to_owned();
    let of_key = executed.iter().filter(|one| one.words.get(1) == Some(&key));
    let (mut holder, mut found) = (false, None);
    for one in of_key {
        let words: Vec<&str> = one.words.iter().map(String::as_str).collect();
        // An attempt to take the key while it is held does nothing.
        let (sets, length) = match words[..] {
            ["set", _, locker, "PX", length] => (Some(locker == of), length),
            ["set", _, locker, "NX", "PX", length, ..] if locker == of => (Some(true), length),
            ["pexpire", _, length] => (None, length),
            _ => continue,
        };
        holder = sets.unwrap_or(holder);
        if holder {
            found = Some((one.at, ms(length.parse().unwrap())));
        }
    }
    found.expect("its lease")
}

/// Shows: G4.
#[test]
fn a_killed_holder_keeps_others_out_for_its_lease_and_the_delay() {
    let (server, clock) = server_by_hand();
    let time = Time::by_hand(clock);
    for polls in [false, true] {
        let monitor = Monitor::start(&server);
        let mut dead = Holder::holding(&server, &config(LEASE, DELAY));
        let generator = time.builder().listener(is_listener_on() && !polls);
        let generator = generator.build(redis_dlock::RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
        let lock = generator.generate_with(config(LEASE, ms(0))).unwrap();
        let waiter = wait_by(&lock, move |other| {
            let guard = other.lock().unwrap();
            let locker = other.holder().unwrap().unwrap().locker;
            guard.unlock().unwrap();
            locker
        });
        let holder = key(&server).0.unwrap();
        dead.kill();
        assert_eq!(key(&server).1, LEASE + DELAY);
        let end: u64 = server.run(&["PEXPIRETIME", lock.key()]);
        let next = time.join(waiter);
        let executed = monitor.stop(&server);
        assert_eq!(last_lease(&executed, &holder).1, LEASE + DELAY);
        let (granted, _) = last_lease(&executed, &next);
        assert!(granted / 1000 >= end, "{granted} µs, {end} ms, polls: {polls}");
    }
}

#[test]
fn the_delay_of_a_killed_holder_says_who_that_was() {
    // The record of a client that is dead stays for 90 s.
    const LEASE: Duration = Duration::from_secs(60);
    let (server, clock) = server_by_hand();
    let mut dead = Holder::holding(&server, &config(LEASE, FOR_EVER));
    let asker = connect(&server.url());
    let found = || asker.describe("TEST", "x").unwrap();
    let client = || found().holder.and_then(|holder| holder.client);
    eventually("its record is written", || client().is_some());
    assert_eq!(found().lock_delay, None);
    dead.kill();
    clock.advance(LEASE + ms(1));
    assert!(found().lock_delay.is_some());
    assert_eq!(client().unwrap().pid, Some(dead.pid()));
}

/// Shows: G4.
#[test]
fn a_jvm_waits_for_the_delay_too() {
    let (server, clock) = server_by_hand();
    let (mut jvm, mut dead) = (Jvm::new(&server), Holder::holding(&server, &config(LEASE, DELAY)));
    dead.kill();
    let name = config(LEASE, DELAY).unique_key().to_owned();
    clock.advance(LEASE + DELAY);
    assert!(!jvm.update_for_lock(&name, LEASE));
    // Redis counts milliseconds, and drops a key in the one after its end.
    clock.advance(ms(1));
    assert!(jvm.update_for_lock(&name, LEASE));
    assert!(jvm.update_for_unlock(&name));
}

/// Shows: G2, G6.
#[test]
fn a_stopped_holder_that_unlocks_late_ends_the_delay() {
    let server = RedisServer::start();
    let mut stopped = Holder::holding(&server, &config(ms(900), FOR_EVER));
    let holder = key(&server).0;
    stopped.signal(Signal::STOP);
    eventually("its lease is over", || key(&server).1 < FOR_EVER);
    assert_eq!(key(&server).0, holder, "the delay is not");
    stopped.signal(Signal::CONT);
    assert!(stopped.obey("unlock").starts_with("lost: "));
    eventually("the key is free", || key(&server).0.is_none());
}
