//! What a process sends that only holds.

use super::Peer;
use super::kit::{ConsensusStore, Counter, Etcd, counted_url};
use crate::Plan;
use crate::support::report::{Limit, Section, number};
use redis_dlock::{DLockConfig, DLockGenerator};
use std::thread;
use std::time::Duration;

/// As long as a lease is by default.
const LEASE: Duration = Duration::from_secs(30);

pub(super) fn run<V: Peer>(plan: &Plan, section: &mut Section) {
    let (counts, lease) = plan.size((&[1, 100, 1000][..], LEASE), (&[1, 100], V::LEASE));
    // At the same time, with servers of their own: most of it is waiting.
    let rates: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> =
            counts.iter().map(|count| (*count, scope.spawn(move || requests_a_second::<V>(*count, lease)))).collect();
        clients.into_iter().map(|(count, client)| (count, client.join().unwrap())).collect()
    });
    let rows: Vec<_> = rates.iter().map(|(count, rate)| vec![count.to_string(), number(*rate)]).collect();
    section.paragraph(format!("Requests of a client that holds so many locks with a lease of {lease:?}, and does nothing else, over two leases."));
    section.table(&["locks", "requests a second"], &rows);
    if V::NAME == Etcd::NAME && lease == LEASE {
        for (count, rate) in rates {
            section.target(format!("{}: {count} held locks, requests a second", V::NAME), Limit::AtMost(2.0), rate);
        }
    }
}

/// It begins to count after a lease: all tenures are then asked about at the same moments.
fn requests_a_second<V: Peer>(count: u32, lease: Duration) -> f64 {
    let servers = V::start(1);
    let counter = Counter::to(servers.address());
    let generator = DLockGenerator::new(V::processor(&counted_url(&servers, &counter, "idle"))).unwrap();
    let config = |n: u32| DLockConfig::new("IDLE", n.to_string()).with_lease(lease);
    let locks: Vec<_> = (0..count).map(|n| generator.generate_with(config(n)).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    thread::sleep(lease);
    let before = counter.requests();
    thread::sleep(2 * lease);
    let sent = counter.requests() - before;
    assert!(guards.iter().all(|guard| guard.is_valid()), "a lock was lost");
    sent as f64 / (2 * lease).as_secs_f64()
}
