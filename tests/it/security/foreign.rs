//! What strangers leave in the store or publish: nothing panics, nothing is lost, and our locks go on.

use super::{bytes, check, is_plain};
use crate::support::crew::{HANG, eventually, spawn};
use crate::support::lab::connect_patiently;
use crate::support::process::alone;
use crate::support::{RedisServer, journal, shown};
use proptest::prelude::*;
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, Error};
use std::cell::RefCell;
use std::thread;
use std::time::Duration;

fn lock(generator: &DLockGenerator, target: &str) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("FOREIGN", target).with_lease(Duration::from_secs(60))).unwrap()
}

/// The key's value, which is a locker of ours.
fn locker(admin: &mut redis::Connection, lock: &DistributedReentrantLock) -> String {
    redis::cmd("GET").arg(lock.key()).query(admin).unwrap()
}

/// The client id in a locker.
fn client(locker: &str) -> String {
    locker.rsplit_once('-').unwrap().0.to_owned()
}

fn queue_length(admin: &mut redis::Connection, lock: &DistributedReentrantLock) -> usize {
    queue(admin, lock).map_or(0, |queue| redis::cmd("LLEN").arg(queue).query(admin).unwrap())
}

fn queue(admin: &mut redis::Connection, lock: &DistributedReentrantLock) -> Option<String> {
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("DLOCK:1:*:queue:{}", lock.key())).query(admin).unwrap();
    keys.into_iter().next()
}

/// Lets `waiter` wait for what `holder` holds, does something meanwhile, and sees the lock being handed over.
fn handed_over(
    admin: &RefCell<redis::Connection>,
    holder: &DistributedReentrantLock,
    waiter: &DistributedReentrantLock,
    meanwhile: impl FnOnce(),
) {
    let guard = holder.lock().unwrap();
    let first = guard.fencing_token();
    let second = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = waiter.try_lock_for(HANG).unwrap().expect("handed over, and not after a lease");
            let token = guard.fencing_token();
            guard.unlock().expect("ours to the end");
            token
        });
        eventually("the waiter stands in the queue", || queue_length(&mut admin.borrow_mut(), holder) == 1);
        meanwhile();
        guard.unlock().expect("ours to the end");
        waiting.join().unwrap()
    });
    assert!(first < second);
}

/// Runs a test in a process of its own, whose log tells of panics of our threads and of nobody else's.
fn without_panics(path: &str, test: fn()) {
    alone(path, || {
        journal::keep();
        test();
        let errors = journal::errors();
        assert!(errors.is_empty(), "{errors:?}");
    });
}

#[test]
fn a_holder_of_any_bytes_is_waited_for_shown_and_noticed() {
    without_panics("it::security::foreign::a_holder_of_any_bytes_is_waited_for_shown_and_noticed", any_holder);
}

fn any_holder() {
    let server = RedisServer::start();
    let admin = RefCell::new(server.connection());
    let generator = connect_patiently(&server.url());
    let lock = lock(&generator, "holder");
    drop(lock.lock().unwrap());
    let ours = {
        let _guard = lock.lock().unwrap();
        locker(&mut admin.borrow_mut(), &lock)
    };
    // Such as look like our own, too.
    let near = prop_oneof![Just(Vec::new()), Just(b"\nDLOCK_FOREIGN_holder".to_vec()), Just(b" x-9L".to_vec())];
    let near = near.prop_map(move |end| [ours.as_bytes(), &end].concat());
    let values = prop_oneof![5 => bytes(), 1 => near, 1 => Just(b"(free for pollers)".to_vec())];
    check(150, &(values, 1u64..30), |(value, lease)| {
        let set = |how: &[&str]| {
            let mut set = redis::cmd("SET");
            set.arg(lock.key()).arg(&value).arg(how).exec(&mut admin.borrow_mut()).unwrap();
        };
        // Waited for, and not touched meanwhile.
        set(&["PX", &lease.to_string()]);
        if let Some(holder) = lock.holder().unwrap() {
            assert_eq!(holder.locker, shown(&value));
            assert!(is_plain(&format!("{holder:?}")));
        }
        let guard = lock.try_lock_for(HANG).unwrap().expect("the foreign lease ends");
        // Written over our own.
        set(&[]);
        let error = guard.unlock().expect_err("not ours any more");
        assert!(matches!(error, Error::LeaseLost(_)), "{error}");
        assert!(is_plain(&format!("{error} {error:?}")), "{error}");
        assert!(lock.try_lock().unwrap().is_none());
        let left: Vec<u8> = redis::cmd("GETDEL").arg(lock.key()).query(&mut admin.borrow_mut()).unwrap();
        assert_eq!(left, value, "it is not ours to touch");
    });
}

/// Shows: L1.
#[test]
fn queue_entries_of_any_bytes_delay_no_waiter() {
    without_panics("it::security::foreign::queue_entries_of_any_bytes_delay_no_waiter", any_entries);
}

