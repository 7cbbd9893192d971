//! Inboxes: what a client finds in its own, whom a message wakes, what is left of messages that nobody reads, and what killed clients leave.

use crate::consensus::{ConsensusStore, Consul, Quorum, counted};
use crate::support::crew::{eventually, queue_by, spawn};
use crate::support::lab::STALL;
use crate::support::stalls::on_a_running_machine;
use redis_dlock::port::{AcquireOutcome, Break, BreakOutcome, Claim, Inbox, LockProcessor, Message, Operations};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock};
use std::sync::Arc;
use std::time::Duration;

/// How many clients die.
const CLIENTS: usize = 1000;

const LIMIT: Duration = Duration::from_secs(20);

/// What a client that dies has done: it holds a lock for which somebody waits, who has written to its inbox.
fn lives(store: &dyn LockProcessor, number: usize) {
    let (key, ids) = (format!("k{number}"), ["dead", "waits"].map(|name| format!("{name}-{number}-c0ffee")));
    for client in &ids {
        let locker = format!("{client}-1");
        let claim = Claim::new(&key, client, &locker, Consul::LEASE);
        let outcome = store.join(&claim, LIMIT).unwrap();
        assert_eq!(matches!(outcome, AcquireOutcome::Acquired(_)), client.starts_with("dead"));
    }
}

/// A client whose inbox has had a message, while it holds the lock.
fn listening(servers: &Consul) -> DistributedReentrantLock {
    let lock = || {
        let generator = DLockGenerator::new(Consul::processor(&servers.url("a"))).unwrap();
        generator.generate_with(DLockConfig::new("INBOXES", "x").with_lease(3 * LIMIT)).unwrap()
    };
    let (first, second) = (lock(), lock());
    let guard = first.lock().unwrap();
    let waiter = queue_by(&second, |lock| std::mem::forget(lock.lock().unwrap()));
    guard.unlock().unwrap();
    waiter.join();
    second
}

