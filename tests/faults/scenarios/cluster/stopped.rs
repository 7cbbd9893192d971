//! A master's process stands still, and goes on when its replica is the master. It executes the requests in its sockets, and answers `OK`, until it
//! hears of its successor some hundredths of a second later.

use super::{assert_kept, bounds, fail_over, five, lease_here, serve_in_order};
use crate::failovers::Failover;
use crate::report::Report;
use crate::scene::Scene;
use crate::setup::{Setup, lease};
use crate::stage::Stage;
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(12);

/// Shows: G3, G7, L1.
#[test]
fn a_master_of_a_cluster_that_stands_still_for_two_seconds_costs_neither_the_holder_nor_those_who_wait() {
    let mut stage = Stage::open_cluster();
    kept(&mut stage, "Cluster: master stopped for 2 s, lock held and waited for", SHORT);
    handed_over(&mut stage, "Cluster: master stopped for 2 s in a hand-over", SHORT);
}

/// A thread that asks the master waits for its answer as long as a lease of the locks on other nodes lasts. Some renewals always ask it.
/// Shows: G3, G10, L1.
#[test]
fn a_master_of_a_cluster_that_stands_still_delays_nothing_on_the_others() {
    others_watched(None).assert_clean();
}

pub(crate) fn others_watched(mutant: Option<&'static str>) -> Report {
    let setup = five("Cluster: master stopped for 2 s, others watched", lease_here()).work(|work| work.io = lease());
    held(&mut Stage::open_cluster(), Setup { held_with_it: 4, ..setup }.with(mutant), SHORT).0
}

/// Shows: G3, G7, L1.
#[test]
#[ignore = "shows little more than two seconds do, and takes forty"]
fn a_master_of_a_cluster_that_stands_still_for_twelve_seconds_costs_neither_the_holder_nor_those_who_wait() {
    let mut stage = Stage::open_cluster();
    kept(&mut stage, "Cluster: master stopped for 12 s, lock held and waited for", LONG);
    handed_over(&mut stage, "Cluster: master stopped for 12 s in a hand-over", LONG);
}

fn kept(stage: &mut Stage, name: &'static str, length: Duration) {
    let (report, took) = held(stage, five(name, lease_here()), length);
    assert_kept(report, took);
}

/// Returns how long the failover took, too.
fn held(stage: &mut Stage, setup: Setup, length: Duration) -> (Report, Duration) {
    let mut took = Duration::ZERO;
    let report = stage.play(setup, bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        let failover = scene.stop_master();
        fail_over(scene, &failover, &[]);
        took = failover.age();
        wake_after(scene, &failover, length);
        serve_in_order(scene, 0, &order);
        scene.go_on(20);
    });
    (report, took)
}

/// The release is sent to a master that stands still. It is executed there, for nobody, when that goes on.
fn handed_over(stage: &mut Stage, name: &'static str, length: Duration) {
    let report = stage.play(five(name, lease_here()), bounds(true), |scene| {
        scene.held_and_waited_for(0);
        let failover = scene.stop_master();
        scene.let_go(0);
        scene.promoted(&failover);
        let all = scene.all_but(&[]);
        scene.followed_past_lost_releases(&failover, &all);
        wake_after(scene, &failover, length);
        scene.go_on(20);
    });
    report.assert_clean();
}

/// Lets the master go on when it has stood still for so long. Nobody has gone over to it again when it is a replica.
fn wake_after(scene: &mut Scene, failover: &Failover, length: Duration) {
    thread::sleep(length.saturating_sub(failover.age()));
    scene.wake(failover);
}
