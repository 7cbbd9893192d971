//! Several locks at once on one server: a process that holds some of them fails, or its network does. The checker judges each lock. Any two choices
//! of locks have one lock in common, so it would see two that were held at once.

use crate::report::{Bounds, Report};
use crate::setup::{Setup, leases};
use crate::support::Proxy;
use std::time::Duration;

/// No property is violated, and each hold had at least two locks.
#[track_caller]
pub(crate) fn assert_together(report: Report) -> Report {
    let report = report.assert_clean();
    assert!(report.holds > 0 && report.locks >= 2 * report.holds, "{report}");
    report
}

/// A process that takes three locks waits for one after another, so each bound of a wait counts three times.
pub(crate) fn for_each_of_three(bounds: Bounds) -> Bounds {
    Bounds { waited: 3 * bounds.waited, ..bounds }
}

/// The other thread of the stopped process may wait in the store, too, and be given a lock that it does not take up.
/// Shows: G1, G2, G5, G7, S3.
#[test]
fn who_is_stopped_for_two_leases_with_several_locks_has_lost_them() {
    let bounds = Bounds { expired: 2, waited: leases(4.0 / 3.0), ..Bounds::default() };
    let report = Setup::of("several locks, SIGSTOP 2 L").together().play(bounds, |scene| {
        let holder = scene.stop_holder();
        scene.sleep(2.0);
        scene.resume(holder);
        scene.wait_inside(holder);
    });
    assert!(assert_together(report).lost >= 1);
}

/// The other thread of the killed process may hold some of the locks while it waits, too.
/// Shows: G1, G4, G7, L1.
#[test]
fn who_is_killed_with_several_locks_keeps_each_for_its_lease_and_no_longer() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    let report = Setup::of("several locks, SIGKILL").together().play(bounds, |scene| {
        let holder = scene.stop_holder();
        scene.kill(holder);
    });
    assert_together(report).assert_clean_without_loss();
}

/// Shows: G1, G5, G7, G12.
#[test]
fn who_is_cut_off_with_several_locks_loses_them_all_at_the_first_deadline() {
    // The lease of the lock that was extended last ends later than that.
    let waited = leases(1.0) + Duration::from_millis(300);
    let bounds = Bounds { expired: 1, waited, ..Bounds::default() };
    let report = Setup::of("several locks, cut off for 2 L").together().play(bounds, |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.fault();
        scene.proxy(0).cut_off();
        scene.sleep(2.0);
        Proxy::heal(scene.proxy(0));
        scene.let_go(0);
        scene.wait_inside(0);
    });
    assert!(assert_together(report).lost >= 1);
}
