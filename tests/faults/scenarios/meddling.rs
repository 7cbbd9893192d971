//! An operator, or the server itself, deletes or changes the key of a lock that is held.

use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::setup::{Setup, leases};
use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::work::KEY;
use crate::worker::now;
use std::time::Duration;

/// A sixth of the lease, and what a busy machine needs.
fn soon() -> Duration {
    leases(1.0 / 6.0 + 0.25)
}

/// The store drops a live lease. Two may be inside, but the one that has lost the lock knows soon.
fn dropped() -> Bounds {
    Bounds { lossy: true, told: soon(), waited: leases(1.0), expired: 0 }
}

/// Does something to the key in a hold of the first process, which is to last longer.
fn meddle(setup: Setup, what: impl Fn(&mut Scene)) -> Report {
    // The operator's own value may end with its lease.
    let bounds = Bounds { expired: 1, ..dropped() };
    let report = setup.first_holds(1.2).play(bounds, |scene| {
        scene.wait_inside(0);
        scene.sleep(0.3);
        scene.fault();
        scene.gone_at = Some(now());
        what(scene);
    });
    assert!(report.lost >= 1, "its holder knows: {report}");
    report
}

/// Shows: G5, G7.
#[test]
fn a_deleted_key_is_no_longer_held() {
    meddle(Setup::of("DEL by an operator"), |scene| {
        assert_eq!(scene.server.run::<u64>(&["DEL", KEY.2]), 1);
        let at = now();
        let waited = scene.next_hold_after(at);
        assert!(waited < soon(), "waiters find out by themselves: {waited:?}");
    })
    .assert_clean();
}

/// Shows: G5, G7.
#[test]
fn a_flushed_store_has_dropped_the_lock_and_all_that_waited() {
    meddle(Setup::of("FLUSHALL by an operator"), |scene| {
        scene.next();
        // The fence goes with the rest; numbers rise all the same.
        scene.server.run::<()>(&["FLUSHALL"]);
        let at = now();
        let waited = scene.next_hold_after(at);
        assert!(waited < soon(), "waiters find out by themselves: {waited:?}");
    })
    .assert_clean();
}

pub(crate) fn overwritten(mutant: Option<&'static str>) -> Report {
    meddle(Setup::of("overwritten by an operator").with(mutant), |scene| {
        scene.server.run::<()>(&["SET", KEY.2, "operator-1", "PX", "900"]);
        scene.note_ttl();
        // Nobody may touch it: seen by the checker of what the server executes.
        scene.sleep(0.8);
    })
}

/// Shows: G5, S3.
#[test]
fn an_overwritten_key_is_the_operators_until_it_ends() {
    overwritten(None).assert_clean();
}

/// Shows: G5, S3.
#[test]
fn a_key_of_another_type_is_a_conflict_at_once_and_left_alone() {
    let setup = Setup::of("key of another type");
    meddle(setup, |scene| {
        let mut admin = scene.server.connection();
        redis::pipe().atomic().del(KEY.2).rpush(KEY.2, "operator-1").exec(&mut admin).unwrap();
        scene.close_for(0.6);
        let contents = || scene.server.run::<Vec<u8>>(&["DUMP", KEY.2]);
        let before = contents();
        scene.sleep(0.6);
        assert_eq!(contents(), before);
        // This includes the threads that call `lock()`, and those that waited before.
        scene.refresh();
        assert!(scene.failures("is in use by something else", |_| true) > 10);
        scene.server.run::<()>(&["DEL", KEY.2]);
    })
    .assert_clean();
}

/// Lets the server evict everything, as one does that is far above its limit.
fn evict(server: &RedisServer) {
    let evicted = || -> u64 {
        let stats = server.info("stats");
        stats.lines().find_map(|line| line.strip_prefix("evicted_keys:")).unwrap().parse().unwrap()
    };
    let before = evicted();
    server.config("maxmemory-policy", "allkeys-lru");
    server.config("maxmemory", "1");
    eventually("keys are evicted", || evicted() > before && server.run::<u64>(&["EXISTS", KEY.2]) == 0);
    server.config("maxmemory", "0");
}

/// Shows: G5, G7.
#[test]
fn an_evicted_key_is_no_longer_held() {
    meddle(Setup::of("allkeys-lru evicts the key").unmonitored(), |scene| {
        evict(&scene.server);
        let at = now();
        let waited = scene.next_hold_after(at);
        assert!(waited < soon(), "waiters find out by themselves: {waited:?}");
    })
    .assert_clean();
}

/// Shows: G7.
#[test]
fn tokens_rise_over_many_evictions() {
    let report = Setup::of("allkeys-lru evicts all the time").unmonitored().play(dropped(), |scene| {
        for _ in 0..8 {
            scene.sleep(0.2);
            evict(&scene.server);
        }
    });
    report.assert_clean();
}
