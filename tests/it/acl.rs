//! The user that the manual (page "operations", "ACL rules") tells an operator to make can do all that a lock needs, and with
//! any one of its rights missing something fails: the line is neither too short nor too long.

use crate::support::RedisServer;
use crate::support::{Asking, claim};
use redis_dlock::processor::{Gap, Operations};
use redis_dlock::{AcquireOutcome, DLockGenerator, Error, Message, RedisLockProcessor};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(2);
const FENCE: &str = "DLOCK:1:fence";

/// The words of the manual's line.
pub(crate) fn rules() -> Vec<String> {
    let page = include_str!("../../src/manual/operations.md");
    let start = page.find("ACL SETUSER dlock").expect("the page has the line");
    let line = page[start..].split("\n```").next().expect("the line's end");
    line.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect()
}

fn set_user(admin: &mut redis::Connection, words: &[String]) {
    let (name, args) = words.split_first().expect("words");
    redis::cmd(name).arg(args).exec(admin).unwrap_or_else(|e| panic!("{words:?}: {e}"));
}

/// Everything that locks do to the store: all scripts, and each of their ways through.
fn exercise(server: &RedisServer, admin: &mut redis::Connection) -> Result<(), Error> {
    redis::cmd("FLUSHALL").exec(admin).expect("flushed");
    redis::cmd("SCRIPT").arg("FLUSH").exec(admin).expect("flushed");
    redis::cmd("ACL").arg("LOG").arg("RESET").exec(admin).expect("reset");
    let store = RedisLockProcessor::connect(&server.url().replace("//", "//dlock:PASSWORD@"))?;
    let key = "DLOCK_ACL_test";
    let acquire = |locker: &str, wait| store.ask(&claim(key, locker, LEASE), wait, LIMIT);
    let release = |locker: &str, next: Option<&str>| {
        let next = next.map(|next| claim(key, next, LEASE));
        store.end_with(&claim(key, locker, LEASE), next.as_ref(), LIMIT)
    };
    let mut inbox = store.open("b", LIMIT)?;

    // A free key goes to the waiter that asks.
    acquire("a-0", false)?;
    acquire("c-0", true)?;
    redis::cmd("DEL").arg(key).exec(admin).expect("deleted");
    store.poll(&claim(key, "c-0", LEASE), LIMIT)?;
    release("c-0", None)?;

    assert!(matches!(acquire("a-1", false)?, AcquireOutcome::Acquired(_)));
    acquire("dead-1", true)?;
    acquire("b-1", true)?;
    acquire("a-9", true)?;
    store.poll(&claim(key, "b-1", LEASE), LIMIT)?;
    store.extend_fresh(&claim(key, "a-1", LEASE), LIMIT)?;
    store.probe(&claim(key, "a-1", LEASE), LIMIT)?;
    store.inspect(key, LIMIT)?;
    release("a-9", None)?;
    release("a-1", None)?;
    // Said by somebody else after whatever the release has said: nobody need guess how long a message takes.
    redis::cmd("PUBLISH").arg("DLOCK:1:inbox:b").arg(format!("contended b-0 {key}")).exec(admin).expect("published");
    match inbox.next(LIMIT)? {
        Some(Message::Granted { locker, .. }) if locker == "b-1" => {}
        other => return Err(Error::denied(format!("heard {other:?} in place of the grant"))),
    }
    release("b-1", Some("b-2"))?;
    release("b-2", None)?;
    // Once more, now that the connection has had its first number.
    acquire("a-3", false)?;
    release("a-3", None)?;
    // A gap for pollers, and what is done in it and after it.
    acquire("a-4", false)?;
    let gap = Gap::new(Duration::from_millis(1), Duration::from_millis(1));
    let ends = claim(key, "a-4", LEASE).with_poller_gap(Some(gap));
    store.end_with(&ends, Some(&claim(key, "a-5", LEASE)), LIMIT)?;
    std::thread::sleep(Duration::from_millis(5));
    store.poll(&claim(key, "a-5", LEASE), LIMIT)?;
    release("a-5", None)?;

    // A right that a script can do without is missed all the same: the server logs each time that it is.
    let log: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(admin).expect("log");
    if !log.is_empty() {
        return Err(Error::denied(format!("{log:?}")));
    }

    // A fence that no clock reaches is refused, and left as it was.
    redis::cmd("SET").arg(FENCE).arg(9_007_199_254_740_991_u64).exec(admin).expect("set");
    match acquire("a-2", false) {
        Err(Error::Conflict { .. }) => Ok(()),
        Err(other) => Err(other),
        Ok(outcome) => panic!("{outcome:?} with a broken fence"),
    }
}

#[test]
fn the_manuals_user_has_all_rights_it_needs_and_no_others() {
    let server = RedisServer::start();
    let mut admin = server.connection();
    let rules = rules();
    set_user(&mut admin, &rules);
    exercise(&server, &mut admin).expect("the manual's user may do everything");

    let rights = |word: &&String| word.starts_with(['+', '~', '&']);
    for right in rules.iter().filter(rights) {
        let fewer: Vec<_> = rules.iter().filter(|word| *word != right).cloned().collect();
        set_user(&mut admin, &fewer);
        // Where the machine stands still, the time for which a dead waiter keeps its place is over, and with it what takes some of the rights.
        let missed = (0..5).find_map(|_| exercise(&server, &mut admin).err());
        assert!(matches!(missed, Some(Error::Denied { .. })), "without {right}: {missed:?}");
    }
}

/// A user with all rights but this one.
fn url_without(server: &RedisServer, right: &str) -> String {
    let fewer: Vec<_> = rules().into_iter().filter(|word| word != right).collect();
    set_user(&mut server.connection(), &fewer);
    server.url().replace("//", "//dlock:PASSWORD@")
}

#[test]
fn a_missing_channel_right_is_told_by_the_first_lock_and_not_by_a_waiter_that_is_forgotten() {
    for right in ["&DLOCK:1:*", "+publish"] {
        let server = RedisServer::start();
        let generator = DLockGenerator::connect(&url_without(&server, right)).unwrap();
        let lock = generator.generate("ACL", "x").unwrap();
        for _ in 0..2 {
            match lock.lock() {
                Err(Error::Denied { message, .. }) => assert!(message.contains("NOPERM"), "{message}"),
                other => panic!("without {right}: {other:?}"),
            }
        }
        assert!(matches!(lock.try_lock(), Err(Error::Denied { .. })));
        assert!(!server.run::<bool>(&["EXISTS", lock.key()]));
        // Whoever gets the right may go on.
        set_user(&mut server.connection(), &rules());
        lock.lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn without_hand_over_no_channel_right_is_needed() {
    let server = RedisServer::start();
    let store = RedisLockProcessor::connect(&url_without(&server, "&DLOCK:1:*")).unwrap();
    let generator = DLockGenerator::builder().listener(false).build(store).unwrap();
    generator.generate("ACL", "x").unwrap().lock().unwrap().unlock().unwrap();
}
