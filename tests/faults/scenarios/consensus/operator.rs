//! An operator takes the lock from its holder. Two may be inside then, until the holder asks for the next time.

use super::{Stage, bounds};
use crate::checker::waits::Kept;
use crate::consensus::{ConsensusStore, Look};
use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::setup::Setup;
use crate::support::crew::eventually;
use crate::worker::now;
use std::time::Duration;

on_each_store!(a_holder_learns_soon_that_an_operator_took_its_lock);

/// A sixth of the lease, and what a busy machine needs.
fn soon<V: ConsensusStore>() -> Duration {
    V::LEASE / 6 + Duration::from_millis(500)
}

/// Does something to the lock in a hold of the first process, which would last longer.
fn meddle<V: ConsensusStore>(stage: &mut Stage<V>, name: &'static str, what: impl FnOnce(&mut Scene)) -> Report {
    let bounds = Bounds { lossy: true, told: soon::<V>(), ..bounds() };
    let report = stage.play(Setup::of(name).on_consensus(V::LEASE), bounds, |scene| {
        scene.ask_to_hold_on(0);
        scene.wait_until_it_holds_on(0);
        scene.fault();
        let from = now();
        scene.meddle(u64::try_from(soon::<V>().as_nanos()).unwrap(), what);
        eventually("its holder is told", || scene.is_told_since(0, from));
        scene.let_go(0);
    });
    assert!(report.lost >= 1, "its holder knows: {report}");
    report.assert_clean()
}

/// Shows: G5, G7, S3.
fn a_holder_learns_soon_that_an_operator_took_its_lock<V: ConsensusStore>() {
    let mut stage = Stage::<V>::open();
    meddle(&mut stage, "session ended by an operator", |scene| {
        let Look::Held { session, .. } = scene.consensus().look() else { panic!("it is held") };
        scene.consensus().quorum.end_session(&session);
    });
    meddle(&mut stage, "key deleted by an operator", |scene| {
        let path = scene.consensus().lock_path();
        assert!(scene.consensus().quorum.delete(&path));
    });
    meddle(&mut stage, "key overwritten by an operator", |scene| {
        let (path, at) = (scene.consensus().lock_path(), now());
        scene.consensus().quorum.hold(&path, "operator-1", Some(V::LEASE));
        let mine = scene.consensus().look();
        assert!(matches!(&mine, Look::Held { value, .. } if value == "operator-1"), "{mine:?}");
        scene.sleep(0.5);
        assert_eq!(scene.consensus().look(), mine, "nobody touches it");
        eventually("it ends with its session", || scene.consensus().look() != mine);
        scene.kept.push(Kept { at, until: now() });
    });
}
