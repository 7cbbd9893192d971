//! Many threads, each with a key of its own, which share one client: against a connection for each thread, and against the server's own limit.

use crate::Plan;
use crate::round_trip::{dropped, unlocked};
use crate::support::crew::{self, Done, Work, micros_each};
use crate::support::pin::{self, Place, SETTINGS};
use crate::support::plot::{Line, Picture};
use crate::support::proxy::Proxy;
use crate::support::raw::{Address, Pair, Raw};
use crate::support::recording::{commands, record_pairs};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{Variant, interleave, median, percentile, ratio};
use crate::support::worker::Worker;
use redis_dlock::DLockGenerator;
use std::time::Duration;

pub(crate) const THREADS: [usize; 4] = [1, 4, 16, 64];
const MOST: usize = THREADS[THREADS.len() - 1];

/// Pairs a second, round by round.
struct Rates {
    own_connections: Vec<f64>,
    unlocked: Vec<f64>,
    dropped: Vec<f64>,
    /// Our own commands, and the plain pair, by one bare connection in batches of as many pairs as there are threads.
    limit: Vec<f64>,
    plain_limit: Vec<f64>,
}

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Many threads, many keys");
    section.paragraph(
        "Pairs a second of all threads together, a key each. Own connections: the raw pair, from one bare connection for each thread. The server's limit: the \
         commands that this crate sends, recorded, from one bare connection in batches of as many pairs as there are threads; the plain pair in the same way beside it.",
    );
    for (name, server_place, client_place) in SETTINGS {
        let server = Server::start(server_place);
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        let mut sockets = 0;
        for threads in THREADS {
            let rates = pin::at(client_place, || measure(plan, &server, threads, &mut sockets));
            let relative =
                [ratio(&rates.unlocked, &rates.own_connections), ratio(&rates.dropped, &rates.own_connections)];
            let of_limit = ratio(&rates.dropped, &rates.limit);
            let [own, unlocked, dropped, limit, plain] =
                [&rates.own_connections, &rates.unlocked, &rates.dropped, &rates.limit, &rates.plain_limit]
                    .map(|figures| median(figures));
            lines.push((threads as f64, [own, unlocked, dropped, limit]));
            rows.push(vec![
                threads.to_string(),
                number(own),
                number(unlocked),
                number(relative[0]),
                number(dropped),
                number(relative[1]),
                number(limit),
                number(of_limit),
                number(plain),
            ]);
            targets(&mut section, name, threads, relative, of_limit);
        }
        section.paragraph(format!("**{name}**; sockets of our client with {MOST} threads: {sockets}"));
        let header = [
            "threads",
            "own connections",
            "`unlock()`",
            "relative",
            "drop",
            "relative",
            "limit",
            "drop / limit",
            "plain limit",
        ];
        section.table(&header, &rows);
        section.target(format!("{name}: sockets"), Limit::AtMost(4.0), sockets as f64);
        let names = ["own connections", "lock, unlock()", "lock, drop", "the server's limit"];
        let line = |(i, name): (usize, &str)| Line {
            name: name.to_owned(),
            points: lines.iter().map(|(x, figures)| (*x, figures[i])).collect(),
        };
        let title = format!("Lock trips of many threads, {name}");
        let lines = names.into_iter().enumerate().map(line).collect();
        let file = format!("many-keys-{}.svg", name.replace(' ', "-"));
        let picture = Picture { title: &title, x: "threads", y: "pairs a second", log_x: true, lines };
        picture.draw(&plan.directory.join(&file));
        section.picture(&file, &title);
    }
    far_away(plan, &mut section);
    latencies(plan, &mut section);
    section
}

