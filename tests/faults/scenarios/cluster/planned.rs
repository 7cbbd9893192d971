//! An operator asks a replica to take over (`CLUSTER FAILOVER`). The master stops serving until the replica has all data, so nothing is lost.

use super::{bounds, fail_over, five, lease_here, serve_in_order};
use crate::checker::waits::Kept;
use crate::report::Report;
use crate::setup::Setup;
use crate::stage::Stage;
use crate::worker::now;
use std::thread;
use std::time::Duration;

/// How often the two nodes take over from each other under load.
const TURNS: usize = 4;

/// For so long after a failover the other masters do not vote for the next one of the same nodes, and somewhat longer: twice their time-out is two seconds.
pub(crate) const APART: Duration = Duration::from_millis(2300);

/// Shows: G1, G3, G7, L1.
#[test]
fn a_planned_failover_of_a_cluster_costs_nothing() {
    let mut stage = Stage::open_cluster();
    held(&mut stage);
    handed_over(&mut stage);
    again_and_again(&mut stage).assert_clean_without_loss();
}

fn held(stage: &mut Stage) {
    let setup = five("Cluster: planned failover, lock held and waited for", lease_here());
    let report = stage.play(setup, bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        let failover = scene.plan_failover(0);
        fail_over(scene, &failover, &[]);
        serve_in_order(scene, 0, &order);
    });
    report.assert_clean_without_loss();
}

/// The lock is given to a process that learns of it when there is another master.
fn handed_over(stage: &mut Stage) {
    let setup = five("Cluster: planned failover in a hand-over", lease_here());
    let report = stage.play(setup, bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        scene.stop_in_hand_over(0, order[0]);
        let failover = scene.plan_failover(0);
        scene.promoted(&failover);
        scene.followed(&failover, &order[1..]);
        scene.resume(order[0]);
        scene.followed(&failover, &order[..1]);
    });
    report.assert_clean_without_loss();
}

/// Locks go from hand to hand all the while. Nothing may be lost, so M, F and X are judged as on one server.
fn again_and_again(stage: &mut Stage) -> Report {
    let setup = Setup::of("Cluster: planned failovers under load").in_cluster(lease_here());
    stage.play(setup, bounds(false), |scene| {
        for _ in 0..TURNS {
            let failover = scene.plan_failover(0);
            scene.promoted(&failover);
            scene.kept.push(Kept { at: failover.from, until: now() });
            scene.go_on(10);
            thread::sleep(APART.saturating_sub(failover.age()));
        }
    })
}
