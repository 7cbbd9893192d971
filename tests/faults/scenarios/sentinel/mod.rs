//! A service that Sentinels watch, whose master fails: while the lock is held, while it is waited for, and in the middle of a hand-over.
//!
//! Only the master acknowledges writes, so a failover may lose some. The manual (page "Failover") says all that may follow from that. Each scene
//! notes the time in which two may have the lock ([`Window`](crate::checker::windows::Window)), and the checker judges the rest. A scene in which the
//! replicas have all data before the fault, and nothing is granted until all processes follow, may lose nothing at all.
//!
//! With acknowledgement by all replicas no such time is allowed, except after an empty restart: tokens rise with every hold, and no two are valid at
//! once. The scenarios that isolate a client with the old master also run with the acknowledgement of one replica. The isolated side has no replica,
//! and the others go on with the one that is left at the new master, so two holds at once would be seen.

pub(crate) mod cut_off;
pub(crate) mod emptied;
pub(crate) mod killed;
pub(crate) mod planned;
mod stopped;
mod terms;
mod together;
mod unreachable;

use super::unheard::served;
use crate::failovers::Failover;
use crate::report::{Bounds, Report};
use crate::scene::{Process, Scene};
use crate::setup::{Setup, lease};
use crate::worker::now;
use std::collections::BTreeMap;
use std::time::Duration;

/// By how many replicas a hold is acknowledged where all must do that.
pub(crate) const ALL: u8 = 2;

/// Outlives a failover of 2.5 s with room for a slow machine: it is extended when two seconds are over.
pub(crate) fn lease_here() -> Duration {
    Duration::from_millis(lease().max(6000))
}

/// Five processes with a thread each, which do nothing but wait for the lock and hold it for a moment.
fn five(name: &'static str, acks: u8) -> Setup {
    let setup = Setup { processes: 5, ..Setup::of(name).behind_sentinels(lease_here(), acks) };
    setup.work(|work| (work.threads, work.tries, work.hold) = (1, 0, (5, 20)))
}

/// A waiter is served within two seconds after a Sentinel names the new master: one until all Sentinels are asked again, and one to connect and to
/// find its place. Without that question clients would leave the old master after ten seconds.
fn bounds(lossy: bool) -> Bounds {
    Bounds { lossy, told: lease_here() / 12, waited: Duration::from_secs(2), expired: 0 }
}

/// Bounds of a scene in which writes are lost that nobody but the master has acknowledged.
pub(crate) fn bounds_with(acks: u8) -> Bounds {
    bounds(acks == 0)
}

/// Waits until another server is the master, and all processes but these follow.
fn fail_over(scene: &mut Scene, failover: &Failover, but: &[Process]) {
    scene.promoted(failover);
    let others = scene.all_but(but);
    scene.followed(failover, &others);
}

/// Kills the master, and waits until all processes follow its successor.
pub(crate) fn kill_under_load(scene: &mut Scene) -> Failover {
    let failover = scene.kill_master();
    scene.promoted(&failover);
    let all = scene.all_but(&[]);
    scene.followed_past_lost_releases(&failover, &all);
    failover
}

/// Kills the master when it has given the lock to a process that learns of it when there is another master.
pub(crate) fn kill_in_a_hand_over(scene: &mut Scene) {
    let next = scene.held_and_waited_for(0)[0];
    scene.stop_in_hand_over(0, next);
    let failover = scene.kill_master();
    scene.promoted(&failover);
    let others = scene.all_but(&[next]);
    scene.followed_past_lost_releases(&failover, &others);
    scene.mend_for_acks(&failover);
    scene.resume(next);
    scene.followed(&failover, &[next]);
}

/// Ends a hold: those who waited hold the lock in the order in which they came. If the failover outlasted the lease, the lock has gone on without
/// the holder; whether it may have is for [`assert_kept`].
/// Shows: G8, G10.
#[track_caller]
pub(crate) fn serve_in_order(scene: &mut Scene, holder: Process, order: &[Process]) {
    let from = scene.fault_at;
    if scene.is_told_since(holder, from) {
        return scene.let_go(holder);
    }
    let at = now();
    scene.let_go(holder);
    let served: Vec<_> = served(scene, at).into_iter().map(|(process, _)| process).collect();
    // A process that is not acknowledged in time gives the lock back, and stands at the end of the queue.
    let moved = if scene.acks > 0 { scene.failures_since(at) } else { BTreeMap::new() };
    let without_moved =
        |order: &[Process]| order.iter().copied().filter(|one| !moved.contains_key(one)).collect::<Vec<_>>();
    let (came, had) = (without_moved(order), without_moved(&served));
    assert!(
        had.starts_with(&came),
        "served in another order than they came: {served:?}, not {order:?}; failures: {moved:?}"
    );
}

/// Nothing is broken, and no hold is lost that was fresh when its master failed, unless the failover took nearly a lease.
#[track_caller]
pub(crate) fn assert_kept(report: Report, took: Duration) {
    if took < lease_here().mul_f64(0.75) {
        report.assert_clean_without_loss();
    } else {
        report.assert_clean();
    }
}
