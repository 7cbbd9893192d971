//! What a lock costs the servers: entries in the log on which they agree, and requests.

use crate::consensus::{ConsensusStore, Etcd, Look, Quorum, counted};
use crate::support::claim;
use crate::support::crew::{Member, eventually, spawn};
use crossbeam_channel::{Receiver, Sender, unbounded};
use redis_dlock::port::{
    AcquireOutcome, ExtendOutcome, LONGEST_KEY, Limit, Message, Operations, Outcome, ProbeOutcome, Request,
};
use redis_dlock::{Clock, DLockConfig, DLockGenerator, DistributedReentrantLock, ManualClock, SystemClock};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

on_each_store!(
    a_lock_and_its_unlock_are_two_writes_to_the_log_and_two_requests,
    a_lock_that_lingers_is_taken_up_without_a_request,
    a_hand_over_between_clients_is_two_writes_to_the_log_and_no_look,
    a_release_causes_as_many_requests_with_twenty_waiters_as_with_one,
    two_hundred_tenures_are_kept_by_few_requests,
);

/// So long that nobody renews meanwhile.
const LEASE: Duration = Duration::from_secs(3600);

/// The servers write to their log, too, now and then. The median does not see that.
const TIMES: usize = 21;

fn lock<V: ConsensusStore>(url: &str, config: impl FnOnce(DLockConfig) -> DLockConfig) -> DistributedReentrantLock {
    lock_by::<V>(Arc::new(SystemClock), url, config)
}

fn lock_by<V: ConsensusStore>(
    clock: Arc<dyn Clock>,
    url: &str,
    config: impl FnOnce(DLockConfig) -> DLockConfig,
) -> DistributedReentrantLock {
    // What a client says of itself, a second after its first lock, is no cost of a lock.
    let builder = DLockGenerator::builder().client_record(false).clock(clock);
    let generator = builder.build(V::processor(url)).unwrap();
    generator.generate_with(config(DLockConfig::new("STORES", "x").with_lease(LEASE))).unwrap()
}

fn pair(lock: &DistributedReentrantLock) {
    lock.lock().unwrap().unlock().unwrap();
}

/// How much a count rises by something that is done several times.
fn median_rise(count: impl Fn() -> u64, mut work: impl FnMut()) -> u64 {
    let mut rises: Vec<_> = (0..TIMES)
        .map(|_| {
            let before = count();
            work();
            count() - before
        })
        .collect();
    rises.sort_unstable();
    rises[TIMES / 2]
}

fn a_lock_and_its_unlock_are_two_writes_to_the_log_and_two_requests<V: ConsensusStore>() {
    let (servers, counter, url) = counted::<V>("a");
    let lock = lock::<V>(&url, |config| config);
    // The session is a third write, of the first lock alone.
    pair(&lock);
    assert_eq!(median_rise(|| servers.log_index(), || pair(&lock)), 2);
    assert_eq!(median_rise(|| counter.requests(), || pair(&lock)), 2);
}

fn a_lock_that_lingers_is_taken_up_without_a_request<V: ConsensusStore>() {
    let (servers, counter, url) = counted::<V>("a");
    let lock = lock::<V>(&url, |config| config.with_linger(LEASE / 10));
    pair(&lock);
    assert_eq!(median_rise(|| servers.log_index(), || pair(&lock)), 0);
    assert_eq!(median_rise(|| counter.requests(), || pair(&lock)), 0);
}

/// A client whose thread locks, says so, and unlocks when it is told to.
struct Waiter {
    has_it: Receiver<()>,
    tell: Sender<()>,
    thread: Member<()>,
    /// The client, which ends its session when it is dropped.
    client: DistributedReentrantLock,
}

impl Waiter {
    /// Begins, and returns when it waits in the store as one of so many.
    fn begin<V: ConsensusStore>(servers: &V, url: &str, of: u64) -> Self {
        // Its clock stands still: those who wait ask every five seconds.
        let lock = lock_by::<V>(Arc::new(ManualClock::new()), url, |config| config);
        let client = lock.clone();
        let ((says, has_it), (tell, told)) = (unbounded(), unbounded());
        let thread = spawn(move || {
            let guard = lock.lock().unwrap();
            says.send(()).unwrap();
            told.recv().unwrap();
            guard.unlock().unwrap();
        });
        let store = V::processor(&servers.url("a"));
        eventually("it waits in the store", || store.inspect(client.key(), LEASE).unwrap().waiting == of);
        Self { has_it, tell, thread, client }
    }
}

