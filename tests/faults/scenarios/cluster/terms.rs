//! Leaders, while a master fails.

use super::super::terms::assert_led;
use super::{ALL, bounds, five, kill_acknowledged, lease_here};
use crate::stage::Stage;

/// What its replica has acknowledged is never led by two.
/// Shows: G1, G7, L1.
#[test]
fn a_killed_master_of_a_cluster_gives_no_two_leaders() {
    let setup = five("Cluster: master killed, leaders", lease_here()).acknowledged(ALL).leading();
    let report = Stage::open_cluster().play(setup, bounds(false), kill_acknowledged);
    assert_led(report);
}
