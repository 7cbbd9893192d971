//! The clients reach fewer and fewer Sentinels, and then none.

use super::{ALL, assert_kept, bounds, bounds_with, fail_over, five, serve_in_order};
use crate::scene::Scene;
use crate::setup::Setup;
use crate::stage::Stage;
use crate::support::crew::eventually;
use std::thread;
use std::time::Duration;

/// One that is reached is enough to follow a failover. None is needed as long as the master stays.
/// Shows: G3, G7, L1.
#[test]
fn sentinels_that_are_cut_off_one_by_one_cost_nothing_as_long_as_one_is_left() {
    one_by_one(0);
}

/// Shows: G3, G7, L1.
#[test]
fn nor_do_they_cost_what_all_replicas_have_acknowledged() {
    one_by_one(ALL);
}

fn one_by_one(acks: u8) {
    let mut took = Duration::ZERO;
    let setup = Setup { proxied: true, ..five("Sentinels cut off one by one", acks) };
    let report = Stage::open().play(setup, bounds(false), |scene| {
        cut_off(scene, 0);
        scene.go_on(20);
        cut_off(scene, 1);
        scene.go_on(20);
        let order = scene.held_and_waited_for(0);
        let failover = scene.plan_failover(0);
        scene.promoted(&failover);
        is_named_by_the_last(scene);
        fail_over(scene, &failover, &[]);
        scene.mend_for_acks(&failover);
        took = failover.age();
        serve_in_order(scene, 0, &order);
        cut_off(scene, 2);
        let order = scene.held_and_waited_for(0);
        // For longer than all Sentinels are asked again.
        thread::sleep(Duration::from_secs(2));
        serve_in_order(scene, 0, &order);
    });
    assert_kept(report, took);
}

/// Shows: G3, G7, L1.
#[test]
fn a_hand_over_in_a_failover_needs_one_sentinel() {
    let mut stage = Stage::open();
    handed_over(&mut stage, 0);
    handed_over(&mut stage, ALL);
}

/// The lock is released at the old master when the new one is master already, and one Sentinel alone can tell that.
fn handed_over(stage: &mut Stage, acks: u8) {
    let setup = Setup { proxied: true, ..five("Sentinels cut off but for one, in a hand-over", acks) };
    let report = stage.play(setup, bounds_with(acks), |scene| {
        cut_off(scene, 0);
        cut_off(scene, 1);
        scene.held_and_waited_for(0);
        let failover = scene.plan_failover(0);
        scene.promoted(&failover);
        scene.let_go(0);
        is_named_by_the_last(scene);
        let all = scene.all_but(&[]);
        scene.followed_past_lost_releases(&failover, &all);
        scene.mend_for_acks(&failover);
        scene.go_on(20);
    });
    report.assert_clean();
}

/// Waits until the Sentinel that is left names the new master.
fn is_named_by_the_last(scene: &Scene) {
    let new = Some(scene.server.master());
    eventually("the one that is left names the new master", || {
        thread::sleep(Duration::from_millis(5));
        scene.server.service().named(2) == new
    });
}

/// Cuts a Sentinel off from all processes.
fn cut_off(scene: &Scene, sentinel: usize) {
    scene.processes().for_each(|process| scene.ways(process)[sentinel].cut_off());
}
