//! The client record: there while its client lives, gone when it is closed, and never in a lock's way.

use super::{config, connect, holder, records};
use crate::acl::rules;
use crate::support::RedisServer;
use crate::support::crew::eventually;
use redis_dlock::{DLockGenerator, RedisLockProcessor};

#[test]
fn a_record_goes_with_its_client() {
    let server = RedisServer::start();
    let generator = connect(&server);
    assert_eq!(records(&server), [""; 0], "a client that locks nothing says nothing");
    let lock = generator.generate_with(config("x", "r")).unwrap();
    drop(lock.lock().unwrap());
    eventually("the record is written", || records(&server).len() == 1);
    let locker = {
        let _guard = lock.lock().unwrap();
        lock.holder().unwrap().unwrap().locker
    };
    let client = locker.rsplit_once('-').unwrap().0;
    assert_eq!(records(&server), [format!("DLOCK:1:client:{{{client}}}")]);
    generator.close();
    assert_eq!(records(&server), [""; 0]);
}

#[test]
fn a_client_that_is_told_to_says_nothing() {
    let server = RedisServer::start();
    let silent = DLockGenerator::builder().client_record(false);
    let silent = silent.build(RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
    let lock = silent.generate_with(config("x", "r")).unwrap();
    let _guard = lock.lock().unwrap();
    // Its lease thread would have written one by the time that a later client has.
    let talks = connect(&server);
    drop(talks.generate_with(config("y", "r")).unwrap().lock().unwrap());
    eventually("the other's record is written", || !records(&server).is_empty());
    assert_eq!(records(&server).len(), 1);
    let found = talks.describe("DESCRIBE", "x").unwrap().holder.unwrap();
    assert_eq!(found.client, None);
}

#[test]
fn the_manuals_user_may_describe_and_one_without_the_right_to_records_may_lock() {
    let server = RedisServer::start();
    let mut admin = server.connection();
    let url = server.url().replace("//", "//dlock:PASSWORD@");
    let set_user = |admin: &mut redis::Connection, words: &[String]| {
        redis::cmd(&words[0]).arg(&words[1..]).exec(admin).unwrap();
    };
    set_user(&mut admin, &rules());
    let (one, asker) = (DLockGenerator::connect(&url).unwrap(), DLockGenerator::connect(&url).unwrap());
    let lock = one.generate_with(config("x", "why")).unwrap();
    let guard = lock.lock().unwrap();
    holder(&asker, "x", |holder| holder.client.is_some() && holder.told.is_some());
    assert!(matches!(asker.list("*").next(), Some(Err(redis_dlock::Error::Denied { .. }))), "+scan is not in the line");
    set_user(&mut admin, &["ACL", "SETUSER", "dlock", "+scan"].map(str::to_owned));
    assert_eq!(asker.list("*").count(), 1);
    guard.unlock().unwrap();
    one.close();

    let keys = rules().into_iter().filter(|word| word != "~DLOCK:1:*");
    let fewer: Vec<_> = keys.chain(["~DLOCK:1:fence".to_owned(), "~DLOCK:1:{*".to_owned()]).collect();
    set_user(&mut admin, &fewer);
    let one = DLockGenerator::connect(&url).unwrap();
    let lock = one.generate_with(config("x", "why")).unwrap();
    let guard = lock.lock().unwrap();
    let found = holder(&asker, "x", |holder| holder.told.is_some());
    assert_eq!(found.client, None);
    guard.unlock().unwrap();
}
