//! Who holds a lock, why, since when, and who waits; which locks there are; what clients say of themselves.

mod asking;
mod clients;
mod embedded;
mod hostile;
mod listing;
mod on_cluster;
mod processes;
mod records;

use crate::support::RedisServer;
use asking::{LEASE, config, description, holder};
use redis_dlock::DLockGenerator;

fn connect(server: &RedisServer) -> DLockGenerator {
    DLockGenerator::connect(&server.url()).unwrap()
}

/// The names of the client records in a server.
fn records(server: &RedisServer) -> Vec<String> {
    server.run(&["KEYS", "DLOCK:1:client:*"])
}
