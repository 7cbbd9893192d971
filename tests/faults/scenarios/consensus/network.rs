//! A network that separates a minority of the servers from the majority. Clients reach all of them.

use super::{Stage, assert_safe, bounds, few, held, many};
use crate::consensus::ConsensusStore;
use crate::scene::Scene;
use std::thread;
use std::time::Duration;

on_each_store!(a_minority_gives_the_lock_to_nobody);

/// Longer than an election takes.
const ELECTION: Duration = Duration::from_secs(3);

/// A leader in the minority takes itself for the leader, for a while.
/// Shows: G1, G3, G7, L1, S1.
fn a_minority_gives_the_lock_to_nobody<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open_networked();
    let cut = |scene: &mut Scene, server| {
        scene.without_service(|scene| {
            scene.cut_off_server(server);
            thread::sleep(ELECTION);
            assert!(!scene.consensus().quorum.servers()[server].answers(), "it knows that it is alone");
        });
    };
    let report = stage.play(few::<V>("leader cut off from the others, lock held and waited for"), bounds(), |scene| {
        let leader = scene.leader();
        held(scene, |scene| cut(scene, leader));
        scene.go_on(3);
        scene.heal_server(leader);
    });
    assert_safe(report).assert_clean_without_loss();
    for (name, is_leader) in [("leader cut off from the others", true), ("a follower cut off from the others", false)] {
        let report = stage.play(many(name), bounds(), |scene| {
            let server = if is_leader { scene.leader() } else { scene.follower() };
            cut(scene, server);
            scene.go_on(6);
            scene.heal_server(server);
        });
        assert_safe(report);
    }
}
