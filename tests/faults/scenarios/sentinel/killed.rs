//! The master's process is killed.

use super::{ALL, assert_kept, bounds, bounds_with, fail_over, five, kill_in_a_hand_over, serve_in_order};
#[cfg(dlock_mutants)]
use super::{kill_under_load, lease_here};
#[cfg(dlock_mutants)]
use crate::report::Report;
use crate::scene::Scene;
#[cfg(dlock_mutants)]
use crate::setup::Setup;
use crate::stage::Stage;
use crate::support::RedisServer;
use crate::work::KEY;
use std::time::Duration;

/// Shows: G3, G7, L1.
#[test]
fn a_killed_master_costs_neither_the_holder_nor_those_who_wait_what_the_replicas_have() {
    let mut stage = Stage::open();
    held(&mut stage, 0, None);
    handed_over(&mut stage, 0);
    missed(&mut stage);
}

/// Shows: G3, G7, L1.
#[test]
fn a_killed_master_costs_nothing_that_all_replicas_have_acknowledged() {
    let mut stage = Stage::open();
    held(&mut stage, ALL, None);
    handed_over(&mut stage, ALL);
}

/// The replicas have the queue in another order.
#[cfg(dlock_mutants)]
pub(crate) fn while_held_with_a_queue_turned_round() {
    let turn = |replica: &RedisServer| {
        let (queue, mut entries) = (replica.queue_of(KEY.2).expect("somebody waits"), replica.entries_of(KEY.2));
        entries.reverse();
        replica.run::<()>(&["DEL", &queue]);
        replica.run::<()>(
            &[&["RPUSH", queue.as_str()][..], &entries.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
        );
    };
    held(&mut Stage::open(), 0, Some(turn));
}

/// The replicas know the hold and the queue.
fn held(stage: &mut Stage, acks: u8, meddle: Option<fn(&RedisServer)>) {
    let mut took = Duration::ZERO;
    let report = stage.play(five("master killed, lock held and waited for", acks), bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        if let Some(meddle) = meddle {
            at_replicas(scene, meddle);
        }
        let failover = scene.kill_master();
        fail_over(scene, &failover, &[]);
        scene.mend_for_acks(&failover);
        took = failover.age();
        serve_in_order(scene, 0, &order);
    });
    assert_kept(report, took);
}

fn handed_over(stage: &mut Stage, acks: u8) {
    stage.play(five("master killed in a hand-over", acks), bounds_with(acks), kill_in_a_hand_over).assert_clean();
}

#[cfg(dlock_mutants)]
pub(crate) fn from_hand_to_hand(mutant: Option<&'static str>) -> Report {
    let setup = Setup::of("master killed, locks go from hand to hand").behind_sentinels(lease_here(), 0).with(mutant);
    Stage::open().play(setup, bounds(true), |scene| _ = kill_under_load(scene))
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
    at_replicas(scene, |replica| replica.run::<()>(&["DEL", KEY.2]));
}

/// Changes what the replicas have, which hear nothing of the master any more.
fn at_replicas(scene: &Scene, meddle: fn(&RedisServer)) {
    let service = scene.server.service();
    let replicas = (0..service.servers.len()).filter(|place| *place != scene.server.master());
    for replica in replicas.map(|place| &service.servers[place]) {
        replica.pause_replication();
        replica.config("replica-read-only", "no");
        meddle(replica);
        replica.config("replica-read-only", "yes");
    }
}
