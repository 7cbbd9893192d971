//! The server's wall clock is stepped, by which it ends leases and counts fence numbers.
//!
//! Forward it ends leases that are good: their holders know soon. Backward it makes them longer: nobody is let in twice. Tokens
//! rise, whichever way. A waiter that is gone does not keep its place for longer.

use crate::support::clock_shim::ClockShim;
use crate::support::crew::{Member, spawn, wait_by};
use crate::support::lab::Lab;
use crate::support::time::Time;
use crate::support::watched::Kind;
use crate::support::{Asking, LONG, RedisServer, claim};
use parking_lot::Mutex;
use redis_dlock::processor::Operations;
use redis_dlock::{
    AcquireOutcome, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LossCause, Moment,
    RedisLockProcessor, ReleaseOutcome,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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

/// The lease of the clients, who count it by a clock that is moved by hand. The server's clock follows that, too.
const LEASE: Duration = Duration::from_secs(30);

fn settings(target: &str) -> DLockConfig {
    DLockConfig::new("TEST", target).with_lease(LEASE)
}

/// Shows: G5, G7.
#[test]
fn a_step_forward_frees_the_lock_and_its_holder_knows_soon() {
    let (lab, server) = Lab::redis_and_server();
    let [(lock, seen), (other, _)] = [(); 2].map(|()| lab.watched_lock(settings("x")));
    // Behind the threads of the client that holds it, so that it is told by its own look at the key.
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let (tell, is_told) = crossbeam_channel::bounded(1);
    let time = lab.time.clone();
    let waiter = wait_by(&other, move |waiting| {
        let guard = waiting.lock().unwrap();
        let since = time.now();
        // The one before may not know yet.
        is_told.recv().unwrap();
        (since, guard.fencing_token(), guard.unlock())
    });
    // It looks at the key every sixth of the lease.
    lab.time.pass(LEASE * 5 / 12);
    assert!(lost.try_recv().is_err(), "the holder is undisturbed");
    let extended = seen.count_of(Kind::Extend);
    let stepped = lab.time.now();
    server.shim.set(60);
    lab.time.recv(&lost);
    let told = lab.time.now().since(stepped);
    // An extension would have told it, too, but late.
    assert!(told < LEASE / 6 && seen.count_of(Kind::Extend) == extended, "told by its next look at the key: {told:?}");
    tell.send(()).unwrap();
    let (since, token, unlocked) = lab.time.join(waiter);
    unlocked.unwrap();
    let waited = since.since(stepped);
    assert!(waited < LEASE / 5, "waited for {waited:?}");
    assert!(token > guard.fencing_token());
    match guard.unlock() {
        Err(Error::LeaseLost(loss)) => {
            assert!(matches!(loss.cause, LossCause::Deleted | LossCause::TakenOver { .. }), "{loss}");
        }
        other => panic!("{other:?}"),
    }
    // And back again: the fence is a minute ahead of the clock now.
    server.shim.set(0);
    let mut last = token;
    for lock in [&lock, &other, &lock] {
        let guard = lock.lock().unwrap();
        assert!(guard.fencing_token() > std::mem::replace(&mut last, guard.fencing_token()));
    }
    eprintln!("endurance, server clock +60 s, L = {LEASE:?}: T {told:.0?}, V {waited:.0?}, no violations");
}

/// Shows: G1, G7.
#[test]
fn a_step_back_lets_nobody_in_and_keeps_nobody_out() {
    let (lab, server) = Lab::redis_and_server();
    let clients = [lab.generator(), lab.generator()];
    let crowd = Crowd::enter(&lab.time, &clients);
    let mut last = 0;
    for seconds in [-120, -240, FORWARD, -180] {
        crowd.go_on(20);
        // While somebody holds another lock, too.
        let [held, wanted] = clients.each_ref().map(|client| client.generate_with(settings("held")).unwrap());
        let guard = held.lock().unwrap();
        assert!(guard.fencing_token() > last);
        let at = time(&server);
        // A step forward among them ends whatever lease there is, and this is not the test for that.
        crowd.scene.is_ended.store(seconds == FORWARD, Ordering::SeqCst);
        server.shim.set(seconds);
        assert!((time(&server) - at).abs() > 50);
        let is_back = time(&server) < at;
        assert_eq!(is_back, seconds != FORWARD);
        if is_back {
            let got = lab.time.during(|| wanted.try_lock_for(LEASE * 5 / 4).unwrap().is_some());
            assert!(!got, "at {seconds} s");
            assert!(guard.is_valid(), "at {seconds} s");
            last = guard.fencing_token();
            guard.unlock().unwrap();
        } else {
            drop(guard);
        }
        let next = lab.time.during(|| wanted.lock().unwrap());
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
    time: Time,
    scene: Arc<Scene>,
    members: Vec<Member<()>>,
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
    fn enter(time: &Time, clients: &[DLockGenerator; 2]) -> Self {
        let scene = Arc::new(Scene::default());
        let members = (0..6).map(|n| {
            let lock = clients[n % 2].generate_with(settings("x")).unwrap();
            let (scene, time) = (Arc::clone(&scene), time.clone());
            spawn(move || {
                while !scene.is_over.load(Ordering::SeqCst) {
                    scene.hold(&lock, &time);
                }
            })
        });
        Self { members: members.collect(), scene, time: time.clone() }
    }

    /// Waits until the lock went from hand to hand so many times more.
    #[track_caller]
    fn go_on(&self, holds: usize) {
        let target = self.scene.holds.load(Ordering::SeqCst) + holds;
        self.time.until_slowly("the lock goes on", || {
            self.scene.holds.load(Ordering::SeqCst) >= target || self.members.iter().any(Member::is_finished)
        });
    }

    fn leave(self) -> (usize, usize) {
        self.scene.is_over.store(true, Ordering::SeqCst);
        self.members.into_iter().for_each(|member| self.time.join(member));
        (self.scene.holds.load(Ordering::SeqCst), self.scene.lost.load(Ordering::SeqCst))
    }
}

impl Scene {
    fn hold(&self, lock: &DistributedReentrantLock, time: &Time) {
        let guard = lock.lock().unwrap();
        {
            let mut inside = self.inside.lock();
            let (now, left) = (time.now(), guard.remaining());
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
