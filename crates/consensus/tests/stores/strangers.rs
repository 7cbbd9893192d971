//! Entries that no lock of ours wrote, and what people find in ours.

use crate::consensus::{ConsensusStore, Consul, Etcd, LOCAL, Look, Quorum};
use crate::support::crew::{eventually, spawn};
use crate::support::process::Killed;
use redis_dlock::port::{AcquireOutcome, Claim, ExtendOutcome, Note, Operations, ProbeOutcome, ReleaseOutcome};
use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);

fn lock<V: ConsensusStore>(servers: &V) -> DistributedReentrantLock {
    let generator = DLockGenerator::new(V::processor(&servers.url("team"))).unwrap();
    generator.generate_with(DLockConfig::new("STORES", "x").with_lease(LEASE)).unwrap()
}

/// Whoever asks for the lock is told of this entry.
#[track_caller]
fn is_refused(lock: &DistributedReentrantLock, entry: &str) {
    let answers = [lock.try_lock().map(drop), lock.lock().map(drop), lock.inspect().map(drop)];
    for answer in answers {
        let refused = answer.expect_err("it is no lock of ours");
        assert!(matches!(refused, Error::Conflict { .. }) && refused.to_string().contains(entry), "{refused:?}");
    }
}

/// Go's `api.Lock` refuses such an entry, too: `ErrLockConflict`.
#[test]
fn consul_has_an_entry_with_another_flag() {
    let servers = Consul::start(1);
    let lock = lock(&servers);
    let path = format!("team/{}/.lock", lock.key());
    servers.set(&path, "mine", 7);
    let before = servers.look_at(&path)();
    is_refused(&lock, &path);
    assert_eq!(servers.look_at(&path)(), before, "it is as it was");
    servers.delete(&path);
    lock.lock().unwrap().unlock().unwrap();
}

/// The words by which Consul refuses a transaction that is too long. An answer has the names of the locks, too.
#[test]
fn consul_has_a_lock_whose_name_is_an_error_of_its_own() {
    let servers = Consul::start(1);
    let generator = DLockGenerator::new(Consul::processor(&servers.url("team"))).unwrap();
    let config = DLockConfig::new("STORES", "Transaction contains too many operations").with_lease(LEASE);
    let lock = generator.generate_with(config).unwrap();
    lock.try_lock().unwrap().expect("it is free").unlock().unwrap();
}

/// Such an entry has no lease, so it would wait for ever.
///
/// Shows: G3, L1.
#[test]
fn etcd_has_entries_in_a_queue_that_are_no_waiters() {
    let servers = Etcd::start(1);
    let (first, second) = (lock(&servers), lock(&servers));
    let queue = format!("team/{}/.wait/", first.key());
    servers.hold(&format!("{queue}!"), "mine", None);
    servers.put_bytes(&[queue.as_bytes(), b"\xff"].concat());
    let processor = Etcd::processor(&servers.url("team"));
    let [claim, next] = ["h-1-ff-1", "h-1-ff-2"].map(|locker| Claim::new(first.key(), "h-1-ff", locker, LEASE));
    assert!(matches!(processor.acquire(&claim, LEASE), Ok(AcquireOutcome::Acquired(_))));
    assert!(matches!(processor.extend(&claim, LEASE), Ok(ExtendOutcome::Extended(_))));
    assert!(matches!(processor.probe(&claim, LEASE), Ok(ProbeOutcome::Ours)));
    assert!(matches!(processor.hand_over(&claim, &next, LEASE), Ok(ReleaseOutcome::Passed(_))));
    processor.release(&next, LEASE).unwrap();

    let guard = first.lock().unwrap();
    let waiter = spawn(move || second.lock().unwrap().unlock().unwrap());
    eventually("it waits", || first.inspect().unwrap().waiting == 1);
    guard.unlock().unwrap();
    waiter.join();
    let look = servers.look_at(&format!("{queue}!"))();
    assert!(matches!(look, Some(Look::Held { .. })), "it is left alone");
}

/// Whoever may write to an inbox knows the locker. It is not given up, and with it the session that holds the lock.
///
/// Shows: G1.
#[test]
fn etcd_has_a_message_that_a_locker_which_holds_was_granted_another_key() {
    let servers = Etcd::start(1);
    let clients = [(); 2].map(|()| DLockGenerator::new(Etcd::processor(&servers.url("team"))).unwrap());
    let lock = |client: usize, target: &str| {
        clients[client].generate_with(DLockConfig::new("STORES", target).with_lease(LEASE)).unwrap()
    };
    // The inbox is open once a thread has a place in the queue. It is told of the grant after the other message.
    let waits = |held: DistributedReentrantLock, wanted: DistributedReentrantLock, meanwhile: &dyn Fn(&CancelToken)| {
        let (guard, token) = (held.lock().unwrap(), CancelToken::new());
        let waiter = spawn({
            let token = token.clone();
            move || wanted.lock_cancellable(&token).unwrap().map(drop)
        });
        eventually("it waits", || held.inspect().unwrap().waiting == 1);
        meanwhile(&token);
        drop(guard);
        waiter.join()
    };
    let held = lock(0, "held");
    let guard = held.lock().unwrap();
    let locker = held.holder().unwrap().unwrap().locker;
    let (client, _) = locker.rsplit_once('-').unwrap();
    let words = serde_json::json!({ "granted": "DLOCK_STORES_other", "who": locker, "waiting": 0 }).to_string();
    let say = |_: &CancelToken| servers.hold(&format!("team/.inbox/{client}"), &words, None);
    assert!(waits(lock(1, "first"), lock(0, "first"), &say).is_some());
    // A place that is given up after it comes later on the clean-up list.
    let given_up = lock(1, "second");
    let give_up = |token: &CancelToken| {
        token.cancel();
        eventually("its place is given up", || given_up.inspect().unwrap().waiting == 0);
    };
    assert!(waits(given_up.clone(), lock(0, "second"), &give_up).is_none());
    guard.unlock().unwrap();
}

