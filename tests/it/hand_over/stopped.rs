//! A process that is stopped between a grant and the reading of it believes in no lease that is over, whatever it reads
//! first when it goes on: the grant, the answer to a poll, or the grant while a poll is under way.
//!
//! Its deadline counts from the last question that found it waiting; the grant, which came later, says nothing of the time.

use super::actor::{Actor, Held};
use super::scene::{HOUR, KEY, TYPE, client, holder, inboxes, lock, process, queue, start};
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::history::{Hold, exclusive};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{Clock, DLockConfig, DLockGenerator, DistributedReentrantLock, Moment, SystemClock};
use std::thread;
use std::time::Duration;

/// The lease that ends while its process is stopped: by the process' clock, which is moved, and by a word to the server. A busy machine does not end it.
const LEASE: Duration = Duration::from_secs(10);

/// The connections of the actor behind the proxy that are held back: those that have not subscribed, or the one that has.
const COMMANDS: bool = false;
const INBOX: bool = true;

/// Another lock, which this process holds.
const OTHER: &str = "other";

/// What goes on while nobody looks may take this long; if it takes longer, only another order of events is shown.
const A_WHILE: Duration = Duration::from_millis(150);

struct Scene {
    server: RedisServer,
    proxy: Proxy,
    here: DLockGenerator,
    actor: Actor,
}

/// A hold of this process (0) or of the actor (1).
fn hold(process: usize, token: u64, begin: Moment, end: Moment) -> Hold {
    Hold { process, thread: 0, token, asked: begin, begin, end }
}

impl Scene {
    fn new() -> Self {
        let server = start();
        let proxy = Proxy::to(server.port(), Duration::ZERO);
        let (here, actor) = (client(&server.url()), Actor::start(&proxy.url()));
        Self { server, proxy, here, actor }
    }

    /// Lets `wait` see to it that the actor waits, stops it, and gives it the lock: the actor is given a lease that it does
    /// not know of. Returns the hold before.
    fn grant_while_stopped(&mut self, wait: impl FnOnce(&mut Self)) -> Hold {
        let lock = lock(&self.here, HOUR);
        let guard = lock.lock().unwrap();
        let (begin, token) = (SystemClock.now(), guard.fencing_token());
        wait(self);
        self.actor.stop();
        let end = SystemClock.now();
        guard.unlock().unwrap();
        let granted = holder(&self.server).unwrap();
        assert_eq!((process(&granted), queue(&self.server)), (self.actor.pid(), Vec::new()));
        hold(0, token, begin, end)
    }

    /// While the actor is stopped, its lease ends and this process gets the lock; what is done meanwhile must not give the
    /// actor a hold. Afterwards it gets the lock like anybody.
    fn supersede(mut self, name: &str, before: Hold, go_on: impl FnOnce(&mut Self)) {
        // Who sleeps until a poll sleeps in real time.
        thread::sleep(LEASE / 10);
        self.actor.advance(LEASE);
        assert!(self.server.run::<bool>(&["PEXPIRE", KEY, "0"]), "the lease had not ended");
        let lock = lock(&self.here, HOUR);
        let guard = lock.lock().unwrap();
        let (begin, token) = (SystemClock.now(), guard.fencing_token());
        assert!(guard.is_valid());
        go_on(&mut self);
        eventually("it waits again", || !queue(&self.server).is_empty() || !self.actor.is_silent());
        thread::sleep(A_WHILE);
        assert!(guard.is_valid(), "nobody has touched it");
        let end = SystemClock.now();
        guard.unlock().unwrap();
        let held = self.actor.held(name);
        assert!(end <= held.begin, "not before this process has unlocked");
        let theirs = hold(1, held.token, held.begin, self.actor.unlock(name));
        let order = exclusive(vec![theirs, before, hold(0, token, begin, end)]);
        assert_eq!(order.iter().map(|hold| hold.process).collect::<Vec<_>>(), [0, 0, 1], "greater than all before");
        assert_is_good(held);
        assert_eq!((holder(&self.server), queue(&self.server)), (None, Vec::new()));
    }

    fn polls(&self) -> u64 {
        Commands::of(&self.server).count("evalsha")
    }
}

fn other_lock(client: &DLockGenerator) -> DistributedReentrantLock {
    client.generate_with(DLockConfig::new(TYPE, OTHER).with_lease(HOUR)).unwrap()
}

#[track_caller]
fn assert_is_good(held: Held) {
    assert!(held.valid && !held.remaining.is_zero(), "{held:?}");
}

/// A thread waits in the queue, and asks again every sixth of its lease. Messages to it are held back.
fn with_polls(scene: &mut Scene) {
    scene.actor.lock("waiter", 0, LEASE);
    eventually("it stands in the queue", || queue(&scene.server).len() == 1);
    scene.proxy.hold_back(INBOX);
}

