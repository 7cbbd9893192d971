//! A store that may be away for a while: leases are extended early enough to outlive that, and the log tells of those that cannot.

use crate::support::crew::eventually;
use crate::support::journal;
use redis_dlock::processor::{Limit, LockProcessor, Outcome, Request, StoreLimits};
use redis_dlock::{DLockConfig, DLockGenerator, Error, ManualClock, MemoryLockProcessor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const OUTAGE: Duration = Duration::from_secs(20);

/// A store that survives an outage of 20 s, and counts extensions.
#[derive(Clone, Debug)]
struct Slow(Arc<(MemoryLockProcessor, AtomicUsize)>);

impl LockProcessor for Slow {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        let results = self.0.0.run(requests, limit);
        let extensions = requests.iter().filter(|request| matches!(request, Request::Extend(_))).count();
        self.0.1.fetch_add(extensions, Ordering::SeqCst);
        results
    }

    fn limits(&self) -> StoreLimits {
        let mut limits = self.0.0.limits();
        (limits.outage, limits.poller_gaps, limits.numbers, limits.breaks) = (OUTAGE, false, false, false);
        limits
    }
}

/// After how much time, in steps of a second, a lease is first extended.
fn first_extension(config: DLockConfig) -> Duration {
    let clock = Arc::new(ManualClock::new());
    let store = Slow(Arc::new((MemoryLockProcessor::with_clock(clock.clone()), AtomicUsize::new(0))));
    let generator = DLockGenerator::builder().clock(clock.clone()).build(store.clone()).unwrap();
    // A probe is an extension in a store that has no other one.
    let guard = generator.generate_with(config.with_probe(false)).unwrap().lock_owned().unwrap();
    let mut passed = Duration::ZERO;
    while store.0.1.load(Ordering::SeqCst) == 0 {
        assert!(passed < LEASE, "never extended");
        passed += Duration::from_secs(1);
        clock.pass(Duration::from_secs(1));
    }
    eventually("the extension is heard of", || guard.remaining() > LEASE / 2);
    passed
}

#[test]
fn a_lease_is_extended_when_the_rest_still_outlives_an_outage() {
    let config = || DLockConfig::new("OUTAGES", "x").with_lease(LEASE);
    let early = first_extension(config());
    assert!((LEASE - OUTAGE..LEASE / 2).contains(&early), "{early:?}");
    // Who sets it decides.
    let late = first_extension(config().with_renew_at(0.75));
    assert!(late >= LEASE.mul_f64(0.75), "{late:?}");
}

#[test]
fn one_line_for_each_type_tells_of_leases_that_an_outage_ends() {
    journal::keep();
    let store = Slow(Arc::new((MemoryLockProcessor::new(), AtomicUsize::new(0))));
    let generator = DLockGenerator::new(store).unwrap();
    let make = |lock_type: &str, target: &str, seconds| {
        let config = DLockConfig::new(lock_type, target).with_lease(Duration::from_secs(seconds));
        drop(generator.generate_with(config).unwrap());
    };
    make("OUTAGES_SHORT", "a", 29);
    make("OUTAGES_SHORT", "b", 10);
    make("OUTAGES_LONG", "a", 30);
    let lines = journal::warnings("OUTAGES_SHORT");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(["29s", "20s", "30s"].iter().all(|figure| lines[0].contains(figure)), "{lines:?}");
    assert_eq!(journal::warnings("OUTAGES_LONG"), [""; 0]);
}