/// A client that opens its inbox deletes those whose clients have no session any more, some at a time, and no other.
///
/// Shows: L1.
#[test]
fn a_thousand_killed_clients_leave_nothing_once_others_have_come() {
    let servers = Arc::new(Consul::start(1));
    let inboxes = || servers.list("a/.inbox/");
    let living = listening(&servers);
    let kept = inboxes();
    assert!(!kept.is_empty(), "it has an inbox");
    let store = Consul::processor(&servers.url("a"));
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let store = Arc::clone(&store);
            spawn(move || (thread..CLIENTS).step_by(8).for_each(|number| lives(&*store, number)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join());
    let is_dead = |path: &String| path.contains("/dead-");
    // A message is a hint: one that the store refused is not repeated.
    let left = inboxes().iter().filter(|path| is_dead(path)).count();
    assert!(left > CLIENTS * 9 / 10, "{left}");
    // It is not closed: nobody ends its sessions or deletes its inboxes.
    std::mem::forget(store);
    eventually("their sessions have ended", || servers.sessions() <= 4);
    // Each sweeps once, when it begins to listen.
    for number in 0..8 {
        let store = Consul::processor(&servers.url("a"));
        let left = inboxes().len();
        let mut inbox = store.queue().unwrap().open_inbox(&format!("comes-{number}-c0ffee"), LIMIT).unwrap();
        if inboxes().iter().any(is_dead) {
            eventually("it sweeps", || inboxes().len() < left);
        }
        let _ = inbox.next(Duration::ZERO);
    }
    // A sweeper that was told of what others delete has written its own inbox.
    let mut left = inboxes();
    left.retain(|path| !path.contains("/comes-"));
    assert_eq!(left, kept, "those of clients that live are kept");
    assert!(living.is_locked().unwrap());
}

/// A living client has no session while it neither holds nor waits, unless it keeps a record. It writes its inbox again.
///
/// Shows: L1.
#[test]
fn an_inbox_that_is_back_is_not_deleted_again() {
    /// One more than a sweep deletes, so that another one follows at once.
    const IDLE: usize = 257;
    /// How many are back before that one.
    const BACK: usize = 10;
    /// The flag of Consul's locks, which an inbox has, too.
    const LOCK: u64 = 0x2ddc_cbc0_58a5_0c18;
    // A sweep may take a second.
    on_a_running_machine(STALL, || {
        let (servers, counter, url) = counted::<Consul>("a");
        let (servers, counter) = (Arc::new(servers), Arc::new(counter));
        let paths: Vec<_> = (0..IDLE).map(|number| format!("a/.inbox/idle-{number}-c0ffee")).collect();
        let missing = move |servers: &Consul| {
            let left = servers.list("a/.inbox/");
            paths.iter().filter(|path| !left.contains(path)).cloned().collect::<Vec<_>>()
        };
        let write = |servers: &Consul, paths: &[String]| paths.iter().for_each(|path| servers.set(path, "", LOCK));
        write(&servers, &missing(&servers));
        let (again, between, back) = (Arc::clone(&counter), Arc::clone(&servers), missing.clone());
        let (tells, told) = crossbeam_channel::bounded(1);
        counter.before("/v1/kv/a/.inbox/?recurse", move || {
            // The query between the first sweep and the second one.
            again.before("/v1/kv/a/.inbox/comes-1-c0ffee?recurse", move || {
                write(&between, &back(&between)[..BACK]);
                tells.send(()).unwrap();
            });
        });
        let store = Consul::processor(&url);
        let _inbox = store.queue().unwrap().open_inbox("comes-1-c0ffee", LIMIT).unwrap();
        told.recv_timeout(LIMIT).unwrap();
        let is_swept = || missing(&servers).len() == IDLE - BACK;
        eventually("the second sweep deletes the one that the first has left", is_swept);
    });
}

/// Another message comes behind it before the holder has asked for either.
#[test]
fn a_holder_hears_that_its_hold_was_broken_whatever_it_is_told_next() {
    let (servers, counter, url) = counted::<Consul>("a");
    let [other, holder] = [servers.url("a"), url].map(|url| Consul::processor(&url));
    let claim = |key: &'static str| Claim::new(key, "host-1-a", ["host-1-a-1", "host-1-a-2"][key.len() - 1], LIMIT);
    let claims = [claim("k"), claim("kk")];
    claims.iter().for_each(|claim| drop(holder.acquire(claim, LIMIT).unwrap()));
    let mut inbox = holder.queue().unwrap().open_inbox("host-1-a", LIMIT).unwrap();
    let asks_between = Arc::clone(&other);
    counter.before(".inbox/host-1-a?recurse&index=", move || {
        let order = Break::new("k", "host-1-a-1", "me-1", "it hangs");
        let outcome = asks_between.break_hold(&order, LIMIT).unwrap();
        assert!(matches!(outcome, BreakOutcome::Broken { .. }), "{outcome:?}");
        asks_between.join(&Claim::new("kk", "host-2-b", "host-2-b-1", LIMIT), LIMIT).unwrap();
    });
    // Whichever query waits is answered, and the next one is stopped.
    other.join(&Claim::new("k", "host-2-b", "host-2-b-2", LIMIT), LIMIT).unwrap();
    let mut heard = Vec::new();
    let is_broken = |message: &Message| matches!(message, Message::Broken { locker, .. } if locker == "host-1-a-1");
    eventually("it hears of the break", || {
        heard.extend(inbox.next(Duration::from_millis(100)).unwrap());
        heard.iter().any(is_broken)
    });
}

fn say(store: &Arc<dyn LockProcessor>, client: &str, text: &str) {
    assert!(store.directory().unwrap().say(client, "k", text, LIMIT).unwrap());
}

/// The next text that is said.
fn heard(inbox: &mut dyn Inbox) -> String {
    loop {
        if let Message::Said { text } = inbox.next(LIMIT).unwrap().expect("a message") {
            return text;
        }
    }
}

/// Consul tells a query for what is not there of each write nearby, so whoever is told of one that is not its own writes its inbox.
///
/// Shows: L1.
#[test]
fn messages_wake_nobody_but_those_whom_they_are_for() {
    const MESSAGES: usize = 30;
    /// An answer that tells nothing, the write of the inbox, and the answer that tells that.
    const MOST: u64 = 4;
    let (servers, counter, url) = counted::<Consul>("a");
    let idle = Consul::processor(&url);
    let mut inbox = idle.queue().unwrap().open_inbox("idle-1-c0ffee", LIMIT).unwrap();
    let other = Consul::processor(&servers.url("a"));
    say(&other, "other-1-c0ffee", "describe 0");
    eventually("it has written its inbox", || servers.list("a/.inbox/idle-1-c0ffee").len() == 1);
    let before = counter.requests();
    for number in 0..MESSAGES {
        say(&other, &format!("other-{number}-c0ffee"), "describe");
        std::thread::sleep(Duration::from_millis(20));
    }
    let requests = counter.requests() - before;
    assert!(requests <= MOST, "{requests} requests");
    assert!(inbox.next(Duration::ZERO).unwrap().is_none(), "nothing has changed");
    say(&other, "idle-1-c0ffee", "describe me");
    assert_eq!(heard(&mut *inbox), "describe me");
}

/// Shows: L1.
#[test]
fn what_is_said_to_a_client_that_does_not_listen_does_not_pile_up() {
    const MESSAGES: usize = 200;
    const MOST: usize = 64;
    let servers = Consul::start(1);
    let store = Consul::processor(&servers.url("a"));
    (0..MESSAGES).for_each(|number| say(&store, "deaf-1-c0ffee", &format!("describe {number}")));
    let left = servers.list("a/.inbox/deaf-1-c0ffee").len();
    assert!((1..=MOST).contains(&left), "{left} messages");
    // Whoever listens hears each of them, in their order, also some at once.
    let mut inbox = store.queue().unwrap().open_inbox("hears-1-c0ffee", LIMIT).unwrap();
    for some in (0..MESSAGES).collect::<Vec<_>>().chunks(MOST / 4) {
        let texts: Vec<_> = some.iter().map(|number| format!("describe {number}")).collect();
        texts.iter().for_each(|text| say(&store, "hears-1-c0ffee", text));
        let told: Vec<_> = some.iter().map(|_| heard(&mut *inbox)).collect();
        assert_eq!(told, texts);
    }
    eventually("what was read is deleted", || servers.list("a/.inbox/hears-1-c0ffee/").is_empty());
}
