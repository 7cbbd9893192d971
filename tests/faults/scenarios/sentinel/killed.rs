//! The master's process is killed.

use super::{ACKS, assert_kept, bounds, bounds_with, fail_over, five, serve_in_order};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::worker::KEY;
use std::time::Duration;

/// Shows: G3, G7, L1.
#[test]
fn a_killed_master_costs_neither_the_holder_nor_those_who_wait_what_the_replicas_have() {
    let mut stage = Stage::open();
    for acks in ACKS {
        held(&mut stage, *acks);
        handed_over(&mut stage, *acks);
    }
    missed(&mut stage);
}

/// The replicas know the hold and the queue.
fn held(stage: &mut Stage, acks: u8) {
    let mut took = Duration::ZERO;
    let report = stage.play(five("master killed, lock held and waited for", acks), bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        let failover = scene.kill_master();
        fail_over(scene, &failover, &[]);
        scene.mend_for_acks(&failover);
        took = failover.age();
        serve_in_order(scene, 0, &order);
    });
    assert_kept(report, took);
}

/// The lock is given to a process that learns of it when there is another master.
fn handed_over(stage: &mut Stage, acks: u8) {
    let report = stage.play(five("master killed in a hand-over", acks), bounds_with(acks), |scene| {
        let next = scene.held_and_waited_for(0)[0];
        scene.stop_in_hand_over(0, next);
        let failover = scene.kill_master();
        scene.promoted(&failover);
        let others = scene.all_but(&[next]);
        scene.followed_past_lost_releases(&failover, &others);
        scene.mend_for_acks(&failover);
        scene.resume(next);
        scene.followed(&failover, &[next]);
    });
    report.assert_clean();
}

/// The replicas have missed a hold. Its process stands still while others hold the lock, and comes too late to the fenced store.
fn missed(stage: &mut Stage) {
    let report = stage.play(five("master killed, hold not replicated", 0), bounds(true), |scene| {
        scene.held_and_waited_for(0);
        miss(scene);
        let failover = scene.kill_master();
        scene.stop(0);
        fail_over(scene, &failover, &[0]);
        scene.go_on(6);
        scene.resume(0);
        scene.followed(&failover, &[0]);
        scene.let_go(0);
    });
    assert!(report.lost >= 1 && report.refused >= 1, "{report}");
    report.assert_clean();
}

/// Lets the replicas be as if they had missed the key.
fn miss(scene: &Scene) {
    let service = scene.server.service();
    let replicas = (0..service.servers.len()).filter(|place| *place != scene.server.master());
    for replica in replicas.map(|place| &service.servers[place]) {
        replica.pause_replication();
        replica.config("replica-read-only", "no");
        replica.run::<()>(&["DEL", KEY.2]);
        replica.config("replica-read-only", "yes");
    }
}
