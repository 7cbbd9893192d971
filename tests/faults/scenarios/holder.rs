//! Faults of the process that holds the lock.

use crate::report::{Bounds, Report};
use crate::setup::Setup;

pub(crate) fn undisturbed(mutant: Option<&'static str>) -> Report {
    Setup::of("no fault").with(mutant).play(Bounds::default(), |scene| scene.sleep(2.0))
}

/// Shows: G1, G10.
#[test]
fn without_a_fault_nobody_waits() {
    undisturbed(None).assert_clean();
}

/// Most holds keep the lock for a while after their end.
pub(crate) fn keeping(mutant: Option<&'static str>) -> Report {
    let setup = Setup::of("no fault, releases delayed").work(|work| work.delays = (70, 250));
    setup.with(mutant).play(Bounds::default(), |_| {})
}

/// Shows: G13.
#[test]
fn a_lock_that_is_kept_for_its_time_is_free_of_holders_until_then() {
    keeping(None).assert_clean();
}

/// The late extensions and the late unlock of the stopped process must hurt nobody.
pub(crate) fn stopped(mutant: Option<&'static str>) -> Report {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    Setup::of("holder SIGSTOP 2 L").with(mutant).play(bounds, |scene| {
        let holder = scene.stop_holder();
        scene.sleep(2.0);
        scene.resume(holder);
        scene.sleep(0.5);
    })
}

/// Shows: G1, G2, G5, S3.
#[test]
fn a_holder_that_is_stopped_for_two_leases_knows_that_it_has_lost_the_lock() {
    assert!(stopped(None).assert_clean().lost >= 1);
}

/// Shows: G4.
#[test]
fn a_holder_that_is_killed_keeps_the_lock_for_its_lease_and_no_longer() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    Setup::of("holder SIGKILL")
        .play(bounds, |scene| {
            let holder = scene.stop_holder();
            scene.kill(holder);
        })
        .assert_clean();
}
