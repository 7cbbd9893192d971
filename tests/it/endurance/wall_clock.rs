//! The wall clock of a client is moved by an hour, forth and back, while it holds and waits: nothing in the crate goes by it,
//! but the numbers of the embedded store, which only rise.

use crate::support::RedisServer;
use crate::support::clock_shim::ClockShim;
use crate::support::crew::eventually;
use crate::support::lab::{config, connect_patiently};
use crate::support::worker::{self, Worker};
use redis_dlock::{DLockGenerator, DLockGuard, DistributedReentrantLock, MemoryLockProcessor};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock is moved by more, and no stall takes so long.
const LEASE_MS: u64 = 1_800_000;

/// The lease of a hold that is extended after a step.
const SHORT_MS: u64 = 600;

const HOUR: i64 = 3600;

fn wall_clock() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

#[test]
#[ignore = "the worker process of the tests beside it"]
fn process() {
    let Some(url) = worker::settings() else { return };
    let (generator, second) = (connect_patiently(&url), connect_patiently(&url));
    let [lock, other] = [&generator, &second].map(|client| client.generate_with(config("x", LEASE_MS)).unwrap());
    let short = generator.generate_with(config("short", SHORT_MS)).unwrap();
    let embedded = DLockGenerator::new(MemoryLockProcessor::new()).unwrap();
    let embedded = embedded.generate_with(config("x", LEASE_MS)).unwrap();
    let [mut held, mut held_shortly]: [Option<DLockGuard<'_>>; 2] = [None, None];
    for order in worker::orders() {
        let answer = match order.as_str() {
            "time" => wall_clock().to_string(),
            "lock" => held.insert(lock.lock().unwrap()).fencing_token().to_string(),
            "is valid" => {
                let guard = held.as_ref().unwrap();
                (guard.is_valid() && !guard.remaining().is_zero()).to_string()
            }
            "wait" => wait_in_vain(&other).to_string(),
            "lock shortly" => {
                drop(held_shortly.take());
                held_shortly.insert(short.lock().unwrap()).fencing_token().to_string()
            }
            "is extended" => is_extended(held_shortly.as_ref().unwrap()).to_string(),
            "unlock" => format!("{:?}", held.take().unwrap().unlock()),
            "embedded" => embedded.lock().unwrap().fencing_token().to_string(),
            other => panic!("{other}"),
        };
        worker::answer(&answer);
    }
}

/// Whether the lease of a hold is extended. It may end before, as on a machine that stalls.
fn is_extended(guard: &DLockGuard<'_>) -> bool {
    let mut left = guard.remaining();
    let mut is_extended = false;
    eventually("the lease is extended or ends", || {
        let before = std::mem::replace(&mut left, guard.remaining());
        is_extended = left > before;
        is_extended || !guard.is_valid()
    });
    is_extended
}

/// Whether a wait for what another client holds lasts for its limit. Whoever asks gives up on one that lasts for far longer.
fn wait_in_vain(lock: &DistributedReentrantLock) -> bool {
    let limit = Duration::from_secs(1);
    let begin = Instant::now();
    let got = lock.try_lock_for(limit).unwrap().is_some();
    !got && begin.elapsed() >= limit
}

/// Shows: G3, G7.
#[test]
fn the_wall_clock_of_a_client_is_none_of_its_business() {
    let server = RedisServer::start();
    let shim = ClockShim::build();
    let variables = shim.variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut client = Worker::start_with("endurance::wall_clock::process", &server.url(), &variables);
    let lock = connect_patiently(&server.url()).generate_with(config("x", LEASE_MS)).unwrap();
    let (mut last, mut embedded) = (0, 0);
    let rises = |token: u64, last: &mut u64| assert!(token > std::mem::replace(last, token));
    for (before, offset) in [(0, HOUR), (HOUR, 0), (0, -HOUR), (-HOUR, 0)] {
        rises(client.ask("lock").parse().unwrap(), &mut last);
        eventually("a lease is extended after the step", || {
            shim.set(before);
            client.ask("lock shortly");
            shim.set(offset);
            client.ask("is extended") == "true"
        });
        let differs = client.ask("time").parse::<i64>().unwrap() - wall_clock();
        assert!((differs - offset).abs() <= 2, "the clock of the process is moved: {differs}");
        assert_eq!(client.ask("is valid"), "true", "at {offset} s");
        assert_eq!(client.ask("wait"), "true", "at {offset} s");
        assert!(lock.try_lock().unwrap().is_none());
        assert_eq!(client.ask("is valid"), "true", "at {offset} s");
        assert_eq!(client.ask("unlock"), "Ok(())");
        let guard = lock.lock().unwrap();
        rises(guard.fencing_token(), &mut last);
        guard.unlock().unwrap();
        rises(client.ask("embedded").parse().unwrap(), &mut embedded);
    }
    eprintln!("endurance, wall clock of a client moved by +1 h, -1 h, -1 h, +1 h: held, waited, no violations");
}

/// What no library before the C library can show: a clock that is read by a system call of ours.
#[test]
fn no_source_of_the_crate_reads_the_wall_clock_but_the_embedded_store() {
    fn visit(dir: &Path, readers: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, readers);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            if ["SystemTime", "Realtime", "UNIX_EPOCH", "Tai"].iter().any(|word| text.contains(word)) {
                readers.push(path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut readers = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut readers);
    readers.sort();
    // The client record says to people when its client was made, and a figure says since when the store fails.
    let for_people = ["src/client/record.rs", "src/description.rs", "src/client/events/metrics.rs"];
    readers.retain(|path| !for_people.contains(&path.as_str()));
    assert_eq!(readers, ["src/store/memory/fence.rs"]);
}
