//! The server's wall clock is stepped, by which it ends leases and counts fence numbers.
//!
//! Forward it ends leases that are good: their holders know soon. Backward it makes them longer: nobody is let in twice. Tokens
//! rise, whichever way. A waiter that is gone does not keep its place for longer.

use crate::support::clock_shim::ClockShim;
use crate::support::crew::{HANG, eventually, spawn, wait_by};
use crate::support::is_long;
use crate::support::lab::{STALL, builder, config, connect};
use crate::support::stalls::on_a_running_machine;
use crate::support::watched::{Kind, Watched};
use crate::support::{Asking, LONG, RedisServer, claim};
use parking_lot::Mutex;
use redis_dlock::processor::Operations;
use redis_dlock::{
    AcquireOutcome, Clock, DLockGenerator, DistributedReentrantLock, Error, LossCause, Moment, RedisLockProcessor,
    ReleaseOutcome, SystemClock,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server whose clock can be stepped.
fn server() -> (RedisServer, ClockShim) {
    let shim = ClockShim::build();
    let server = RedisServer::start_in(&shim.variables(), &[]);
    let at = time(&server);
    shim.set(1000);
    assert!((990..1010).contains(&(time(&server) - at)), "its clock is moved");
    shim.set(0);
    (server, shim)
}

fn time(server: &RedisServer) -> i64 {
    let (seconds, _): (i64, i64) = server.run(&["TIME"]);
    seconds
}

/// Shows: G5, G7.
#[test]
fn a_step_forward_frees_the_lock_and_its_holder_knows_soon() {
    on_a_running_machine(STALL, step_forward);
}

fn step_forward() {
    let lease_ms = if is_long() { 30_000 } else { 6000 };
    let lease = Duration::from_millis(lease_ms);
    let (server, shim) = server();
    let (store, seen) = Watched::new(Arc::new(RedisLockProcessor::connect(&server.url()).unwrap()));
    let [lock, other] = [builder().build(store).unwrap(), connect(&server.url())]
        .map(|client| client.generate_with(config("x", lease_ms)).unwrap());
    // Behind the threads of the client that holds it, so that it is told by its own look at the key.
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let waiter = wait_by(&other, move |waiting| {
        let guard = waiting.lock().unwrap();
        let since = Instant::now();
        // For longer than the one before may not know.
        std::thread::sleep(lease / 4);
        (since, guard.fencing_token(), guard.unlock())
    });
    assert!(lost.recv_timeout(lease / 4).is_err(), "the holder is undisturbed");
    let counts = || [Kind::Probe, Kind::Extend].map(|kind| seen.count_of(kind));
    let (stepped, [looks, extended]) = (Instant::now(), counts());
    shim.set(60);
    lost.recv_timeout(HANG).unwrap();
    let told = stepped.elapsed();
    // One may have been under way. An extension would have told it, too, but late.
    let [looked, extends] = counts();
    assert!(looked <= looks + 2 && extends == extended, "told by its next look at the key: {looks}, {looked}");
    let (since, token, unlocked) = waiter.join();
    unlocked.unwrap();
    let waited = since - stepped;
    // A sixth of the lease, and what a busy machine needs.
    assert!(waited < lease / 4, "waited for {waited:?}");
    assert!(token > guard.fencing_token());
    match guard.unlock() {
        Err(Error::LeaseLost(loss)) => {
            assert!(matches!(loss.cause, LossCause::Deleted | LossCause::TakenOver { .. }), "{loss}");
        }
        other => panic!("{other:?}"),
    }
    // And back again: the fence is a minute ahead of the clock now.
    shim.set(0);
    let mut last = token;
    for lock in [&lock, &other, &lock] {
        let guard = lock.lock().unwrap();
        assert!(guard.fencing_token() > std::mem::replace(&mut last, guard.fencing_token()));
    }
    eprintln!("endurance, server clock +60 s, L = {lease:?}: T {told:.0?}, V {waited:.0?}, no violations");
}

/// Shows: G1, G7.
#[test]
fn a_step_back_lets_nobody_in_and_keeps_nobody_out() {
    // A busy machine ends none: who holds the lock for long has it extended early.
    const LEASE_MS: u64 = 3000;
    let lease = Duration::from_millis(LEASE_MS);
    let (server, shim) = server();
    let clients = [connect(&server.url()), connect(&server.url())];
    let crowd = Crowd::enter(&clients, lease);
    let mut last = 0;
    for seconds in [-120, -240, FORWARD, -180] {
        crowd.go_on(20);
        // While somebody holds another lock, too.
        let [held, wanted] =
            [0, 1].map(|n| clients[n].generate_with(config("held", LEASE_MS).with_renew_at(0.25)).unwrap());
        let guard = held.lock().unwrap();
        assert!(guard.fencing_token() > last);
        let at = time(&server);
        // A step forward among them ends whatever lease there is, and this is not the test for that.
        crowd.scene.is_ended.store(seconds == FORWARD, Ordering::SeqCst);
        shim.set(seconds);
        assert!((time(&server) - at).abs() > 50);
        let is_back = time(&server) < at;
        assert_eq!(is_back, seconds != FORWARD);
        if is_back {
            assert!(wanted.try_lock_for(lease * 5 / 4).unwrap().is_none(), "at {seconds} s");
            assert!(guard.is_valid(), "at {seconds} s");
            last = guard.fencing_token();
            guard.unlock().unwrap();
        } else {
            drop(guard);
        }
        let next = wanted.try_lock_for(HANG).unwrap().expect("what was unlocked is free");
        assert!(next.fencing_token() > last);
        last = next.fencing_token();
        crowd.go_on(20);
        crowd.scene.is_ended.store(false, Ordering::SeqCst);
    }
    let (holds, lost) = crowd.leave();
    // One step was forward.
    assert!(lost <= 1, "{lost} holds of {holds} were lost");
    eprintln!("endurance, server clock -120 s, -120 s, +180 s, -120 s: {holds} holds, {lost} lost, no violations");
}

/// Shows: L2.
#[test]
fn a_step_back_keeps_no_place_for_longer() {
    const KEY: &str = "DLOCK_TEST_kept";
    let lease = Duration::from_secs(3600);
    let (server, shim) = server();
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    let _inbox = store.open("heard", LONG).unwrap();
    let wait = |locker| store.ask(&claim(KEY, locker, lease), true, LONG).unwrap();
    let release = |locker| store.release(&claim(KEY, locker, lease), LONG).unwrap();
    assert!(matches!(wait("heard-1"), AcquireOutcome::Acquired(_)));
    for locker in ["gone-1", "heard-2", "heard-3"] {
        assert!(matches!(wait(locker), AcquireOutcome::Busy(_)));
    }
    assert_eq!(release("heard-1"), ReleaseOutcome::Released { waiting: 2 }, "it is passed over, and stays");
    // By this clock, its time would be over in an hour.
    shim.set(-3600);
    assert_eq!(release("heard-2"), ReleaseOutcome::Released { waiting: 0 }, "it is dropped");
    assert_eq!(server.entries_of(KEY), [""; 0]);
}

/// Later than the step before it.
const FORWARD: i64 = -60;

/// Threads that want one lock all the time.
struct Crowd {
    scene: Arc<Scene>,
    members: Vec<crate::support::crew::Member<()>>,
}

#[derive(Default)]
struct Scene {
    /// Until when the holder certainly has the lock, and its token.
    inside: Mutex<(Option<Moment>, u64)>,
    holds: AtomicUsize,
    lost: AtomicUsize,
    /// Whether the server may just have ended a lease by its clock, of which nobody knows yet.
    is_ended: AtomicBool,
    is_over: AtomicBool,
}

impl Crowd {
    fn enter(clients: &[DLockGenerator; 2], lease: Duration) -> Self {
        let scene = Arc::new(Scene::default());
        let members = (0..6).map(|n| {
            let lock = clients[n % 2].generate_with(config("x", lease.as_millis().try_into().unwrap())).unwrap();
            let scene = Arc::clone(&scene);
            spawn(move || {
                while !scene.is_over.load(Ordering::SeqCst) {
                    scene.hold(&lock);
                }
            })
        });
        Self { members: members.collect(), scene }
    }

    /// Waits until the lock went from hand to hand so many times more.
    #[track_caller]
    fn go_on(&self, holds: usize) {
        let target = self.scene.holds.load(Ordering::SeqCst) + holds;
        eventually("the lock goes on", || {
            self.scene.holds.load(Ordering::SeqCst) >= target || self.members.iter().any(|member| member.is_finished())
        });
    }

    fn leave(self) -> (usize, usize) {
        self.scene.is_over.store(true, Ordering::SeqCst);
        self.members.into_iter().for_each(crate::support::crew::Member::join);
        (self.scene.holds.load(Ordering::SeqCst), self.scene.lost.load(Ordering::SeqCst))
    }
}

impl Scene {
    fn hold(&self, lock: &DistributedReentrantLock) {
        let guard = lock.lock().unwrap();
        {
            let mut inside = self.inside.lock();
            let (left, now) = (guard.remaining(), SystemClock.now());
            if guard.is_valid() {
                let token = guard.fencing_token();
                if !self.is_ended.load(Ordering::SeqCst) {
                    assert!(inside.0.is_none_or(|until| now >= until), "two are inside");
                    assert!(token > inside.1, "token {token} comes after {}", inside.1);
                }
                *inside = (Some(now + left / 2), token.max(inside.1));
            }
        }
        std::thread::sleep(Duration::from_millis(3));
        {
            let mut inside = self.inside.lock();
            if inside.1 == guard.fencing_token() {
                inside.0 = None;
            }
        }
        self.holds.fetch_add(1, Ordering::SeqCst);
        match guard.unlock() {
            // A server that answers late is asked again.
            Ok(()) | Err(Error::Backend { .. }) => {}
            Err(Error::LeaseLost(_)) => drop(self.lost.fetch_add(1, Ordering::SeqCst)),
            Err(error) => panic!("{error}"),
        }
    }
}
