//! Leaders, while a master fails.

use super::super::terms::assert_led;
use super::{ALL, bounds, five, lease_here};
use crate::stage::Stage;

/// What its replica has acknowledged is never led by two.
/// Shows: G1, G7, L1.
#[test]
fn a_killed_master_of_a_cluster_gives_no_two_leaders() {
    let setup = five("Cluster: master killed, leaders", lease_here()).acknowledged(ALL).leading();
    let report = Stage::open_cluster().play(setup, bounds(false), |scene| {
        let failover = scene.kill_master();
        scene.promoted(&failover);
        scene.mend_for_acks(&failover);
        let all = scene.all_but(&[]);
        scene.followed_past_lost_releases(&failover, &all);
    });
    assert_led(report);
}
