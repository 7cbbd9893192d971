//! The floor of an uncontended lock: two round trips of a bare connection.

use crate::Plan;
use crate::support::crew::micros_each;
use crate::support::pin::{self, Place};
use crate::support::proxy::Proxy;
use crate::support::raw::{Address, Pair, Raw};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{Variant, interleave, median, ratio};
use redis_dlock::{DLockGenerator, DistributedReentrantLock};
use std::time::Duration;

/// How the server is reached.
struct Route {
    name: &'static str,
    place: (Place, Place),
    address: fn(&Server, &Proxy) -> Address,
    /// Pairs a round: full, and in a short run.
    pairs: (usize, usize),
    unlocked: Limit,
    dropped: Limit,
}

const ROUTES: [Route; 4] = [
    Route {
        name: "TCP, pinned apart",
        place: (Place::Server, Place::Clients),
        address: |server, _| server.tcp(),
        pairs: (1000, 20),
        unlocked: Limit::AtMost(1.10),
        dropped: Limit::AtMost(0.65),
    },
    Route {
        name: "TCP, not pinned",
        place: (Place::Anywhere, Place::Anywhere),
        address: |server, _| server.tcp(),
        pairs: (1000, 20),
        unlocked: Limit::AtMost(1.10),
        dropped: Limit::AtMost(0.65),
    },
    Route {
        name: "unix socket, pinned apart",
        place: (Place::Server, Place::Clients),
        address: |server, _| server.unix(),
        pairs: (1000, 20),
        unlocked: Limit::AtMost(1.10),
        dropped: Limit::AtMost(0.65),
    },
    Route {
        name: "TCP, 0.5 ms each way",
        place: (Place::Anywhere, Place::Anywhere),
        address: |_, proxy| Address::Tcp(proxy.port()),
        pairs: (150, 5),
        unlocked: Limit::AtMost(1.02),
        dropped: Limit::AtMost(0.55),
    },
];

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Round-trip floor: one thread, nobody else wants the lock");
    section.paragraph(
        "Microseconds a pair. Raw: `SET NX PX`, then get-compare-del by `EVALSHA`, each waited for, on a bare connection. Relative: median of the \
         rounds' ratios.",
    );
    let mut rows = Vec::new();
    for route in &ROUTES {
        let [raw, unlocked, dropped] = measure(plan, route);
        let relative = [ratio(&unlocked, &raw), ratio(&dropped, &raw)];
        let [raw, unlocked, dropped] = [raw, unlocked, dropped].map(|figures| number(median(&figures)));
        rows.push(vec![route.name.to_owned(), raw, unlocked, number(relative[0]), dropped, number(relative[1])]);
        section.target(format!("{}: lock + unlock, relative to raw", route.name), route.unlocked, relative[0]);
        section.target(format!("{}: lock + drop, relative to raw", route.name), route.dropped, relative[1]);
    }
    section.table(&["server reached by", "raw", "lock, `unlock()`", "relative", "lock, drop", "relative"], &rows);
    section
}

fn measure(plan: &Plan, route: &Route) -> [Vec<f64>; 3] {
    let server = Server::start(route.place.0);
    let proxy = Proxy::to(server.port(), Duration::from_micros(500));
    let address = (route.address)(&server, &proxy);
    let count = plan.size(route.pairs.0, route.pairs.1);
    pin::at(route.place.1, || {
        let (mut raw, pair) = (Raw::connect(&address), Pair::new(&address, "x"));
        let generator = DLockGenerator::connect(&address.url()).unwrap();
        let lock = generator.generate("BENCH", "x").unwrap();
        let mut variants: [Variant<'_>; 3] = [
            Box::new(|| micros_each(count, || pair.run(&mut raw))),
            Box::new(|| micros_each(count, || unlocked(&lock))),
            Box::new(|| micros_each(count, || dropped(&lock))),
        ];
        interleave(plan.rounds, &mut variants).try_into().unwrap()
    })
}

pub(crate) fn unlocked(lock: &DistributedReentrantLock) {
    lock.lock().unwrap().unlock().unwrap();
}

pub(crate) fn dropped(lock: &DistributedReentrantLock) {
    drop(lock.lock().unwrap());
}
