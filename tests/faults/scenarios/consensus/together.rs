//! Several locks at once, while a server dies, and while a process that has some of them has no network.

use super::super::together::assert_together;
use super::{Stage, assert_safe, bounds, many};
use crate::consensus::ConsensusStore;
use crate::report::Bounds;
use crate::setup::Setup;
use crate::support::Proxy;
use std::time::Duration;

on_each_store!(no_two_have_one_of_several_locks_while_a_server_dies_or_a_process_is_cut_off);

/// Shows: G1, G3, G5, G7, L1, S1.
fn no_two_have_one_of_several_locks_while_a_server_dies_or_a_process_is_cut_off<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    let report = stage.play(many("server killed, several locks").together(), bounds(), |scene| {
        let server = scene.leader();
        scene.without_service(|scene| scene.kill_server(server));
        scene.go_on(6);
        scene.restart_server(server);
    });
    assert_together(assert_safe(report));
    // The others wait for the end of its sessions.
    let waited = V::longest(V::LEASE) + Duration::from_secs(2);
    let setup = Setup::of("cut off from all servers for 3 L, several locks").on_consensus(V::LEASE).together();
    let report = stage.play(setup, Bounds { waited, ..bounds() }, |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.fault();
        scene.ways(0).iter().for_each(Proxy::cut_off);
        scene.sleep(3.0);
        scene.ways(0).iter().for_each(Proxy::heal);
        scene.let_go(0);
        // It has some again.
        scene.wait_inside(0);
    });
    assert!(assert_together(assert_safe(report)).lost >= 1);
}
