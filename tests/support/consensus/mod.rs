//! Real servers of consensus stores, and what an administrator does to them. `tests/stores` and `tests/faults` include this module by its path.

pub(crate) mod configured;
mod consul;
mod counter;
mod etcd;
mod server;

pub(crate) use consul::Consul;
pub(crate) use counter::Counter;
pub(crate) use etcd::Etcd;
pub(crate) use server::Server;

use crate::support::ports::free_port;
use redis_dlock::processor::LockProcessor;
use rustix::fs::statvfs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Servers that run, on free ports of this machine. They end when this is dropped. An administrator talks to whichever of them answers.
pub(crate) trait Quorum: Send + Sync + 'static {
    fn servers(&mut self) -> &mut [Server];

    /// The ports on which they serve clients.
    fn ports(&self) -> Vec<u16>;

    /// The address of the first server: `host:port`.
    fn address(&self) -> &str;

    /// A URL of servers on these ports, for a store with this prefix.
    fn url_by(&self, ports: &[u16], prefix: &str) -> String;

    /// A URL with all servers.
    fn url(&self, prefix: &str) -> String {
        self.url_by(&self.ports(), prefix)
    }

    /// The server that the others follow now.
    fn leader(&self) -> usize;

    /// Deletes an entry. Returns whether there was one.
    fn delete(&self, path: &str) -> bool;

    /// Writes an entry that is held for this long, or for ever.
    fn hold(&self, path: &str, value: &str, lease: Option<Duration>);

    /// Writes an entry that is no lock.
    fn put(&self, path: &str, value: &str);

    /// The names of all entries with a prefix.
    fn list(&self, prefix: &str) -> Vec<String>;

    /// The index of the last entry in the log on which the servers agree. Not only clients write there.
    fn log_index(&self) -> u64;

    /// How many sessions there are.
    fn sessions(&self) -> usize;

    /// The length of life of each session.
    fn session_lives(&self) -> Vec<Duration>;

    /// Ends a session, and what it holds.
    fn end_session(&self, session: &str);

    /// What looks at an entry, never at a stale copy. It returns `None` if no server answers.
    fn look_at(&self, path: &str) -> Box<dyn Fn() -> Option<Look> + Send>;
}

/// The servers of one kind of store.
pub(crate) trait ConsensusStore: Quorum + Sized {
    /// The shortest lease of these tests.
    const LEASE: Duration;
    /// A lease that outlives the loss of a leader.
    const LONG_LEASE: Duration;
    const NAME: &'static str;
    /// The program, and the variable that names another one.
    const PROGRAM: [&'static str; 2];

    /// Starts so many servers, and waits until they answer.
    fn start(count: usize) -> Self {
        Self::start_between(count, None)
    }

    /// The same with a network between the servers: whoever makes it is given them before they run. It leads from
    /// [`DOORS`] to the same ports of [`LOCAL`].
    fn start_between(count: usize, network: Option<Network<'_>>) -> Self;

    /// A processor for such a URL.
    fn processor(url: &str) -> Arc<dyn LockProcessor>;

    /// How long an entry may live whose lease of this length was not renewed.
    fn longest(lease: Duration) -> Duration;

    /// Whether a leader that is suspended may end leases, when it resumes, that another one has renewed meanwhile.
    fn resumed_leader_ends_leases() -> bool {
        false
    }
}

/// The program that a store's servers run.
pub(crate) fn program<V: ConsensusStore>() -> String {
    let [program, variable] = V::PROGRAM;
    std::env::var(variable).unwrap_or_else(|_| program.into())
}

/// The URL of a store for those who are to come by a counter. It has one server.
pub(crate) fn counted_url<V: ConsensusStore>(servers: &V, counter: &Counter, prefix: &str) -> String {
    servers.url(prefix).replace(servers.address(), counter.address())
}

/// A server, a counter before it, and the URL of a store by the counter.
pub(crate) fn counted<V: ConsensusStore>(prefix: &str) -> (V, Counter, String) {
    let servers = V::start(1);
    let counter = Counter::to(servers.address());
    let url = counted_url(&servers, &counter, prefix);
    (servers, counter, url)
}

/// Makes a network between servers that do not run yet.
pub(crate) type Network<'n> = &'n mut dyn FnMut(&[Server]);

/// An entry at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Absent,
    Held {
        /// The index of its last change.
        index: u64,
        value: String,
        session: String,
    },
}

/// Where the servers listen.
pub(crate) const LOCAL: &str = "127.0.0.1";

/// Where the servers find one another if there is a network between them.
pub(crate) const DOORS: &str = "127.0.0.2";

/// What asks the servers at these addresses, one after another, beginning with the one that answered last.
fn asking<T>(
    addresses: Vec<String>,
    ask: impl Fn(&str) -> Option<T> + Send + 'static,
) -> impl Fn() -> Option<T> + Send {
    let last = std::cell::Cell::new(0);
    move || {
        (0..addresses.len()).find_map(|n| {
            let place = (last.get() + n) % addresses.len();
            let answer = ask(&addresses[place])?;
            last.set(place);
            Some(answer)
        })
    }
}

/// A directory in memory, where there is room: every write waits for the disk.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let room = statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    if room < ROOM { tempfile::tempdir() } else { tempfile::tempdir_in(memory) }.unwrap()
}

/// A server of etcd takes 64 MB at its start, and a part of the tests starts a dozen at once.
const ROOM: u64 = 1 << 30;

/// So many ports that are free, and that this process has not given out before.
fn ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| free_port()).collect()
}
