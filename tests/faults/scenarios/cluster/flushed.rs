//! One node forgets all scripts, again and again, while its locks are contended.

use super::bounds;
use crate::report::Report;
use crate::setup::{Setup, lease};
use crate::stage::Stage;
use std::thread;
use std::time::Duration;

/// Shows: G1, G2, G7, L1.
#[test]
fn a_node_that_forgets_all_scripts_under_load_costs_nothing() {
    let setup = Setup::of("Cluster: scripts flushed on one node").in_cluster(Duration::from_millis(lease()));
    let setup = Setup { monitored: true, ..setup };
    let report: Report = Stage::open_patient_cluster().play(setup, bounds(false), |scene| {
        for _ in 0..100 {
            scene.server.node(scene.server.master()).flush_scripts();
            thread::sleep(Duration::from_millis(10));
        }
    });
    report.assert_clean_without_loss();
}
