//! The master comes back empty, before any Sentinel misses it: no failover happens, and its replicas lose everything, too.
//!
//! Replica acknowledgement does not help here.

use super::{bounds, five, lease_here};
use crate::checker::waits::Kept;
use crate::history::Nanos;
use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::support::crew::eventually;
use crate::worker::now;

/// Shows: G5, G7, L1.
#[test]
fn an_empty_restart_of_the_master_is_told_to_the_holder_and_those_who_wait_go_on() {
    let mut stage = Stage::open();
    let report = held(&mut stage, None);
    assert!(report.lost >= 1, "{report}");
    report.assert_clean();
    handed_over(&mut stage);
}

/// Restarts the master without its data. Returns when that began.
fn empty(scene: &mut Scene) -> Nanos {
    let from = now();
    scene.server.restart();
    scene.kept.push(Kept { at: from, until: now() });
    from
}

#[cfg(dlock_mutants)]
pub(crate) fn while_held(mutant: Option<&'static str>) -> Report {
    held(&mut Stage::open(), mutant)
}

fn held(stage: &mut Stage, mutant: Option<&'static str>) -> Report {
    let setup = five("master restarted empty, lock held and waited for", 0).with(mutant);
    // Less than the time until the next look at a hold, which is a sixth of a lease.
    let at_once = Bounds { told: lease_here() / 30, ..bounds(true) };
    stage.play(setup, at_once, |scene| {
        // However long the start takes.
        scene.server.service().is_down_after(60_000);
        scene.held_and_waited_for(0);
        let from = empty(scene);
        let all = scene.all_but(&[]);
        scene.wait_until_heard(&all);
        scene.close_window(from);
        eventually("the holder is told", || scene.is_told_since(0, from));
        scene.let_go(0);
    })
}

/// A process learns of its grant when the key is gone. It stands still for as long as others hold the lock.
fn handed_over(stage: &mut Stage) {
    let report = stage.play(five("master restarted empty in a hand-over", 0), bounds(true), |scene| {
        scene.server.service().is_down_after(60_000);
        let next = scene.held_and_waited_for(0)[0];
        scene.stop_in_hand_over(0, next);
        let from = empty(scene);
        let others = scene.all_but(&[next]);
        scene.wait_until_heard(&others);
        scene.go_on(6);
        scene.resume(next);
        scene.wait_until_heard(&[next]);
        scene.close_window(from);
    });
    report.assert_clean();
}
