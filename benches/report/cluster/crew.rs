//! The servers of a setup, and client processes at work on them.

use super::THREADS;
use crate::round_trip::{dropped, unlocked};
use crate::support::crew::{self, Work};
use crate::support::kit::cluster::{Cluster, Plan as Nodes};
use crate::support::pin::{self, Place};
use crate::support::proxy::Proxy;
use crate::support::server::{Admin, Server};
use crate::support::worker::{Worker, argument, cpu, listen, now, say};
use redis_dlock::{DLockConfig, DLockGenerator, RedisLockProcessor};
use rustix::time::ClockId;
use std::thread;
use std::time::Duration;

/// The setups, by how many masters they have; one server is none.
const SETUPS: [(usize, &str); 4] = [(0, "one server"), (1, "1 master"), (2, "2 masters"), (3, "3 masters")];

/// One server, or a cluster.
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) url: String,
    pub(super) ports: Vec<u16>,
    _server: Option<Server>,
    cluster: Option<Cluster>,
}

impl Setup {
    /// Starts all of them; nodes take seconds to agree, and wait for one another at the same time.
    pub(super) fn all(place: Place) -> Vec<Self> {
        let start = |(masters, name): (usize, &'static str)| match masters {
            0 => {
                let server = Server::start(place);
                Self { name, url: server.tcp().url(), ports: vec![server.port()], _server: Some(server), cluster: None }
            }
            _ => {
                let cluster = start_cluster(place, masters);
                let ports = cluster.nodes.iter().map(|node| node.port()).collect();
                Self { name, url: cluster.url(0), ports, _server: None, cluster: Some(cluster) }
            }
        };
        thread::scope(|scope| {
            let starting = SETUPS.map(|setup| scope.spawn(move || start(setup)));
            starting.into_iter().map(|setup| setup.join().unwrap()).collect()
        })
    }

    pub(super) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }
}

/// With a node time-out that no benchmark makes a node exceed.
fn start_cluster(place: Place, masters: usize) -> Cluster {
    let nodes = Nodes { masters, replicas: 0, node_timeout_ms: 15_000, ..Nodes::default() };
    pin::at(place, || Cluster::start_as(&nodes))
}

/// Client processes of a setup, and what its servers count.
pub(super) struct Crew {
    workers: Vec<Worker>,
    admins: Vec<Admin>,
}

/// What came of a window.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    pub(super) per_second: f64,
    /// Microseconds of processor time for each pair.
    pub(super) clients: f64,
    pub(super) servers: f64,
}

/// What each thread does.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Unlock,
    Drop,
}

impl Crew {
    /// Starts client processes; with `shared`, all of them want the same keys.
    pub(super) fn start(setup: &Setup, place: Place, processes: usize, shared: bool) -> Self {
        Self::start_behind(setup, place, processes, shared, &[])
    }

    /// Starts client processes that reach the servers by networks, one for each server in the order of its port. None reach them directly.
    pub(super) fn start_behind(setup: &Setup, place: Place, processes: usize, shared: bool, ways: &[Proxy]) -> Self {
        let way = |(port, way): (&u16, &Proxy)| format!("{port}:{}", way.port());
        let ways: Vec<_> = setup.ports.iter().zip(ways).map(way).collect();
        let ways = format!("-{}", ways.join(","));
        let start = |me: usize| {
            let [me, shared] = [me, usize::from(shared)].map(|number| number.to_string());
            Worker::start(place, "pairs", &[&setup.url, &me, &shared, &ways])
        };
        let admins = setup.ports.iter().map(|port| Admin::of(*port)).collect();
        Self { workers: (0..processes).map(start).collect(), admins }
    }

    /// Lets the first `processes` of them work with so many threads each.
    pub(super) fn work(&mut self, processes: usize, threads: usize, way: Way, window: Duration) -> Figures {
        let begin = now() + 3_000_000;
        let before = self.servers();
        let workers = &mut self.workers[..processes];
        let window = u64::try_from(window.as_nanos()).unwrap();
        workers.iter_mut().for_each(|worker| worker.tell(&[begin, window, threads as u64, way as u64]));
        let answers: Vec<_> = workers.iter_mut().map(Worker::hear).collect();
        let servers = self.servers() - before;
        let pairs = answers.iter().map(|answer| answer[0]).sum::<u64>() as f64;
        let per_second = answers.iter().map(|answer| answer[0] as f64 * 1e9 / answer[1] as f64).sum();
        let clients = answers.iter().map(|answer| answer[2]).sum::<u64>() as f64 / 1000.0;
        Figures { per_second, clients: clients / pairs, servers: servers.as_secs_f64() * 1e6 / pairs }
    }

    fn servers(&mut self) -> Duration {
        self.admins.iter_mut().map(Admin::cpu).sum()
    }
}

/// A worker that locks and unlocks on many threads, as long as it is told to.
pub(crate) fn make_pairs() {
    let generator = DLockGenerator::new(client(&argument::<String>(0), &argument::<String>(3))).unwrap();
    let (me, shared): (usize, usize) = (argument(1), argument(2));
    let most = THREADS[THREADS.len() - 1];
    let lock = |n: usize| {
        let target = if shared == 1 { format!("shared-{n}") } else { format!("{me}-{n}") };
        let config = DLockConfig::new("BENCH", target);
        // Where others want the key, it goes to them each time.
        generator.generate_with(if shared == 1 { config.with_local_passes(0) } else { config }).unwrap()
    };
    let locks: Vec<_> = (0..most).map(lock).collect();
    loop {
        let [begin, window, threads, way] = listen()[..] else { panic!("four numbers") };
        let each = |lock| -> Work<'_> {
            if way == Way::Unlock as u64 { Box::new(move || unlocked(lock)) } else { Box::new(move || dropped(lock)) }
        };
        let mut works: Vec<_> = locks.iter().take(usize::try_from(threads).unwrap()).map(each).collect();
        thread::sleep(Duration::from_nanos(begin.saturating_sub(now())));
        let before = (now(), cpu(ClockId::ProcessCPUTime));
        let done = crew::run(&mut works, Duration::from_nanos(window), Duration::ZERO);
        let spent = [now() - before.0, u64::try_from((cpu(ClockId::ProcessCPUTime) - before.1).as_nanos()).unwrap()];
        say(&format!("{} {} {}", done.times.len(), spent[0], spent[1]));
    }
}

/// A client of a store that is reached by these networks.
fn client(url: &str, ways: &str) -> RedisLockProcessor {
    let way = |way: &str| -> Option<(u16, u16)> {
        let (port, way) = way.split_once(':')?;
        Some((port.parse().ok()?, way.parse().ok()?))
    };
    let ways: Vec<_> = ways.trim_start_matches('-').split(',').filter_map(way).collect();
    // The first node is asked at the address in the URL, which the map does not concern.
    let url =
        ways.iter().fold(url.to_owned(), |url, (port, way)| url.replace(&format!(":{port}/"), &format!(":{way}/")));
    let map = move |host: &str, port: u16| {
        let way = ways.iter().find(|(known, _)| *known == port);
        (host.to_owned(), way.map_or(port, |(_, way)| *way))
    };
    RedisLockProcessor::builder(&url).unwrap().address_map(map).connect().unwrap()
}
