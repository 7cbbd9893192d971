//! Lock names of any shape: the lock works, and nothing but its own keys and its clients' inboxes is touched.

use super::monitor::{Command, Monitor};
use super::{check, text};
use crate::acl::rules;
use crate::support::RedisServer;
use crate::support::crew::eventually;
use proptest::prelude::*;
use redis_dlock::{DLockConfig, DLockGenerator};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

const FENCE: &str = "DLOCK:1:fence";

/// What each client says of itself, whatever it locks.
const RECORDS: &[u8] = b"DLOCK:1:client:{";

/// A name, and another one that begins or ends as it does, or has it inside.
fn two_names() -> impl Strategy<Value = ((String, String), (String, String))> {
    let not_empty = |text: String| if text.is_empty() { "T".to_owned() } else { text };
    let name = || (text().prop_map(not_empty), text());
    (name(), name(), 0..7).prop_map(|((kind, target), other, how)| {
        let imitation = match how {
            0 => (kind.clone(), format!("{target} {kind}")),
            1 => (kind.clone(), format!("x DLOCK_{kind}_{target}")),
            2 => (kind.clone(), format!("granted 1 0 h-1-ff-2 DLOCK_{kind}_{target}")),
            3 => (format!("{kind} DLOCK_{kind}"), target.clone()),
            4 => (kind.clone(), format!("DLOCK:1:{{0}}:queue:DLOCK_{kind}_{target}")),
            5 => (format!("{{{kind}}}"), target.clone()),
            _ => other,
        };
        ((kind, target), imitation)
    })
}

fn config((kind, target): &(String, String)) -> DLockConfig {
    DLockConfig::new(kind, target).with_lease(Duration::from_secs(60)).with_reason(target.clone())
}

/// The manual's list of commands, and what a connection begins with.
fn documented() -> BTreeSet<String> {
    let of_rules = |rule: String| Some(rule.strip_prefix('+')?.split('|').next()?.to_owned());
    rules().into_iter().filter_map(of_rules).chain(["hello".to_owned(), "ping".to_owned()]).collect()
}

/// What a command touches: keys, and for PUBLISH the message's key, after its channel.
fn touched(command: &Command) -> Vec<Vec<u8>> {
    let args = &command.args;
    match command.name.as_str() {
        "evalsha" | "eval" => {
            let count: usize = String::from_utf8(args[1].clone()).unwrap().parse().unwrap();
            args[2..2 + count].to_vec()
        }
        "hello" | "info" | "ping" | "time" | "subscribe" | "pubsub" | "publish" => Vec::new(),
        _ => vec![args[0].clone()],
    }
}

fn keys(admin: &mut redis::Connection) -> BTreeSet<Vec<u8>> {
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(admin).unwrap();
    keys.into_iter().filter(|key| !key.starts_with(RECORDS)).collect()
}

#[test]
fn a_lock_of_any_name_is_handed_over_and_touches_nothing_else() {
    let server = RedisServer::start();
    let monitor = RefCell::new(Monitor::start(&server));
    let generators = [(); 3].map(|()| DLockGenerator::connect(&server.url()).unwrap());
    let [holder, waiter, bystander] = &generators;
    let commands = documented();
    check(300, &two_names(), |(name, imitation)| {
        let mut monitor = monitor.borrow_mut();
        let [name, imitation] =
            [name, imitation].map(|(kind, target)| (monitor.readable(&kind), monitor.readable(&target)));
        let [held, waited] = [holder, waiter].map(|client| client.generate_with(config(&name)).unwrap());
        let key = held.key().as_bytes().to_vec();
        // Two names can be one lock: that is what a key means.
        let other =
            Some(bystander.generate_with(config(&imitation)).unwrap()).filter(|other| other.key() != held.key());
        let beside = other.as_ref().map(|other| other.lock().unwrap());
        let others: BTreeSet<Vec<u8>> = other.iter().map(|other| other.key().as_bytes().to_vec()).collect();
        monitor.take();

        let guard = held.lock().unwrap();
        let first = guard.fencing_token();
        let second = thread::scope(|scope| {
            let waiting = scope.spawn(|| waited.lock().map(|guard| guard.fencing_token()));
            eventually("the waiter stands in the queue", || keys(monitor.admin()).len() == 3 + others.len());
            // Exactly the documented keys.
            let queue = keys(monitor.admin()).into_iter().find(|found| {
                let text = String::from_utf8(found.clone()).unwrap();
                let rest = text.strip_prefix("DLOCK:1:{").and_then(|rest| rest.split_once("}:queue:"));
                rest.is_some_and(|(tag, named)| {
                    tag.bytes().all(|b| b.is_ascii_alphanumeric()) && named.as_bytes() == key
                })
            });
            let queue = queue.expect("a queue of this very key");
            let mut expected = others.clone();
            expected.extend([key.clone(), queue.clone(), FENCE.into()]);
            assert_eq!(keys(monitor.admin()), expected);
            guard.unlock().unwrap();
            let second = waiting.join().unwrap().unwrap();
            for command in monitor.take() {
                assert!(commands.contains(&command.name), "{command:?}");
                for touched in touched(&command) {
                    // The script that looks whether a subscription is seen declares its channel as a key.
                    let is_channel = command.name == "eval" && touched.starts_with(b"DLOCK:1:inbox:");
                    let is_record = touched.starts_with(RECORDS);
                    let is_own = touched == key || touched == queue || touched == FENCE.as_bytes() || is_record;
                    assert!(is_own || is_channel, "{command:?}");
                }
                if command.name == "publish" && command.args[1] != b"hello" && !command.args[1].starts_with(b"here ") {
                    let channel = String::from_utf8(command.args[0].clone()).unwrap();
                    let client = channel.strip_prefix("DLOCK:1:inbox:").expect("an inbox");
                    let message = &command.args[1];
                    let fields = if message.starts_with(b"granted") { 5 } else { 3 };
                    let fields: Vec<_> = message.splitn(fields, |b| *b == b' ').collect();
                    assert_eq!(fields[fields.len() - 1], key, "{command:?}");
                    assert!(fields[fields.len() - 2].starts_with(format!("{client}-").as_bytes()), "{command:?}");
                }
            }
            second
        });
        assert!(first < second);
        let mut left = others;
        left.insert(FENCE.into());
        assert_eq!(keys(monitor.admin()), left);
        if let Some(beside) = beside {
            beside.unlock().expect("the bystander's lock is untouched");
        }
    });
}