/// Waits until a count stands still.
fn at_rest(count: impl Fn() -> u64) -> u64 {
    let mut last = count();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = count();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// A client that has never waited has no inbox, and so hears of no waiter: its release is refused first, or frees the key and then gives it on.
/// Neither the holder nor those that come after are so here, and each knows who waits: it looks at nothing. The second write is the waiter's
/// confirmation. A waiter on Consul asks for its next message, too.
fn a_hand_over_between_clients_is_two_writes_to_the_log_and_no_look<V: ConsensusStore>() {
    let (servers, counter, url) = counted::<V>("a");
    let held = lock::<V>(&url, |config| config);
    let first = lock::<V>(&url, |config| config);
    let guard = first.lock().unwrap();
    assert!(held.try_lock_for(Duration::from_millis(500)).unwrap().is_none());
    guard.unlock().unwrap();
    let mut rises = Vec::new();
    for _ in 0..3 {
        let guard = held.lock().unwrap();
        let waiters: Vec<_> = (1..=3).map(|n| Waiter::begin(&servers, &url, n)).collect();
        let mut clients = Vec::new();
        let mut release: Box<dyn FnOnce()> = Box::new(|| guard.unlock().unwrap());
        for waiter in waiters {
            let count = || [at_rest(|| servers.log_index()), at_rest(|| counter.requests())];
            let before = count();
            release();
            waiter.has_it.recv().unwrap();
            let after = count();
            rises.push([0, 1].map(|n| after[n] - before[n]));
            clients.push(waiter.client);
            release = Box::new(move || {
                waiter.tell.send(()).unwrap();
                waiter.thread.join();
            });
        }
        release();
    }
    let expected = if V::NAME == Etcd::NAME { [2, 2] } else { [2, 3] };
    for n in 0..2 {
        rises.sort_unstable_by_key(|rise| rise[n]);
        assert_eq!(rises[rises.len() / 2][n], expected[n], "{rises:?}");
    }
}

/// The least number of requests that a release causes, of several, with this many waiters and those that come after.
fn requests_of_a_release<V: ConsensusStore>(waiters: u64) -> u64 {
    let (servers, counter, url) = counted::<V>("a");
    let mut least = u64::MAX;
    for _ in 0..3 {
        let held = lock::<V>(&url, |config| config);
        let guard = held.lock().unwrap();
        let all: Vec<_> = (1..=waiters).map(|n| Waiter::begin(&servers, &url, n)).collect();
        let before = at_rest(|| counter.requests());
        guard.unlock().unwrap();
        all[0].has_it.recv().unwrap();
        least = least.min(at_rest(|| counter.requests()) - before);
        for waiter in all {
            waiter.tell.send(()).unwrap();
            waiter.thread.join();
        }
    }
    least
}

/// Only the first of them hears of it.
fn a_release_causes_as_many_requests_with_twenty_waiters_as_with_one<V: ConsensusStore>() {
    let (one, twenty) = (requests_of_a_release::<V>(1), requests_of_a_release::<V>(20));
    assert!(0 < twenty && twenty <= one, "{one} with one waiter, {twenty} with twenty");
}

/// Each has an outcome of its own: one whose entry was deleted is lost, and one whose session has ended, and no other.
fn two_hundred_tenures_are_kept_by_few_requests<V: ConsensusStore>() {
    let (servers, counter, url) = counted::<V>("a");
    let store = V::processor(&url);
    // The last ten have names that are as long as names may be.
    let name = |n: usize| if n < 200 { format!("k{n}") } else { format!("{n}{}", "%".repeat(LONGEST_KEY - 3)) };
    let names: Vec<_> = (0..210).map(|n| (name(n), format!("c-{n}"))).collect();
    let claims: Vec<_> = names.iter().map(|(key, locker)| claim(key, locker, LEASE)).collect();
    for claim in &claims {
        assert!(matches!(store.acquire(claim, LEASE), Ok(AcquireOutcome::Acquired(_))));
    }
    let run_some = |extends: bool, count: usize| {
        let before = counter.requests();
        let request = |claim: &_| if extends { Request::Extend(*claim) } else { Request::Probe(*claim) };
        let requests: Vec<_> = claims[..count].iter().map(request).collect();
        let outcomes = store.run(&requests, Limit::Call(LEASE));
        let is_ours = |outcome| match outcome {
            Ok(Outcome::Probe(ProbeOutcome::Ours) | Outcome::Extend(ExtendOutcome::Extended(_))) => true,
            Ok(Outcome::Probe(ProbeOutcome::NotOurs(_)) | Outcome::Extend(ExtendOutcome::NotOurs(_))) => false,
            other => panic!("{other:?}"),
        };
        let lost: Vec<_> = outcomes.into_iter().map(is_ours).enumerate().filter(|(_, is_ours)| !is_ours).collect();
        (counter.requests() - before, lost.into_iter().map(|(n, _)| n).collect::<Vec<_>>())
    };
    let run = |extends| run_some(extends, 200);
    // A transaction looks at 128 keys. A stream of renewals is one request to etcd.
    let renewals = if V::NAME == Etcd::NAME { 1 } else { 200 };
    // The first look of a client of Consul without a token asks what it may see.
    run(false);
    assert_eq!(run(false), (2, vec![]));
    assert_eq!(run(true), (renewals + 2, vec![]));
    // So few are a stream that leaves its connection open.
    assert_eq!(run_some(true, 17), (renewals.min(17) + 1, vec![]));
    // What is nobody's of ours, and comes before the lock in the order of names.
    ["a/k6/!", "a/k6/+", "a/k6/-"].into_iter().for_each(|path| servers.put(path, "x"));
    for locker in ["d-1", "e-1", "f-1"] {
        store.join(&claim("k5", locker, LEASE), LEASE).unwrap();
    }
    let waiting = |outcome| match outcome {
        Ok(Outcome::Extend(ExtendOutcome::Extended(extension))) => extension.waiting > 0,
        other => panic!("{other:?}"),
    };
    let outcomes = store.run(&[4, 5, 6].map(|n: usize| Request::Extend(claims[n])), Limit::Call(LEASE));
    assert_eq!(outcomes.into_iter().map(waiting).collect::<Vec<_>>(), [false, true, false]);
    let Some(Look::Held { session, .. }) = servers.look_at("a/k77/.lock")() else { panic!("k77 is not held") };
    servers.end_session(&session);
    assert!(servers.delete("a/k150/.lock"));
    assert_eq!(run(false).1, [77, 150]);
    assert_eq!(run_some(true, 210).1, [77, 150]);
}

/// A stream ends after a while. If the next one began behind the last message, etcd would read for it all that others have written since then, and would
/// end it if that was compacted.
#[test]
fn etcd_reads_nothing_again_for_an_inbox_that_hears_nothing() {
    let (servers, counter, url) = counted::<Etcd>("a");
    let counter = Arc::new(counter);
    let store = Etcd::processor(&url);
    // The first stream lives for this long.
    let mut inbox = store.queue().unwrap().open_inbox("h-1-ff", Duration::from_secs(5)).unwrap();
    let (again, (tells, told)) = (Arc::clone(&counter), unbounded());
    counter.before("/v3/kv/range", move || {
        ["", "again"].into_iter().for_each(|value| servers.put("b", value));
        let Some(Look::Held { index, .. }) = servers.look_at("b")() else { panic!("it was written") };
        again.before("/v3/watch", move || {
            servers.compact(index);
            tells.send(servers).unwrap();
        });
    });
    let _servers = told.recv_timeout(LEASE).expect("the next stream begins");
    assert!(store.directory().unwrap().say("h-1-ff", "k", "describe", LEASE).unwrap());
    assert_eq!(inbox.next(LEASE).unwrap(), Some(Message::Said { text: "describe".into() }));
}

/// To open one takes several round trips, and each of several servers has a part of the time: far away, all tenures would be lost.
///
/// Shows: G3.
#[test]
fn etcd_keeps_few_and_many_tenures_by_the_connection_that_is_open() {
    let (_servers, counter, url) = counted::<Etcd>("a");
    let store = Etcd::processor(&url);
    let names: Vec<_> = (0..40).map(|n| (format!("k{n}"), format!("c-{n}"))).collect();
    let claims: Vec<_> = names.iter().map(|(key, locker)| claim(key, locker, LEASE)).collect();
    for claim in &claims {
        assert!(matches!(store.acquire(claim, LEASE), Ok(AcquireOutcome::Acquired(_))));
    }
    let address = counter.address().to_owned();
    drop(counter);
    eventually("no other connection opens", || TcpStream::connect(&address).is_err());
    for count in [10, 40, 10] {
        let requests: Vec<_> = claims[..count].iter().map(|claim| Request::Extend(*claim)).collect();
        for outcome in store.run(&requests, Limit::Call(LEASE)) {
            assert!(matches!(outcome, Ok(Outcome::Extend(ExtendOutcome::Extended(_)))), "of {count}: {outcome:?}");
        }
    }
}
