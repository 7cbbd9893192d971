//! Many threads of one process, which want a key each or all the same.

use super::ways::Way;
use super::{Peer, config, pair};
use crate::Plan;
use crate::support::crew::{self, Work};
use crate::support::report::{Section, number};
use crate::support::stats::{Variant, interleave, median, ratio};
use redis_dlock::DLockGenerator;
use std::time::Duration;

const THREADS: [usize; 4] = [1, 4, 16, 64];

/// For as long a lock stays with the client.
const LINGER: Duration = Duration::from_secs(60);

pub(super) fn run<V: Peer>(plan: &Plan, section: &mut Section) {
    let servers = V::start(1);
    let mut rows = Vec::new();
    for one_key in [false, true] {
        for &threads in plan.size(&THREADS[..], &THREADS[..2]) {
            let [ours, lingering, peers] = measure(plan, &servers, threads, one_key);
            let name = format!("{threads}, {}", if one_key { "one key" } else { "a key each" });
            let cells =
                [median(&peers), median(&ours), ratio(&ours, &peers), median(&lingering), ratio(&lingering, &peers)];
            rows.push([name].into_iter().chain(cells.map(number)).collect());
        }
    }
    section
        .paragraph("Pairs a second of threads of one process. Ours share a client; the peer's have a connection each.");
    section.table(&["threads", V::PEER, "ours", "relative", "with linger", "relative"], &rows);
}

/// Pairs a second: ours, ours with a linger, and the peer's.
fn measure<V: Peer>(plan: &Plan, servers: &V, threads: usize, one_key: bool) -> [Vec<f64>; 3] {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let names = |kind: &str| -> Vec<_> {
        let target = |n: usize| format!("{kind}-{one_key}-{threads}-{}", if one_key { 0 } else { n });
        (0..threads).map(target).collect()
    };
    let ours = |kind: &str, linger: Duration| {
        let generator = DLockGenerator::new(V::processor(&servers.url(kind))).unwrap();
        let lock = |name: &String| -> Box<dyn Way> {
            Box::new(generator.generate_with(config(name).with_linger(linger)).unwrap().unguarded())
        };
        names(kind).iter().map(lock).collect::<Vec<_>>()
    };
    let peers = names("peers").iter().map(|name| V::peer(servers.address(), name)).collect();
    let mut ways: [Vec<Box<dyn Way>>; 3] = [ours("plain", Duration::ZERO), ours("linger", LINGER), peers];
    let per_second = |ways: &mut Vec<Box<dyn Way>>| {
        let mut works: Vec<_> = ways.iter_mut().map(|way| -> Work<'_> { Box::new(|| pair(way)) }).collect();
        crew::run(&mut works, window, Duration::ZERO).per_second
    };
    let mut variants: Vec<_> =
        ways.iter_mut().map(|ways| -> Variant<'_> { Box::new(move || per_second(ways)) }).collect();
    interleave(plan.rounds, &mut variants).try_into().unwrap()
}
