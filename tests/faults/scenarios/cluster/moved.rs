//! A slot moves from one master to another, key by key.
//!
//! While its keys are at two nodes, nobody can get or give back a lock of the slot, and its holder can extend its lease.

use super::{bounds, five, serve_in_order};
use crate::checker::waits::Kept;
use crate::history::Nanos;
use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::setup::{Setup, lease, leases};
use crate::stage::Stage;
use crate::support::cluster::{Step, slot_of};
use crate::work::KEY;
use crate::worker::now;
use std::thread;
use std::time::Duration;

/// How often the slot moves under load.
const TURNS: usize = 4;

/// After a key, in leases. Three keys move, so for longer than a lease they are at two nodes.
const PAUSE: f64 = 0.7;

/// Shows: G1, G3, G7, L1.
#[test]
fn a_slot_that_moves_key_by_key_costs_nothing() {
    let mut stage = Stage::open_patient_cluster();
    held(&mut stage, None).assert_clean_without_loss();
    handed_over(&mut stage);
}

/// Shows: G1, G3, G7, L1.
#[test]
fn a_slot_that_moves_under_load_costs_nothing() {
    back_and_forth().assert_clean_without_loss();
}

fn setup(name: &'static str) -> Setup {
    Setup { is_owner_well: true, monitored: true, ..five(name, Duration::from_millis(lease())) }
}

/// Moves the slot of the lock to the next master. It goes on after each step when `pause` returns.
pub(super) fn move_slot(scene: &mut Scene, mut pause: impl FnMut(&mut Scene, &Step)) {
    let (slot, from) = (slot_of(KEY.2), scene.server.master());
    let masters = scene.server.cluster().masters();
    let place = masters.iter().position(|master| *master == from).expect("the owner is a master");
    let to = masters[(place + 1) % masters.len()];
    let mut migration = scene.server.cluster().migration(slot, to);
    let mut steps: Vec<Nanos> = vec![now()];
    while let Some(step) = migration.step() {
        steps.push(now());
        pause(scene, &step);
    }
    scene.server.cluster().wait_for_owner(slot, to);
    scene.server.follow(to);
    // A process may have had the lock at one of these moments, but nobody could get it after that.
    let until = now();
    scene.kept.extend(steps.into_iter().map(|at| Kept { at, until }));
}

/// The pause after a step.
fn after(step: &Step) -> Duration {
    leases(if matches!(step, Step::KeyMoved(_)) { PAUSE } else { PAUSE / 4.0 })
}

#[cfg(dlock_mutants)]
pub(crate) fn while_held(mutant: Option<&'static str>) -> Report {
    held(&mut Stage::open_patient_cluster(), mutant)
}

fn held(stage: &mut Stage, mutant: Option<&'static str>) -> Report {
    let setup = setup("Cluster: slot moved, lock held, extended and waited for").with(mutant);
    stage.play(setup, bounds(false), |scene| {
        let order = scene.held_and_waited_for(0);
        move_slot(scene, |_, step| thread::sleep(after(step)));
        let others = scene.all_but(&[0]);
        scene.wait_until_heard(&others);
        serve_in_order(scene, 0, &order);
    })
}

/// The lock is released when its keys are at two nodes.
fn handed_over(stage: &mut Stage) {
    // The release is repeated after pauses of up to a lease.
    let bounds = Bounds { waited: leases(1.2), ..bounds(false) };
    let report = stage.play(setup("Cluster: slot moved, lock released meanwhile"), bounds, |scene| {
        scene.held_and_waited_for(0);
        let mut has_moved = false;
        move_slot(scene, |scene, step| {
            if matches!(step, Step::KeyMoved(_)) && !std::mem::replace(&mut has_moved, true) {
                scene.let_go(0);
            }
            thread::sleep(after(step) / 4);
        });
    });
    report.assert_clean_without_loss();
}

fn back_and_forth() -> Report {
    let setup = Setup::of("Cluster: slot moved under load").in_cluster(Duration::from_millis(lease()));
    let setup = Setup { is_owner_well: true, monitored: true, ..setup };
    let bounds = Bounds { waited: leases(1.2), ..bounds(false) };
    Stage::open_patient_cluster().play(setup, bounds, |scene| {
        for _ in 0..TURNS {
            move_slot(scene, |_, step| thread::sleep(after(step) / 20));
            scene.go_on(10);
        }
    })
}
