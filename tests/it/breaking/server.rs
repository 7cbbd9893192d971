//! Breaks on a real server: what it keeps of them, and what others may have written there.

use super::orders::{HOUR, WHY, assert_broken, break_lock, ms, seen, unlooked};
use crate::support::cluster::{Cluster, Plan as ClusterPlan};
use crate::support::crew::{HANG, eventually, queue_by, wait_for};
use crate::support::lab::{config, connect, is_listener_on, wait_with};
use crate::support::proxy::{Lot, Sent};
use crate::support::sentinels::{Plan, Service};
use crate::support::watched::{Kind, Watched};
use crate::support::{Jvm, Proxy, RedisServer, cause};
use redis_dlock::{BreakOutcome, CancelToken, DLockConfig, DLockGenerator, LossCause, ManualClock, RedisLockProcessor};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;

/// The keys that tell broken holders.
fn told(server: &RedisServer) -> Vec<String> {
    server.run(&["KEYS", "DLOCK:1:{*}:broken:*"])
}

/// Shows: L2.
#[test]
fn what_tells_of_a_break_ends_by_itself_after_a_minute_and_the_lease() {
    let server = RedisServer::start();
    let lock = connect(&server.url()).generate_with(config("x", 900).with_probe(false)).unwrap();
    let guard = lock.lock().unwrap();
    let operator = connect(&server.url());
    assert!(matches!(break_lock(&operator, &lock, &seen(&lock)), BreakOutcome::Broken { .. }));
    let keys = told(&server);
    assert_eq!(keys.len(), 1);
    let (value, left): (String, i64) =
        redis::pipe().get(&keys[0]).pttl(&keys[0]).query(&mut server.connection()).unwrap();
    assert!(value.ends_with(WHY) && (1..=60_000).contains(&left) && left > 900, "{value}, {left}");
    server.run::<()>(&["DEL", &keys[0]]);
    drop(guard);
    let lock = operator.generate_with(unlooked()).unwrap();
    let guard = lock.lock().unwrap();
    assert!(matches!(break_lock(&operator, &lock, &seen(&lock)), BreakOutcome::Broken { .. }));
    let left: i64 = server.run(&["PTTL", &told(&server)[0]]);
    assert!(left > 60_000 && left <= i64::try_from(HOUR).unwrap(), "{left}");
    drop(guard);
}

/// Anybody who may publish can send the message. The store has the last word.
/// Shows: G3, G6.
#[test]
fn a_forged_message_breaks_nothing() {
    if !is_listener_on() {
        return;
    }
    let server = RedisServer::start();
    let generator = connect(&server.url());
    // A lock that may linger makes its process listen.
    let lock = generator.generate_with(unlooked().with_linger(ms(1))).unwrap();
    let guard = lock.lock().unwrap();
    let locker = seen(&lock);
    let channel = format!("DLOCK:1:inbox:{}", locker.rsplit_once('-').unwrap().0);
    eventually("it listens", || server.run::<Vec<String>>(&["PUBSUB", "CHANNELS"]).contains(&channel));
    server.run::<()>(&["CONFIG", "RESETSTAT"]);
    for _ in 0..20 {
        let message = format!("broken {locker} {}", lock.key());
        assert_eq!(server.run::<u64>(&["PUBLISH", &channel, &message]), 1);
        server.run::<u64>(&["PUBLISH", &channel, &format!("broken {locker}x {}", lock.key())]);
    }
    let probes = || {
        let stats: String = server.run(&["INFO", "commandstats"]);
        stats.contains("cmdstat_evalsha") || stats.contains("cmdstat_eval")
    };
    eventually("it has asked", probes);
    assert!(guard.is_valid() && guard.lost().is_empty());
    guard.unlock().unwrap();
}

/// However many messages come: the client's clock stands still unless it is moved.
/// Shows: G3.
#[test]
fn forged_messages_cost_one_question_a_second() {
    if !is_listener_on() {
        return;
    }
    let server = RedisServer::start();
    let (processor, watch) = Watched::new(Arc::new(RedisLockProcessor::connect(&server.url()).unwrap()));
    let clock = Arc::new(ManualClock::new());
    let generator = DLockGenerator::builder().clock(clock.clone()).build(processor).unwrap();
    let lock = generator.generate_with(unlooked().with_linger(ms(1))).unwrap();
    let guard = lock.lock().unwrap();
    let locker = seen(&lock);
    let channel = format!("DLOCK:1:inbox:{}", locker.rsplit_once('-').unwrap().0);
    eventually("it listens", || server.run::<Vec<String>>(&["PUBSUB", "CHANNELS"]).contains(&channel));
    let message = format!("broken {locker} {}", lock.key());
    let mut sent = watch.heard();
    for second in 1..=4 {
        for _ in 0..100 {
            assert_eq!(server.run::<u64>(&["PUBLISH", &channel, &message]), 1);
        }
        sent += 100;
        eventually("all are heard", || watch.heard() == sent);
        eventually("it has asked", || watch.count_of(Kind::Probe) >= second);
        // Its next message counts a millisecond later.
        clock.advance(ms(999));
        server.run::<u64>(&["PUBLISH", &channel, &message]);
        sent += 1;
        eventually("all are heard", || watch.heard() == sent);
        assert_eq!(watch.count_of(Kind::Probe), second, "no more than one a second");
        clock.advance(ms(1));
    }
    // A true message behind forged ones tells the holder in time.
    let operator = connect(&server.url());
    assert!(matches!(break_lock(&operator, &lock, &locker), BreakOutcome::Broken { .. }));
    clock.advance(ms(1000));
    guard.lost().recv_timeout(HANG).expect("a loss");
    assert_broken(&cause(guard.unlock()));
}

