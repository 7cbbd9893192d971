//! Handing the lock over from process to process.

use super::kit::{ConsensusStore, Consul, Etcd};
use super::{Peer, ours};
use crate::Plan;
use crate::hand_over::{HOLD, Taking};
use crate::support::pin::Place;
use crate::support::stats::{Variant, interleave, median};
use crate::support::worker::{argument, listen, now, say};
use std::thread;

/// The names of the two ways, for a process that takes turns.
pub(super) const OURS: &str = "ours";
const PEERS: &str = "peers";

/// Microseconds of a hand-over, ours and the peer's.
pub(super) fn measure<V: Peer>(plan: &Plan, servers: &V) -> [Vec<f64>; 2] {
    interleave(plan.rounds, &mut [OURS, PEERS].map(|way| variant(plan, servers, way))).try_into().unwrap()
}

/// Two processes that take turns in one of the ways.
pub(super) fn variant<V: Peer>(plan: &Plan, servers: &V, way: &'static str) -> Variant<'static> {
    let window = window(plan);
    let arguments = [V::NAME, way, &servers.url("bench"), servers.address()];
    let mut taking = Taking::begin_job(Place::Anywhere, "turns", &arguments);
    Box::new(move || median(&taking.turns(window)))
}

/// For how many nanoseconds they do.
pub(super) fn window(plan: &Plan) -> u64 {
    plan.size(500_000_000, 100_000_000)
}

/// A worker that locks and unlocks.
pub(crate) fn take_turns() {
    if argument::<String>(0) == Etcd::NAME { take::<Etcd>() } else { take::<Consul>() }
}

fn take<V: Peer>() {
    let [way, url, address]: [String; 3] = [argument(1), argument(2), argument(3)];
    let me: u64 = argument(4);
    let mut way = if way == OURS { ours::<V>(&url, "turns") } else { V::peer(&address, "turns") };
    loop {
        let until = listen()[0];
        let mut holds = Vec::new();
        while now() < until {
            way.lock();
            let begin = now();
            thread::sleep(HOLD);
            let end = now();
            way.unlock();
            // Holds exclude each other, so they are in the order of their beginnings.
            holds.extend([begin, me, begin, end].map(|number| number.to_string()));
        }
        say(&holds.join(" "));
    }
}