fn any_entries() {
    let server = RedisServer::start();
    let admin = RefCell::new(server.connection());
    let generators = [(); 2].map(|()| connect_patiently(&server.url()));
    let [holder, waiter] = [&generators[0], &generators[1]].map(|generator| lock(generator, "queue"));
    // Somebody who is heard, so that what is given to them stays there.
    let mut listening = server.connection();
    let mut listening = listening.as_pubsub();
    listening.subscribe("DLOCK:1:inbox:live").unwrap();
    let shaped = proptest::sample::select(vec![
        "100 x-1",
        "0 live-1",
        "-5 live-1",
        "99999999999999999999 live-1",
        "999999999999999 x-1",
        "100  live-1",
        "100 a live-1",
        "100 -",
        "100 x-1\n",
        "gap 1 1",
        "gap 99999999999999 10",
        "gap 999999999999999999999999 999999999999999",
        "gap x 1",
        "gap",
        "keep 1 1",
        "keep 1 0",
        "keep 99999999999999 3",
        "keep 1 999999999999999999999999",
        "keep 999999999999999999999999 1",
        "keep 1",
        "keep x 1",
        "keep",
        "100 x-1 ",
        "1e3 live-1",
        "",
    ]);
    let entries = prop_oneof![bytes(), shaped.prop_map(|text| text.as_bytes().to_vec())];
    check(200, &proptest::collection::vec((entries, any::<bool>()), 1..8), |entries| {
        handed_over(&admin, &holder, &waiter, || {
            let queue = queue(&mut admin.borrow_mut(), &holder).unwrap();
            for (entry, before) in &entries {
                let push = if *before { "LPUSH" } else { "RPUSH" };
                redis::cmd(push).arg(&queue).arg(entry).exec(&mut admin.borrow_mut()).unwrap();
            }
        });
        // Whoever wants the lock next clears away what is left, and what looks like a dead waiter a second or two later.
        for _ in 0..3 {
            holder.try_lock_for(HANG).unwrap().expect("free").unlock().unwrap();
            server.outlast_the_unheard();
        }
        holder.try_lock_for(HANG).unwrap().expect("free").unlock().unwrap();
        assert_eq!(queue_length(&mut admin.borrow_mut(), &holder), 0);
    });
}

#[test]
fn messages_of_any_bytes_change_nothing() {
    without_panics("it::security::foreign::messages_of_any_bytes_change_nothing", any_messages);
}

fn any_messages() {
    let server = RedisServer::start();
    let admin = RefCell::new(server.connection());
    let generators = [(); 2].map(|()| connect_patiently(&server.url()));
    let [holder, waiter] = [&generators[0], &generators[1]].map(|generator| lock(generator, "messages"));
    let beside = lock(&generators[1], "beside");
    let beside_guard = beside.lock().unwrap();
    let held = locker(&mut admin.borrow_mut(), &beside);
    let inbox = format!("DLOCK:1:inbox:{}", client(&held));
    redis::cmd("HSET").arg("DLOCK_FOREIGN_hash").arg("a").arg("b").exec(&mut admin.borrow_mut()).unwrap();
    // Grants of lockers that wait for nothing (one that waits is believed: who may publish is trusted), and calls for what is held, in the very words
    // of a script.
    let (client, keys) =
        (client(&held), [beside.key(), holder.key(), "DLOCK_FOREIGN_none", "DLOCK_FOREIGN_hash", "\n"]);
    let shaped =
        (any::<bool>(), any::<u64>(), "[0-9]{1,3}L?", proptest::sample::select(keys.map(str::to_owned).to_vec()));
    let (held_too, held_key) = (held.clone(), beside.key().to_owned());
    let shaped = shaped.prop_map(move |(granted, number, n, key)| match granted {
        true if key == held_key => format!("granted {number} 0 {held_too} {key}"),
        true => format!("granted {} 0 {client}-9999999{n} {key}", number % (1 << 53)),
        false => format!("contended {held_too} {key}"),
    });
    let messages = prop_oneof![bytes(), shaped.prop_map(String::into_bytes)];
    check(100, &proptest::collection::vec(messages, 1..20), |messages| {
        handed_over(&admin, &holder, &waiter, || {
            // One that no script can have sent, for the very locker that waits.
            let entry: String = {
                let queue = queue(&mut admin.borrow_mut(), &holder).unwrap();
                redis::cmd("LINDEX").arg(queue).arg(0).query(&mut admin.borrow_mut()).unwrap()
            };
            let waiting = entry.split_once(' ').unwrap().1;
            let forged = format!("granted {} 0 {waiting} {}", u64::MAX, holder.key());
            for message in messages.iter().map(Vec::as_slice).chain([forged.as_bytes()]) {
                let heard: u64 = redis::cmd("PUBLISH").arg(&inbox).arg(message).query(&mut admin.borrow_mut()).unwrap();
                assert_eq!(heard, 1, "the subscription stands");
            }
        });
        beside_guard.ensure_valid().unwrap();
        assert_eq!(locker(&mut admin.borrow_mut(), &beside), held);
    });
    beside_guard.unlock().unwrap();
    assert!(server.run::<bool>(&["EXISTS", "DLOCK_FOREIGN_hash"]));
}

#[test]
fn a_foreign_time_to_live_beyond_all_times_is_waited_for_and_no_longer_than_it_lasts() {
    let server = RedisServer::start();
    let generator = connect_patiently(&server.url());
    let lock = lock(&generator, "for ever");
    let config = DLockConfig::new("FOREIGN", "for ever").with_lease(Duration::from_secs(1));
    let impatient = generator.generate_with(config).unwrap();
    server.run::<()>(&["SET", lock.key(), "x", "PX", "9000000000000000000"]);
    let remaining = lock.holder().unwrap().expect("a holder").remaining.expect("a time to live");
    assert!(remaining > Duration::from_secs(1 << 40), "{remaining:?}");
    let waiting = spawn(move || impatient.try_lock_for(HANG).unwrap().is_some());
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    server.run::<()>(&["DEL", lock.key()]);
    assert!(waiting.join(), "it was deleted");
}
