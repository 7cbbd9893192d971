//! Leaders, while the master fails.

use super::super::terms::assert_led;
use super::{ALL, bounds, five, kill_under_load};
use crate::stage::Stage;

/// What is acknowledged by all replicas is never led by two.
/// Shows: G1, G7, L1.
#[test]
fn a_killed_master_gives_no_two_leaders() {
    let setup = five("master killed, leaders", ALL).leading();
    let report = Stage::open().play(setup, bounds(false), |scene| {
        let failover = kill_under_load(scene);
        scene.mend_for_acks(&failover);
    });
    assert_led(report);
}
