//! The network between one process and all servers.

use super::{Stage, assert_safe, bounds, many};
use crate::report::Bounds;
use crate::setup::Setup;
use crate::support::Proxy;
use crate::support::proxy::Way;
use crate::voters::Voters;
use crate::worker::now;
use std::thread;
use std::time::Duration;

on_each_store!(a_process_without_a_network_or_without_replies_costs_nobody_the_lock);

/// For longer than an answer takes.
const MOMENT: Duration = Duration::from_millis(120);

/// Shows: G1, G4, G5, G11, L1, L2, S1.
fn a_process_without_a_network_or_without_replies_costs_nobody_the_lock<V: Voters>() {
    let mut stage = Stage::<V>::open();
    // The others wait for the end of its session.
    let waited = V::longest(V::LEASE) + Duration::from_secs(2);
    let setup = Setup::of("holder cut off from all servers for 3 L").on_voters(V::LEASE);
    let report = stage.play(setup, Bounds { waited, ..bounds() }, |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.fault();
        let from = now();
        scene.ways(0).iter().for_each(Proxy::cut_off);
        scene.sleep(3.0);
        assert!(scene.is_told_since(0, from), "by its own deadline");
        scene.ways(0).iter().for_each(Proxy::heal);
        scene.let_go(0);
    });
    assert!(assert_safe(report).lost >= 1);

    let report = stage.play(many("replies lost"), bounds(), |scene| {
        for round in 0..8 {
            for process in scene.processes() {
                let ways = scene.ways(process).iter();
                if round % 2 == 0 {
                    ways.clone().for_each(|way| way.lose(Way::ToClient, true));
                    thread::sleep(MOMENT);
                    ways.for_each(Proxy::heal);
                } else {
                    ways.clone().for_each(|way| way.hold_back(false));
                    thread::sleep(MOMENT);
                    ways.clone().for_each(Proxy::reset);
                    ways.for_each(|way| way.let_through(false));
                }
                scene.go_on(1);
            }
        }
    });
    assert_safe(report);
}
