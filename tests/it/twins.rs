//! Copies of one running process: processes on one server whose clients have the same identity and make the same lockers.

use crate::support::RedisServer;
use crate::support::crew::{HANG, eventually, queue_by};
use crate::support::lab::{config, connect};
use crate::support::twin_shim::TwinShim;
use crate::support::worker::{self, Worker};
use redis_dlock::{DLockGenerator, DistributedReentrantLock, Error, OwnedDLockGuard};
use std::collections::{BTreeSet, HashMap};

const LEASE_MS: u64 = 3_600_000;

fn lock(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    generator.generate_with(config(target, LEASE_MS)).unwrap()
}

fn holder(server: &RedisServer, target: &str) -> Option<String> {
    server.run(&["GET", config(target, LEASE_MS).unique_key()])
}

/// The clients that stand in a lock's queue and hear of a grant. Who has given up a name leaves its place to the twin, and hears no more of it.
fn waiting(server: &RedisServer, target: &str) -> BTreeSet<String> {
    let queues = format!("DLOCK:1:*:queue:{}", config(target, LEASE_MS).unique_key());
    let queue = server.run::<Vec<String>>(&["KEYS", &queues]).pop().unwrap_or(queues);
    let entries: Vec<String> = server.run(&["LRANGE", &queue, "0", "-1"]);
    let clients = entries.iter().map(|entry| client_of(entry.split_once(' ').unwrap().1).to_owned());
    clients.filter(|client| hears(server, client)).collect()
}

/// Whether one connection has this client's inbox open.
fn hears(server: &RedisServer, client: &str) -> bool {
    server.run::<(String, u64)>(&["PUBSUB", "NUMSUB", &format!("DLOCK:1:inbox:{client}")]).1 == 1
}

fn client_of(locker: &str) -> &str {
    locker.rsplit_once('-').unwrap().0
}

#[test]
#[ignore = "the worker process of the tests beside it"]
fn process() {
    let Some(url) = worker::settings() else { return };
    let generator = connect(&url);
    let mut held: HashMap<String, OwnedDLockGuard> = HashMap::new();
    for order in worker::orders() {
        let (verb, target) = order.split_once(' ').unwrap();
        let lock = lock(&generator, target);
        worker::answer(&match verb {
            "try" => match lock.try_lock_owned() {
                Ok(Some(guard)) => {
                    held.insert(target.to_owned(), guard);
                    "got".to_owned()
                }
                Ok(None) => "busy".to_owned(),
                Err(Error::Cloned { .. }) => "cloned".to_owned(),
                Err(other) => other.to_string(),
            },
            "wait" => {
                wait(lock);
                "waits".to_owned()
            }
            "loss" => format!("{:?}", held[target].loss().map(|loss| loss.cause)),
            "unlock" => format!("{:?}", held.remove(target).unwrap().unlock().map_err(|error| error.to_string())),
            other => panic!("{other}"),
        });
    }
}

