//! Consensus stores, beside what others do on the same servers: `consul lock` and `etcdctl lock`.

mod costs;
mod crowd;
mod go;
mod herd;
mod idle;
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
#[path = "../../../tests/support/consensus/mod.rs"]
mod kit;
mod turns;
mod ways;

use crate::Plan;
use crate::support::crew::micros_each;
use crate::support::report::{Limit, Section, number};
use crate::support::stats::{Variant, interleave, median, ratio};
use kit::{ConsensusStore, Consul, Etcd, program};
use redis_dlock::{DLockConfig, DLockGenerator};
use std::process::Command;
use std::time::Duration;
use ways::{ApiLock, EtcdctlLock, Way};

pub(crate) use turns::take_turns;

/// Far longer than a round: nobody renews, and nobody asks.
const LEASE: Duration = Duration::from_secs(3600);

/// A store, and who else locks there.
trait Peer: ConsensusStore {
    const PEER: &'static str;
    /// The package for Go.
    const GO: &'static str;
    /// How long our pair may take, relative to the peer's.
    const PAIR: Option<f64>;

    fn peer(address: &str, name: &str) -> Box<dyn Way>;
}

impl Peer for Consul {
    const PEER: &'static str = "`consul lock`";
    const GO: &'static str = "`api.Lock`";
    const PAIR: Option<f64> = Some(0.7);

    fn peer(address: &str, name: &str) -> Box<dyn Way> {
        Box::new(ApiLock::new(address, name))
    }
}

impl Peer for Etcd {
    const PEER: &'static str = "`etcdctl lock`";
    const GO: &'static str = "`concurrency.Mutex`";
    const PAIR: Option<f64> = None;

    fn peer(address: &str, name: &str) -> Box<dyn Way> {
        Box::new(EtcdctlLock::new(address, name))
    }
}

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Consensus stores");
    section.paragraph(
        "Against what `consul lock` (Go's `api.Lock`: session, acquire, release, end of the session) and `etcdctl lock` (lease, entry, deletion, end of the lease) \
         send, by the same HTTP client on connections that are kept, in turns. All servers run on this machine, not pinned, and keep their data in memory: a disk adds its time to \
         each write of either. Relative: median of the rounds' ratios.",
    );
    of::<Etcd>(plan, &mut section);
    of::<Consul>(plan, &mut section);
    section
}

fn of<V: Peer>(plan: &Plan, section: &mut Section) {
    let program = program::<V>();
    // Consul has `version`, and either has that or `--version`.
    if Command::new(&program).arg("--version").output().is_err() {
        section.paragraph(format!("**{}** is left out: there is no program {program:?}.", V::NAME));
        return;
    }
    section.paragraph(format!("**{}**", V::NAME));
    let counts: &[usize] = plan.size(&[1, 3], &[1]);
    let mut rows = Vec::new();
    for count in counts {
        let servers = V::start(*count);
        let pair = one_thread(plan, &servers);
        let turn = turns::measure(plan, &servers);
        let name = if *count == 1 { "1 server".to_owned() } else { format!("{count} servers") };
        if let Some(most) = V::PAIR {
            let what = format!("{}, {name}: lock + unlock against {}", V::NAME, V::PEER);
            section.target(what, Limit::AtMost(most), ratio(&pair[0], &pair[1]));
        }
        let figures = [&pair, &turn].map(|[ours, peers]| [median(ours), median(peers), ratio(ours, peers)]);
        rows.push([name].into_iter().chain(figures.concat().into_iter().map(number)).collect());
    }
    let header = ["microseconds", "lock, `unlock()`", V::PEER, "relative", "hand-over", V::PEER, "relative"];
    section.table(&header, &rows);
    go::run::<V>(plan, section);
    costs::run::<V>(plan, section);
    crowd::run::<V>(plan, section);
    herd::run::<V>(plan, section);
    idle::run::<V>(plan, section);
}

/// Microseconds of a pair without contention, ours and the peer's.
fn one_thread<V: Peer>(plan: &Plan, servers: &V) -> [Vec<f64>; 2] {
    let count = plan.size(100, 5);
    let mut ways = [ours::<V>(&servers.url("bench"), "pair"), V::peer(servers.address(), "pair")];
    let variant = |way: &mut Box<dyn Way>| micros_each(count, || pair(way));
    let mut variants: Vec<_> = ways.iter_mut().map(|way| -> Variant<'_> { Box::new(|| variant(way)) }).collect();
    interleave(plan.rounds, &mut variants).try_into().unwrap()
}

fn pair(way: &mut Box<dyn Way>) {
    way.lock();
    way.unlock();
}

/// A lock of a client of its own. What a client says of itself, a second after its first lock, is no cost of a lock.
fn ours<V: ConsensusStore>(url: &str, name: &str) -> Box<dyn Way> {
    let generator = DLockGenerator::builder().client_record(false).build(V::processor(url)).unwrap();
    Box::new(generator.generate_with(config(name)).unwrap().unguarded())
}

fn config(target: &str) -> DLockConfig {
    DLockConfig::new("BENCH", target).with_lease(LEASE)
}
