//! A server that is slow, stands still, or forgets the scripts.

use crate::report::Bounds;
use crate::setup::{Setup, leases};
use crate::worker::now;
use std::time::Duration;

/// Shows: G1, G5.
#[test]
fn a_paused_server_ends_leases_and_nothing_else() {
    let bounds = Bounds { expired: 3, ..Bounds::default() };
    for (name, mode) in [("CLIENT PAUSE ALL 1.5 L", "ALL"), ("CLIENT PAUSE WRITE 1.5 L", "WRITE")] {
        Setup::of(name)
            .play(bounds, |scene| {
                scene.holder();
                scene.server.pause(mode, leases(1.5));
                scene.close_for(1.5);
                scene.sleep(1.5);
            })
            .assert_clean();
    }
}

/// The server sleeps for two leases, beginning in a hold of the given length (in leases).
fn sleeping(name: &'static str, hold: f64, pause: u64) {
    let bounds = Bounds { expired: 3, waited: Duration::from_millis(600), ..Bounds::default() };
    Setup::of(name)
        .server(&["--enable-debug-command", "local"])
        .first_holds(hold)
        .work(|work| work.pause = pause)
        .play(bounds, |scene| {
            scene.wait_inside(0);
            scene.fault();
            scene.close_for(2.0);
            scene.server.sleep(leases(2.0));
        })
        .assert_clean();
}

/// Shows: G5.
#[test]
fn a_server_that_sleeps_during_a_hold_ends_it() {
    sleeping("DEBUG SLEEP 2 L in a hold", 2.5, 10);
}

/// Shows: G11.
#[test]
fn a_server_that_sleeps_during_releases_and_acquires_loses_none() {
    sleeping("DEBUG SLEEP 2 L in releases", 0.1, 10);
    sleeping("DEBUG SLEEP 2 L in acquires", 0.03, 200);
}

#[test]
fn a_server_that_forgets_the_scripts_before_every_call_is_told_them_again() {
    Setup::of("SCRIPT FLUSH all the time")
        .play(Bounds::default(), |scene| {
            let mut admin = scene.server.connection();
            let until = now() + 1_500_000 * scene.lease;
            while now() < until {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
                std::thread::sleep(Duration::from_micros(500));
            }
        })
        .assert_clean();
}
