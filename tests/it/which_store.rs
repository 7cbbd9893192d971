//! The manual's page "Which store": its figures are those of the stores, and locks with settings beyond them are refused. No server is needed.

use dlock_consensus::{ConsulLockProcessor, EtcdLockProcessor};
use redis_dlock::processor::DeadWaiters;
use redis_dlock::{DLockConfig, DLockGenerator, Error, LockProcessor, MemoryLockProcessor, RedisLockProcessor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

type Store = Arc<dyn LockProcessor>;

fn redis(url: &str) -> Store {
    Arc::new(RedisLockProcessor::builder(url).unwrap().build().unwrap())
}

fn etcd() -> Store {
    Arc::new(EtcdLockProcessor::new("etcd://127.0.0.1:1").unwrap())
}

fn consul() -> Store {
    Arc::new(ConsulLockProcessor::new("consul://127.0.0.1:1").unwrap())
}

/// One of each column.
fn stores() -> [Store; 6] {
    [
        Arc::new(MemoryLockProcessor::new()),
        redis("redis://127.0.0.1:1"),
        redis("redis+sentinel://127.0.0.1:1/name"),
        redis("redis+cluster://127.0.0.1:1"),
        etcd(),
        consul(),
    ]
}

/// The rows by their first cells. A cell that says so is the same as the one before it.
fn rows() -> BTreeMap<String, Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/stores.md");
    let page = fs::read_to_string(page).unwrap();
    let head = "| | embedded | Redis | Redis Sentinel | Redis Cluster | etcd | Consul |";
    let rows = page.lines().skip_while(|line| *line != head).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
            let name = cells.next().unwrap();
            let mut row = Vec::<String>::new();
            for cell in cells {
                row.push(if cell == "the same" { row.last().unwrap().clone() } else { cell });
            }
            assert_eq!(row.len(), 6, "{name}");
            (name, row)
        })
        .collect()
}

/// A time as the page writes it, in whole units.
fn told(time: Duration) -> String {
    match time.as_secs() {
        _ if time.is_zero() => "none".into(),
        0 => format!("{} ms", time.as_millis()),
        seconds @ ..3600 => format!("{seconds} s"),
        seconds @ ..86_400 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.into()
}

#[test]
fn the_figures_of_the_page_are_the_limits_of_the_stores() {
    let rows = rows();
    for (column, store) in stores().iter().enumerate() {
        let limits = store.limits();
        let cell = |name: &str| rows.get(name).unwrap_or_else(|| panic!("no row {name:?}"))[column].as_str();
        let leases = cell("leases");
        assert!(leases.starts_with(&told(limits.shortest_lease)), "{leases}, {store:?}");
        assert!(leases.ends_with(&format!(" to {}", told(limits.longest_lease))), "{leases}, {store:?}");
        let expected = [
            ("leases in units of", told(limits.tick.max(Duration::from_millis(1)))),
            ("the same as a number of leases, at most, while one server leads", limits.dead_holder_leases.to_string()),
            ("a request may take, where no wait says otherwise", told(limits.command)),
            ("a waiter knows how long the holder's lease lasts", yes_or_no(limits.remaining_known)),
            ("turns for pollers ([`with_poller_gap`][DLockConfig::with_poller_gap])", yes_or_no(limits.poller_gaps)),
            (
                "[`describe`, `list`][who_holds_it], [`break_lock`][DLockGenerator::break_lock]",
                yes_or_no(store.directory().is_some() && limits.breaks),
            ),
        ];
        for (name, expected) in expected {
            assert_eq!(cell(name), expected, "{name}: {store:?}");
        }
        let is_passed_over = cell("a dead waiter").starts_with("is passed over");
        assert_eq!(is_passed_over, limits.dead_waiters == DeadWaiters::AtOnce, "{store:?}");
        let outage = cell("renewals allow for an outage of");
        if outage != "what the Sentinels are set to" {
            assert_eq!(outage, told(limits.outage), "{store:?}");
        }
    }
}

/// The error of settings that a store cannot keep to.
fn refused(store: &Store, set: impl FnOnce(DLockConfig) -> DLockConfig) -> String {
    let generator = DLockGenerator::new(Arc::clone(store)).unwrap();
    let config = DLockConfig::new("STORE", "x").with_lease(Duration::from_secs(20));
    generator.generate_with(config.clone()).unwrap();
    let error = generator.generate_with(set(config)).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    error.to_string()
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_lease_beyond_the_limits_of_a_store_that_votes_is_refused_by_name() {
    let milli = Duration::from_millis(1);
    for store in [etcd(), consul()] {
        let limits = store.limits();
        let (shortest, longest) = (format!("{:?}", limits.shortest_lease), format!("{:?}", limits.longest_lease));
        let short = refused(&store, |config| config.with_lease(limits.shortest_lease - milli));
        says(&short, &["lease", &shortest, &longest]);
    }
    // The longest of etcd is that of the crate, which no config exceeds.
    let longest = consul().limits().longest_lease;
    says(&refused(&consul(), |config| config.with_lease(longest + milli)), &["lease", &format!("{longest:?}")]);
    // What is left of it in whole seconds is too short.
    says(&refused(&etcd(), |config| config.with_lease(Duration::from_millis(1999))), &["1.999s", "units of 1s"]);
}

#[test]
fn a_lock_delay_and_a_poller_gap_beyond_the_limits_of_a_store_that_votes_are_refused_by_name() {
    for store in [etcd(), consul()] {
        let longest = store.limits().longest_lease;
        let late = refused(&store, |config| config.with_lease(longest).with_lock_delay(Duration::from_secs(1)));
        says(&late, &["lock_delay", &format!("{longest:?}")]);
        let gap = refused(&store, |config| config.with_poller_gap(Duration::from_secs(40)));
        says(&gap, &["poller_gap", "40s", "this store cannot"]);
    }
}

/// The setting of the servers may be another one.
#[test]
fn a_shorter_session_ttl_min_allows_shorter_leases() {
    let second = Duration::from_secs(1);
    let store: Store = Arc::new(
        ConsulLockProcessor::builder("consul://127.0.0.1:1").unwrap().session_ttl_min(second).build().unwrap(),
    );
    assert_eq!(store.limits().shortest_lease, second);
    says(&refused(&store, |config| config.with_lease(second / 2)), &["lease", "500ms", "1s"]);
}

/// The crates that a program builds for a package with these features alone.
fn crates(package: &str, features: &str) -> BTreeSet<String> {
    let tree = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package, "--no-default-features", "--features", features])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_program_builds_nothing_for_a_store_that_it_does_not_use() {
    let http = crates("dlock-consensus", "consul");
    assert_eq!(http, crates("dlock-consensus", "etcd"));
    assert!(http.contains("ureq") && !http.contains("redis"), "{http:?}");
    let redis = crates("redis-dlock", "redis");
    assert!(redis.contains("redis"), "{redis:?}");
    for other in ["base64", "serde_json", "ureq"] {
        assert!(http.contains(other) && !redis.contains(other), "{redis:?}");
    }
}
