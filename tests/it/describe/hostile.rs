//! Names, reasons, values and messages of any shape.

use super::{config, connect, holder};
use crate::support::{RedisServer, shown};
use redis_dlock::DLockGenerator;
use std::thread;

fn is_one_line(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() || c == '\u{2028}')
}

#[test]
fn long_and_hostile_names_and_reasons_are_told_in_one_line() {
    let server = RedisServer::start();
    let (holds, asker) = (connect(&server), connect(&server));
    for (n, text) in
        ["a\nb\r\n\u{1b}[2J\u{2028} %0a =x", &"é\n".repeat(5000), "", &"locker=forged ".repeat(3)].iter().enumerate()
    {
        let target = format!("{{a}} b\n c{n}");
        let lock = holds.generate_with(config(&target, text)).unwrap();
        thread::scope(|scope| {
            let name = text.chars().take(2000).collect();
            let ask = || {
                let _guard = lock.lock().unwrap();
                holder(&asker, &target, |holder| holder.told.is_some())
            };
            let found = thread::Builder::new().name(name).spawn_scoped(scope, ask).unwrap().join().unwrap();
            let told = found.told.unwrap();
            let (thread, reason) = (told.thread.unwrap(), told.reason.unwrap());
            assert!(is_one_line(&thread) && is_one_line(&reason), "{thread:?} {reason:?}");
            let shown = lock.config().reason().unwrap();
            let start: String = reason.chars().take(10).collect();
            assert!(shown.starts_with(&start), "{reason:?} of {shown:?}");
            assert!(reason == shown || reason.len() <= 1100, "{}", reason.len());
            assert!(told.token.is_some() && told.hold_count == 1);
        });
    }
}

#[test]
fn a_raw_value_is_described_by_itself() {
    let server = RedisServer::start();
    let asker = connect(&server);
    let mut admin = server.connection();
    for value in [&b"10.0.0.1-17"[..], b"", b"-", b"x", b"\xff\xfe-\n-1", &[b'z'; 5000], b"a b-1"] {
        redis::cmd("SET").arg("DLOCK_DESCRIBE_raw").arg(value).arg("PX").arg(60_000).exec(&mut admin).unwrap();
        let found = asker.describe("DESCRIBE", "raw").unwrap();
        let party = found.holder.unwrap();
        assert_eq!(party.locker, shown(value));
        assert_eq!((party.client, party.told, party.is_local), (None, None, false));
        assert!(found.remaining.is_some());
    }
    redis::cmd("PERSIST").arg("DLOCK_DESCRIBE_raw").exec(&mut admin).unwrap();
    assert_eq!(asker.describe("DESCRIBE", "raw").unwrap().remaining, None);
    let free = asker.describe("DESCRIBE", "free").unwrap();
    assert_eq!((free.holder, free.remaining, free.waiting, free.queue_length), (None, None, Vec::new(), 0));
}

#[test]
fn foreign_records_and_messages_are_read_with_care() {
    let server = RedisServer::start();
    let (holds, asker) = (connect(&server), connect(&server));
    let lock = holds.generate_with(config("one", "a reason")).unwrap();
    let _guard = lock.lock().unwrap();
    let found = holder(&asker, "one", |holder| holder.told.is_some() && holder.client.is_some());
    let client = found.locker.rsplit_once('-').unwrap().0;
    let record = format!("DLOCK:1:client:{{{client}}}");
    let mut admin = server.connection();
    for value in [&b"\xff\n\0 pid=-1 program=%0a%ff% features=describe"[..], b"", &[b'='; 100_000]] {
        redis::cmd("SET").arg(&record).arg(value).exec(&mut admin).unwrap();
        let read = asker.describe("DESCRIBE", "one").unwrap().holder.unwrap().client.unwrap();
        assert!(read.pid.is_none() && read.program.iter().all(|program| is_one_line(program)), "{read:?}");
    }
    redis::cmd("DEL").arg(&record).exec(&mut admin).unwrap();
    redis::cmd("LPUSH").arg(&record).arg("x").exec(&mut admin).unwrap();
    assert_eq!(asker.describe("DESCRIBE", "one").unwrap().holder.unwrap().client, None);
    // Words that are none, and more questions than are noted.
    let channel = format!("DLOCK:1:inbox:{client}");
    for words in
        ["describe", "describe x", "describe 1 a", "described 1 locker=x", "describe 1 nobody DLOCK_DESCRIBE_one"]
    {
        for _ in 0..200 {
            redis::cmd("PUBLISH").arg(&channel).arg(words).exec(&mut admin).unwrap();
        }
    }
    holder(&asker, "one", |holder| holder.told.is_some());
    assert!(lock.is_held_by_current_thread());
}

#[test]
fn an_empty_type_is_named() {
    let generator = DLockGenerator::new(redis_dlock::MemoryLockProcessor::new()).unwrap();
    assert!(generator.describe("", "x").unwrap_err().to_string().contains("lock type"));
}
