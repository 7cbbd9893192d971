//! Locks on Redis Clusters of one to three masters, beside one server in the same run.

mod crew;

use crate::Plan;
use crate::hand_over::Taking;
use crate::support::crew::micros_each;
use crate::support::pin::{self, Place};
use crate::support::plot::{Line, Picture};
use crate::support::proxy::Proxy;
use crate::support::raw::{Address, Raw};
use crate::support::report::{Section, number};
use crate::support::server::Admin;
use crate::support::stats::{Variant, interleave, median, ratio};
pub(crate) use crew::make_pairs;
use crew::{Crew, Figures, Setup, Way};
use redis_dlock::RedisLockProcessor;
use redis_dlock::processor::LockProcessor;
use std::time::Duration;
use std::{fs, thread};

/// Threads of one process, where the client's cost is counted.
const THREADS: [usize; 3] = [1, 16, 64];
/// Threads of each process, where there are several.
const EACH: usize = 16;
const PROCESSES: usize = 4;

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Redis Cluster");
    section.paragraph(
        "Clusters of 1, 2 and 3 masters without replicas, and one server, in turns. Keys are spread over all slots. Relative: median of the rounds' ratios to the one \
         server. Processor time is that of the clients' processes, and of the servers' main threads.",
    );
    {
        let setups = Setup::all(Place::Server);
        costs(plan, &setups, &mut section);
        far_costs(plan, &setups, &mut section);
    }
    let setups = Setup::all(Place::Anywhere);
    processes(plan, &setups, &mut section);
    hand_overs(plan, &setups, &mut section);
    contended(plan, &setups, &mut section);
    inbox(plan, &setups, &mut section);
    section
}

/// The figures of each crew, round by round, in turns.
fn in_turns(plan: &Plan, crews: &mut [Crew], mut work: impl FnMut(&mut Crew) -> Figures) -> Vec<Vec<Figures>> {
    let mut figures = vec![Vec::new(); crews.len()];
    for round in 0..=plan.rounds {
        for turn in 0..crews.len() {
            let i = (round + turn) % crews.len();
            let those = work(&mut crews[i]);
            // The first is for warming up.
            if round > 0 {
                figures[i].push(those);
            }
        }
    }
    figures
}

/// One of the figures, round by round, and the median of its ratios to that of one server.
fn beside(all: &[Vec<Figures>], setup: usize, which: impl Fn(&Figures) -> f64) -> [f64; 2] {
    let [those, base] = [setup, 0].map(|i| all[i].iter().map(&which).collect::<Vec<_>>());
    [median(&those), ratio(&those, &base)]
}

/// What a pair costs a client, and the servers.
fn costs(plan: &Plan, setups: &[Setup], section: &mut Section) {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let mut crews: Vec<_> = setups.iter().map(|setup| Crew::start(setup, Place::Clients, 1, false)).collect();
    let mut rows = Vec::new();
    for (way, name) in [(Way::Unlock, "`unlock()`"), (Way::Drop, "drop")] {
        for threads in THREADS {
            let all = in_turns(plan, &mut crews, |crew| crew.work(1, threads, way, window));
            for (i, setup) in setups.iter().enumerate() {
                let [rate, rates] = beside(&all, i, |figures| figures.per_second);
                let [clients, of_clients] = beside(&all, i, |figures| figures.clients);
                let [servers, of_servers] = beside(&all, i, |figures| figures.servers);
                let cells =
                    [rate, rates, clients, of_clients, servers, of_servers, 1e6 / servers, 1e6 / clients].map(number);
                rows.push(
                    [threads.to_string(), name.to_owned(), setup.name.to_owned()].into_iter().chain(cells).collect(),
                );
            }
        }
    }
    section.paragraph(
        "**What a pair costs**: one process, servers and clients pinned apart, so all masters share a core. The last two columns are computed, not measured: pairs a second that \
         fill one core of a master, and one core of a client.",
    );
    let header = [
        "threads",
        "",
        "",
        "pairs a second",
        "relative",
        "client, µs",
        "relative",
        "servers, µs",
        "relative",
        "computed: a master",
        "a client's core",
    ];
    section.table(&header, &rows);
}

