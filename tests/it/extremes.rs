//! Every public constructor and setter with extreme values: none panics; each works, or says which value is wrong and what to do.

use crate::support::crew::{HANG, eventually, spawn_with};
use crate::support::{Asking, claim};
use crate::support::{LONG, RedisServer};
use proptest::prelude::*;
use proptest::sample::select;
use redis_dlock::processor::{Gap, Limit, Operations};
use redis_dlock::{
    Clock, DLockConfig, DLockGenerator, Error, LockProcessor, MAX_LEASE, MIN_LEASE, ManualClock, MemoryLockProcessor,
    Moment, Polling, RedisLockProcessor, Request,
};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

const NANOSECOND: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(86_400);

fn durations() -> impl Strategy<Value = Duration> {
    let known = [
        Duration::ZERO,
        NANOSECOND,
        Duration::from_nanos(999_999),
        Duration::from_millis(1),
        MIN_LEASE - NANOSECOND,
        MIN_LEASE,
        Duration::from_secs(30),
        DAY,
        DAY + NANOSECOND,
        MAX_LEASE,
        MAX_LEASE + NANOSECOND,
        MAX_LEASE + Duration::from_millis(1),
        Duration::from_nanos(u64::MAX),
        Duration::from_millis(u64::MAX),
        Duration::MAX - NANOSECOND,
        Duration::MAX,
    ];
    prop_oneof![4 => select(known.to_vec()), 1 => any::<Duration>()]
}

fn floats() -> impl Strategy<Value = f64> {
    let known = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -0.5, f64::MIN_POSITIVE, 0.1, 0.85, 1.0, f64::MAX];
    prop_oneof![3 => select(known.to_vec()), 1 => any::<f64>(), 1 => 0.0..1.0]
}

fn texts() -> impl Strategy<Value = String> {
    let known = ["", " ", "\0", "\u{1}\r\n", "{", "}{", "{}", "%", "_", "-", "é名\u{202e}\u{feff}", "DLOCK_ORDER_1"];
    let known = known.iter().map(|text| (*text).to_owned()).chain([256, 1 << 16].map(|n| "x".repeat(n)));
    prop_oneof![4 => select(known.collect::<Vec<_>>()), 1 => any::<String>()]
}

