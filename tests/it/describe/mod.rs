//! Who holds a lock, why, since when, and who waits; which locks there are; what clients say of themselves.

mod embedded;
mod hostile;
mod listing;
mod on_cluster;
mod processes;
mod records;

use crate::support::RedisServer;
use crate::support::crew::eventually;
use redis_dlock::{DLockConfig, DLockGenerator, Description, Party};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(600);

fn config(target: &str, reason: &str) -> DLockConfig {
    DLockConfig::new("DESCRIBE", target).with_lease(LEASE).with_reason(reason)
}

fn connect(server: &RedisServer) -> DLockGenerator {
    DLockGenerator::connect(&server.url()).unwrap()
}

/// Describes a lock until its holder is described so.
fn holder(asker: &DLockGenerator, target: &str, is_so: impl Fn(&Party) -> bool) -> Party {
    let mut last = None;
    eventually("the holder is described so", || {
        last = asker.describe("DESCRIBE", target).unwrap().holder;
        last.as_ref().is_some_and(&is_so)
    });
    last.unwrap()
}

/// Describes a lock until it is described so.
fn description(asker: &DLockGenerator, target: &str, is_so: impl Fn(&Description) -> bool) -> Description {
    let mut last = None;
    eventually("the lock is described so", || {
        let found = asker.describe("DESCRIBE", target).unwrap();
        let done = is_so(&found);
        last = Some(found);
        done
    });
    last.unwrap()
}

/// The names of the client records in a server.
fn records(server: &RedisServer) -> Vec<String> {
    server.run(&["KEYS", "DLOCK:1:client:*"])
}
