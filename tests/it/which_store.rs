//! The manual's page "Stores": its figures are those of the stores, and locks with settings beyond them are refused. No server is needed.

use crate::support::stores_page::tells_limits;
use dlock_consensus::{ConsulLockProcessor, EtcdLockProcessor};
use redis_dlock::{DLockConfig, DLockGenerator, Error, LockProcessor, MemoryLockProcessor, RedisLockProcessor};
use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// How many crates a program builds for this one with its default features, at most.
const MOST_CRATES: usize = 61;

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

#[test]
fn the_figures_of_the_page_are_the_limits_of_the_stores() {
    tells_limits("embedded", &MemoryLockProcessor::new());
    tells_limits("Redis", &redis("redis://127.0.0.1:1"));
    tells_limits("Redis Sentinel", &redis("redis+sentinel://127.0.0.1:1/name"));
    tells_limits("Redis Cluster", &redis("redis+cluster://127.0.0.1:1"));
    tells_limits("etcd", &etcd());
    tells_limits("Consul", &consul());
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

/// The crates that a program builds for a package, with no features but these.
fn crates(package: &str, features: &[&str]) -> BTreeSet<String> {
    let tree = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package, "--no-default-features"])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_program_builds_nothing_for_a_store_that_it_does_not_use() {
    let http = crates("dlock-consensus", &["--features", "consul"]);
    assert_eq!(http, crates("dlock-consensus", &["--features", "etcd"]));
    assert!(http.contains("ureq") && !http.contains("redis"), "{http:?}");
    let redis = crates("redis-dlock", &["--features", "redis"]);
    assert!(redis.contains("redis"), "{redis:?}");
    for other in ["base64", "serde_json", "ureq"] {
        assert!(http.contains(other) && !redis.contains(other), "{redis:?}");
    }
    for package in ["redis-dlock", "dlock-consensus", "dlock-cli"] {
        let all = crates(package, &["--all-features"]);
        assert!(!all.iter().any(|name| name.contains("mongo")), "{package}: {all:?}");
    }
    let default = crates("redis-dlock", &["--features", "default"]);
    assert!(default.is_superset(&redis) && default.len() <= MOST_CRATES, "{} crates: {default:?}", default.len());
}
