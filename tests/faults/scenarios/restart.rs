//! A server that goes down and comes back.

use crate::report::Bounds;
use crate::setup::{Setup, leases};
use crate::worker::now;
use std::time::{Duration, Instant};

/// Shows: G5, G7.
#[test]
fn holders_hear_of_a_server_that_came_back_without_their_keys() {
    // Lease/6, and a connection.
    let told = leases(0.5);
    let bounds = Bounds { lossy: true, told, waited: leases(1.0), expired: 0 };
    let report = Setup::of("restart without persistence").first_holds(1.5).unwatched().play(bounds, |scene| {
        for _ in 0..2 {
            scene.wait_inside(0);
            scene.sleep(0.4);
            scene.gone_at = Some(now());
            scene.fault();
            scene.server.restart();
        }
    });
    assert!(report.assert_clean().lost >= 1);
}

/// Shows: G3.
#[test]
fn a_server_that_came_back_with_its_keys_has_lost_no_lease() {
    let bounds = Bounds { waited: leases(1.0), ..Bounds::default() };
    let mut longest = Duration::ZERO;
    let report = Setup::of("restart with persistence")
        // What is written before an answer survives the end of the process; a slow disk is not the fault to be played.
        .server(&["--appendonly", "yes", "--appendfsync", "no"])
        .first_holds(1.5)
        .unwatched()
        .play(bounds, |scene| {
            for _ in 0..2 {
                scene.wait_inside(0);
                scene.sleep(0.4);
                let down = Instant::now();
                scene.server.restart();
                longest = longest.max(down.elapsed());
            }
        });
    // On a busy machine the start may take longer than a lease has left.
    if longest > leases(0.25) {
        report.assert_clean();
    } else {
        report.assert_clean_without_loss();
    }
}
