//! The leader dies, or stands still.

use super::{Stage, assert_safe, bounds, few, held, many};
use crate::consensus::{ConsensusStore, Etcd};
use crate::report::Bounds;
use crate::scene::Scene;
use rustix::process::Signal;
use std::time::Duration;

on_each_store!(a_leader_that_dies_costs_no_lock, a_leader_that_stands_still_costs_no_lock);

/// Shows: G1, G3, G7, L1, S1.
fn a_leader_that_dies_costs_no_lock<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    let die = |scene: &mut Scene| {
        let leader = scene.leader();
        scene.without_service(|scene| scene.kill_server(leader));
        leader
    };
    let report = stage.play(few::<V>("leader killed, lock held and waited for"), bounds(), |scene| {
        let mut leader = 0;
        held(scene, |scene| leader = die(scene));
        scene.go_on(3);
        scene.restart_server(leader);
    });
    assert_safe(report).assert_clean_without_loss();
    let report = stage.play(many("leader killed"), bounds(), |scene| {
        let leader = die(scene);
        scene.go_on(6);
        scene.restart_server(leader);
    });
    assert_safe(report);
}

/// On etcd alone: Consul keeps a lock for ten seconds at least.
/// Shows: G13.
#[test]
fn etcd_keeps_a_lock_for_its_time_when_its_leader_dies() {
    let mut stage = Stage::<Etcd>::open();
    // Half of the holds. etcd keeps a lock for two seconds at least, and the next hold may keep it again.
    let setup = many("leader killed, releases delayed").work(|work| work.delays = (50, 2500));
    let bounds = Bounds { waited: Duration::from_secs(10), ..bounds() };
    let report = stage.play(setup, bounds, |scene| {
        let leader = scene.leader();
        scene.without_service(|scene| scene.kill_server(leader));
        scene.go_on(6);
        scene.restart_server(leader);
    });
    assert_safe(report);
}

/// It takes itself for the leader when it goes on, until another server tells it.
/// Shows: G1, G3, G7, L1, S1.
fn a_leader_that_stands_still_costs_no_lock<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    let stop = |scene: &mut Scene| {
        let leader = scene.leader();
        scene.without_service(|scene| scene.signal_server(leader, Signal::STOP));
        leader
    };
    let report = stage.play(few::<V>("leader stopped, lock held and waited for"), bounds(), |scene| {
        let mut leader = 0;
        held(scene, |scene| leader = stop(scene));
        scene.go_on(3);
        scene.signal_server(leader, Signal::CONT);
    });
    assert_safe(report).assert_clean_without_loss();
    let report = stage.play(many("leader stopped"), bounds(), |scene| {
        let leader = stop(scene);
        scene.go_on(6);
        scene.signal_server(leader, Signal::CONT);
    });
    assert_safe(report);
}
