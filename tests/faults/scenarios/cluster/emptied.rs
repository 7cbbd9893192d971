//! A master comes back empty, before any node misses it: no failover happens, and its replica loses everything, too.

use super::{bounds, five, lease_here};
use crate::checker::waits::Kept;
use crate::history::Nanos;
use crate::report::Bounds;
use crate::scene::Scene;
use crate::stage::Stage;
use crate::support::crew::{eventually, slowly};
use crate::worker::now;

/// Shows: G5, G7, L1.
#[test]
fn an_empty_restart_of_a_master_of_a_cluster_is_told_to_the_holder_and_those_who_wait_go_on() {
    let setup = five("Cluster: master restarted empty, lock held and waited for", lease_here());
    // It says for two seconds that it is down. A holder that is told so asks again soon, and at the next probe at the latest.
    let bounds = Bounds { told: lease_here() / 6, ..bounds(true) };
    let report = Stage::open_patient_cluster().play(setup, bounds, |scene| {
        scene.held_and_waited_for(0);
        let from = empty(scene);
        let all = scene.all_but(&[]);
        scene.wait_until_heard(&all);
        scene.close_window(from);
        eventually("the holder is told", || scene.is_told_since(0, from));
        scene.let_go(0);
    });
    assert!(report.lost >= 1, "{report}");
    report.assert_clean();
}

/// Restarts the master without its data, and waits until it serves its slots. Returns when that began.
fn empty(scene: &mut Scene) -> Nanos {
    let (from, owner) = (now(), scene.server.master());
    scene.server.cluster_mut().nodes[owner].restart();
    slowly("the master serves its slots", || scene.server.node(owner).is_content());
    scene.kept.push(Kept { at: from, until: now() });
    from
}
