//! Slots that move.

use super::{get, sent_to, set};
use crate::support::cluster::{Cluster, Plan, Step, slot_of};
use redis::{ErrorKind, ServerErrorKind};

fn start() -> Cluster {
    Cluster::start_as(&Plan { replicas: 0, ..Plan::default() })
}

#[test]
fn a_slot_moves_key_by_key_to_and_fro() {
    let cluster = start();
    let tag = cluster.keys_on(0, |n| n.to_string()).next().unwrap();
    let slot = slot_of(&tag);
    let keys = ["a", "b", "c"].map(|name| format!("{{{tag}}}{name}"));
    keys.iter().for_each(|key| set(&mut cluster.connection(0), key, key).unwrap());
    for (from, to) in [(0, 1), (1, 0)] {
        let mut steps = Vec::new();
        cluster.move_slot_with(slot, to, |step| {
            if let Step::KeyMoved(key) = step {
                let error = redis::cmd("GET").arg(key).exec(&mut cluster.connection(from)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::Ask), "{error}");
                let mut target = cluster.connection(to);
                redis::cmd("ASKING").exec(&mut target).unwrap();
                assert_eq!(get(&mut target, key).as_ref(), Some(key));
            }
            steps.push(step.clone());
        });
        assert_eq!(steps.len(), 5 + keys.len(), "{steps:?}");
        assert_eq!(steps[..2], [Step::TargetImports, Step::SourceMigrates]);
        assert_eq!(steps[5..], [Step::TargetOwns, Step::SourceKnows, Step::AllKnow]);
        assert_eq!(cluster.owner_of(slot), to);
        assert_eq!(sent_to(&cluster, 2, &keys[0]), cluster.nodes[to].port());
    }
}

#[test]
fn a_slot_waits_on_its_way_and_keys_are_chosen() {
    let cluster = start();
    let tag = cluster.keys_on(0, |n| n.to_string()).next().unwrap();
    let keys: Vec<_> = (0..300).map(|n| format!("{{{tag}}}{n}")).collect();
    keys.iter().for_each(|key| set(&mut cluster.connection(0), key, "v").unwrap());
    let mut migration = cluster.migration(slot_of(&tag), 2);
    migration.begin();
    migration.move_key(&keys[150]);
    assert!(!migration.keys(1000).contains(&keys[150]));
    assert_eq!(cluster.run::<usize>(2, &["DBSIZE"]), 1);
    assert_eq!(cluster.owner_of(slot_of(&tag)), 0);
    migration.finish();
    cluster.wait_for_owner(slot_of(&tag), 2);
    assert_eq!([0, 2].map(|node| cluster.run::<usize>(node, &["DBSIZE"])), [0, 300]);
}

#[test]
fn many_slots_move_with_their_keys() {
    let cluster = start();
    let keys: Vec<_> = cluster.keys_on(0, |n| format!("key {n}")).take(200).collect();
    keys.iter().for_each(|key| set(&mut cluster.connection(0), key, "v").unwrap());
    cluster.reshard(0..2000, 1);
    assert_eq!(cluster.slots_of(0), [2000..=5460]);
    assert_eq!(cluster.slots_of(1), [0..=1999, 5461..=10921]);
    for key in &keys {
        let owner = if slot_of(key) < 2000 { 1 } else { 0 };
        assert_eq!(get(&mut cluster.connection(owner), key).as_deref(), Some("v"));
    }
}
