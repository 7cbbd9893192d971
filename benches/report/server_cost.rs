//! What the server pays for a lock, beside the least that a lock can cost it.

use crate::Plan;
use crate::round_trip::unlocked;
use crate::support::crew::{self, Work, micros_each};
use crate::support::pin::{self, Place};
use crate::support::raw::{Address, Pair, Raw};
use crate::support::recording::{Rare, commands, record_pairs, record_rare};
use crate::support::report::{Limit, Section, number};
use crate::support::server::{Admin, Server};
use crate::support::stats::{Variant, interleave, median, ratio};
use redis_dlock::DLockGenerator;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

/// Keys whose pairs go in one write.
const BATCH: usize = 64;

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("What the server pays");
    let server = Server::start(Place::Server);
    pin::at(Place::Clients, || {
        by_command(plan, &server, &mut section);
        by_pair(plan, &server, &mut section);
        by_clients(plan, &server, &mut section);
    });
    section
}

/// Each command by itself, as the server counts it.
fn by_command(plan: &Plan, server: &Server, section: &mut Section) {
    section.paragraph(
        "The commands of this crate are recorded from a client at work, and sent again by a bare connection, many in one write. Microseconds a call are the server's own count \
         (`INFO commandstats`).",
    );
    let keys = plan.size(512, 16);
    let recorded = record_pairs(server.port(), keys);
    let plain: Vec<_> = (0..keys).map(|n| Pair::new(&server.tcp(), &n.to_string())).collect();
    let rare = record_rare(server.port());
    let join = |parts: &mut dyn Iterator<Item = &[u8]>| parts.collect::<Vec<_>>().concat();
    let steps = [
        ("`SET NX PX`", join(&mut plain.iter().map(|pair| &pair.set[..])), keys),
        ("get-compare-del", join(&mut plain.iter().map(|pair| &pair.delete[..])), keys),
        ("acquire", join(&mut recorded.iter().map(|pair| &pair.acquire[..])), keys),
        ("release", join(&mut recorded.iter().map(|pair| &pair.release[..])), keys),
    ];
    let (mut raw, mut admin) = (Raw::connect(&server.tcp()), server.admin());
    let mut figures: Vec<(&str, Vec<f64>)> = steps.iter().map(|(name, ..)| (*name, Vec::new())).collect();
    for _ in 0..plan.rounds {
        for ((_, bytes, calls), (_, figures)) in steps.iter().zip(&mut figures) {
            figures.push(cost(&mut raw, &mut admin, bytes, *calls));
        }
    }
    for Rare { name, before, command } in &rare {
        before.iter().for_each(|command| raw.exchange(command, 1));
        let bytes = command.repeat(keys);
        figures.push((name, (0..plan.rounds).map(|_| cost(&mut raw, &mut admin, &bytes, keys)).collect()));
        admin.run(&["FLUSHALL"]);
    }
    let rows: Vec<_> =
        figures.iter().map(|(name, figures)| vec![(*name).to_owned(), number(median(figures))]).collect();
    section.table(&["call, common path", "µs"], &rows);
}

/// Microseconds that the server counts for one of `calls` in `bytes`.
fn cost(raw: &mut Raw, admin: &mut Admin, bytes: &[u8], calls: usize) -> f64 {
    admin.forget_stats();
    let sent = commands(bytes);
    raw.exchange(bytes, sent.len());
    // What stands in a transaction is counted with its EXEC, and what a script calls, with the script.
    let (mut names, mut queues) = (BTreeSet::new(), false);
    for command in sent {
        let name = String::from_utf8_lossy(command).lines().nth(2).unwrap_or_default().to_lowercase();
        queues = (queues || name == "multi") && name != "exec";
        if !queues {
            names.insert(name);
        }
    }
    names.iter().map(|name| admin.stats(name).1).sum::<u64>() as f64 / calls as f64
}