/// The keys of `etcdctl lock` are others, also if it is given the path of our lock: `{path}/{lease}`.
#[test]
fn etcd_keeps_the_keys_of_etcdctl_lock_as_they_are() {
    let servers = Etcd::start(1);
    let (first, second) = (lock(&servers), lock(&servers));
    let path = format!("team/{}", first.key());
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", servers.address(), "lock", &path]);
    let mut process = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let theirs = told.next().unwrap().unwrap();
    assert!(theirs.starts_with(&format!("{path}/")), "{theirs}");
    let look = servers.look_at(&theirs);
    let before = look();
    assert!(matches!(before, Some(Look::Held { .. })), "{before:?}");

    let guard = first.lock().unwrap();
    let waiting = second.clone();
    let waiter = std::thread::spawn(move || waiting.lock().unwrap().unlock().unwrap());
    eventually("it waits", || first.inspect().unwrap().waiting == 1);
    guard.unlock().unwrap();
    waiter.join().unwrap();
    assert_eq!(look(), before);
    assert_eq!(servers.list(&format!("{path}/")), [theirs]);

    // It waits for every older entry below its name, so for our hold, too.
    drop(process);
    eventually("its entry goes with its lease", || servers.list(&format!("{path}/")).is_empty());
    let guard = first.lock().unwrap();
    let mut process = Killed(command.spawn().unwrap());
    let mut told = BufReader::new(process.0.stdout.take().unwrap()).lines();
    eventually("its entry is there beside ours", || servers.list(&format!("{path}/")).len() == 2);
    let (tell, hear) = crossbeam_channel::bounded(1);
    std::thread::spawn(move || tell.send(told.next().is_some()));
    assert!(hear.try_recv().is_err(), "it does not wait");
    guard.unlock().unwrap();
    assert!(hear.recv().unwrap());
}

/// By default, the death of a server ends the sessions on its node, and so does a check of the node that fails.
#[test]
fn consul_ends_our_sessions_by_their_time_alone() {
    let servers = Consul::start(1);
    let lock = lock(&servers);
    let guard = lock.lock().unwrap();
    let sessions = servers.all_sessions();
    // That of the hold, and perhaps that of what the client says of itself.
    for session in &sessions {
        let is_empty = |name: &str| session[name].as_array().is_none_or(Vec::is_empty);
        assert!(is_empty("NodeChecks") && is_empty("ServiceChecks") && is_empty("Checks"), "{session}");
        assert_eq!((&session["Behavior"], &session["LockDelay"]), (&"delete".into(), &0.into()));
        assert_eq!(session["Node"], "dlock");
    }
    // A quarter longer than the lease.
    assert_eq!(sessions.iter().filter(|session| session["TTL"] == "75000ms").count(), 1);
    guard.unlock().unwrap();
}

/// What a claim says of its thread and its machine stands in the entry.
fn entries_name_thread_and_host<V: ConsensusStore>() {
    let servers = V::start(1);
    assert!(servers.address().starts_with(LOCAL));
    let processor = V::processor(&servers.url("team"));
    let mut note = Note::default();
    (note.why, note.thread, note.host) = (Some("a repair"), Some("worker-3"), Some("db-7"));
    let claim = Claim::new("k", "h-1-c0ffee", "h-1-c0ffee-1", LEASE).with_note(note);
    processor.acquire(&claim, LEASE).unwrap();
    let Some(Look::Held { value, .. }) = servers.look_at("team/k/.lock")() else { panic!("it is not there") };
    let entry: Value = serde_json::from_str(&value).unwrap();
    assert_eq!([&entry["why"], &entry["thread"], &entry["host"]], ["a repair", "worker-3", "db-7"]);
    processor.release(&claim, LEASE).unwrap();
}

fn a_prefix_may_have_letters_of_any_language_and_spaces<V: ConsensusStore>() {
    let servers = V::start(1);
    let prefix = "grün und blau/日本:1";
    let [first, second] = [(); 2].map(|()| {
        let generator = DLockGenerator::new(V::processor(&servers.url(prefix))).unwrap();
        generator.generate_with(DLockConfig::new("STORES", "x").with_lease(LEASE)).unwrap()
    });
    let guard = first.lock().unwrap();
    assert_eq!(servers.list("gr").len(), 1);
    let waiter = std::thread::spawn(move || second.lock().unwrap().unlock().unwrap());
    eventually("it waits", || first.inspect().unwrap().waiting == 1);
    guard.unlock().unwrap();
    waiter.join().unwrap();
    let is_kept = |path: &String| {
        ["inbox", "session", "client"].iter().any(|kept| path.starts_with(&format!("{prefix}/.{kept}/")))
    };
    assert!(servers.list("gr").iter().all(is_kept));
}

on_each_store!(entries_name_thread_and_host, a_prefix_may_have_letters_of_any_language_and_spaces);
