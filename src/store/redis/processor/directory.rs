//! What the Redis store tells people.

use super::RedisLockProcessor;
use crate::error::Error;
use crate::port::{Directory, Inspection, KeyFilter, Limit, ListPage, LockProcessor, Parties, Request};
use crate::store::redis::net::classify::classify;
use crate::store::redis::node::CallOptions;
use crate::store::redis::script::keys::{key_of_queue, record_key};
use crate::store::redis::script::reply;
use crate::store::redis::script::scripts::{Call, millis};
use crate::store::redis::topology::Topology;
use ::redis::Value;
use std::collections::HashSet;
use std::time::{Duration, Instant};

impl Directory for RedisLockProcessor {
    fn parties(&self, key: &str, limit: Duration) -> Result<Parties, Error> {
        let replied = self.topology.call_one(Call::lockers(key), CallOptions::within(limit))?;
        reply::parties(key, &replied.value).map_err(|e| self.topology.shown(e))
    }

    fn list(&self, keys: &KeyFilter, from: Option<&str>, limit: Duration) -> Result<ListPage, Error> {
        let start = Instant::now();
        let (names, next, mut missing) = scan(self, from, limit)?;
        let left = || limit.saturating_sub(start.elapsed());
        let mut seen = HashSet::new();
        // A lock has up to two names here: its key's, and its queue's.
        let mut is_wanted = |key| keys.matches(key) && seen.insert(key);
        let found: Vec<_> = names.iter().filter_map(|name| lock_of(name)).filter(|key| is_wanted(*key)).collect();
        let inspections: Vec<_> = found.iter().map(|key| Request::Inspect { key }).collect();
        let results = self.run(&inspections, Limit::Call(left()));
        let mut locks = Vec::with_capacity(found.len());
        for (key, result) in found.into_iter().zip(results) {
            match result.and_then(Inspection::try_from) {
                // It counts what the lock is now, and not by which name it was found: a lock that was held may only be waited for now, and the page
                // with its other name may have come before.
                Ok(Inspection { holder: None, waiting: 0, .. }) => {}
                Ok(found) => locks.push((key.to_owned(), found)),
                // The key is another program's, with a name like that of a lock.
                Err(Error::Conflict { .. }) => {}
                // One of several masters does not answer. The locks of the others are listed.
                Err(error) if error.is_transient() && matches!(self.topology, Topology::Cluster(_)) => {
                    missing.get_or_insert_with(|| unlisted(&error));
                }
                Err(error) => return Err(error),
            }
        }
        let page = ListPage::new(locks, next);
        Ok(if let Some(missing) = missing { page.with_missing(missing) } else { page })
    }

    fn put_record(&self, client: &str, text: &str, life: Duration, limit: Duration) -> Result<(), Error> {
        record(self, client, &[text, &millis(life).to_string()], limit)
    }

    fn remove_record(&self, client: &str, limit: Duration) -> Result<(), Error> {
        record(self, client, &[""], limit)
    }

    fn records(&self, clients: &[&str], limit: Duration) -> Result<Vec<Option<String>>, Error> {
        if clients.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = clients.iter().map(|client| record_key(client)).collect();
        let read = |reply: crate::store::redis::transport::Reply| match reply?.value {
            Value::BulkString(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            // The value is of another type, for example: no client wrote it.
            _ => Ok(None),
        };
        let calls = keys.iter().map(|key| Call::record(key, &[]));
        self.topology.call(calls, CallOptions::within(limit)).into_iter().map(read).collect()
    }

    fn say(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<bool, Error> {
        Ok(matches!(self.publish(client, key, text, limit)?, Value::Int(1..)))
    }
}

/// Reads or writes the record of a client.
fn record(store: &RedisLockProcessor, client: &str, args: &[&str], limit: Duration) -> Result<(), Error> {
    let key = record_key(client);
    match store.topology.call_one(Call::record(&key, args), CallOptions::within(limit))?.value {
        Value::ServerError(e) => Err(store.topology.address().hide(classify(&e, &key))),
        _ => Ok(()),
    }
}

/// Returns some names of keys, where to go on, and which master does not answer. In a Cluster, the text for where to go on is the cursor and the
/// address of the node.
fn scan(store: &RedisLockProcessor, from: Option<&str>, limit: Duration) -> Result<Scanned, Error> {
    let (cursor, address) = from.unwrap_or("0").split_once(' ').unwrap_or((from.unwrap_or("0"), ""));
    if cursor.is_empty() || !cursor.bytes().all(|b| b.is_ascii_digit()) {
        let hint = "give what the page before has told, or None to begin";
        return Err(Error::invalid_config("page of a list", format!("{from:?}"), hint));
    }
    let cluster = match &store.topology {
        Topology::One(one) => {
            let reply = one.node.say(&reply::scan(cursor), limit)?;
            let (next, names) = reply::scanned(&reply).map_err(|e| store.topology.address().hide(e))?;
            return Ok((names, (next != "0").then_some(next), None));
        }
        Topology::Cluster(cluster) => cluster,
    };
    let begun = Instant::now();
    let (Some((node, own)), behind) = cluster.master_from(address, limit)? else {
        return Ok((Vec::new(), None, None));
    };
    let behind = behind.map(|behind| format!("0 {behind}"));
    // If the node is gone, the scan of the next node begins at its start.
    let cursor = if own == address { cursor } else { "0" };
    let reply = match cluster.ask_master(&node, &reply::scan(cursor), limit.saturating_sub(begun.elapsed())) {
        Ok(reply) => reply,
        // The other masters can still list their locks.
        Err(error) if error.is_transient() => {
            return Ok((Vec::new(), behind, Some(format!("{own}: {}", unlisted(&error)))));
        }
        Err(error) => return Err(error),
    };
    let (next, names) = reply::scanned(&reply).map_err(|e| store.topology.address().hide(e))?;
    let next = if next == "0" { behind } else { Some(format!("{next} {own}")) };
    Ok((names, next, None))
}

/// Names of keys, where to go on, and which master does not answer.
type Scanned = (Vec<String>, Option<String>, Option<String>);

/// The words about a master that does not answer.
fn unlisted(error: &Error) -> String {
    let words = match error {
        Error::Backend { message, .. } => message.clone(),
        error => error.to_string(),
    };
    format!("{words}; the locks of this master are not listed")
}

/// The lock's key that a name in the server belongs to.
fn lock_of(name: &str) -> Option<&str> {
    if name.starts_with("DLOCK_") { Some(name) } else { key_of_queue(name) }
}