/// Pairs, many in one write: what one core of the server can do.
fn by_pair(plan: &Plan, server: &Server, section: &mut Section) {
    let recorded = record_pairs(server.port(), BATCH);
    let ours: Vec<u8> = recorded.iter().flat_map(|pair| [&pair.acquire[..], &pair.release[..]].concat()).collect();
    let plain: Vec<_> = (0..BATCH).map(|n| Pair::new(&server.tcp(), &n.to_string())).collect();
    let plain: Vec<u8> = plain.iter().flat_map(|pair| [&pair.set[..], &pair.delete[..]].concat()).collect();
    let batches = plan.size(60, 3);
    let raw = RefCell::new(Raw::connect(&server.tcp()));
    let time = |bytes: &[u8]| {
        let replies = commands(bytes).len();
        micros_each(batches, || raw.borrow_mut().exchange(bytes, replies)) / BATCH as f64
    };
    let mut variants: [Variant<'_>; 2] = [Box::new(|| time(&plain)), Box::new(|| time(&ours))];
    let [plain, ours] = interleave(4 * plan.rounds, &mut variants).try_into().unwrap();
    let relative = ratio(&ours, &plain);
    section.table(
        &["lock + unlock, 64 pairs in one write", "µs a pair", "relative"],
        &[
            vec!["`SET NX PX` + get-compare-del".to_owned(), number(median(&plain)), "1".to_owned()],
            vec!["acquire + release".to_owned(), number(median(&ours)), number(relative)],
        ],
    );
    section.target("a pair in batches of 64, against the plain pair", Limit::AtMost(1.5), relative);
}

/// The processor time of the server for a pair, by how many clients there are.
fn by_clients(plan: &Plan, server: &Server, section: &mut Section) {
    let window = plan.size(Duration::from_millis(300), Duration::from_millis(30));
    let admin = RefCell::new(server.admin());
    let mut rows = Vec::new();
    for (name, clients, threads) in
        [("1 client", 1, 1), ("64 clients", BATCH, BATCH), ("1 client with 64 threads (raw: 64 connections)", 1, BATCH)]
    {
        let address = server.tcp();
        let spent = |works: &mut [Work<'_>]| {
            let before = admin.borrow_mut().cpu();
            let done = crew::run(works, window, Duration::ZERO);
            admin.borrow_mut().cpu().saturating_sub(before).as_secs_f64() * 1e6 / done.times.len() as f64
        };
        let (mut connections, pairs, _generators, locks) = clients_of(&address, clients, threads);
        let mut variants: [Variant<'_>; 2] = [
            Box::new(|| {
                let each = connections.iter_mut().zip(&pairs);
                spent(&mut each.map(|(raw, pair)| -> Work<'_> { Box::new(|| pair.run(raw)) }).collect::<Vec<_>>())
            }),
            Box::new(|| {
                spent(&mut locks.iter().map(|lock| -> Work<'_> { Box::new(|| unlocked(lock)) }).collect::<Vec<_>>())
            }),
        ];
        let [raw, ours] = interleave(plan.rounds, &mut variants).try_into().unwrap();
        rows.push(vec![name.to_owned(), number(median(&raw)), number(median(&ours)), number(ratio(&ours, &raw))]);
    }
    section.paragraph(
        "Processor time of the server's main thread for a lock + unlock, system calls included, microseconds.",
    );
    section.table(&["", "raw pair", "ours", "relative"], &rows);
}

type Clients = (Vec<Raw>, Vec<Pair>, Vec<DLockGenerator>, Vec<redis_dlock::DistributedReentrantLock>);

/// As many bare connections and locks as threads, the locks made by so many clients.
fn clients_of(address: &Address, clients: usize, threads: usize) -> Clients {
    let generators: Vec<_> = (0..clients).map(|_| DLockGenerator::connect(&address.url()).unwrap()).collect();
    let connections = (0..threads).map(|_| Raw::connect(address)).collect();
    let pairs = (0..threads).map(|n| Pair::new(address, &n.to_string())).collect();
    let locks = (0..threads).map(|n| generators[n % clients].generate("BENCH", n.to_string()).unwrap()).collect();
    (connections, pairs, generators, locks)
}
