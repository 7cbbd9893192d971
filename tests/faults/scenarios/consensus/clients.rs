//! The network between one process and all servers.

use super::{Stage, assert_safe, bounds, many};
use crate::consensus::ConsensusStore;
use crate::report::{Bounds, Report};
use crate::setup::Setup;
use crate::support::Proxy;
use crate::support::proxy::Way;
use crate::worker::now;
use std::thread;
use std::time::Duration;

on_each_store!(a_process_without_a_network_or_without_replies_costs_nobody_the_lock);

/// For longer than an answer takes.
const MOMENT: Duration = Duration::from_millis(120);

/// Shows: G1, G4, G5, G11, L1, L2, S1.
fn a_process_without_a_network_or_without_replies_costs_nobody_the_lock<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    assert_safe(undisturbed(&mut stage, None)).assert_clean_without_loss();
    // The others wait for the end of its session.
    let waited = V::longest(V::LEASE) + Duration::from_secs(2);
    let setup = Setup::of("holder cut off from all servers for 3 L").on_consensus(V::LEASE);
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

    assert_safe(replies_lost(&mut stage, None));
    assert_safe(requests_late(&mut stage));
}

/// The effect of a request without an answer is settled before anybody waits for its lease.
pub(crate) fn replies_lost<V: ConsensusStore>(stage: &mut Stage<V>, mutant: Option<&'static str>) -> Report {
    // Less than a session lives.
    let bounds = Bounds { waited: Duration::from_secs(3), ..bounds() };
    stage.play(many("replies lost").with(mutant), bounds, |scene| {
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
    })
}

/// Longer than a request waits for its answer.
const LATE: Duration = Duration::from_secs(4);

/// A request is executed after its process has given up waiting for it. The process's session has ended by then, so the request does nothing.
fn requests_late<V: ConsensusStore>(stage: &mut Stage<V>) -> Report {
    stage.play(many("requests late by 4 s"), bounds(), |scene| {
        for process in scene.processes() {
            scene.ways(process).iter().for_each(|way| way.delay(Way::ToServer, LATE));
            thread::sleep(4 * MOMENT);
            scene.ways(process).iter().for_each(|way| way.delay(Way::ToServer, Duration::ZERO));
            scene.go_on(3);
        }
        thread::sleep(LATE);
    })
}

/// A hold that is renewed several times.
pub(crate) fn undisturbed<V: ConsensusStore>(stage: &mut Stage<V>, mutant: Option<&'static str>) -> Report {
    stage.play(Setup::of("no fault, a hold of 4 L").on_consensus(V::LEASE).with(mutant), bounds(), |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.sleep(4.0);
        scene.let_go(0);
    })
}
