//! Calls end with their limits, whichever node stands still.

use crate::limits::Scene;
use crate::support::cluster::{Cluster, Plan};
use rustix::process::Signal;

/// Each node, and two of the three. The client knows all of them from the beginning, or one that stands still.
/// Shows: G12, L3.
#[test]
fn calls_end_with_their_limits_while_nodes_stand_still() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::steady() });
    let target_on = |node| {
        let key = cluster.keys_on(node, |n| format!("DLOCK_LIMIT_t{n}")).next().unwrap();
        key.strip_prefix("DLOCK_LIMIT_").unwrap().to_owned()
    };
    let targets: Vec<_> = (0..3).map(target_on).collect();
    for (url, still) in [
        (cluster.url_of_seeds(&[0, 1, 2]), &[0][..]),
        (cluster.url_of_seeds(&[1]), &[1]),
        (cluster.url_of_seeds(&[0, 1, 2]), &[0, 1]),
        (cluster.url_of_seeds(&[0, 1, 2]), &[0, 1, 2]),
    ] {
        let scene = Scene::new(url, targets.clone());
        let tell = |signal: Signal| still.iter().for_each(|node| cluster.nodes[*node].server().signal(signal));
        scene.play(|| tell(Signal::STOP), || tell(Signal::CONT));
    }
}
