//! The first question in plain commands: when it is sent, and that it leaves nothing half done.

use super::outcomes::{LEASE, setup};
use crate::conformance::suite::prove;
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::proxy::{Lot, Sent, Way};
use crate::support::{Asking, claim};
use crate::support::{LONG, Proxy, RedisServer};
use redis_dlock::port::{Limit, LockProcessor, Outcome, Request};
use redis_dlock::processor::Operations;
use redis_dlock::{AcquireOutcome, BackendFailure, Error, PollOutcome, RedisLockProcessor, ReleaseOutcome};
use std::thread;
use std::time::Duration;

const KEY: &str = "DLOCK_t_plain";
const FENCE: &str = "DLOCK:1:fence";

fn ask(store: &RedisLockProcessor, locker: &str, wait: bool) -> Result<AcquireOutcome, Error> {
    store.ask(&claim(KEY, locker, LEASE), wait, LONG)
}

/// The same among requests about other keys.
fn ask_beside_others(store: &RedisLockProcessor, locker: &str, wait: bool) -> Result<AcquireOutcome, Error> {
    let claim = claim(KEY, locker, LEASE);
    let others = ["DLOCK_t_one", "DLOCK_t_other"].map(|key| Request::Probe(self::claim(key, locker, LEASE)));
    let request = if wait { Request::Join(claim) } else { Request::Acquire(claim) };
    let mut outcomes = store.run(&[others[0], request, others[1]], Limit::Call(LONG));
    let outcome = outcomes.swap_remove(1)?;
    assert!(outcomes.iter().all(|other| matches!(other, Ok(Outcome::Probe(_)))), "{outcomes:?}");
    outcome.try_into()
}

/// A request alone, and among others.
const WAYS: [Asks; 2] = [ask, ask_beside_others];

type Asks = fn(&RedisLockProcessor, &str, bool) -> Result<AcquireOutcome, Error>;

fn number(outcome: Result<AcquireOutcome, Error>) -> u64 {
    match outcome.unwrap() {
        AcquireOutcome::Acquired(grant) => {
            assert_eq!(grant.waiting, 0);
            grant.number
        }
        other => panic!("{other:?}"),
    }
}

