//! A Cluster of three masters with a replica each. One of them fails, or hands over, or its slots move, while locks of its slots are held, waited
//! for, and handed over.
//!
//! In each scene the processes want four locks of the other two masters, too, beside the one that is contended at the node that is hurt
//! ([`elsewhere`](crate::elsewhere)). There nothing may be lost, and all is judged as on one server.
//!
//! A master acknowledges writes alone, so a failover that nobody planned may lose some: such scenes note the time in which two may have the lock, as
//! those with Sentinels do. A planned failover loses nothing, nor does a slot that moves; there M, F and X are judged as ever.

mod cut_off;
mod emptied;
mod flushed;
mod killed;
mod members;
pub(crate) mod moved;
pub(crate) mod planned;
pub(crate) mod stopped;
mod terms;
mod together;
pub(crate) mod unheard;

use super::super::failovers::Failover;
use super::sentinel::{assert_kept, lease_here, serve_in_order};
use crate::report::Bounds;
use crate::scene::{Process, Scene};
use crate::setup::{Setup, leases};
use std::time::Duration;

/// By how many replicas a hold is acknowledged where all must do that.
const ALL: u8 = 1;

/// Five processes with a thread each for the contended lock, which do nothing but wait for it and hold it for a moment.
fn five(name: &'static str, lease: Duration) -> Setup {
    let setup = Setup { processes: 5, ..Setup::of(name).in_cluster(lease) };
    setup.work(|work| (work.threads, work.tries, work.hold) = (1, 0, (5, 20)))
}

/// Kills a master whose replica acknowledges each hold, and waits until all processes follow its successor.
fn kill_acknowledged(scene: &mut Scene) {
    let failover = scene.kill_master();
    scene.promoted(&failover);
    scene.mend_for_acks(&failover);
    let all = scene.all_but(&[]);
    scene.followed_past_lost_releases(&failover, &all);
}

/// A waiter is served within a second after the nodes agree on the new owner: twice the longest pause between two subscriptions.
pub(crate) fn bounds(lossy: bool) -> Bounds {
    Bounds { lossy, told: leases(0.5), waited: Duration::from_secs(1), expired: 0 }
}

/// Waits until another node owns the slot, and all processes but these hear there.
fn fail_over(scene: &mut Scene, failover: &Failover, but: &[Process]) {
    scene.promoted(failover);
    let others = scene.all_but(but);
    scene.followed(failover, &others);
}