/// What came of a value: it works, or the error says which one it is and what to do.
fn usable<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(thing) => Some(thing),
        Err(Error::InvalidConfig { what, value, hint, .. }) => {
            let says = |word: &&str| hint.contains(*word);
            let remedies = ["give", "choose", "write", "enable", "leave", "save", "add", "must be"];
            assert!(!what.is_empty() && remedies.iter().any(says), "{what} {value:?}: {hint}");
            None
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// A free lock, unless its lease of a few milliseconds was over before this busy machine got to it.
fn got<T>(result: Result<Option<T>, Error>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard.expect("it is free")),
        Err(Error::Backend { .. } | Error::LeaseLost(_)) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// Settings, and whether they have a gap for pollers: meanwhile nobody of ours gets the lock, although it is free.
fn configs() -> impl Strategy<Value = (DLockConfig, bool)> {
    let rare = |setting| prop_oneof![2 => Just(None), 1 => proptest::option::of(setting)];
    (
        (texts(), texts(), rare(durations().boxed()), proptest::option::of(floats())),
        (any::<bool>(), select(vec![0, 1, u32::MAX]), rare(durations().boxed()), rare(durations().boxed())),
        (rare(durations().boxed()), proptest::option::of(texts())),
    )
        .prop_map(|((kind, target, lease, part), (probe, passes, linger, limit), (gap, reason))| {
            let mut config = DLockConfig::new(kind, target).with_probe(probe).with_local_passes(passes);
            if let Some(lease) = lease {
                config = config.with_lease(lease);
            }
            if let Some(part) = part {
                config = config.with_renew_at(part);
            }
            if let Some(linger) = linger {
                config = config.with_linger(linger);
            }
            if let Some(limit) = limit {
                config = config.with_max_hold(limit);
            }
            if let Some(gap) = gap {
                config = config.with_poller_gap(gap);
            }
            if let Some(reason) = reason {
                config = config.with_reason(reason);
            }
            (config, gap.is_some())
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn settings_of_a_lock((config, has_gap) in configs(), limit in durations()) {
        let store = MemoryLockProcessor::new();
        let generator = DLockGenerator::new(store.clone()).unwrap();
        let _ = (config.lease(), config.unique_key().len(), format!("{config:?}").len());
        let Some(lock) = usable(generator.generate_with(config)) else { return Ok(()) };
        let _ = format!("{lock:?}");
        // Whoever holds for longer than it may has lost its lease.
        let unlocked = |result: Result<(), Error>| {
            assert!(matches!(result, Ok(()) | Err(Error::LeaseLost(_))), "{result:?}");
        };
        let until = Instant::now().checked_add(limit).unwrap_or_else(Instant::now);
        for guard in [lock.try_lock(), lock.try_lock_for(limit), lock.try_lock_until(until)].into_iter().filter_map(got) {
            let _ = (guard.remaining(), guard.ensure_valid(), guard.is_valid(), guard.lost());
            unlocked(guard.unlock());
        }
        let pairs = lock.unguarded();
        // Whoever tries right after a release that has left the key free for pollers finds it taken.
        let limit = if has_gap { limit.min(Duration::from_millis(5)) } else { limit };
        match pairs.try_lock_for(limit) {
            Ok(false) if has_gap => {}
            tried => {
                if got(tried.map(|is_held| is_held.then_some(()))).is_some() {
                    unlocked(pairs.unlock());
                }
            }
        }
        generator.close();
        assert!(store.inspect(lock.key(), LONG).unwrap().holder.is_none());
    }

    #[test]
    fn names_and_the_default_lease(kind in texts(), target in texts(), lease in durations()) {
        let Some(builder) = usable(DLockGenerator::builder().default_lease(lease)) else { return Ok(()) };
        let generator = builder.build(MemoryLockProcessor::new()).unwrap();
        if let Some(lock) = usable(generator.generate(kind.as_str(), target)) {
            drop(got(lock.try_lock()));
        }
    }

    #[test]
    fn the_time_of_a_slow_wait(after in durations()) {
        let builder = DLockGenerator::builder().on_slow_wait(after, |_| ());
        let generator = builder.build(MemoryLockProcessor::new()).unwrap();
        let lock = generator.generate("T", "slow").unwrap();
        let _guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(Duration::from_millis(1)).unwrap().is_none());
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn time_outs_of_a_connection(connect in durations(), io in durations()) {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let builder = RedisLockProcessor::builder(&format!("redis://{closed}")).unwrap();
        let builder = builder.connect_timeout(connect).io_timeout(io);
        let built = usable(builder.clone().build()).is_some();
        match builder.connect() {
            Err(Error::InvalidConfig { what, .. }) => assert!(!built && what.ends_with("_timeout"), "{what}"),
            Err(Error::Backend { .. }) => assert!(built),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls(
        user in texts(),
        password in texts(),
        host in texts(),
        port in select(vec!["", ":0", ":1", ":65535", ":65536", ":-1", ":x"]),
        db in select(vec!["", "0", "-1", "9223372036854775807", "9223372036854775808", "x"]),
    ) {
        for scheme in ["redis", "rediss", "unix"] {
            let url = format!("{scheme}://{user}:{password}@{host}{port}/{db}");
            if let Some(builder) = usable(RedisLockProcessor::builder(&url)) {
                let _ = format!("{builder:?}");
                #[cfg(feature = "tls")]
                let builder = if scheme == "rediss" { builder.tls_root_certificates("rubbish") } else { builder };
                usable(builder.build());
            }
        }
        usable(RedisLockProcessor::builder(&user));
    }

    #[test]
    fn moments(at in any::<u64>(), other in any::<u64>(), by in durations()) {
        let (at, other) = (Moment::from_nanos(at), Moment::from_nanos(other));
        assert!(at + by >= at && at.before(by) <= at && at.since(at) == Duration::ZERO);
        assert!(at.since(other).is_zero() || other.since(at).is_zero());
        assert!(Moment::NEVER + by == Moment::NEVER);
    }

    #[test]
    fn files_of_leases(path in texts()) {
        let missing = usable(DLockGenerator::builder().properties(&path));
        assert!(missing.is_none());
    }
}

/// Every operation of a store, with any names, leases and limits: an answer or an error.
fn every_operation(store: &dyn LockProcessor, key: &str, locker: &str, lease: Duration, limit: Duration) {
    let asked = claim(key, locker, lease);
    let ended = asked.with_poller_gap(Some(Gap::new(lease, lease)));
    let queue = store.queue().unwrap();
    let _ = store.acquire(&asked, limit);
    let _ = store.join(&asked, limit);
    let _ = store.poll(&asked, limit);
    let _ = store.extend(&asked, limit);
    let _ = store.extend_fresh(&asked, limit);
    let _ = store.probe(&asked, limit);
    let _ = store.inspect(key, limit);
    let _ = store.hand_over(&ended, &asked, limit);
    let _ = store.release(&ended, limit);
    if let Some(posting) = store.posting() {
        let _ = posting.post_release(&ended, limit, Box::new(drop));
    }
    let _ = store.run(&[Request::Join(asked), Request::Probe(asked)], Limit::Attempt(limit));
    let _ = queue.check_inbox(locker, "k", limit);
    if let Ok(mut inbox) = store.open(locker, limit) {
        let _ = inbox.next(Duration::ZERO);
        inbox.breaker().cut();
        let _ = inbox.next(limit);
    }
}

#[test]
fn requests_to_both_stores() {
    let server = RedisServer::start();
    let redis = RedisLockProcessor::connect(&server.url()).unwrap();
    let memory = MemoryLockProcessor::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 30, ..ProptestConfig::default() });
    let within_the_clock = Duration::from_secs(i64::MAX as u64 / 10 * 9);
    let limits = select(vec![Duration::ZERO, NANOSECOND, LONG, within_the_clock, Duration::MAX]);
    runner
        .run(&(texts(), texts(), durations(), limits), |(key, locker, lease, limit)| {
            every_operation(&redis, &key, &locker, lease, limit);
            for mut server in redis.servers(limit).into_iter().flatten() {
                let _ = server.ask(&["PING"], limit);
            }
            every_operation(&memory, &key, &locker, lease, limit);
            Ok(())
        })
        .unwrap();
    // The server and the connection have survived it.
    let lock = DLockGenerator::new(redis).unwrap().generate("EXTREME", "x").unwrap();
    server.run::<()>(&["FLUSHALL"]);
    drop(lock.try_lock_for(LONG).unwrap().expect("it is free"));
}

#[test]
fn a_time_out_or_polling_of_no_use_is_refused_by_connect_as_by_build() {
    let server = RedisServer::start();
    let builder = || RedisLockProcessor::builder(&server.url()).unwrap();
    let polling = |micros| builder().polling(Polling::AtMost(Duration::from_micros(micros)));
    let times = [Duration::ZERO, Duration::MAX];
    let of_no_use = times.map(|time| [builder().io_timeout(time), builder().connect_timeout(time)]);
    for builder in of_no_use.into_iter().flatten().chain([polling(0), polling(10_001)]) {
        assert!(usable(builder.clone().build()).is_none());
        assert!(usable(builder.connect()).is_none());
    }
}

#[test]
fn places_that_nobody_can_connect_to_are_refused() {
    let long = "x".repeat(108);
    for url in [
        "unix://",
        "unix:///tmp/a%00b",
        &format!("unix:///tmp/{long}"),
        "redis://a%00b",
        "redis://host:0",
        "redis://:6379",
    ] {
        assert!(usable(RedisLockProcessor::builder(url)).is_none(), "{url}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn rubbish_in_place_of_certificates() {
    // The platform's certificates take long to read.
    let authority = crate::support::certificates::authority("authority").pem();
    let builder = || RedisLockProcessor::builder("rediss://localhost").unwrap();
    let rubbish: [&[u8]; 6] = [
        b"",
        b"\0\xff",
        b"/etc/ssl/certs/ca-certificates.crt",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n!!!\n",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ];
    for text in rubbish {
        assert!(usable(builder().tls_root_certificates(text).build()).is_none());
        for other in rubbish {
            let client = builder().tls_root_certificates(authority.as_str()).tls_client_certificate(text, other);
            assert!(usable(client.clone().build()).is_none());
            assert!(usable(client.connect()).is_none());
        }
    }
    let nobody = RedisLockProcessor::builder("rediss://no_host!").and_then(redis_dlock::RedisBuilder::build);
    assert!(usable(nobody).is_none());
}

#[test]
fn a_hold_that_may_last_a_nanosecond_is_lost_and_ends() {
    let generator = DLockGenerator::new(MemoryLockProcessor::new()).unwrap();
    let lock = generator.generate_with(DLockConfig::new("EXTREME", "short").with_max_hold(NANOSECOND)).unwrap();
    let owner = spawn_with(&lock, move |other| match other.lock() {
        Ok(guard) => guard.unlock(),
        Err(error) => Err(error),
    });
    assert!(matches!(owner.join(), Err(Error::LeaseLost(_))));
    eventually("the lock is free", || lock.try_lock_for(HANG).is_ok_and(|guard| guard.is_some()));
}

#[test]
fn a_manual_clock_moved_by_extremes() {
    let clock = ManualClock::new();
    for by in [Duration::ZERO, NANOSECOND, DAY, MAX_LEASE] {
        let before = clock.now();
        clock.advance(by);
        assert_eq!(clock.now().since(before), by);
    }
}