fn targets(section: &mut Section, setting: &str, threads: usize, relative: [f64; 2], of_limit: f64) {
    let name = |what: &str| format!("{setting}, {threads} threads: {what}");
    let limits = match threads {
        4 => [Some(1.2), None],
        16 => [Some(1.5), Some(1.25)],
        64 => [Some(2.0), Some(1.5)],
        _ => [None, None],
    };
    for (what, (limit, value)) in ["unlock()", "drop"].into_iter().zip(limits.into_iter().zip(relative)) {
        if let Some(limit) = limit {
            section.target(name(&format!("{what} against own connections")), Limit::AtLeast(limit), value);
        }
    }
    if setting == SETTINGS[0].0 && threads >= 16 {
        let limit = if threads == MOST { 0.9 } else { 0.85 };
        section.target(name("drop against the server's limit"), Limit::AtLeast(limit), of_limit);
    }
}

fn measure(plan: &Plan, server: &Server, threads: usize, sockets: &mut usize) -> Rates {
    let address = server.tcp();
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let mut crews = Crews::new(&address, threads);
    let recorded = record_pairs(server.port(), threads);
    let ours: Vec<u8> = recorded.iter().flat_map(|pair| [&pair.acquire[..], &pair.release[..]].concat()).collect();
    let replies = commands(&ours).len();
    let plain: Vec<u8> = crews.pairs.iter().flat_map(|pair| [&pair.set[..], &pair.delete[..]].concat()).collect();
    let (mut one, mut other) = (Raw::connect(&address), Raw::connect(&address));
    let batches = plan.size(4096, 128) / threads;
    let per_second = |micros: f64| threads as f64 * 1e6 / micros;
    let crews = std::cell::RefCell::new(&mut crews);
    let mut admin = server.admin();
    let mut variants: [Variant<'_>; 5] = [
        Box::new(|| crews.borrow_mut().own(window, Duration::ZERO).per_second),
        Box::new(|| crews.borrow_mut().unlocked(window, Duration::ZERO).per_second),
        Box::new(|| {
            let done = crews.borrow_mut().dropped(window, Duration::ZERO);
            *sockets = admin.sockets_of_ours();
            done.per_second
        }),
        Box::new(|| per_second(micros_each(batches, || one.exchange(&ours, replies)))),
        Box::new(|| per_second(micros_each(batches, || other.exchange(&plain, 2 * threads)))),
    ];
    let [own_connections, unlocked, dropped, limit, plain_limit] =
        interleave(plan.rounds, &mut variants).try_into().unwrap();
    Rates { own_connections, unlocked, dropped, limit, plain_limit }
}

/// As many threads with connections of their own, and as many that share a client.
pub(crate) struct Crews {
    connections: Vec<Raw>,
    pairs: Vec<Pair>,
    _generator: DLockGenerator,
    locks: Vec<redis_dlock::DistributedReentrantLock>,
}

impl Crews {
    pub(crate) fn new(address: &Address, threads: usize) -> Self {
        let generator = DLockGenerator::connect(&address.url()).unwrap();
        Self {
            connections: (0..threads).map(|_| Raw::connect(address)).collect(),
            pairs: (0..threads).map(|n| Pair::new(address, &n.to_string())).collect(),
            locks: (0..threads).map(|n| generator.generate("BENCH", n.to_string()).unwrap()).collect(),
            _generator: generator,
        }
    }

