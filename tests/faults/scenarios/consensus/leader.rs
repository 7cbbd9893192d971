//! The leader dies, or stands still.

use super::{Stage, assert_safe, bounds, few, held, many};
use crate::consensus::{ConsensusStore, Etcd};
use crate::report::Bounds;
use crate::scene::Scene;
use crate::setup::Setup;
use rustix::process::Signal;
use std::time::Duration;

on_each_store!(a_leader_that_dies_costs_no_lock, a_leader_that_stands_still_costs_no_lock);

/// Shows: G1, G3, G7, L1, S1.
fn a_leader_that_dies_costs_no_lock<V: ConsensusStore>() {
    costs_no_lock::<V>(
        ["leader killed, lock held and waited for", "leader killed"],
        Scene::kill_server,
        Scene::restart_server,
    );
}

/// A leader that resumes believes that it still leads, until another server tells it. Shows: G1, G3, G7, L1, S1.
fn a_leader_that_stands_still_costs_no_lock<V: ConsensusStore>() {
    let stop = |scene: &mut Scene, leader| scene.signal_server(leader, Signal::STOP);
    costs_no_lock::<V>(["leader stopped, lock held and waited for", "leader stopped"], stop, |scene, leader| {
        scene.signal_server(leader, Signal::CONT);
    });
}

/// Strikes the leader, and mends it: while a lock is held and waited for, and under load.
fn costs_no_lock<V: ConsensusStore>(
    [few_title, many_title]: [&'static str; 2],
    strike: fn(&mut Scene, usize),
    mend: fn(&mut Scene, usize),
) {
    let mut stage = Stage::<V>::open();
    let strike = |scene: &mut Scene| {
        let leader = scene.leader();
        scene.without_service(|scene| strike(scene, leader));
        leader
    };
    let report = stage.play(few::<V>(few_title), bounds(), |scene| {
        let mut leader = 0;
        held(scene, |scene| leader = strike(scene));
        scene.go_on(3);
        mend(scene, leader);
    });
    assert_safe(report).assert_clean_without_loss();
    let report = stage.play(many(many_title), bounds(), |scene| {
        let leader = strike(scene);
        scene.go_on(6);
        mend(scene, leader);
    });
    assert_safe(report);
}

/// On etcd alone: Consul keeps a lock for ten seconds at least.
/// Shows: G13.
#[test]
fn etcd_keeps_a_lock_for_its_time_when_its_leader_dies() {
    let mut stage = Stage::<Etcd>::open();
    // Half of the holds. etcd keeps a lock for two seconds at least, and the next hold may keep it again: so a few holds take as long as many others.
    let setup = many("leader killed, releases delayed").work(|work| work.delays = (50, 2500));
    let setup = Setup { holds: 5, ..setup };
    let bounds = Bounds { waited: Duration::from_secs(10), ..bounds() };
    let report = stage.play(setup, bounds, |scene| {
        let leader = scene.leader();
        scene.without_service(|scene| scene.kill_server(leader));
        scene.go_on(3);
        scene.restart_server(leader);
    });
    assert_safe(report);
}