/// Waits on a thread of its own, tells when it has the lock, and gives it back when there is a word in its place in the store.
fn wait(lock: DistributedReentrantLock) {
    std::thread::spawn(move || {
        loop {
            match lock.lock_owned() {
                Ok(guard) => {
                    worker::answer(&format!("has {}", lock.holder().unwrap().unwrap().locker));
                    guard.unlock().unwrap();
                    return;
                }
                Err(Error::Cloned { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    });
}

/// Two processes of which each takes itself for the other.
fn twins(server: &RedisServer, shim: &TwinShim) -> [Worker; 2] {
    let variables = shim.variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (&**name, &**value)).collect();
    [(); 2].map(|()| Worker::start_with("twins::process", &server.url(), &variables))
}

/// Shows: G1.
#[test]
fn of_two_twins_that_want_a_free_lock_one_gets_it() {
    let (server, shim) = (RedisServer::start(), TwinShim::build());
    let [mut first, mut second] = twins(&server, &shim);
    assert_eq!(first.ask("try x"), "got");
    let locker = holder(&server, "x").unwrap();
    assert!(locker.contains("-4711-"), "{locker}");
    assert_eq!([second.ask("try x"), second.ask("try x")], ["cloned", "busy"]);
    assert_eq!(holder(&server, "x").as_ref(), Some(&locker));
    assert_eq!([first.ask("loss x"), first.ask("unlock x")], ["None", "Ok(())"]);
    assert_eq!(second.ask("try x"), "got");
    assert_ne!(client_of(&holder(&server, "x").unwrap()), client_of(&locker));
}

/// Both open their inboxes, and stand in one queue.
/// Shows: G1, L1.
#[test]
fn twins_that_wait_for_one_lock_get_it_one_after_another() {
    let (server, shim) = (RedisServer::start(), TwinShim::build());
    let third = connect(&server.url());
    let guard = lock(&third, "x").lock_owned().unwrap();
    let mut twins = twins(&server, &shim);
    for twin in &mut twins {
        assert_eq!(twin.ask("wait x"), "waits");
    }
    eventually("both wait under names of their own", || waiting(&server, "x").len() == 2);
    assert!(twins.iter().all(|twin| !twin.has_answered()));
    guard.unlock().unwrap();
    let lockers = twins.each_mut().map(|twin| twin.answer_about("has "));
    assert_ne!(client_of(&lockers[0]), client_of(&lockers[1]));
}

/// A connection that hears what is sent to the inboxes of all clients.
fn spy(connection: &mut redis::Connection) -> redis::PubSub<'_> {
    let mut spy = connection.as_pubsub();
    spy.set_read_timeout(Some(HANG)).unwrap();
    spy.psubscribe("DLOCK:1:inbox:*").unwrap();
    spy
}

/// Waits for the greeting of a client.
fn greeting(spy: &mut redis::PubSub<'_>, client: &str) -> String {
    let channel = format!("DLOCK:1:inbox:{client}");
    loop {
        let message = spy.get_message().unwrap();
        let words: String = message.get_payload().unwrap();
        if message.get_channel_name() == channel && words.starts_with("here ") {
            return words;
        }
    }
}

/// Both have a lock. The one whose inbox is open hears that the other one opens it, too. If the greetings crossed, both would lose the lock.
/// Shows: G6.
#[test]
fn a_hold_of_both_is_lost_to_one_when_the_other_opens_its_inbox() {
    let (server, shim) = (RedisServer::start(), TwinShim::build());
    let third = connect(&server.url());
    let _guards = ["a", "b"].map(|target| lock(&third, target).lock_owned().unwrap());
    let [mut first, mut second] = twins(&server, &shim);
    assert_eq!(first.ask("try x"), "got");
    let locker = holder(&server, "x").unwrap();
    server.run::<u64>(&["DEL", config("x", LEASE_MS).unique_key()]);
    assert_eq!(second.ask("try x"), "got");
    assert_eq!(holder(&server, "x").as_ref(), Some(&locker), "each has it by the same locker");
    let waiting = |target| lock(&third, target).inspect().unwrap().waiting;
    let mut connection = server.connection();
    let mut spy = spy(&mut connection);
    assert_eq!(first.ask("wait a"), "waits");
    eventually("it waits", || waiting("a") == 1);
    greeting(&mut spy, client_of(&locker));
    assert_eq!(second.ask("wait b"), "waits");
    eventually("it has lost the lock", || first.ask("loss x") == "Some(Cloned)");
    assert_eq!(second.ask("loss x"), "None");
    assert!(first.ask("unlock x").contains("a copy of this process"));
    assert_eq!(holder(&server, "x").as_ref(), Some(&locker), "it is the other's");
    assert_eq!(second.ask("unlock x"), "Ok(())");
}

/// A client with an open inbox, what it holds, and its name.
fn listening(server: &RedisServer) -> (DLockGenerator, OwnedDLockGuard, String) {
    let (generator, other) = (connect(&server.url()), connect(&server.url()));
    let busy = lock(&other, "busy").lock_owned().unwrap();
    let guard = lock(&generator, "held").lock_owned().unwrap();
    let waits = queue_by(&lock(&generator, "busy"), |lock| lock.lock().map(drop));
    busy.unlock().unwrap();
    waits.join().unwrap();
    let client = client_of(&holder(server, "held").unwrap()).to_owned();
    (generator, guard, client)
}

/// A client with an open inbox reads a grant. So it has read everything that was sent before.
fn hears_a_grant(server: &RedisServer, generator: &DLockGenerator) {
    let other = connect(&server.url());
    let busy = lock(&other, "next").lock_owned().unwrap();
    let waits = queue_by(&lock(generator, "next"), |lock| lock.lock().map(drop));
    busy.unlock().unwrap();
    waits.join().unwrap();
}

/// What the twin was granted is neither given up nor taken.
/// Shows: G1, S3.
#[test]
fn a_grant_to_a_locker_that_it_has_never_made_is_the_twins() {
    let server = RedisServer::start();
    let (generator, guard, client) = listening(&server);
    let (key, theirs) = (config("twins", LEASE_MS).unique_key().to_owned(), format!("{client}-4711"));
    server.run::<()>(&["SET", &key, &theirs, "PX", "600000"]);
    server.run::<u64>(&["PUBLISH", &format!("DLOCK:1:inbox:{client}"), &format!("granted 9 0 {theirs} {key}")]);
    hears_a_grant(&server, &generator);
    guard.unlock().unwrap();
    generator.close();
    assert_eq!(server.run::<String>(&["GET", &key]), theirs);
}

/// Whoever may send messages to it knows its name, its lockers and what it has said of itself, and still does not pass for its twin.
/// Shows: G3.
#[test]
fn words_of_another_client_about_an_inbox_are_not_those_of_a_twin() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut spy = spy(&mut connection);
    let (generator, guard, client) = listening(&server);
    let channel = format!("DLOCK:1:inbox:{client}");
    let own = greeting(&mut spy, &client);
    spy.punsubscribe("DLOCK:1:inbox:*").unwrap();
    let proof = own.rsplit_once(' ').unwrap().1;
    for words in [
        format!("here 4711 {client}"),
        format!("here 4711 {client} 4711"),
        format!("here 4711 {client} {proof}"),
        own.clone(),
    ] {
        assert_eq!(server.run::<u64>(&["PUBLISH", &channel, &words]), 1);
    }
    hears_a_grant(&server, &generator);
    assert!(guard.loss().is_none());
    guard.unlock().unwrap();
}

/// It hears itself each time that it opens its inbox anew, and is no twin of its own.
/// Shows: G3.
#[test]
fn a_client_that_opens_its_inbox_anew_keeps_what_it_has() {
    let server = RedisServer::start();
    let (generator, guard, client) = listening(&server);
    for _ in 0..5 {
        server.run::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        eventually("it hears again", || hears(&server, &client));
    }
    hears_a_grant(&server, &generator);
    assert!(guard.loss().is_none());
    guard.unlock().unwrap();
}
