//! Faults of the network between a process and the server.

use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::setup::{Setup, leases};
use crate::support::crew::eventually;
use crate::support::proxy::{Fired, Lot, Sent, Way};
use std::time::Duration;

/// Two processes that seldom meet, so that most acquires find the lock free.
fn seldom(name: &'static str) -> Setup {
    let mut setup = Setup::of(name).work(|work| {
        (work.threads, work.hold, work.pause, work.tries, work.reentries) = (1, (5, 10), 150, 0, 0);
    });
    setup.processes = 2;
    setup
}

/// Lets each process meet the lot so many times, at commands of a kind.
fn meet(scene: &mut Scene, what: Sent, lot: Lot, times: usize) {
    for n in 0..times {
        for process in scene.processes() {
            wait_for(&scene.proxy(process).trap(what, n % 2, lot));
        }
    }
}

fn wait_for(fired: &Fired) {
    eventually("the trap is met", || fired.is_fired());
}

/// A resent acquire is one hold: the first locker is asked about, and no second one takes its place.
pub(crate) fn reply_of_acquire_lost(mutant: Option<&'static str>) -> Report {
    // The time-out of the question, and a poll: no message comes.
    let bounds = Bounds { waited: leases(1.0 / 6.0) + Duration::from_millis(600), ..Bounds::default() };
    seldom("reply of acquire lost").with(mutant).play(bounds, |scene| {
        // A message would reveal a forgotten tenure as soon as others want the lock.
        scene.processes().for_each(|process| scene.proxy(process).lose_messages(true));
        meet(scene, Sent::Acquire, Lot::LoseReply, 4);
    })
}

/// Shows: G11.
#[test]
fn an_acquire_whose_reply_is_lost_is_one_hold() {
    reply_of_acquire_lost(None).assert_clean();
}

/// Shows: G11, L2.
#[test]
fn an_acquire_that_comes_after_its_time_out_takes_the_lock_for_nobody() {
    // It has the lock until the clean-up list asks again.
    let again = leases(1.0 / 6.0).min(Duration::from_millis(1000));
    let bounds = Bounds { waited: again + Duration::from_millis(800), ..Bounds::default() };
    let late = Lot::DelayRequest(Duration::from_millis(700));
    let report = seldom("request of acquire late").play(bounds, |scene| {
        meet(scene, Sent::Acquire, late, 4);
        // A request that arrives after its client has closed and cleaned up has the lock for its lease: L2.
        scene.sleep(1.5);
    });
    report.assert_clean();
}

/// Shows: G11.
#[test]
fn a_release_whose_reply_is_lost_is_one_release() {
    let bounds = Bounds { waited: Duration::from_millis(600), ..Bounds::default() };
    seldom("reply of release lost").play(bounds, |scene| meet(scene, Sent::Release, Lot::LoseReply, 4)).assert_clean();
}

/// It is repeated, and the lock is kept for its time all the same.
/// Shows: G11, G13.
#[test]
fn a_delayed_release_whose_reply_is_lost_is_a_delayed_release() {
    let bounds = Bounds { waited: Duration::from_millis(600), ..Bounds::default() };
    seldom("reply of delayed release lost")
        .work(|work| (work.leads, work.delays) = (0, (100, 900)))
        .play(bounds, |scene| meet(scene, Sent::DelayRelease, Lot::LoseReply, 4))
        .assert_clean();
}

/// Shows: G11.
#[test]
fn replies_that_are_cut_or_reset_lose_nothing() {
    let bounds = Bounds { waited: Duration::from_millis(600), ..Bounds::default() };
    seldom("replies cut, reset, sliced")
        .play(bounds, |scene| {
            scene.processes().for_each(|process| scene.proxy(process).slice(true));
            for what in [Sent::Acquire, Sent::Release] {
                meet(scene, what, Lot::CutReply(1), 2);
                meet(scene, what, Lot::Reset, 2);
            }
            scene.processes().for_each(|process| scene.proxy(process).reset());
        })
        .assert_clean();
}

/// The lease counts from the sending: a slow answer makes it shorter, not later.
pub(crate) fn slow_replies_to_a_stopped_holder(mutant: Option<&'static str>) -> Report {
    let bounds = Bounds { expired: 2, ..Bounds::default() };
    Setup::of("slow replies, holder SIGSTOP 2 L").first_holds(1.5).with(mutant).play(bounds, |scene| {
        scene.proxy(0).delay(Way::ToClient, Duration::from_millis(150));
        scene.wait_inside(0);
        // The answer to the extension before is known, and no later one reaches the server.
        let fired = scene.proxy(0).trap(Sent::Extend, 1, Lot::LoseRequest);
        wait_for(&fired);
        scene.stop(0);
        scene.note_ttl();
        scene.sleep(2.0);
        scene.resume(0);
        scene.proxy(0).delay(Way::ToClient, Duration::ZERO);
    })
}

/// Shows: G1, G5, S1.
#[test]
fn a_lease_counts_from_before_its_command_was_sent() {
    slow_replies_to_a_stopped_holder(None).assert_clean();
}

/// An extension that comes when its tenure is over and somebody else has the lock changes nothing.
pub(crate) fn extension_after_release(mutant: Option<&'static str>) -> Report {
    Setup::of("extension late by 1.4 L").first_holds(1.1).with(mutant).play(Bounds::default(), |scene| {
        for _ in 0..2 {
            scene.wait_inside(0);
            let late = Lot::DelayRequest(leases(1.4));
            wait_for(&scene.proxy(0).trap(Sent::Extend, 0, late));
        }
        scene.sleep(1.6);
    })
}

/// Shows: G2, G3, S3.
#[test]
fn an_extension_that_comes_after_the_release_changes_nothing() {
    // It was repeated on a fresh connection.
    extension_after_release(None).assert_clean_without_loss();
}

/// An extension that was sent in time and arrives too late extends no lease.
/// Shows: G2, S3.
#[test]
fn requests_that_come_too_late_change_nothing() {
    let bounds = Bounds { expired: 2, ..Bounds::default() };
    let report = Setup::of("requests of the holder late by 1.4 L").first_holds(2.5).play(bounds, |scene| {
        scene.wait_inside(0);
        scene.fault();
        scene.proxy(0).delay(Way::ToServer, leases(1.4));
        scene.sleep(1.6);
        scene.proxy(0).delay(Way::ToServer, Duration::ZERO);
        scene.sleep(1.4);
    });
    assert!(report.assert_clean().lost >= 1);
}

/// Shows: G3.
#[test]
fn a_half_open_connection_costs_the_holder_no_lease() {
    let report = Setup::of("half-open to the holder").first_holds(1.5).play(Bounds::default(), |scene| {
        for _ in 0..2 {
            scene.wait_inside(0);
            scene.sleep(0.2);
            scene.proxy(0).silence();
        }
        scene.sleep(1.0);
    });
    // Fresh connections work.
    report.assert_clean_without_loss();
}

/// Shows: G5.
#[test]
fn a_holder_that_is_cut_off_knows_at_its_deadline() {
    let bounds = Bounds { expired: 1, ..Bounds::default() };
    let report = Setup::of("holder cut off for 2 L").first_holds(2.5).play(bounds, |scene| {
        scene.wait_inside(0);
        scene.fault();
        for way in [Way::ToServer, Way::ToClient] {
            scene.proxy(0).lose(way, true);
        }
        scene.sleep(2.0);
        for way in [Way::ToServer, Way::ToClient] {
            scene.proxy(0).lose(way, false);
        }
        // A connection that has lost bytes is useless.
        scene.proxy(0).reset();
    });
    assert!(report.assert_clean().lost >= 1);
}
