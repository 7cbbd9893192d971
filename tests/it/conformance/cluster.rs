//! The suite over a Redis Cluster.

use super::suite::RedisStore;
use crate::support::cluster::{Cluster, Plan};
use dlock_conformance::{cases, run, skipped};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A store on all masters of a cluster; the clients know only the first node.
pub(crate) fn store(cluster: &Cluster) -> RedisStore {
    let masters: Vec<_> = cluster.masters().into_iter().map(|node| cluster.url(node)).collect();
    RedisStore::on_cluster(cluster.url_of_seeds(&[0]), &masters)
}

/// A release hands over with a number, and a Cluster sets the fence to the clock for each. So where `SET` is denied, nothing is done, and
/// nothing is to be undone.
const UNDOES_NOTHING: &str = "denied::leaves_open_what_it_cannot_undo";

/// All cases in one test, one after another: the nodes take seconds to agree, so the cases share them. The keys of the cases fall into
/// slots of all masters.
#[test]
fn every_case_holds_on_a_cluster() {
    let cluster = Cluster::start_as(&Plan::steady());
    let missing: Vec<_> = skipped(store(&cluster)).into_iter().filter(|case| !case.starts_with("settling::")).collect();
    assert_eq!(missing, [""; 0]);
    let fails = |case: &&str| catch_unwind(AssertUnwindSafe(|| run(case, store(&cluster)))).is_err();
    let failed: Vec<_> = cases().filter(|case| *case != UNDOES_NOTHING).filter(fails).collect();
    assert_eq!(failed, [""; 0], "each has said above why");
    assert_eq!(cluster.calls("publish"), 0, "a message goes to the subscribers at its node alone");
    assert!(cluster.calls("spublish") > 0);
    for master in cluster.masters() {
        assert!(cluster.nodes[master].calls("evalsha") > 0, "keys of the cases are on each master");
    }
    assert_eq!(cluster.published_on_the_bus(), 0);
}

/// Shows: G1, G2, G8, S3, S4, S5.
#[test]
fn random_requests_are_answered_as_by_the_embedded_store() {
    let cluster = Cluster::start_as(&Plan::steady());
    super::model::random_requests_are_answered_as_by_the_embedded_store(store(&cluster));
}
