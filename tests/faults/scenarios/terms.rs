//! Leaders on one server: their processes, their networks and the server fail. The checker knows a term as a hold: no two are valid at once, and their
//! tokens rise.

use crate::report::{Bounds, Report};
use crate::setup::{Setup, leases};
use crate::support::Proxy;
use std::time::Duration;

/// Nothing is broken, and all was done by leaders.
#[track_caller]
pub(crate) fn assert_led(report: Report) -> Report {
    let report = report.assert_clean();
    assert!(report.terms > 0 && report.terms == report.holds, "{report}");
    report
}

/// Shows: G1, G2, G5, G7, S3.
#[test]
fn a_leader_that_is_stopped_for_two_leases_knows_that_its_term_is_over_and_campaigns_again() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    let report = Setup::of("leader SIGSTOP 2 L").leading().play(bounds, |scene| {
        let leader = scene.stop_holder();
        scene.sleep(2.0);
        scene.resume(leader);
        // It leads again.
        scene.wait_inside(leader);
    });
    assert!(assert_led(report).lost >= 1);
}

/// Shows: G1, G4, G7.
#[test]
fn a_leader_that_is_killed_is_followed_by_another_when_its_lease_is_over() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    let report = Setup::of("leader SIGKILL").leading().play(bounds, |scene| {
        let leader = scene.stop_holder();
        scene.kill(leader);
    });
    assert_led(report);
}

/// Shows: G1, G5, G7.
#[test]
fn a_leader_that_is_cut_off_knows_that_at_its_deadline_and_campaigns_again() {
    let bounds = Bounds { expired: 1, waited: leases(1.0 / 3.0) + Duration::from_millis(300), ..Bounds::default() };
    let report = Setup::of("leader cut off for 2 L").first_holds(2.5).leading().play(bounds, |scene| {
        scene.wait_inside(0);
        scene.fault();
        scene.proxy(0).cut_off();
        scene.sleep(2.0);
        Proxy::heal(scene.proxy(0));
        scene.wait_inside(0);
    });
    assert!(assert_led(report).lost >= 1);
}