    pub(crate) fn own(&mut self, window: Duration, rest: Duration) -> Done {
        let pairs = self.connections.iter_mut().zip(&self.pairs);
        let mut works: Vec<_> = pairs.map(|(raw, pair)| -> Work<'_> { Box::new(|| pair.run(raw)) }).collect();
        crew::run(&mut works, window, rest)
    }

    pub(crate) fn unlocked(&mut self, window: Duration, rest: Duration) -> Done {
        let each = |lock| -> Work<'_> { Box::new(move || unlocked(lock)) };
        crew::run(&mut self.locks.iter().map(each).collect::<Vec<_>>(), window, rest)
    }

    pub(crate) fn dropped(&mut self, window: Duration, rest: Duration) -> Done {
        let each = |lock| -> Work<'_> { Box::new(move || dropped(lock)) };
        crew::run(&mut self.locks.iter().map(each).collect::<Vec<_>>(), window, rest)
    }
}

/// The same behind a slow network.
fn far_away(plan: &Plan, section: &mut Section) {
    let server = Server::start(Place::Anywhere);
    let proxy = Proxy::to(server.port(), Duration::from_micros(500));
    let crews = std::cell::RefCell::new(Crews::new(&Address::Tcp(proxy.port()), MOST));
    let window = plan.size(Duration::from_millis(500), Duration::from_millis(50));
    let mut variants: [Variant<'_>; 3] = [
        Box::new(|| crews.borrow_mut().own(window, Duration::ZERO).per_second),
        Box::new(|| crews.borrow_mut().unlocked(window, Duration::ZERO).per_second),
        Box::new(|| crews.borrow_mut().dropped(window, Duration::ZERO).per_second),
    ];
    let figures = interleave(plan.rounds, &mut variants);
    let relative = [1.0, ratio(&figures[1], &figures[0]), ratio(&figures[2], &figures[0])];
    let rows: Vec<_> = ["own connections", "`unlock()`", "drop"]
        .into_iter()
        .zip(&figures)
        .zip(relative)
        .map(|((name, figures), relative)| vec![name.to_owned(), number(median(figures)), number(relative)])
        .collect();
    // Two round trips of a millisecond.
    let bound = MOST as f64 / 0.002;
    section.paragraph(format!(
        "**0.5 ms each way, {MOST} threads.** With a network that costs no computing, own connections could do {} pairs a second at most.",
        number(bound)
    ));
    section.table(&["", "pairs a second", "relative"], &rows);
    section.target(
        format!("0.5 ms each way, {MOST} threads: drop against own connections"),
        Limit::AtLeast(3.0),
        relative[2],
    );
}

/// How long a pair takes one of many threads.
fn latencies(plan: &Plan, section: &mut Section) {
    section.paragraph(format!(
        "**How long a pair takes, {MOST} threads**, microseconds: without a rest, and with a rest of up to 20 ms at random before each pair, so that threads are not in step."
    ));
    let mut rows = Vec::new();
    for (setting, server_place, client_place) in SETTINGS {
        let long = Duration::from_millis(20);
        for (name, rest, busy) in [
            ("no rest", Duration::ZERO, 0),
            ("with rests", long, 0),
            ("with rests, beside three that compute", long, 3),
        ] {
            let server = Server::start(server_place);
            let _busy: Vec<_> = (0..busy).map(|_| Worker::start(Place::Anywhere, "compute", &[])).collect();
            let times = pin::at(client_place, || spread(plan, &server, rest));
            let row = times.iter().flat_map(|times| times.iter().map(|time| number(median(time))));
            rows.push([format!("{setting}, {name}")].into_iter().chain(row).collect());
            // Beside programs that compute, the scheduler decides about the slowest pairs.
            let (figure, place, limit) = if busy > 0 { ("median", 0, 2.0) } else { ("p99", 1, 1.0) };
            if !rest.is_zero() {
                for (how, ours) in [("unlock()", &times[1]), ("drop", &times[2])] {
                    let what = format!(
                        "{setting}, {MOST} unsynchronised threads, {name}: {figure}, {how} against own connections"
                    );
                    section.target(what, Limit::AtMost(limit), ratio(&ours[place], &times[0][place]));
                }
            }
        }
    }
    let header = ["", "own connections: median", "p99", "`unlock()`: median", "p99", "drop: median", "p99"];
    section.table(&header, &rows);
}

/// Median and p99, round by round, of own connections, `unlock()` and drop.
fn spread(plan: &Plan, server: &Server, rest: Duration) -> [[Vec<f64>; 2]; 3] {
    let window = plan.size(Duration::from_millis(500), Duration::from_millis(50));
    let mut crews = Crews::new(&server.tcp(), MOST);
    let mut result: [[Vec<f64>; 2]; 3] = Default::default();
    for round in 0..=plan.rounds {
        let done = [crews.own(window, rest), crews.unlocked(window, rest), crews.dropped(window, rest)];
        if round > 0 {
            for (done, [medians, p99s]) in done.iter().zip(&mut result) {
                medians.push(median(&done.times));
                p99s.push(percentile(&done.times, 99.0));
            }
        }
    }
    result
}