fn holder(outcome: Result<AcquireOutcome, Error>) -> String {
    match outcome.unwrap() {
        AcquireOutcome::Busy(busy) => busy.holder.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// How many scripts and plain attempts one question took, where nobody queues. `before` comes at once before it.
fn cost_after<T>(server: &RedisServer, before: impl FnOnce(), question: impl FnOnce() -> T) -> (T, [u64; 2]) {
    let mut admin = server.connection();
    before();
    Commands::forget_by(&mut admin);
    let answer = question();
    let calls = Commands::of(server);
    // Where nobody queues, no script of a first question looks at the key by GET.
    (answer, [calls.count("evalsha") + calls.count("eval"), calls.count("get")])
}

fn cost<T>(server: &RedisServer, question: impl FnOnce() -> T) -> (T, [u64; 2]) {
    cost_after(server, || (), question)
}

/// A store whose scripts are known to the server, with a proof a moment old; its key is free and was never asked for.
fn proved() -> (RedisServer, RedisLockProcessor) {
    let (server, store) = setup();
    let _ = store.poll(&claim(KEY, "x-1", LEASE), LONG);
    prove(&store);
    (server, store)
}

/// What the key's queue is called.
fn queue(server: &RedisServer) -> String {
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    number(ask(&other, "q-1", false));
    holder(ask(&other, "q-2", true));
    let queues: Vec<String> = server.run(&["KEYS", "*:queue:*"]);
    for locker in ["q-2", "q-1"] {
        other.release(&claim(KEY, locker, LEASE), LONG).unwrap();
    }
    queues.into_iter().next().unwrap()
}

#[test]
fn a_connection_without_a_number_asks_by_the_script() {
    let (server, store) = setup();
    assert_eq!(cost(&server, || number(ask(&store, "a-1", false))).1, [2, 0]); // unknown, and with its text
    let give = || drop(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap());
    assert_eq!(cost_after(&server, give, || number(ask(&store, "a-2", false))).1, [0, 1]);
}

#[test]
fn a_connection_that_was_quiet_asks_by_the_script() {
    let (server, store) = proved();
    number(ask(&store, "a-1", false));
    store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    thread::sleep(Duration::from_millis(150));
    assert_eq!(cost(&server, || number(ask(&store, "a-2", false))).1, [1, 0]);
    // Also when the first command after the pause issues no number.
    thread::sleep(Duration::from_millis(150));
    let give = || drop(store.release(&claim(KEY, "a-2", LEASE), LONG).unwrap());
    assert_eq!(cost_after(&server, give, || number(ask(&store, "a-3", false))).1, [1, 0]);
}

#[test]
fn a_key_that_was_busy_is_asked_for_by_the_script_for_a_while() {
    let (server, store) = proved();
    number(ask(&store, "a-1", false));
    // One round trip in vain; from then on by the script.
    let asked = cost_after(&server, || prove(&store), || holder(ask(&store, "a-2", false)));
    assert_eq!(asked, ("a-1".into(), [0, 1]));
    assert_eq!(cost(&server, || holder(ask(&store, "a-3", false))), ("a-1".into(), [1, 0]));
    store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap();
    let mut scripts = 0;
    for n in 4..20 {
        let locker = format!("a-{n}");
        scripts += cost_after(&server, || prove(&store), || number(ask(&store, &locker, false))).1[0];
        store.release(&claim(KEY, &locker, LEASE), LONG).unwrap();
    }
    assert_eq!(scripts, 4);
}

#[test]
fn no_place_in_the_queue_is_asked_for_where_the_limit_has_no_time_for_it() {
    /// Its four-fold is less than the connection's time-out.
    const TRIP: Duration = Duration::from_millis(50);
    let server = RedisServer::start();
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    number(ask(&other, "h-1", false));
    let claim = claim(KEY, "a-1", LEASE);
    let tried = (0..20).find_map(|_| {
        let (proxy, store) = behind_a_proxy(&server);
        let delay = || {
            prove(&store);
            proxy.delay(Way::ToClient, TRIP);
        };
        let (answer, [scripts, _]) = cost_after(&server, delay, || store.ask(&claim, true, TRIP * 3));
        // If the machine stalls after the proof, the connection was quiet, and asks by the script.
        if scripts > 0 {
            other.release(&claim, LONG).unwrap();
        }
        (scripts == 0).then_some((proxy, store, answer))
    });
    let (_proxy, store, answer) = tried.unwrap();
    match answer {
        Ok(AcquireOutcome::Unqueued { busy, under_way: false }) => {
            assert_eq!((busy.holder.as_deref(), busy.remaining), (Some("h-1"), None));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.poll(&claim, LONG).unwrap(), PollOutcome::Gone, "nothing is left of it");
}

/// Shows: G11.
#[test]
fn a_place_in_the_queue_that_is_asked_for_without_an_answer_is_under_way() {
    let server = RedisServer::start();
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    number(ask(&other, "h-1", false));
    // The proxy knows a script by its text, so the texts go through it.
    server.run::<()>(&["SCRIPT", "FLUSH"]);
    let (proxy, store) = behind_a_proxy(&server);
    let fired = proxy.trap(Sent::Acquire, 1, Lot::LoseReply);
    match ask(&store, "a-1", true) {
        Ok(AcquireOutcome::Unqueued { busy, under_way: true }) => assert_eq!(busy.holder.as_deref(), Some("h-1")),
        other => panic!("{other:?}"),
    }
    assert!(fired.is_fired());
    assert!(matches!(store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
}

/// Shows: G8, S5.
#[test]
fn a_free_key_for_which_others_wait_is_handed_over_and_not_taken() {
    let (server, store) = proved();
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    let _inbox = other.open("b", LONG).unwrap();
    number(ask(&other, "h-1", false));
    holder(ask(&other, "b-1", true));
    server.run::<()>(&["DEL", KEY]);
    prove(&store);
    Commands::forget(&server);
    assert_eq!(holder(ask(&store, "a-1", true)), "b-1");
    // A script alone would ask once.
    assert_eq!(Commands::of(&server).count("evalsha"), 2);
    assert!(matches!(store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap(), PollOutcome::Waiting(_)));
}

/// Shows: G7, S2.
#[test]
fn numbers_rise_over_a_fence_that_is_lost_or_set_back() {
    for ask in WAYS {
        let (server, store) = proved();
        let mut last = number(ask(&store, "a-1", false));
        store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap();
        let back = (last - 5_000_000).to_string();
        for (n, loss) in
            [&["DEL", FENCE][..], &["FLUSHALL"], &["SET", FENCE, &back], &["SET", FENCE, "-9"]].iter().enumerate()
        {
            prove(&store);
            server.run::<()>(loss);
            let locker = format!("a-{}", n + 2);
            let next = number(ask(&store, &locker, false));
            assert!(next > last, "{loss:?}: {next} after {last}");
            last = next;
            assert_eq!(server.run::<String>(&["GET", KEY]), locker);
            store.release(&claim(KEY, &locker, LEASE), LONG).unwrap();
        }
    }
}

/// Shows: S6.
#[test]
fn foreign_values_are_named_and_leave_nothing_behind() {
    for ask in WAYS {
        let highest = u64::MAX.to_string();
        for (foreign, word) in [
            (&["SET", FENCE, "not a number"][..], "fence"),
            (&["SET", FENCE, &highest], "fence"),
            (&["SET", FENCE, "9223372036854775807"], "fence"),
            (&["SET", FENCE, "9007199254740991"], "fence"),
            (&["SET", "QUEUE", "no list"], "queue"),
            (&["HSET", KEY, "a", "b"], "lock key"),
        ] {
            let (server, store) = proved();
            let queue = queue(&server);
            let words: Vec<_> = foreign.iter().map(|word| if *word == "QUEUE" { &*queue } else { word }).collect();
            prove(&store);
            server.run::<()>(&["DEL", words[1]]);
            server.run::<()>(&words);
            match ask(&store, "a-1", true) {
                Err(Error::Conflict { message, .. }) => assert!(message.contains(word), "{foreign:?}: {message}"),
                other => panic!("{foreign:?}: {other:?}"),
            }
            let left: u64 = server.run(&["EXISTS", KEY]);
            assert_eq!(left, u64::from(foreign[1] == KEY), "{foreign:?}");
        }
    }
}

/// Shows: S2.
#[test]
fn a_demoted_master_executes_nothing_and_ends_the_proof() {
    let (server, store) = proved();
    server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    match ask(&store, "a-1", false) {
        Err(Error::Backend { failure: BackendFailure::NotExecuted, message, .. }) => {
            assert!(message.contains("READONLY"));
        }
        other => panic!("{other:?}"),
    }
    server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(cost(&server, || number(ask(&store, "a-2", false))).1, [1, 0]);
}

/// After so long a connection without an answer is given up.
const IO_TIMEOUT: Duration = Duration::from_millis(700);

/// A store behind a proxy, with a proof a moment old.
fn behind_a_proxy(server: &RedisServer) -> (Proxy, RedisLockProcessor) {
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let store = RedisLockProcessor::builder(&proxy.url()).unwrap().io_timeout(IO_TIMEOUT).connect().unwrap();
    prove(&store);
    (proxy, store)
}

fn assert_unknown(result: &Result<AcquireOutcome, Error>) {
    assert!(matches!(result, Err(Error::Backend { failure: BackendFailure::Unknown, .. })), "{result:?}");
}

/// Plays a scene until its question is asked in plain commands. If the machine stalls after the proof, it is asked by the script.
fn play(scene: impl Fn() -> bool) {
    assert!((0..20).any(|_| scene()));
}

/// Shows: G11.
#[test]
fn an_attempt_that_is_cut_before_its_number_is_found_by_a_poll_which_issues_one() {
    WAYS.into_iter().for_each(|ask| play(|| is_cut_before_its_number(ask)));
}

fn is_cut_before_its_number(ask: Asks) -> bool {
    let server = RedisServer::start();
    let (proxy, store) = behind_a_proxy(&server);
    let fired = proxy.trap(Sent::Count, 0, Lot::StopRequest);
    let answer = ask(&store, "a-1", false);
    if !fired.is_fired() {
        return false;
    }
    assert_unknown(&answer);
    let number = match store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap() {
        PollOutcome::Acquired(grant) => grant.number,
        other => panic!("{other:?}"),
    };
    let fence = || server.run::<u64>(&["GET", FENCE]);
    assert_eq!(fence(), number);
    proxy.let_requests_through();
    eventually("what comes late counts once more, and nobody reads it", || fence() > number);
    assert_eq!(store.release(&claim(KEY, "a-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    true
}

/// Shows: G2, G11.
#[test]
fn a_locker_that_was_taken_back_without_an_answer_never_comes_to_hold() {
    WAYS.into_iter().for_each(|ask| play(|| is_taken_back_without_an_answer(ask)));
}

fn is_taken_back_without_an_answer(ask: Asks) -> bool {
    let server = RedisServer::start();
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    let _inbox = other.open("b", LONG).unwrap();
    number(ask(&other, "h-1", false));
    holder(ask(&other, "b-1", true));
    let (proxy, store) = behind_a_proxy(&server);
    server.run::<()>(&["DEL", KEY]);
    prove(&store);
    let fired = proxy.trap(Sent::Release, 0, Lot::StopRequest);
    let answer = ask(&store, "a-1", true);
    if !fired.is_fired() {
        return false;
    }
    assert_unknown(&answer);
    assert_eq!(server.run::<String>(&["GET", KEY]), "a-1", "it took the key, and its release is under way");
    // Were it told that the key is its own, the late release would end its tenure.
    assert_eq!(store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap(), PollOutcome::Gone);
    assert_eq!(server.run::<String>(&["GET", KEY]), "b-1", "handed over");
    Commands::forget(&server);
    proxy.let_requests_through();
    eventually("the late release has come", || Commands::of(&server).count("evalsha") > 0);
    assert_eq!(server.run::<String>(&["GET", KEY]), "b-1");
    // Later questions about it are polls again.
    assert_eq!(store.poll(&claim(KEY, "a-1", LEASE), LONG).unwrap(), PollOutcome::Gone);
    assert_eq!(other.release(&claim(KEY, "b-1", LEASE), LONG).unwrap(), ReleaseOutcome::Released { waiting: 0 });
    true
}

/// Shows: S15.
#[test]
fn of_many_requests_those_for_free_keys_need_no_script() {
    let (server, store) = proved();
    let other = RedisLockProcessor::connect(&server.url()).unwrap();
    for key in ["held", "wanted"] {
        number(other.ask(&claim(key, "h-1", LEASE), false, LONG));
    }
    let claims = |keys: &[&'static str]| -> Vec<_> { keys.iter().map(|key| claim(key, "a-1", LEASE)).collect() };
    let free = claims(&["one", "two", "three"]);
    let [held, wanted, twice] = ["held", "wanted", "twice"].map(|key| claim(key, "a-1", LEASE));
    let requests = [
        Request::Join(free[0]),
        Request::Acquire(held),
        Request::Acquire(free[1]),
        // Requests for one key keep their order.
        Request::Acquire(twice),
        Request::Release(twice),
        Request::Join(wanted),
        Request::Join(free[2]),
    ];
    let (outcomes, [scripts, _]) = cost_after(&server, || prove(&store), || store.run(&requests, Limit::Call(LONG)));
    match &outcomes.into_iter().map(Result::unwrap).collect::<Vec<_>>()[..] {
        [
            Outcome::Acquire(AcquireOutcome::Acquired(_)),
            Outcome::Acquire(AcquireOutcome::Busy(_)),
            Outcome::Acquire(AcquireOutcome::Acquired(_)),
            Outcome::Acquire(AcquireOutcome::Acquired(_)),
            Outcome::Release(ReleaseOutcome::Released { waiting: 0 }),
            Outcome::Acquire(AcquireOutcome::Busy(busy)),
            Outcome::Acquire(AcquireOutcome::Acquired(_)),
        ] => assert!(busy.remaining.is_some(), "the script has answered"),
        others => panic!("{others:#?}"),
    }
    // Two scripts for the key that is named twice, and one for a place in a queue.
    assert_eq!(scripts, 3);
}