/// What a pair costs a client that does not have to wait on its core: behind a slow network nobody spins or yields.
fn far_costs(plan: &Plan, setups: &[Setup], section: &mut Section) {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(50));
    let ways: Vec<Vec<_>> = setups
        .iter()
        .map(|setup| setup.ports.iter().map(|port| Proxy::to(*port, Duration::from_micros(500))).collect())
        .collect();
    let start = |(setup, ways): (&Setup, &Vec<Proxy>)| Crew::start_behind(setup, Place::Clients, 1, false, ways);
    let mut crews: Vec<_> = setups.iter().zip(&ways).map(start).collect();
    let mut rows = Vec::new();
    for (way, name) in [(Way::Unlock, "`unlock()`"), (Way::Drop, "drop")] {
        for threads in [1, EACH] {
            let all = in_turns(plan, &mut crews, |crew| crew.work(1, threads, way, window));
            for (i, setup) in setups.iter().enumerate() {
                let rates = beside(&all, i, |figures| figures.per_second);
                let clients = beside(&all, i, |figures| figures.clients);
                let cells = rates.into_iter().chain(clients).map(number);
                rows.push(
                    [threads.to_string(), name.to_owned(), setup.name.to_owned()].into_iter().chain(cells).collect(),
                );
            }
        }
    }
    section.paragraph(
        "**The client's cost alone**: the same through networks of 0.5 ms each way. Callers near a server that is busy compute while they wait, which the table above counts as theirs; far \
         from it they sleep.",
    );
    section.table(&["threads", "", "", "pairs a second", "relative", "client, µs", "relative"], &rows);
}

/// Several processes.
fn processes(plan: &Plan, setups: &[Setup], section: &mut Section) {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let mut crews: Vec<_> = setups.iter().map(|setup| Crew::start(setup, Place::Anywhere, PROCESSES, false)).collect();
    let mut rows: Vec<_> = setups.iter().map(|setup| vec![setup.name.to_owned()]).collect();
    let mut lines: Vec<Line> =
        setups.iter().map(|setup| Line { name: setup.name.to_owned(), points: Vec::new() }).collect();
    for processes in 1..=PROCESSES {
        let all = in_turns(plan, &mut crews, |crew| crew.work(processes, EACH, Way::Unlock, window));
        for (i, row) in rows.iter_mut().enumerate() {
            let rates = beside(&all, i, |figures| figures.per_second);
            lines[i].points.push((processes as f64, rates[0]));
            row.extend(rates.map(number));
        }
    }
    section.paragraph(format!(
        "**Pairs a second of 1 to {PROCESSES} processes**, {EACH} threads each, not pinned, on {} cores: masters and clients share them, so more masters can show what they \
         cost, and not what they bring.",
        pin::cores().len()
    ));
    section.table(&["", "1", "relative", "2", "relative", "3", "relative", "4", "relative"], &rows);
    let title = "Pairs a second on one server and on Clusters";
    let picture = Picture { title, x: "processes", y: "pairs a second", log_x: false, lines };
    picture.draw(&plan.directory.join("cluster.svg"));
    section.picture("cluster.svg", title);
}

/// Two processes that take turns with one lock.
fn hand_overs(plan: &Plan, setups: &[Setup], section: &mut Section) {
    let window = plan.size(1_000_000_000, 100_000_000);
    let variant = |setup: &Setup| -> Variant<'_> {
        let mut taking = Taking::begin(Place::Anywhere, &setup.url, 0);
        Box::new(move || median(&taking.turns(window)))
    };
    let times = interleave(plan.rounds, &mut setups.iter().map(variant).collect::<Vec<_>>());
    let row = |(setup, figures): (&Setup, &Vec<f64>)| {
        vec![setup.name.to_owned(), number(median(figures)), number(ratio(figures, &times[0]))]
    };
    section.paragraph("**A hand-over between two processes**, microseconds, not pinned.");
    section.table(&["", "median", "relative"], &setups.iter().zip(&times).map(row).collect::<Vec<_>>());
}

