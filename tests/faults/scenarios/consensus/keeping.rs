//! A lock that is kept for its time. Consul keeps it for ten seconds at least, so few holds are waited for.

use super::{Stage, assert_safe, bounds, many};
use crate::consensus::Consul;
use crate::report::Bounds;
use crate::support::crew::eventually;
use redis_dlock::DelayedRelease;
use std::time::Duration;

/// Each hold keeps the lock, and the leader dies in that time. (On etcd: `leader`.)
/// Shows: G13.
#[test]
fn consul_keeps_a_lock_for_its_time_when_its_leader_dies() {
    let mut stage = Stage::<Consul>::open();
    let mut setup = many("leader killed, each release delayed").work(|work| {
        (work.leads, work.delays) = (0, (100, 10_000));
    });
    setup.holds = 1;
    let bounds = Bounds { waited: Duration::from_secs(20), ..bounds() };
    let report = stage.play(setup, bounds, |scene| {
        let is_delayed = |holder: String| DelayedRelease::of_locker(&holder).is_some();
        eventually("the lock is kept", || scene.server.holder().is_some_and(is_delayed));
        let leader = scene.leader();
        scene.without_service(|scene| scene.kill_server(leader));
        scene.go_on(1);
        scene.restart_server(leader);
    });
    assert_safe(report);
}
