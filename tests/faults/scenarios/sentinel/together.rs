//! Several locks at once, while the master fails.

use super::super::together::{assert_together, for_each_of_three};
use super::{ALL, bounds, five, kill_under_load};
use crate::stage::Stage;

/// A lock that all replicas have acknowledged never has two holders.
/// Shows: G1, G7, L1.
#[test]
fn a_killed_master_gives_no_two_one_of_several_locks() {
    let setup = five("master killed, several locks", ALL).together();
    let report = Stage::open().play(setup, for_each_of_three(bounds(false)), |scene| {
        let failover = kill_under_load(scene);
        scene.mend_for_acks(&failover);
    });
    assert_together(report);
}
