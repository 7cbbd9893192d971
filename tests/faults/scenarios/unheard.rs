//! Waiters that nobody hears: all for a moment, because all inboxes are closed at once as at a failover, or some for ever.

use crate::checker::waits::Kept;
use crate::history::{Nanos, What};
use crate::report::Bounds;
use crate::scene::{Process, Scene};
use crate::setup::{Setup, leases};
use crate::support::RedisServer;
use crate::support::crew::{Member, eventually, spawn, spawn_with};
use crate::support::queue::begin_the_time_of_the_unheard;
use crate::work::KEY;
use crate::worker::now;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use redis_dlock::processor::{Claim, LockProcessor, Operations};
use redis_dlock::{AcquireOutcome, DLockConfig, DLockGenerator, DistributedReentrantLock, RedisLockProcessor};
use std::thread;
use std::time::Duration;

/// In this time only a process that has opened its inbox again asks again.
pub(super) const LEASE: Duration = Duration::from_secs(600);

const PROCESSES: usize = 8;

/// Eight processes with a thread each, which do nothing but wait for the lock and hold it for a moment.
pub(super) fn eight(name: &'static str) -> Setup {
    let setup = Setup { processes: 8, proxied: false, ..Setup::of(name) };
    setup.work(|work| {
        (work.threads, work.tries, work.reentries, work.hold) = (1, 0, 0, (1, 3));
        work.lease = u64::try_from(LEASE.as_millis()).unwrap();
    })
}

pub(super) fn bounds() -> Bounds {
    Bounds { waited: leases(1.0), ..Bounds::default() }
}