/// Shows: S3.
#[test]
fn values_that_no_lock_of_ours_wrote_are_broken_as_they_are_seen() {
    let server = RedisServer::start();
    let (mut jvm, operator) = (Jvm::new(&server), connect(&server.url()));
    let lock = operator.generate_with(unlooked()).unwrap();
    assert!(jvm.update_for_lock(lock.key(), Duration::from_secs(600)));
    let waiter = wait_for(&lock);
    if is_listener_on() {
        eventually("in the queue", || lock.inspect().unwrap().waiting == 1);
    }
    let jvms = seen(&lock);
    assert!(matches!(break_lock(&operator, &lock, &jvms), BreakOutcome::Broken { .. }));
    waiter.join();
    assert!(!jvm.update_for_unlock(lock.key()) && !jvm.expand_lock_expire(lock.key(), ms(1000)));
    // An operator's key without a lease.
    for value in ["for ever", "x".repeat(100_000).as_str()] {
        server.run::<()>(&["SET", lock.key(), value]);
        assert_eq!(seen(&lock), value);
        assert!(matches!(break_lock(&operator, &lock, value), BreakOutcome::Broken { next: None, .. }));
    }
    // One that is no text is named as it is seen, and so is a text that looks like one.
    for value in ["caf\\233", "\\255\\254", "caf\\\\xe9"] {
        server.run::<()>(&["EVAL", &format!("redis.call('SET', KEYS[1], '{value}')"), "1", lock.key()]);
        let named = seen(&lock);
        assert!(matches!(break_lock(&operator, &lock, "another"), BreakOutcome::NotHeldBy { holder: Some(_) }));
        assert!(matches!(break_lock(&operator, &lock, &named), BreakOutcome::Broken { next: None, .. }), "{named}");
        assert!(!server.run::<bool>(&["EXISTS", lock.key()]));
    }
    // Two of them are not taken for one another.
    let set = |value| server.run::<()>(&["EVAL", &format!("redis.call('SET', KEYS[1], '{value}')"), "1", lock.key()]);
    set("caf\\233");
    let named = seen(&lock);
    set("caf\\\\xe9");
    assert_ne!(seen(&lock), named);
    set("caf\\232");
    assert!(matches!(break_lock(&operator, &lock, &named), BreakOutcome::NotHeldBy { holder: Some(_) }), "{named}");
    let named = seen(&lock);
    assert!(matches!(break_lock(&operator, &lock, &named), BreakOutcome::Broken { next: None, .. }), "{named}");
    assert!(told(&server).iter().all(|key| key.len() < 300), "no key is as long as what was broken");
    // A key of another type is nobody's.
    server.run::<()>(&["RPUSH", lock.key(), "entry"]);
    for locker in ["entry", "", "(a value of another type)"] {
        let outcome = break_lock(&operator, &lock, locker);
        assert!(matches!(&outcome, BreakOutcome::NotHeldBy { holder: Some(_) }), "{outcome:?}");
    }
    assert_eq!(server.run::<String>(&["TYPE", lock.key()]), "list");
}

#[test]
fn a_queue_of_another_type_is_named_and_nothing_is_done() {
    if !is_listener_on() {
        return;
    }
    let server = RedisServer::start();
    let lock = connect(&server.url()).generate_with(unlooked()).unwrap();
    let guard = lock.lock().unwrap();
    let (locker, operator) = (seen(&lock), connect(&server.url()));
    let (cancel, waiting) = (CancelToken::new(), operator.generate_with(unlooked()).unwrap());
    let waiter = wait_with(&waiting, &cancel, 1);
    eventually("it stands in the queue", || server.queue_of(lock.key()).is_some());
    let queue = server.queue_of(lock.key()).unwrap();
    cancel.cancel();
    assert!(!waiter.join());
    eventually("the queue is empty", || server.queue_of(lock.key()).is_none());
    server.run::<()>(&["SET", &queue, "a text"]);
    let error = operator.break_lock("TEST", "x", &locker, WHY).unwrap_err();
    assert!(matches!(error, redis_dlock::Error::Conflict { .. }) && error.to_string().contains("queue"), "{error}");
    assert!(told(&server).is_empty());
    server.run::<()>(&["DEL", &queue]);
    guard.ensure_valid().unwrap();
    guard.unlock().unwrap();
}

