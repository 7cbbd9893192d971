//! Leaders, while a server dies, and while one of them has no network.

use super::super::terms::assert_led;
use super::{Stage, assert_safe, bounds, many};
use crate::consensus::ConsensusStore;
use crate::report::Bounds;
use crate::setup::Setup;
use crate::support::Proxy;
use std::time::Duration;

on_each_store!(no_two_lead_while_a_server_dies_or_a_leader_is_cut_off);

/// Shows: G1, G3, G5, G7, L1, S1.
fn no_two_lead_while_a_server_dies_or_a_leader_is_cut_off<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    let report = stage.play(many("server killed, leaders").leading(), bounds(), |scene| {
        let server = scene.leader();
        scene.without_service(|scene| scene.kill_server(server));
        scene.go_on(6);
        scene.restart_server(server);
    });
    assert_led(assert_safe(report));
    // The others wait for the end of its session.
    let waited = V::longest(V::LEASE) + Duration::from_secs(2);
    let setup = Setup::of("leader cut off from all servers for 3 L").on_consensus(V::LEASE).leading();
    let report = stage.play(setup, Bounds { waited, ..bounds() }, |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.fault();
        scene.ways(0).iter().for_each(Proxy::cut_off);
        scene.sleep(3.0);
        scene.ways(0).iter().for_each(Proxy::heal);
        scene.let_go(0);
        // It leads again.
        scene.wait_inside(0);
    });
    assert!(assert_led(assert_safe(report)).lost >= 1);
}