/// Processes that all want the same locks.
fn contended(plan: &Plan, setups: &[Setup], section: &mut Section) {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(50));
    let mut crews: Vec<_> = setups.iter().map(|setup| Crew::start(setup, Place::Anywhere, PROCESSES, true)).collect();
    let mut rows = Vec::new();
    for processes in [2, PROCESSES] {
        let all = in_turns(plan, &mut crews, |crew| crew.work(processes, EACH, Way::Unlock, window));
        for (i, setup) in setups.iter().enumerate() {
            let rates = beside(&all, i, |figures| figures.per_second);
            let clients = beside(&all, i, |figures| figures.clients);
            let servers = beside(&all, i, |figures| figures.servers);
            let cells = rates.into_iter().chain(clients).chain(servers).map(number);
            rows.push([processes.to_string(), setup.name.to_owned()].into_iter().chain(cells).collect());
        }
    }
    section.paragraph(format!(
        "**Hand-overs a second** of processes that all want the same {EACH} locks, a thread for each in every process, not pinned; a lock never goes to the same process twice \
         while another one waits."
    ));
    let header =
        ["processes", "", "hand-overs a second", "relative", "clients, µs", "relative", "servers, µs", "relative"];
    section.table(&header, &rows);
}

/// What it costs to be heard in a slot.
fn inbox(plan: &Plan, setups: &[Setup], section: &mut Section) {
    let slots = plan.size(3000, 30);
    let cluster = setups.iter().filter_map(Setup::cluster).next_back().expect("the last one has 3 masters");
    let mut admins: Vec<_> = cluster.nodes.iter().map(|node| Admin::of(node.port())).collect();
    let mut memory = || admins.iter_mut().map(Admin::memory).sum::<f64>();
    let (mut bare, mut ours, mut bytes, mut own) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=plan.rounds {
        // One key a node in turn: a client opens its listening connections with the first ones.
        let name = |n: u32| format!("DLOCK_INBOX_{round}-{n}");
        let mut keys: Vec<_> = (0..3).map(|node| cluster.keys_on(node, name)).collect();
        let mut key = {
            let mut turn = 0;
            move || {
                turn += 1;
                (turn % 3, keys[turn % 3].next().unwrap())
            }
        };
        let store = RedisLockProcessor::connect(&cluster.url(0)).unwrap();
        let queue = store.queue().unwrap();
        let limit = Duration::from_secs(10);
        let mut inbox = queue.open_inbox("bench", limit).unwrap();
        let breaker = inbox.breaker();
        let listener = thread::spawn(move || while inbox.next(Duration::from_secs(1)).is_ok() {});
        let mut raws: Vec<_> = cluster.nodes.iter().map(|node| Raw::connect(&Address::Tcp(node.port()))).collect();
        (0..3).for_each(|_| queue.get_ready_to_hear("bench", &key().1, limit).unwrap());
        let (all, resident) = (memory(), resident());
        let time = micros_each(slots, || queue.get_ready_to_hear("bench", &key().1, limit).unwrap());
        let grown = [memory() - all, self::resident() - resident].map(|bytes| bytes / slots as f64);
        let raw = micros_each(slots, || {
            let (node, key) = key();
            raws[node].command(&["SSUBSCRIBE", &key]);
        });
        breaker.cut();
        listener.join().unwrap();
        if round > 0 {
            ours.push(time);
            bare.push(raw);
            bytes.push(grown[0]);
            own.push(grown[1]);
        }
    }
    section.paragraph(format!(
        "**To be heard in a slot**: one client gets ready for {slots} keys on 3 masters, one after another (keys of a slot that it hears already cost it nothing); the same number of \
         bare `SSUBSCRIBE`s, each waited for, beside it. A message costs what the hand-overs above show."
    ));
    let cells = [median(&bare), median(&ours), ratio(&ours, &bare), median(&bytes), median(&own)].map(number);
    section.table(
        &["bare, µs", "ours, µs", "relative", "servers' bytes a key", "client's bytes a key"],
        &[cells.into_iter().collect()],
    );
}

/// The memory that this process uses, in bytes.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let pages = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    pages.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}
