//! A master's process is killed.

use super::super::sentinel::{kill_in_a_hand_over, kill_under_load};
use super::{ALL, assert_kept, bounds, fail_over, five, lease_here, serve_in_order};
use crate::setup::Setup;
use crate::stage::Stage;
use std::time::Duration;

/// Shows: G3, G7, L1.
#[test]
fn a_killed_master_of_a_cluster_costs_neither_the_holder_nor_those_who_wait_what_its_replica_has() {
    let mut stage = Stage::open_cluster();
    held(&mut stage, 0);
    handed_over(&mut stage, 0);
}

/// Nobody gets the lock until the new master has a replica.
/// Shows: G1, G3, G7, L1, S1, S2.
#[test]
fn a_killed_master_of_a_cluster_costs_nothing_that_its_replica_has_acknowledged() {
    let mut stage = Stage::open_cluster();
    held(&mut stage, ALL);
    handed_over(&mut stage, ALL);
}

/// Shows: G1, G7, L1.
#[test]
fn locks_go_from_hand_to_hand_while_a_master_of_a_cluster_is_killed() {
    let setup = Setup::of("Cluster: master killed, locks go from hand to hand").in_cluster(lease_here());
    Stage::open_cluster().play(setup, bounds(true), |scene| _ = kill_under_load(scene)).assert_clean();
}

/// The replica knows the hold and the queue.
fn held(stage: &mut Stage, acks: u8) {
    let mut took = Duration::ZERO;
    let setup = five("Cluster: master killed, lock held and waited for", lease_here()).acknowledged(acks);
    let report = stage.play(setup, bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        let failover = scene.kill_master();
        fail_over(scene, &failover, &[]);
        scene.mend_for_acks(&failover);
        took = failover.age();
        serve_in_order(scene, 0, &order);
    });
    assert_kept(report, took);
}

fn handed_over(stage: &mut Stage, acks: u8) {
    let setup = five("Cluster: master killed in a hand-over", lease_here()).acknowledged(acks);
    stage.play(setup, bounds(acks == 0), kill_in_a_hand_over).assert_clean();
}
