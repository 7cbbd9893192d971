//! Real processes: one holds, others wait, one is killed.

use super::{config, connect, description, holder, records};
use crate::support::RedisServer;
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::worker::{self, Worker};
use redis_dlock::{DLockGenerator, RedisLockProcessor};
use std::thread;
use std::time::SystemTime;

fn start(server: &RedisServer, way: &str) -> Worker {
    let mut worker = Worker::start("describe::processes::process", &format!("{} {way}", server.url()));
    worker.answer_about("locks");
    worker
}

#[test]
#[ignore = "the worker process of the tests beside it: a thread of it locks, and holds until the process ends"]
fn process() {
    let Some(settings) = worker::settings() else { return };
    let (url, way) = settings.split_once(' ').unwrap();
    let builder = DLockGenerator::builder().listener(way != "deaf");
    let generator = builder.build(RedisLockProcessor::connect(url).unwrap()).unwrap();
    let lock = generator.generate_with(config("one", &format!("reason of {way}"))).unwrap();
    let locks = move || {
        worker::answer("locks");
        let guard = lock.lock().unwrap();
        let again = lock.lock().unwrap();
        worker::answer("held");
        loop {
            thread::park();
            let _ = (&guard, &again);
        }
    };
    thread::Builder::new().name(format!("thread of {way}")).spawn(locks).unwrap();
    worker::orders().for_each(drop);
}

#[test]
fn a_holder_in_another_process_says_why_and_since_when() {
    let server = RedisServer::start();
    let mut export = start(&server, "export");
    export.answer_about("held");
    let asker = connect(&server);
    let found = holder(&asker, "one", |holder| holder.told.is_some() && holder.client.is_some());
    let told = found.told.unwrap();
    assert_eq!(told.reason.as_deref(), Some("reason of export"));
    assert_eq!(told.thread.as_deref(), Some("thread of export"));
    assert!(told.thread_id.is_some() && told.token.is_some());
    assert_eq!((told.hold_count, told.lingering, told.waiting_threads), (2, false, 0));
    assert!(told.lease_left.unwrap() <= super::LEASE);
    let later =
        holder(&asker, "one", |holder| holder.told.as_ref().is_some_and(|later| later.held_for > told.held_for));
    assert_eq!(later.told.unwrap().token, told.token);

    let client = found.client.unwrap();
    assert_eq!(client.pid, Some(export.pid()));
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(client.program, Some(program));
    assert_eq!(client.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(client.user.is_some() && client.started.unwrap() <= SystemTime::now());
    assert!(found.locker.starts_with(&format!("{}-{}-", client.host.unwrap(), export.pid())), "{}", found.locker);
}

#[test]
fn processes_that_wait_are_named_in_their_order() {
    let server = RedisServer::start();
    let asker = connect(&server);
    let mut workers = vec![start(&server, "first")];
    workers[0].answer_about("held");
    for (n, way) in ["second", "third"].into_iter().enumerate() {
        workers.push(start(&server, way));
        description(&asker, "one", |found| found.queue_length == n as u64 + 1);
    }
    let found = description(&asker, "one", |found| {
        found.waiting.iter().chain(&found.holder).all(|party| party.told.is_some() && party.client.is_some())
    });
    let pids = found.waiting.iter().map(|party| party.client.as_ref().unwrap().pid);
    assert_eq!(pids.collect::<Vec<_>>(), [Some(workers[1].pid()), Some(workers[2].pid())]);
    for (party, way) in found.waiting.iter().zip(["second", "third"]) {
        let told = party.told.as_ref().unwrap();
        assert_eq!(told.reason, Some(format!("reason of {way}")));
        assert_eq!(told.thread, Some(format!("thread of {way}")));
        assert_eq!((told.waiting_threads, told.hold_count, told.token), (1, 0, None));
        assert!(told.first_waits_for.is_some() && told.held_for.is_none());
    }
    assert!(found.remaining.unwrap() <= super::LEASE);
}

#[test]
fn a_killed_process_is_seen_as_dead() {
    let server = RedisServer::start();
    let mut dead = start(&server, "dead");
    dead.answer_about("held");
    let asker = connect(&server);
    holder(&asker, "one", |holder| holder.told.is_some() && holder.client.is_some());
    dead.kill();
    // Nobody answers, and the record ends by itself.
    let found = holder(&asker, "one", |holder| holder.told.is_none());
    assert!(found.locker.contains(&format!("-{}-", dead.pid())));
    let record = records(&server).pop().expect("the record of the dead one");
    assert!((1..=90_000).contains(&server.run::<i64>(&["PTTL", &record])));
    server.run::<()>(&["PEXPIRE", &record, "1"]);
    holder(&asker, "one", |holder| holder.client.is_none() && holder.told.is_none());
}

#[test]
fn a_process_that_does_not_listen_is_described_by_its_record_and_nobody_waits_for_it() {
    let server = RedisServer::start();
    let mut deaf = start(&server, "deaf");
    deaf.answer_about("held");
    eventually("the record is there", || records(&server).len() == 1);
    let asker = connect(&server);
    Commands::forget(&server);
    let found = asker.describe("DESCRIBE", "one").unwrap().holder.unwrap();
    assert_eq!((found.told, found.client.unwrap().pid), (None, Some(deaf.pid())));
    let calls = Commands::of(&server);
    assert_eq!((calls.count("publish"), calls.count("subscribe")), (0, 0), "{calls:?}");
}
