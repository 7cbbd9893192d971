//! Faults of the process that holds the lock.

use crate::setup::{Bounds, Setup};

#[test]
fn nothing_happens() {
    Setup::of("no fault").play(Bounds::default(), |scene| scene.sleep(2.0)).is_clean();
}

#[test]
fn a_holder_that_is_stopped_for_two_leases_knows_that_it_has_lost_the_lock() {
    let report = Setup::of("holder SIGSTOP 2 L").play(Bounds { expired: 1, ..Bounds::default() }, |scene| {
        let holder = scene.stop_holder();
        scene.sleep(2.0);
        scene.resume(holder);
    });
    assert!(report.is_clean().lost >= 1);
}

#[test]
fn a_holder_that_is_killed_keeps_the_lock_for_its_lease_and_no_longer() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    Setup::of("holder SIGKILL")
        .play(bounds, |scene| {
            let holder = scene.stop_holder();
            scene.kill(holder);
        })
        .is_clean();
}