#[test]
fn a_server_that_has_forgotten_the_scripts_is_given_them_again() {
    let server = RedisServer::start();
    let lock = connect(&server.url()).generate_with(config("x", 3000)).unwrap();
    let operator = connect(&server.url());
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        let locker = seen(&lock);
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        assert!(matches!(break_lock(&operator, &lock, &locker), BreakOutcome::Broken { .. }));
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        assert_broken(&cause(guard.unlock()));
    }
}

/// Shows: G11.
#[test]
fn an_order_whose_reply_is_lost_is_found_to_be_carried_out() {
    let server = RedisServer::start();
    let generator = connect(&server.url());
    // The operator waits for a lost reply for a second: also for longer than the lease.
    for (lease, lot, is_done) in [
        (HOUR, Lot::LoseReply, true),
        (HOUR, Lot::Reset, true),
        (HOUR, Lot::LoseRequest, false),
        (300, Lot::LoseReply, true),
    ] {
        let lock = generator.generate_with(config("x", lease)).unwrap();
        let guard = lock.lock().unwrap();
        let proxy = Proxy::to(server.port(), Duration::ZERO);
        let operator = connect(&proxy.url());
        // The proxy knows a script by its text, so the text goes through it.
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        assert!(matches!(break_lock(&operator, &lock, "nobody-1"), BreakOutcome::NotHeldBy { .. }));
        let fired = proxy.trap(Sent::Break, 0, lot);
        let outcome = operator.break_lock("TEST", "x", &seen(&lock), WHY);
        assert!(fired.is_fired());
        if is_done {
            assert!(matches!(outcome, Ok(BreakOutcome::Broken { next: None, waiting: 0, .. })), "{lot:?}: {outcome:?}");
            let cause = cause(guard.unlock());
            if lease == HOUR {
                assert_broken(&cause);
            }
        } else {
            assert!(outcome.as_ref().is_err_and(redis_dlock::Error::is_transient), "{outcome:?}");
            guard.unlock().unwrap();
        }
    }
}

/// Like a release, a break needs no acknowledgement: it gives nobody a right. The one who has the lock next asks for its own.
#[test]
fn replicas_that_do_not_answer_do_not_keep_a_hold_from_being_broken() {
    let service = Service::start_as(&Plan { replicas: 1, sentinels: 0, ..Plan::default() });
    let url = service.servers[0].url();
    let generator = || {
        let store = RedisLockProcessor::builder(&url).unwrap().replica_acks(1, ms(100)).connect().unwrap();
        DLockGenerator::new(store).unwrap()
    };
    let (lock, operator) = (generator().generate_with(unlooked()).unwrap(), generator());
    let guard = lock.lock().unwrap();
    let locker = seen(&lock);
    service.servers[1].signal(Signal::STOP);
    assert!(matches!(break_lock(&operator, &lock, &locker), BreakOutcome::Broken { next: None, .. }));
    assert_broken(&cause(guard.unlock()));
    service.servers[1].signal(Signal::CONT);
    drop(lock.lock().unwrap());
}

/// The key that tells the holder is in the lock's slot, and so is the channel.
/// Shows: G10.
#[test]
fn on_a_cluster_the_lock_goes_to_who_waits_and_its_holder_is_told() {
    let cluster = Cluster::start_as(&ClusterPlan::steady());
    let generator = || DLockGenerator::connect(&cluster.url(0)).unwrap();
    let (holders, waiters, operator) = (generator(), generator(), generator());
    for node in cluster.masters() {
        let key = cluster.keys_on(node, |n| format!("DLOCK_BROKEN_t{n}")).next().unwrap();
        let target = key.strip_prefix("DLOCK_BROKEN_").unwrap();
        let lock = |generator: &DLockGenerator, lease| {
            generator.generate_with(DLockConfig::new("BROKEN", target).with_lease(ms(lease))).unwrap()
        };
        let (here, there) = (lock(&holders, 3000), lock(&waiters, HOUR));
        let guard = here.lock().unwrap();
        let waiter = queue_by(&there, |lock| {
            let guard = lock.lock().unwrap();
            guard.lost().recv_timeout(HANG).expect("a loss");
            assert_broken(&cause(guard.unlock()));
        });
        let outcome = break_lock(&operator, &here, &seen(&here));
        assert!(matches!(&outcome, BreakOutcome::Broken { next: Some(_), waiting: 0, .. }), "{outcome:?}");
        guard.lost().recv_timeout(HANG).expect("a loss");
        assert!(matches!(guard.loss().unwrap().cause, LossCause::Broken { .. }));
        assert!(guard.unlock().is_err());
        // That one has waited, so it hears; its probe would come in ten minutes.
        assert!(matches!(break_lock(&operator, &there, &seen(&there)), BreakOutcome::Broken { next: None, .. }));
        waiter.join();
    }
    assert_eq!(cluster.published_on_the_bus(), 0);
}
