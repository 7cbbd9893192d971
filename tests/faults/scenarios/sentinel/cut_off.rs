//! A client is cut off together with the old master. It only reaches that master, and all others reach everything else.
//!
//! Process 0 goes to the servers directly. All others, the Sentinels and the other servers go by networks that can be cut.

use super::{ALL, bounds, bounds_with, fail_over, five};
use crate::checker::waits::Kept;
use crate::checker::windows::Window;
use crate::failovers::Failover;
use crate::report::Report;
use crate::scene::{Process, Scene};
use crate::setup::Setup;
use crate::stage::Stage;
use crate::support::crew::eventually;
use crate::worker::now;
use std::thread;
use std::time::Duration;

/// The process that is cut off.
const APART: Process = 0;

/// After how many seconds without a message from its replicas a master refuses writes, and how much later it may notice.
const LAG: u64 = 2;
const NOTICED: u64 = 2;

fn with_one_apart(name: &'static str, acks: u8) -> Setup {
    Setup { proxied: true, apart: Some(APART), ..five(name, acks) }
}

/// It stays where it is until it can ask a Sentinel, and then knows what it has lost.
/// Shows: G5, G7.
#[test]
fn who_is_cut_off_with_the_old_master_stays_there_until_a_sentinel_can_be_asked() {
    let mut stage = Stage::open_networked();
    judge(holds(&mut stage, 0, None), 0);
    waits(&mut stage, 0);
}

/// Shows: G5, G7.
#[test]
fn a_grant_that_reaches_only_who_is_cut_off_is_lost() {
    judge(is_handed_the_lock(&mut Stage::open_networked(), 0), 0);
}

/// Shows: G5.
#[test]
fn min_replicas_end_what_a_master_granted_that_is_cut_off() {
    holds_with_min_replicas(&mut Stage::open_networked());
}

/// Shows: G1, G5, G7, S1, S2.
#[test]
fn what_a_master_without_replicas_says_does_not_count() {
    let mut stage = Stage::open_networked();
    judge(holds(&mut stage, 1, None), 1);
    judge(is_handed_the_lock(&mut stage, 1), 1);
}

/// Nobody else has the lock until all replicas are back.
/// Shows: G1, G5, G7, S1, S2.
#[test]
fn nor_does_it_where_all_replicas_must_acknowledge() {
    let mut stage = Stage::open_networked();
    judge(holds(&mut stage, ALL, None), ALL);
    waits(&mut stage, ALL);
}

/// Two hold the lock at once, and the fenced store refuses the one with the old master. With acknowledgement the checker refuses two.
#[track_caller]
fn judge(report: Report, acks: u8) {
    assert!(acks > 0 || (report.lost >= 1 && report.both >= 1 && report.refused >= 1), "{report}");
    report.assert_clean();
}

/// Waits until the lock goes on at the new master, whose key is the old holder's for the rest of its lease, and lets the process that is cut
/// off ask a Sentinel again.
fn outlast(scene: &mut Scene, failover: &Failover) {
    if scene.acks == ALL {
        eventually("its hold ends by its deadline", || !scene.is_inside(APART));
    }
    scene.mend_for_acks(failover);
    scene.go_on(6);
    assert!(scene.acks > 0 || scene.is_inside(APART), "nobody has told it");
    scene.let_ask(APART);
    scene.followed(failover, &[APART]);
    scene.let_go(APART);
}

#[cfg(dlock_mutants)]
pub(crate) fn holds_with_one_ack(mutant: Option<&'static str>) -> Report {
    holds(&mut Stage::open_networked(), 1, mutant)
}

fn holds(stage: &mut Stage, acks: u8, mutant: Option<&'static str>) -> Report {
    let setup = with_one_apart("cut off with the old master, holding", acks).with(mutant);
    stage.play(setup, bounds_with(acks), |scene| {
        scene.held_and_waited_for(APART);
        let failover = scene.cut_off_master_with(APART);
        scene.promoted(&failover);
        let others = scene.all_but(&[APART]);
        scene.followed_past_lost_releases(&failover, &others);
        outlast(scene, &failover);
    })
}

/// The old master gives it the lock of a holder that has gone over to the new one, when that lease is over there.
fn waits(stage: &mut Stage, acks: u8) {
    let setup = with_one_apart("cut off with the old master, waiting", acks);
    let report = stage.play(setup, bounds_with(acks), |scene| {
        let order = scene.held_and_waited_for(1);
        let failover = scene.cut_off_master_with(APART);
        fail_over(scene, &failover, &[APART]);
        scene.mend_for_acks(&failover);
        let from = now();
        scene.let_go(1);
        scene.go_on(order.len());
        if acks == 0 {
            eventually("the old master gives it the lock", || scene.got_since(APART, from) > 0);
        }
        scene.let_ask(APART);
        scene.followed(&failover, &[APART]);
    });
    report.assert_clean();
}

/// It is given the lock, and does not know, when it is cut off.
fn is_handed_the_lock(stage: &mut Stage, acks: u8) -> Report {
    let setup = with_one_apart("cut off with the old master in a hand-over", acks);
    stage.play(setup, bounds_with(acks), |scene| {
        let holder = scene.held_before(APART);
        scene.ask_to_hold_on(APART);
        scene.stop_in_hand_over(holder, APART);
        scene.server.service().wait_for_replicas(scene.server.port());
        let failover = scene.cut_off_master_with(APART);
        scene.promoted(&failover);
        scene.resume(APART);
        if acks == 0 {
            scene.wait_until_it_holds_on(APART);
        }
        let others = scene.all_but(&[APART]);
        scene.followed_past_lost_releases(&failover, &others);
        outlast(scene, &failover);
    })
}

/// The old master refuses writes when its replicas are gone, so what it granted or extended before lasts for one lease at most, however
/// long the two are cut off.
fn holds_with_min_replicas(stage: &mut Stage) {
    let setup = with_one_apart("cut off with the old master, min-replicas-to-write 1", 0);
    let lease = setup.work.lease;
    let report = stage.play(setup, bounds(true), |scene| {
        for server in &scene.server.service().servers {
            server.config("min-replicas-max-lag", &LAG.to_string());
            server.config("min-replicas-to-write", "1");
        }
        scene.held_and_waited_for(APART);
        let failover = scene.cut_off_master_with(APART);
        scene.promoted(&failover);
        let others = scene.all_but(&[APART]);
        scene.followed_past_lost_releases(&failover, &others);
        // The process that is cut off knows nothing of the others, and learns of its loss by its own deadline.
        scene.gone_at = None;
        // The new master refuses, too, until another server replicates it.
        eventually("the new master takes writes", || {
            let taken = redis::cmd("SET").arg("marker").arg("x").exec(&mut scene.server.connection());
            taken.is_ok() || {
                thread::sleep(Duration::from_millis(20));
                false
            }
        });
        scene.server.run::<()>(&["DEL", "marker"]);
        scene.kept.push(Kept { at: failover.from, until: now() });
        let longest = Duration::from_secs(LAG + NOTICED) + Duration::from_millis(lease);
        scene.windows.push(Window { from: failover.from, to: failover.from + longest.as_nanos() as u64 });
        // A while later it is still cut off, and others hold the lock.
        thread::sleep(longest.saturating_sub(failover.age()));
        scene.go_on(12);
        scene.let_go(APART);
        scene.let_ask(APART);
        scene.wait_until_heard(&[APART]);
    });
    assert!(report.lost >= 1, "{report}");
    report.assert_clean();
}
