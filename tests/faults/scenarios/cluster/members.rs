//! Many keys move, and nodes come and go, while locks go from hand to hand.

use super::bounds;
use crate::checker::waits::Kept;
use crate::report::Bounds;
use crate::report::Report;
use crate::scene::Scene;
use crate::setup::{Setup, lease, leases};
use crate::stage::Stage;
use crate::support::cluster::{SLOTS, slot_of};
use crate::work::KEY;
use crate::worker::now;
use std::time::Duration;

/// How many keys are in the way.
const KEYS: usize = 20_000;

/// How many slots move from the node that owns the lock's slot, with that.
const MOVED: u16 = 600;

/// Shows: G1, G3, G7, L1.
#[test]
fn a_reshard_of_many_keys_under_load_costs_nothing() {
    let setup = Setup { monitored: true, ..setup("Cluster: 20,000 keys moved under load") };
    let report = load(setup, |scene| {
        let slots = slots(scene);
        fill(scene, &slots);
        let masters = scene.server.cluster().masters();
        let to = *masters.iter().find(|master| **master != scene.server.master()).expect("another master");
        reshard(scene, &slots, to);
        scene.go_on(20);
        empty(scene);
    });
    report.assert_clean_without_loss();
}

/// Shows: G1, G3, G7, L1.
#[test]
fn a_node_that_is_added_and_one_that_is_removed_under_load_cost_nothing() {
    let report = load(setup("Cluster: node added and removed under load"), |scene| {
        let slots = slots(scene);
        let new = scene.server.cluster_mut().add();
        reshard(scene, &slots, new);
        scene.go_on(20);
        let from = now();
        scene.server.cluster_mut().remove(new);
        arrive(scene, from);
    });
    report.assert_clean_without_loss();
}

fn setup(name: &'static str) -> Setup {
    Setup::of(name).in_cluster(Duration::from_millis(lease()))
}

fn load(setup: Setup, fault: impl FnOnce(&mut Scene)) -> Report {
    let bounds = Bounds { waited: leases(1.2), ..bounds(false) };
    Stage::open_patient_cluster().play(setup, bounds, fault)
}

/// Slots of the node that owns the lock's slot, that one in the middle.
fn slots(scene: &Scene) -> Vec<u16> {
    let owned: Vec<_> = scene.server.cluster().slots_of(scene.server.master()).into_iter().flatten().collect();
    let place = owned.iter().position(|slot| *slot == slot_of(KEY.2)).expect("its slot");
    let begin = place.saturating_sub(usize::from(MOVED / 2));
    owned.into_iter().skip(begin).take(MOVED.into()).collect()
}

/// Moves slots, with that of the lock, to another master.
fn reshard(scene: &mut Scene, slots: &[u16], to: usize) {
    let from = now();
    scene.server.cluster().reshard(slots.iter().copied(), to);
    arrive(scene, from);
}

/// The lock's slot has arrived at a node.
fn arrive(scene: &mut Scene, from: u64) {
    let owner = scene.server.cluster().owner_of_key(KEY.2);
    scene.server.follow(owner);
    // Nobody could get the lock while its slot moved, whenever in this time that was.
    let until = now();
    scene.refresh();
    let moments = scene.events.iter().map(|event| event.at).filter(|at| (from..until).contains(at));
    let kept: Vec<_> = moments.chain([from]).map(|at| Kept { at, until }).collect();
    scene.kept.extend(kept);
}

/// Fills these slots with keys, as many in each.
fn fill(scene: &Scene, slots: &[u16]) {
    let tags = tags();
    let mut admin = scene.server.connection();
    let each = KEYS.div_ceil(slots.len());
    for slots in slots.chunks(50) {
        let mut all = redis::pipe();
        for slot in slots {
            for n in 0..each {
                all.cmd("SET").arg(format!("{{{}}}fill{n}", tags[usize::from(*slot)])).arg("x").ignore();
            }
        }
        all.exec(&mut admin).unwrap();
    }
}

/// A text for each slot that falls into it.
fn tags() -> Vec<u32> {
    let mut tags = vec![None; SLOTS.into()];
    let mut missing = tags.len();
    for n in 0_u32.. {
        let tag = &mut tags[usize::from(slot_of(&n.to_string()))];
        missing -= usize::from(tag.replace(n).is_none());
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
}

/// Removes these keys again.
fn empty(scene: &Scene) {
    for master in scene.server.cluster().masters() {
        let mut admin = scene.server.cluster().connection(master);
        let keys: Vec<String> = redis::cmd("KEYS").arg("*fill*").query(&mut admin).unwrap();
        for keys in keys.chunks(1000) {
            let mut all = redis::pipe();
            for key in keys {
                all.cmd("DEL").arg(key).ignore();
            }
            all.exec(&mut admin).unwrap();
        }
    }
}
