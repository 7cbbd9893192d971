//! Another server takes over, and has missed the last writes.

use crate::checker::waits::Kept;
use crate::report::Bounds;
use crate::setup::{Setup, leases};
use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::worker::now;
use std::time::Duration;

/// A sixth of the lease, a connection, and what a busy machine needs.
fn soon() -> Duration {
    leases(1.0 / 6.0 + 0.25)
}

fn dropped() -> Bounds {
    Bounds { lossy: true, told: soon(), waited: leases(1.0), expired: 0 }
}

/// A replica does not wait for others that might come.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// Shows: G5, G7.
#[test]
fn a_holder_hears_of_a_new_master_that_missed_its_lock() {
    // Beyond the end of the scene: where clients are not led to, the old master lives on.
    let mut old = Vec::new();
    let report = Setup::of("failover to a replica that missed the SET").first_holds(1.2).unmonitored().play(
        dropped(),
        |scene| {
            let replica = scene.server.start_replica();
            scene.go_on(3);
            replica.pause_replication();
            // A hold that the replica knows nothing of.
            scene.wait_inside(0);
            scene.sleep(0.2);
            replica.promote();
            scene.fault();
            scene.gone_at = Some(now());
            old.push(scene.go_over_to(replica));
            // What it has instead is the locker of a tenure that is long over, for the rest of its lease.
            scene.note_ttl();
        },
    );
    assert!(report.lost >= 1, "{report}");
    report.assert_clean();
}

/// Shows: G5, G7.
#[test]
fn a_master_that_comes_back_empty_has_dropped_the_lock() {
    let report =
        Setup::of("REPLICAOF an empty server and back").first_holds(1.3).unmonitored().play(dropped(), |scene| {
            let empty = RedisServer::start_with(&AT_ONCE);
            scene.wait_inside(0);
            scene.sleep(0.2);
            scene.fault();
            let at = now();
            scene.server.demote(&empty);
            eventually("it has taken over nothing", || {
                scene.server.info("replication").contains("master_link_status:up")
            });
            // As long as it is no master, it says nothing about losses.
            scene.gone_at = Some(now());
            scene.server.promote();
            scene.kept.push(Kept { at, until: now() });
        });
    assert!(report.lost >= 1, "{report}");
    report.assert_clean();
}
