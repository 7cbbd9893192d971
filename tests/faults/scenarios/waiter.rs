//! Faults of the process that is about to get the lock.

use crate::report::Bounds;
use crate::setup::Setup;

/// Shows: L1.
#[test]
fn a_waiter_that_is_killed_costs_the_others_nothing() {
    Setup::of("next waiter SIGKILL")
        .play(Bounds::default(), |scene| {
            // Otherwise the lock might be given to it just before.
            let holder = scene.stop_holder();
            let next = scene.next();
            scene.kill(next);
            scene.resume(holder);
            scene.kept.clear();
        })
        .assert_clean();
}

/// Shows: L1.
#[test]
fn a_waiter_that_is_stopped_costs_the_others_its_lease_once() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    Setup::of("next waiter SIGSTOP 2 L")
        .play(bounds, |scene| {
            let next = scene.stop_next();
            // It gets the lock without knowing; its lease is kept by nobody.
            scene.wait_for_grant(next);
            scene.note_ttl();
            scene.sleep(2.0);
            scene.resume(next);
        })
        .assert_clean();
}
