//! Real servers of stores that vote, and what an administrator does to them.

mod consul;
mod counter;
mod etcd;
mod server;
#[cfg(feature = "conformance")]
mod store;

pub(crate) use consul::Consul;
pub(crate) use counter::Counter;
pub(crate) use etcd::Etcd;
pub(crate) use server::Server;
#[cfg(feature = "conformance")]
pub(crate) use store::Fresh;

use redis_dlock::processor::LockProcessor;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The servers of one store, on free ports of this machine. They end when this is dropped.
pub(crate) trait Voters: Sized + Send + Sync + 'static {
    /// The shortest lease of these tests.
    const LEASE: Duration;
    /// A lease that outlives the loss of a leader.
    const LONG_LEASE: Duration;
    const NAME: &'static str;
    /// The program, and the variable that names another one.
    const PROGRAM: [&'static str; 2];

    /// Starts so many servers, and waits until they answer.
    fn start(count: usize) -> Self;

    fn servers(&mut self) -> &mut [Server];

    /// The address of the first server: `host:port`.
    fn address(&self) -> &str;

    /// A URL with all servers, for a store with this prefix.
    fn url(&self, prefix: &str) -> String;

    /// A processor for such a URL.
    fn processor(url: &str) -> Arc<dyn LockProcessor>;

    /// The server that the others follow now.
    fn leader(&self) -> usize;

    /// Deletes an entry. Returns whether there was one.
    fn delete(&self, path: &str) -> bool;

    /// Writes an entry that is held for this long, or for ever.
    fn hold(&self, path: &str, value: &str, lease: Option<Duration>);

    /// The names of all entries with a prefix.
    fn list(&self, prefix: &str) -> Vec<String>;

    /// The index of the last entry in the log on which the servers agree. Not only clients write there.
    fn log_index(&self) -> u64;

    /// How long an entry may live whose lease of this length was not renewed.
    fn longest(lease: Duration) -> Duration;
}

/// The program that a store's servers run.
pub(crate) fn program<V: Voters>() -> String {
    let [program, variable] = V::PROGRAM;
    std::env::var(variable).unwrap_or_else(|_| program.into())
}

/// The URL of a store for those who are to come by a counter. It has one server.
pub(crate) fn counted_url<V: Voters>(servers: &V, counter: &Counter, prefix: &str) -> String {
    servers.url(prefix).replace(servers.address(), counter.address())
}

/// A directory in memory, where there is one: every write waits for the disk.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// So many ports that are free.
fn ports(count: usize) -> Vec<u16> {
    // All are taken before one is given back.
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
