//! A process is cut off from one master, and reaches all others. Everybody else reaches that master, too.

use super::{bounds, five, lease_here};
use crate::report::{Bounds, Report};
use crate::scene::{Process, Scene};
use crate::setup::Setup;
use crate::stage::Stage;
use crate::support::crew::eventually;
use std::time::Duration;

/// The process that is cut off.
const APART: Process = 0;

/// Longer than its lease.
const LENGTH: f64 = 1.3;

fn with_one_apart(name: &'static str) -> Setup {
    Setup { apart: Some(APART), monitored: true, ..five(name, lease_here()) }
}

/// Its lease ends there, and others hold the lock. What it has at the other masters it keeps.
/// Shows: G3, G5, G7, L1.
#[test]
fn who_is_cut_off_from_one_master_loses_what_it_holds_there_and_nothing_else() {
    let mut stage = Stage::open_patient_cluster();
    let report = holds(&mut stage);
    assert!(report.lost >= 1, "{report}");
    report.assert_clean();
    waits(&mut stage).assert_clean_without_loss();
}

fn cut_off(scene: &Scene) {
    scene.ways(APART)[scene.server.master()].cut_off();
}

fn heal(scene: &Scene) {
    scene.ways(APART)[scene.server.master()].heal();
}

fn holds(stage: &mut Stage) -> Report {
    // Its tenure is left to its lease.
    let bounds = Bounds { expired: 1, ..bounds(false) };
    let setup = with_one_apart("Cluster: cut off from one master, holding");
    stage.play(setup, bounds, |scene| {
        let _ = scene.held_and_waited_for(APART);
        scene.note_ttl();
        cut_off(scene);
        scene.sleep(LENGTH);
        scene.go_on(20);
        heal(scene);
        scene.let_go(APART);
        let from = crate::worker::now();
        eventually("it gets the lock again", || scene.got_since(APART, from) > 0);
    })
}

/// The process cannot be told of a grant. The others wait until the lease of that grant is over, or until the process is forgotten.
fn waits(stage: &mut Stage) -> Report {
    let lost = lease_here() + Duration::from_secs(1);
    let bounds = Bounds { expired: 2, waited: lost, ..bounds(false) };
    stage.play(with_one_apart("Cluster: cut off from one master, waiting"), bounds, |scene| {
        scene.held_and_waited_for(1);
        cut_off(scene);
        scene.let_go(1);
        scene.go_on(20);
        heal(scene);
        let from = crate::worker::now();
        eventually("it gets the lock again", || scene.got_since(APART, from) > 0);
    })
}
