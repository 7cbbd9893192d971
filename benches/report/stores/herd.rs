//! What a release causes when many wait.

use super::costs::at_rest;
use super::kit::{Counter, counted_url};
use super::ways::Way;
use super::{Peer, ours};
use crate::Plan;
use crate::support::report::{Limit, Section};
use std::sync::mpsc::channel;
use std::thread;

const WAITERS: [usize; 3] = [1, 10, 100];

pub(super) fn run<V: Peer>(plan: &Plan, section: &mut Section) {
    let counts: &[usize] = plan.size(&WAITERS, &WAITERS[..2]);
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for waiters in counts {
        let servers = V::start(1);
        let counter = Counter::to(servers.address());
        let url = counted_url(&servers, &counter, "herd");
        let ways = [
            (0..=*waiters).map(|_| ours::<V>(&url, "herd")).collect(),
            (0..=*waiters).map(|_| V::peer(counter.address(), "herd")).collect(),
        ];
        let [ours, peers] = ways.map(|ways| release(ways, &counter));
        all.push(ours);
        rows.push([*waiters as u64, ours, peers].map(|n| n.to_string()).to_vec());
    }
    section.paragraph(
        "How many requests a release causes, until all is at rest again, by clients that wait for the one key.",
    );
    section.table(&["waiters", "ours", V::PEER], &rows);
    let (few, many) = (all[0] as f64, all[all.len() - 1] as f64);
    let what = format!("{}: requests of a release with {} waiters, relative to one", V::NAME, counts[counts.len() - 1]);
    section.target(what, Limit::AtMost(1.0), many / few);
}

/// The requests of a release by the first of them, while the others wait.
fn release(mut ways: Vec<Box<dyn Way>>, counter: &Counter) -> u64 {
    let mut holder = ways.remove(0);
    holder.lock();
    thread::scope(|scope| {
        let (says, has_it) = channel();
        let waiters: Vec<_> = ways
            .into_iter()
            .map(|mut way| {
                let says = says.clone();
                let (tell, told) = channel::<()>();
                scope.spawn(move || {
                    way.lock();
                    let _ = says.send(());
                    told.recv().unwrap();
                    way.unlock();
                });
                tell
            })
            .collect();
        let before = at_rest(|| counter.requests());
        holder.unlock();
        has_it.recv().unwrap();
        let requests = at_rest(|| counter.requests()) - before;
        waiters.iter().for_each(|tell| tell.send(()).unwrap());
        requests
    })
}