/// The lock of a client beside the eight processes.
pub(super) fn outsider(server: &RedisServer) -> DistributedReentrantLock {
    let generator = DLockGenerator::new(RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
    generator.generate_with(DLockConfig::new(KEY.0, KEY.1).with_lease(LEASE)).unwrap()
}

/// The processes in the queue, once all are there.
fn all_wait(scene: &Scene) -> Vec<Process> {
    eventually("all wait", || scene.queue().len() == PROCESSES);
    scene.queue()
}

/// How many of those who wait are heard.
fn heard(scene: &Scene) -> usize {
    let waiters = scene.server.waiters_of(KEY.2);
    let is_heard = |locker: &&String| {
        let inbox = format!("DLOCK:1:inbox:{}", locker.rsplit_once('-').unwrap().0);
        scene.server.run::<(String, u64)>(&["PUBSUB", "NUMSUB", &inbox]).1 > 0
    };
    waiters.iter().filter(is_heard).count()
}

/// The processes in the order of their first holds after a moment.
pub(super) fn served(scene: &mut Scene, from: Nanos) -> Vec<(Process, Nanos)> {
    eventually("all have had the lock", || scene.processes().all(|process| scene.got_since(process, from) > 0));
    let holds = scene.events.iter().filter(|event| matches!(event.what, What::Got { count: 1, .. }) && event.at > from);
    let mut holds: Vec<_> = holds.map(|event| (event.actor.process, event.at)).collect();
    holds.sort_by_key(|(_, at)| *at);
    let mut firsts: Vec<(Process, Nanos)> = Vec::new();
    for (process, at) in holds {
        if firsts.iter().all(|(known, _)| *known != process) {
            firsts.push((process, at));
        }
    }
    firsts
}

/// Lets the time of the unheard begin anew all the while: however slow the machine is, it is not over.
pub(super) struct Patience {
    end: Option<Sender<()>>,
    thread: Option<Member<()>>,
}

impl Patience {
    pub(super) fn with(server: &RedisServer) -> Self {
        let (end, is_over) = bounded(0);
        let mut admin = server.connection();
        let thread = spawn(move || {
            while is_over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                begin_the_time_of_the_unheard(&mut admin);
            }
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take().filter(|_| !thread::panicking()) {
            thread.join();
        }
    }
}

/// Shows: G8, G10.
#[test]
fn waiters_whose_inboxes_are_closed_while_the_lock_is_held_are_served_in_their_order() {
    let report = eight("all inboxes closed, lock held on").play(bounds(), |scene| {
        let lock = outsider(&scene.server);
        let guard = lock.lock().unwrap();
        let at = now();
        let order = all_wait(scene);
        scene.fault();
        assert!(scene.server.close_inboxes() >= 8);
        thread::sleep(Duration::from_millis(300));
        eventually("all are heard again", || heard(scene) == PROCESSES);
        let released = now();
        guard.unlock().unwrap();
        scene.kept.push(Kept { at, until: released });
        let served: Vec<_> = served(scene, released).into_iter().map(|(process, _)| process).collect();
        assert_eq!(served, order);
    });
    report.assert_clean_without_loss();
}

/// Puts a waiter into the queue that is never heard.
fn leave_behind(store: &RedisLockProcessor, n: usize) {
    let client = format!("gone-{n}");
    // A waiter that comes while the lock is free has to come again.
    for attempt in 0.. {
        let locker = format!("{client}-{attempt}");
        let claim = Claim::new(KEY.2, &client, &locker, LEASE);
        match store.join(&claim, store.limits().command).unwrap() {
            AcquireOutcome::Acquired(_) => drop(store.release(&claim, store.limits().command).unwrap()),
            _ => break,
        }
    }
}

/// Closes all inboxes in the moment of a release. Before it, `prepare` may do something, with the lock free for the eight.
fn release_unheard(name: &'static str, prepare: impl FnOnce(&Scene)) {
    let report = eight(name).play(bounds(), |scene| {
        let [lock, asker, last] = [(); 3].map(|()| outsider(&scene.server));
        prepare(scene);
        let guard = lock.lock().unwrap();
        let at = now();
        let order = all_wait(scene);
        scene.server.outlast_the_unheard();
        let patience = Patience::with(&scene.server);
        scene.fault();
        scene.processes().for_each(|process| scene.stop(process));
        assert!(scene.server.close_inboxes() >= 8);
        guard.unlock().unwrap();
        assert_eq!(scene.server.run::<Option<String>>(&["GET", KEY.2]), None, "free at once");
        assert_eq!(scene.server.waiters_of(KEY.2).len(), PROCESSES, "nobody else");
        assert_eq!(scene.queue(), order);

        let guard = asker.try_lock().unwrap().expect("nobody is heard");
        let later = spawn_with(&last, move |waiting| {
            let guard = waiting.lock().unwrap();
            let at = now();
            guard.unlock().unwrap();
            at
        });
        eventually("one more waits", || scene.server.waiters_of(KEY.2).len() == PROCESSES + 1);
        assert_eq!(scene.queue()[..PROCESSES], order);
        scene.processes().for_each(|process| scene.resume(process));
        eventually("all are heard again", || heard(scene) == PROCESSES + 1);
        drop(patience);
        let released = now();
        guard.unlock().unwrap();
        scene.kept.push(Kept { at, until: released });
        let served = served(scene, released);
        let later = later.join();
        assert!(served.iter().all(|(_, at)| *at < later), "{served:?} before {later}");
        assert_eq!(served.into_iter().map(|(process, _)| process).collect::<Vec<_>>(), order);
    });
    report.assert_clean_without_loss();
}

/// A process that comes while no waiter is heard is given the lock, without a delay. A later one stays behind all that were passed over.
/// Shows: G8, G10, S4.
#[test]
fn waiters_that_are_unheard_when_the_lock_is_released_keep_their_places() {
    release_unheard("all inboxes closed, lock released", |_| {});
}

/// The second of a waiter that died earlier is over in that moment. It is dropped, and takes nobody along.
/// Shows: G8, G10, S4.
#[test]
fn waiters_that_are_unheard_when_one_that_died_is_dropped_keep_their_places() {
    release_unheard("all inboxes closed, one waiter gone", |scene| {
        let store = RedisLockProcessor::connect(&scene.server.url()).unwrap();
        leave_behind(&store, 0);
        store.close();
    });
}

/// A reconnect is enough: nobody asks again by itself in this time.
/// Shows: L1.
#[test]
fn a_lock_that_is_released_while_nobody_is_heard_is_held_again_when_somebody_has_reconnected() {
    let report = eight("all inboxes closed, nobody asks").play(bounds(), |scene| {
        let lock = outsider(&scene.server);
        let guard = lock.lock().unwrap();
        let at = now();
        all_wait(scene);
        let _patience = Patience::with(&scene.server);
        scene.fault();
        scene.processes().for_each(|process| scene.stop(process));
        assert!(scene.server.close_inboxes() >= 8);
        guard.unlock().unwrap();
        scene.processes().for_each(|process| scene.resume(process));
        let resumed = now();
        scene.kept.push(Kept { at, until: resumed });
        assert_eq!(served(scene, resumed).len(), PROCESSES);
    });
    report.assert_clean_without_loss();
}

/// What is left of killed processes that waited: they delay nobody, and are forgotten after a second.
/// Shows: L1, L2.
#[test]
fn a_hundred_waiters_that_are_gone_delay_nobody() {
    let report = Setup::of("100 waiters gone").play(Bounds::default(), |scene| {
        let store = RedisLockProcessor::connect(&scene.server.url()).unwrap();
        (0..100).for_each(|n| leave_behind(&store, n));
        scene.go_on(12);
        let left = || scene.server.waiters_of(KEY.2).iter().filter(|locker| locker.starts_with("gone-")).count();
        eventually("they are forgotten", || left() == 0);
        store.close();
    });
    report.assert_clean_without_loss();
}
