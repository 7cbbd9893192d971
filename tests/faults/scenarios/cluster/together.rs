//! Several locks at once, each of another slot, while the master of one of them fails.

use super::super::together::{assert_together, for_each_of_three};
use super::{ALL, bounds, five, kill_acknowledged, lease_here};
use crate::stage::Stage;

/// A lock that the replica has acknowledged never has two holders.
/// Shows: G1, G7, L1.
#[test]
fn a_killed_master_of_a_cluster_gives_no_two_one_of_several_locks() {
    let setup = five("Cluster: master killed, several locks", lease_here()).acknowledged(ALL).together();
    let report = Stage::open_cluster().play(setup, for_each_of_three(bounds(false)), kill_acknowledged);
    assert_together(report);
}
