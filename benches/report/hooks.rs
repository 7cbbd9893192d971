//! What it costs to be told what a client does: a client without a hook, another one, one with `on_event`, and one that records metrics.

use crate::Plan;
use crate::local::wait_once;
use crate::round_trip::unlocked;
use crate::support::crew::micros_each;
use crate::support::pin::{self, Place};
use crate::support::report::{Section, number};
use crate::support::server::Server;
use crate::support::stats::{Variant, interleave, median, ratio};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, GeneratorBuilder, RedisLockProcessor};
use std::hint::black_box;
use std::time::Duration;

/// A client, as its builder was told, and its locks.
struct Client {
    name: &'static str,
    _generator: DLockGenerator,
    held: DistributedReentrantLock,
    lingering: DistributedReentrantLock,
    trip: DistributedReentrantLock,
}

impl Client {
    fn new(name: &'static str, builder: GeneratorBuilder, server: &Server) -> Self {
        let generator = builder.build(RedisLockProcessor::connect(&server.tcp().url()).unwrap()).unwrap();
        let minute = Duration::from_secs(60);
        let lock = |target: &str| DLockConfig::new(name, target);
        let lingering = generator.generate_with(lock("linger").with_linger(minute)).unwrap();
        wait_once(&generator, &lingering);
        let [held, trip] = ["held", "trip"].map(|target| generator.generate_with(lock(target)).unwrap());
        Self { name, _generator: generator, held, lingering, trip }
    }
}

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Hooks: what it costs to be told");
    section.paragraph(
        "One thread, pinned apart from the server. Relative to the first client without a hook: median of the rounds' ratios. The second one shows how \
         much of that is chance. The function of `on_event` does nothing; it is called on another thread of the same core. The recorder of `metrics` is \
         the debugging one of `metrics-util`.",
    );
    forget_samples();
    let server = Server::start(Place::Server);
    let rows = pin::at(Place::Clients, || {
        let clients = clients(&server);
        let (many, some, few) = (plan.size(200_000, 1000), plan.size(20_000, 100), plan.size(1000, 20));
        let reentry = compare(plan, &clients, |client| {
            let guard = client.held.lock().unwrap();
            let time = micros_each(many, || drop(black_box(client.held.lock().unwrap())));
            guard.unlock().unwrap();
            time
        });
        let lingering = compare(plan, &clients, |client| micros_each(some, || unlocked(&client.lingering)));
        let trip = compare(plan, &clients, |client| micros_each(few, || unlocked(&client.trip)));
        [("reentry", reentry), ("a lock that lingers", lingering), ("a lock trip", trip)]
    });
    let rows: Vec<_> = rows
        .into_iter()
        .flat_map(|(what, rows)| rows.into_iter().map(|row| [vec![what.to_owned()], row].concat()))
        .collect();
    section.table(&["lock + unlock", "client", "ns", "relative to no hook"], &rows);
    section
}

fn clients(server: &Server) -> Vec<Client> {
    let builder = DLockGenerator::builder;
    let mut clients = vec![
        Client::new("no hook", builder(), server),
        Client::new("no hook, again", builder(), server),
        Client::new("`on_event`", builder().on_event(|event| drop(black_box(event.clone()))), server),
    ];
    #[cfg(feature = "metrics")]
    clients.push(Client::new("`metrics`", builder().metrics(true), server));
    clients.shrink_to_fit();
    clients
}

/// Measures the same with each client in turn. Returns a row for each.
fn compare(plan: &Plan, clients: &[Client], measure: impl Fn(&Client) -> f64) -> Vec<Vec<String>> {
    let mut variants: Vec<Variant<'_>> = Vec::new();
    for client in clients {
        let measure = &measure;
        variants.push(Box::new(move || {
            let time = measure(client);
            forget_samples();
            time
        }));
    }
    let figures = interleave(plan.rounds, &mut variants);
    let row = |(client, one): (&Client, &Vec<f64>)| {
        vec![client.name.to_owned(), number(1000.0 * median(one)), number(ratio(one, &figures[0]))]
    };
    clients.iter().zip(&figures).map(row).collect()
}

/// Empties the recorder of metrics, which keeps each sample.
#[cfg(feature = "metrics")]
fn forget_samples() {
    use metrics_util::debugging::{DebuggingRecorder, Snapshotter};
    use std::sync::OnceLock;
    static SNAPSHOTTER: OnceLock<Snapshotter> = OnceLock::new();
    let install = || {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().unwrap();
        snapshotter
    };
    drop(SNAPSHOTTER.get_or_init(install).snapshot());
}

#[cfg(not(feature = "metrics"))]
fn forget_samples() {}
