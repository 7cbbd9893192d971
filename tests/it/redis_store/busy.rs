//! A lock that is known to be busy is no error, however little time there was to ask.

use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::proxy::{Lot, Sent, Way};
use crate::support::{Proxy, RedisServer};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, RedisLockProcessor};
use std::time::{Duration, Instant};

/// Neither an extension nor a probe falls into a test.
const LEASE: Duration = Duration::from_secs(3600);

struct Scene {
    server: RedisServer,
    proxy: Proxy,
    /// Somebody else.
    elsewhere: DLockGenerator,
    generator: DLockGenerator,
    /// A lock that is used to give the connection a proof.
    calm: DistributedReentrantLock,
}

impl Scene {
    fn new(round_trip: Duration) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port(), round_trip);
        let [elsewhere, generator] = [server.url(), proxy.url()].map(|url| {
            // A client record may be written at any moment, and would be counted.
            let store = RedisLockProcessor::connect(&url).unwrap();
            DLockGenerator::builder().client_record(false).build(store).unwrap()
        });
        let calm = lock(&generator, "calm");
        // The proxy sees the scripts' texts, and knows them from now on.
        drop(calm.lock().unwrap());
        Self { server, proxy, elsewhere, generator, calm }
    }

    /// The next question of a calm key is a plain attempt.
    fn prove(&self) {
        for _ in 0..2 {
            self.calm.lock().unwrap().unlock().unwrap();
        }
    }
}

fn lock(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("BUSY", target).with_lease(LEASE)).unwrap()
}

#[test]
fn a_busy_single_attempt_costs_one_round_trip() {
    let scene = Scene::new(Duration::ZERO);
    let theirs = lock(&scene.elsewhere, "x");
    let _held = theirs.lock().unwrap();
    let lock = lock(&scene.generator, "x");
    scene.prove();
    Commands::forget(&scene.server);
    assert!(lock.try_lock().unwrap().is_none());
    let calls = Commands::of(&scene.server);
    assert_eq!((calls.count("set"), calls.count("evalsha") + calls.count("eval")), (1, 0), "{calls:?}");
    // From now on it is asked by the script, which is one round trip, too.
    Commands::forget(&scene.server);
    assert!(lock.try_lock().unwrap().is_none());
    let calls = Commands::of(&scene.server);
    assert_eq!(calls.count("evalsha") + calls.count("eval"), 1, "{calls:?}");
}

/// Shows: G12.
#[test]
fn a_second_question_that_is_not_answered_in_time_is_no_error() {
    let scene = Scene::new(Duration::ZERO);
    let theirs = lock(&scene.elsewhere, "x");
    let held = theirs.lock().unwrap();
    let lock = lock(&scene.generator, "x");
    scene.prove();
    // The plain attempt goes through, the script that follows it does not.
    let fired = scene.proxy.trap(Sent::Acquire, 1, Lot::LoseRequest);
    let limit = Duration::from_millis(500);
    let begin = Instant::now();
    let outcome = lock.try_lock_for(limit);
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    assert!(begin.elapsed() >= limit);
    assert!(fired.is_fired());
    held.unlock().unwrap();
    eventually("it is free", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
}

/// Shows: G1.
#[test]
fn a_timed_attempt_asks_nothing_that_cannot_be_answered_in_its_time() {
    const TRIP: Duration = Duration::from_millis(60);
    let scene = Scene::new(TRIP);
    let (mut unanswered, mut seen) = (0, 0);
    for n in 0..40 {
        let theirs = lock(&scene.elsewhere, &n.to_string());
        let held = theirs.lock().unwrap();
        let lock = lock(&scene.generator, &n.to_string());
        scene.prove();
        Commands::forget(&scene.server);
        let begin = Instant::now();
        let outcome = lock.try_lock_for(TRIP * 4 / 3);
        let calls = Commands::of(&scene.server);
        // No script counts a number for a busy key.
        let is_plain = calls.count("incr") == 1;
        match outcome {
            Ok(None) => assert!(begin.elapsed() >= TRIP * 4 / 3),
            Ok(Some(_)) => panic!("two inside"),
            // No answer came in time, on a machine that is busy.
            Err(_) => unanswered += 1,
        }
        held.unlock().unwrap();
        if is_plain && begin.elapsed() < TRIP * 2 {
            // A place in the queue would be this; scripts may release what an earlier attempt left behind.
            assert_eq!(calls.count("rpush"), 0, "{calls:?}");
            seen += 1;
        }
        if seen == 5 {
            break;
        }
    }
    assert!(seen >= 1 && unanswered <= 20, "{seen} plain attempts seen, {unanswered} unanswered");
}

/// Nothing is known of the key then: an error, which names the server and the limit.
#[test]
fn a_limit_that_ends_before_any_answer_is_an_error_that_says_so() {
    let scene = Scene::new(Duration::ZERO);
    scene.prove();
    scene.proxy.lose(Way::ToClient, true);
    let limit = Duration::from_millis(70);
    let error = lock(&scene.generator, "silent").try_lock_for(limit).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(error.is_transient(), "{error:?}");
    assert!(text.contains("within") && text.contains("ms") && text.contains(&scene.proxy.port().to_string()), "{text}");
}
