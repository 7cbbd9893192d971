//! What it costs that replicas must acknowledge: the same with 0, 1 and 2 acknowledgements, beside each other.

use crate::Plan;
use crate::hand_over::{Taking, generator};
use crate::round_trip::unlocked;
use crate::support::crew::{self, Work, micros_each};
use crate::support::kit::sentinels::{Plan as Service, Service as Servers};
use crate::support::pin::Place;
use crate::support::raw::Address;
use crate::support::report::{Section, number};
use crate::support::stats::{Variant, interleave, median, ratio};
use redis_dlock::DistributedReentrantLock;
use std::time::Duration;

const ACKS: [u32; 3] = [0, 1, 2];
const THREADS: [usize; 2] = [16, 64];

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Acknowledgement by replicas");
    section.paragraph(
        "A master with two replicas, not pinned. `lock()` and `unlock()` with `replica_acks` of 0, 1 and 2, in turns. Relative: median of the rounds' ratios to \
         0 acknowledgements, as time (a pair, a hand-over) or as pairs a second (many threads).",
    );
    let servers = Servers::start_as(&Service { sentinels: 0, ..Service::default() });
    let url = Address::Tcp(servers.servers[0].port()).url();
    let mut rows = vec![row("one thread, microseconds a pair", &one_thread(plan, &url))];
    for threads in THREADS {
        rows.push(row(&format!("{threads} threads, pairs a second"), &many_threads(plan, &url, threads)));
    }
    rows.push(row("hand-over between processes, microseconds", &hand_overs(plan, &url)));
    section.table(&["", "0", "1", "relative", "2", "relative"], &rows);
    section
}

fn row(name: &str, figures: &[Vec<f64>; 3]) -> Vec<String> {
    let [none, one, two] = figures;
    let cells = [median(none), median(one), ratio(one, none), median(two), ratio(two, none)];
    [name.to_owned()].into_iter().chain(cells.map(number)).collect()
}

fn one_thread(plan: &Plan, url: &str) -> [Vec<f64>; 3] {
    let count = plan.size(1000, 20);
    let variant = |acks| -> Variant<'_> {
        let lock = generator(url, acks).generate("BENCH", "acks").unwrap();
        Box::new(move || micros_each(count, || unlocked(&lock)))
    };
    interleave(plan.rounds, &mut ACKS.map(variant)).try_into().unwrap()
}

fn many_threads(plan: &Plan, url: &str, threads: usize) -> [Vec<f64>; 3] {
    let window = plan.size(Duration::from_millis(400), Duration::from_millis(30));
    let variant = |acks| -> Variant<'_> {
        let generator = generator(url, acks);
        let lock = |n: usize| generator.generate("BENCH", format!("acks-{n}")).unwrap();
        let locks: Vec<DistributedReentrantLock> = (0..threads).map(lock).collect();
        Box::new(move || {
            let mut works: Vec<Work<'_>> = locks.iter().map(|lock| Box::new(|| unlocked(lock)) as Work<'_>).collect();
            crew::run(&mut works, window, Duration::ZERO).per_second
        })
    };
    interleave(plan.rounds, &mut ACKS.map(variant)).try_into().unwrap()
}

fn hand_overs(plan: &Plan, url: &str) -> [Vec<f64>; 3] {
    let window = plan.size(1_000_000_000, 100_000_000);
    let variant = |acks| -> Variant<'_> {
        let mut taking = Taking::begin(Place::Anywhere, url, acks);
        Box::new(move || median(&taking.turns(window)))
    };
    interleave(plan.rounds, &mut ACKS.map(variant)).try_into().unwrap()
}
