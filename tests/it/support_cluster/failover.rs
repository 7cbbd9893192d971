//! Nodes that fail, and replicas that take their place.

use super::{get, key, sent_to, set};
use crate::support::cluster::{Cluster, Plan};

#[test]
fn a_replica_takes_over_from_its_master_when_told_and_gives_back() {
    let cluster = Cluster::start();
    let key = cluster.keys_on(1, key).next().unwrap();
    set(&mut cluster.connection(1), &key, "v").unwrap();
    for (new, old) in [(4, 1), (1, 4)] {
        assert_eq!(cluster.fail_over_to(new), old);
        assert_eq!(cluster.owner_of_key(&key), new);
        assert_eq!(cluster.named(old, 5461), Some(new));
        assert_eq!(get(&mut cluster.connection(new), &key).as_deref(), Some("v"));
        assert_eq!(sent_to(&cluster, 0, &key), cluster.nodes[new].port());
        cluster.wait_until_well();
        assert_eq!(cluster.master_of(old), Some(new));
    }
}

#[test]
fn a_replica_takes_over_from_a_killed_master_which_comes_back_as_a_replica() {
    let mut cluster = Cluster::start();
    let key = cluster.keys_on(0, key).next().unwrap();
    set(&mut cluster.connection(0), &key, "v").unwrap();
    cluster.wait_for_replicas(0);
    cluster.nodes[0].kill();
    assert_eq!(cluster.wait_for_promotion(0), 3);
    assert_eq!(get(&mut cluster.connection(3), &key).as_deref(), Some("v"));

    cluster.nodes[0].restart();
    cluster.wait_until_well();
    assert_eq!(cluster.master_of(0), Some(3));
    cluster.wait_for_replicas(3);
    let mut admin = cluster.connection(0);
    redis::cmd("READONLY").exec(&mut admin).unwrap();
    assert_eq!(get(&mut admin, &key).as_deref(), Some("v"));
}

#[test]
fn a_replica_takes_over_from_a_stopped_master_which_learns_of_it_later() {
    let mut cluster = Cluster::start();
    let key = cluster.keys_on(2, key).next().unwrap();
    cluster.nodes[2].stop();
    assert!(!cluster.nodes[2].is_up());
    assert_eq!(cluster.wait_for_promotion(2), 5);
    set(&mut cluster.connection(5), &key, "v").unwrap();
    cluster.nodes[2].go_on();
    cluster.wait_until_well();
    assert_eq!(cluster.master_of(2), Some(5));
    assert_eq!(sent_to(&cluster, 2, &key), cluster.nodes[5].port());
}

#[test]
fn a_master_that_restarts_at_once_is_empty_and_keeps_its_slots() {
    let mut cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let key = cluster.keys_on(0, key).next().unwrap();
    set(&mut cluster.connection(0), &key, "v").unwrap();
    let id = cluster.nodes[0].id().to_owned();
    cluster.nodes[0].restart();
    cluster.wait_until_well();
    assert_eq!(cluster.nodes[0].id(), id);
    assert_eq!(cluster.owner_of_key(&key), 0);
    assert_eq!(get(&mut cluster.connection(0), &key), None);
}

#[test]
fn healing_wakes_and_restarts_whoever_is_down() {
    let mut cluster = Cluster::start_as(&Plan { networked: true, ..Plan::default() });
    cluster.nodes[0].kill();
    cluster.nodes[4].stop();
    cluster.nodes[2].way.as_ref().unwrap().cut_off();
    cluster.wait_for_promotion(0);
    cluster.heal();
    assert!(cluster.nodes.iter().all(|node| node.is_up()));
    assert_eq!(cluster.masters(), [1, 2, 3]);
}
