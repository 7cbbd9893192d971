//! Where the time of a lock + unlock goes: what can be counted of it, for clients and server.

use crate::Plan;
use crate::many_keys::{Crews, THREADS};
use crate::support::crew::Done;
use crate::support::pin::{self, SETTINGS};
use crate::support::report::{Section, number};
use crate::support::server::Server;
use crate::support::stats::median;
use crate::support::worker::{Worker, cpu};
use rustix::time::ClockId;
use std::time::Duration;

/// What is counted of a pair.
const COUNTS: [&str; 6] = [
    "wall, µs",
    "clients' processor, µs",
    "of their threads: slept",
    "put off the core",
    "server: reads",
    "processor, µs",
];

/// Some threads at work in their way.
type Way = fn(&mut Crews, Duration) -> Done;

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("What a pair costs");
    section.paragraph(
        "Of each pair, all threads together: how long it takes, what the clients compute, how often a thread sleeps and how often it is put off its core (or \
         gives way), how often the server reads a connection, and what it computes. Reads of the server are writes of the clients.",
    );
    for (setting, server_place, client_place) in SETTINGS {
        let server = Server::start(server_place);
        let mut table = |setting: &str, threads: &[usize]| {
            let rows: Vec<_> =
                pin::at(client_place, || threads.iter().flat_map(|threads| measure(plan, &server, *threads)).collect());
            section.paragraph(format!("**{setting}**"));
            section.table(&[&["threads", ""], &COUNTS[..]].concat(), &rows);
        };
        table(setting, &THREADS);
        if setting == SETTINGS[0].0 {
            let _busy = Worker::start(client_place, "compute", &[]);
            table(&format!("{setting}, beside a process that computes on the clients' core"), &THREADS[2..]);
        }
    }
    section
}

/// A worker that wants all of its core.
pub(crate) fn compute() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

fn measure(plan: &Plan, server: &Server, threads: usize) -> Vec<Vec<String>> {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let (mut crews, mut admin) = (Crews::new(&server.tcp(), threads), server.admin());
    let ways: [(&str, Way); 3] = [
        ("own connections", |crews, window| crews.own(window, Duration::ZERO)),
        ("`unlock()`", |crews, window| crews.unlocked(window, Duration::ZERO)),
        ("drop", |crews, window| crews.dropped(window, Duration::ZERO)),
    ];
    let mut counts = ways.map(|_| COUNTS.map(|_| Vec::new()));
    for round in 0..=plan.rounds {
        for ((_, way), counts) in ways.iter().zip(&mut counts) {
            let before = (cpu(ClockId::ProcessCPUTime), admin.reads(), admin.cpu());
            let done = way(&mut crews, window);
            let after = (cpu(ClockId::ProcessCPUTime), admin.reads(), admin.cpu());
            let pairs = done.times.len() as f64;
            let micros = |time: Duration| time.as_secs_f64() * 1e6 / pairs;
            let [slept, put_off] = done.switches.map(|switches| switches as f64 / pairs);
            let of_pair = [
                1e6 / done.per_second,
                micros(after.0 - before.0),
                slept,
                put_off,
                (after.1 - before.1) as f64 / pairs,
                micros(after.2.saturating_sub(before.2)),
            ];
            // The first is for warming up.
            if round > 0 {
                counts.iter_mut().zip(of_pair).for_each(|(counts, count)| counts.push(count));
            }
        }
    }
    let row = |((name, _), counts): (&(&str, Way), &[Vec<f64>; 6])| {
        [threads.to_string(), (*name).to_owned()]
            .into_iter()
            .chain(counts.iter().map(|counts| number(median(counts))))
            .collect()
    };
    ways.iter().zip(&counts).map(row).collect()
}