/// A thread waits in the queue, and nobody asks again for it: the retry thread waits for the answer to a poll about another
/// lock, which is held back.
fn without_polls(scene: &mut Scene, lease: Duration) {
    // It is asked for every 10 ms.
    scene.actor.lock_another("another", 0, Duration::from_millis(60), OTHER);
    eventually("it stands in the queue", || inboxes(&scene.server) == 1 && scene.polls() > 5);
    scene.actor.lock("waiter", 0, lease);
    eventually("it stands in the queue", || queue(&scene.server).len() == 1);
    // The answer that it waits has been read when a later question is answered: it is not among what is held back.
    let seen = scene.polls();
    eventually("the retry thread asks again", || scene.polls() > seen + 2);
    scene.proxy.hold_back(COMMANDS);
    let mut seen = scene.polls();
    eventually("nobody asks any more", || {
        thread::sleep(A_WHILE);
        seen == std::mem::replace(&mut seen, scene.polls())
    });
}

/// Shows: G5, S1.
#[test]
fn a_grant_read_after_its_lease_is_no_hold() {
    let mut scene = Scene::new();
    let other = other_lock(&scene.here);
    let _other = other.lock().unwrap();
    let before = scene.grant_while_stopped(|scene| without_polls(scene, LEASE));
    scene.supersede("waiter", before, |scene| {
        scene.actor.go_on();
        thread::sleep(A_WHILE);
        scene.proxy.let_through(COMMANDS);
    });
}

/// Shows: G5, S1.
#[test]
fn a_grant_read_while_a_poll_is_under_way_after_its_lease_is_no_hold() {
    let mut scene = Scene::new();
    let before = scene.grant_while_stopped(with_polls);
    scene.supersede("waiter", before, |scene| {
        scene.proxy.hold_back(COMMANDS);
        let polls = scene.polls();
        scene.actor.go_on();
        eventually("it polls", || scene.polls() > polls);
        scene.proxy.let_through(INBOX);
        thread::sleep(A_WHILE);
        scene.proxy.let_through(COMMANDS);
    });
}

/// Shows: G5, S1.
#[test]
fn a_grant_read_after_a_poll_that_knew_nothing_more_is_no_hold() {
    let mut scene = Scene::new();
    let before = scene.grant_while_stopped(with_polls);
    scene.supersede("waiter", before, |scene| {
        scene.actor.go_on();
        eventually("it has asked anew", || !queue(&scene.server).is_empty() || !scene.actor.is_silent());
        scene.proxy.let_through(INBOX);
    });
}

#[test]
fn a_grant_read_after_the_poll_that_brought_the_lock_changes_nothing() {
    let mut scene = Scene::new();
    let before = scene.grant_while_stopped(with_polls);
    // The first poll is due then, and is sent at once when it goes on.
    thread::sleep(LEASE / 10);
    scene.actor.go_on();
    let held = scene.actor.held("waiter");
    assert!(held.token > before.token);
    assert_is_good(held);
    let locker = holder(&scene.server);
    scene.proxy.let_through(INBOX);
    thread::sleep(A_WHILE);
    assert_eq!(holder(&scene.server), locker, "its release would be a loss");
    scene.actor.unlock("waiter");
    assert_eq!(holder(&scene.server), None);
}

#[test]
fn a_grant_read_with_less_than_half_its_lease_left_is_extended_before_lock_returns() {
    // Far more than a busy machine takes. Most of it ends by the actor's clock, which is moved, and by a word to the server.
    const LEASE: Duration = Duration::from_secs(60);
    let mut scene = Scene::new();
    let other = other_lock(&scene.here);
    let _other = other.lock().unwrap();
    let before = scene.grant_while_stopped(|scene| {
        without_polls(scene, LEASE);
        scene.proxy.hold_back(INBOX);
    });
    let locker = holder(&scene.server).unwrap();
    let left = LEASE * 2 / 5;
    assert!(scene.server.run::<bool>(&["PEXPIRE", KEY, &left.as_millis().to_string()]));
    scene.actor.go_on();
    scene.actor.advance(LEASE - left);
    scene.proxy.let_through(INBOX);
    thread::sleep(A_WHILE);
    scene.proxy.let_through(COMMANDS);
    let held = scene.actor.held("waiter");
    assert_eq!(holder(&scene.server), Some(locker), "the hold is that of the grant");
    assert!(held.valid && held.token > before.token);
    assert!(held.remaining > LEASE / 2, "{held:?}");
    let known = Duration::from_millis(scene.server.run(&["PTTL", KEY]));
    assert!(known > LEASE / 2, "the server knows: {known:?}");
    scene.actor.unlock("waiter");
    assert_eq!(holder(&scene.server), None);
}
