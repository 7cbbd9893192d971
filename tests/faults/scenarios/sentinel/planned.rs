//! An operator asks for a failover. Two servers take writes for eleven seconds; the clients leave the old one as soon as a Sentinel names the
//! new one.

use super::{ALL, assert_kept, bounds, bounds_with, fail_over, five, lease_here, serve_in_order};
use crate::setup::Setup;
use crate::stage::Stage;
use crate::support::crew::eventually;
use std::thread;
use std::time::Duration;

/// Shows: G3, G7, L1.
#[test]
fn a_planned_failover_costs_neither_the_holder_nor_those_who_wait_what_the_replicas_have() {
    let mut stage = Stage::open();
    held(&mut stage, 0, None);
    handed_over(&mut stage, 0);
}

/// Shows: G3, G7, L1.
#[test]
fn a_planned_failover_costs_nothing_that_all_replicas_have_acknowledged() {
    let mut stage = Stage::open();
    held(&mut stage, ALL, None);
    handed_over(&mut stage, ALL);
}

/// Until the old master is a replica there are two masters, and for most of that time nobody asks the old one.
/// Shows: G1, G7.
#[test]
fn two_masters_have_the_clients_only_until_a_sentinel_names_the_new_one() {
    let mut stage = Stage::open();
    from_hand_to_hand(&mut stage, 0);
    from_hand_to_hand(&mut stage, ALL);
}

fn from_hand_to_hand(stage: &mut Stage, acks: u8) {
    let setup = Setup::of("planned failover, locks go from hand to hand").behind_sentinels(lease_here(), acks);
    let report = stage.play(setup, bounds_with(acks), |scene| {
        let failover = scene.plan_failover(0);
        scene.promoted(&failover);
        let all = scene.all_but(&[]);
        scene.followed_past_lost_releases(&failover, &all);
        scene.wait_until_old_is_left(&failover);
        scene.mend_for_acks(&failover);
        eventually("the old master is a replica", || {
            thread::sleep(Duration::from_millis(50));
            !scene.old_is_master(&failover)
        });
    });
    report.assert_clean();
}

#[cfg(dlock_mutants)]
pub(crate) fn while_held(mutant: Option<&'static str>) {
    held(&mut Stage::open(), 0, mutant);
}

fn held(stage: &mut Stage, acks: u8, mutant: Option<&'static str>) {
    let mut took = Duration::ZERO;
    let report =
        stage.play(five("planned failover, lock held and waited for", acks).with(mutant), bounds(false), |scene| {
            let order = scene.held_and_waited_for(0);
            let failover = scene.plan_failover(1);
            fail_over(scene, &failover, &[]);
            scene.wait_until_old_is_left(&failover);
            scene.mend_for_acks(&failover);
            took = failover.age();
            serve_in_order(scene, 0, &order);
        });
    assert_kept(report, took);
}

/// The lock is released at the old master when the new one is master already, which leaves it there to the rest of the lease.
fn handed_over(stage: &mut Stage, acks: u8) {
    let report = stage.play(five("planned failover in a hand-over", acks), bounds_with(acks), |scene| {
        scene.held_and_waited_for(0);
        let failover = scene.plan_failover(2);
        scene.promoted(&failover);
        scene.let_go(0);
        let all = scene.all_but(&[]);
        scene.followed_past_lost_releases(&failover, &all);
        scene.mend_for_acks(&failover);
    });
    report.assert_clean();
}
