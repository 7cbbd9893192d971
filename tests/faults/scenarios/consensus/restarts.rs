//! Servers that are slow, or go down and come back.

use super::{Stage, assert_safe, bounds, few, held, many};
use crate::consensus::{ConsensusStore, Server};
use crate::scene::Scene;
use rustix::process::Signal;
use std::thread;
use std::time::Duration;

on_each_store!(slow_servers_and_restarts_cost_no_lock);

/// Shows: G1, G2, G3, G7, L1, S1.
fn slow_servers_and_restarts_cost_no_lock<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    let report = stage.play(many("a follower that stands still again and again"), bounds(), |scene| {
        let follower = scene.follower();
        for _ in 0..8 {
            scene.signal_server(follower, Signal::STOP);
            thread::sleep(Duration::from_millis(300));
            scene.signal_server(follower, Signal::CONT);
            thread::sleep(Duration::from_millis(100));
        }
    });
    assert_safe(report);
    let report =
        stage.play(few::<V>("two of three servers stopped for 2 s, lock held and waited for"), bounds(), |scene| {
            let others = {
                let leader = scene.leader();
                [(leader + 1) % 3, (leader + 2) % 3]
            };
            held(scene, |scene| {
                scene.without_service(|scene| {
                    others.iter().for_each(|server| scene.signal_server(*server, Signal::STOP));
                    thread::sleep(Duration::from_secs(2));
                    others.iter().for_each(|server| scene.signal_server(*server, Signal::CONT));
                });
            });
        });
    assert_safe(report).assert_clean_without_loss();
    let report = stage.play(many("all servers restarted one after another"), bounds(), |scene| {
        scene.without_service(|scene| (0..3).for_each(|server| scene.restart_server(server)));
    });
    assert_safe(report);
    let report = stage.play(few::<V>("all servers restarted at once, lock held and waited for"), bounds(), |scene| {
        held(scene, |scene| scene.without_service(all_at_once));
    });
    assert_safe(report).assert_clean_without_loss();
}

fn all_at_once(scene: &mut Scene) {
    let servers = scene.consensus().quorum.servers();
    servers.iter_mut().for_each(Server::kill);
    servers.iter_mut().for_each(Server::begin);
    servers.iter_mut().for_each(Server::wait);
}
