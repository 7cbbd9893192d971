//! The kit's Redis Cluster, with plain commands alone.

mod failover;
mod members;
mod migration;

use crate::support::cluster::{Cluster, Plan, keys_in, slot_of};
use redis::{Connection, ErrorKind};

/// Writes a key where it belongs; the error otherwise.
fn set(node: &mut Connection, key: &str, value: &str) -> Result<(), redis::RedisError> {
    redis::cmd("SET").arg(key).arg(value).exec(node)
}

fn get(node: &mut Connection, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query(node).unwrap()
}

fn key(n: u32) -> String {
    format!("key {n}")
}

/// The port to which a node sends a client with a key.
fn sent_to(cluster: &Cluster, node: usize, key: &str) -> u16 {
    let error = set(&mut cluster.connection(node), key, "v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::Moved), "{error}");
    error.redirect_node().unwrap().0.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn masters_share_the_slots_and_each_has_a_replica() {
    let cluster = Cluster::start();
    assert_eq!(cluster.masters(), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|master| cluster.replicas_of(master)), [[3], [4], [5]]);
    assert_eq!([3, 4, 5].map(|replica| cluster.master_of(replica)), [Some(0), Some(1), Some(2)]);
    assert_eq!(cluster.slots_of(0), [0..=5460]);
    assert_eq!(cluster.slots_of(3), []);

    for master in 0..3 {
        let keys: Vec<_> = cluster.keys_on(master, key).take(20).collect();
        let mut admin = cluster.connection(master);
        for key in &keys {
            assert_eq!(slot_of(key), cluster.run::<u16>(master, &["CLUSTER", "KEYSLOT", key]));
            assert_eq!(cluster.owner_of_key(key), master);
            set(&mut admin, key, "v").unwrap();
        }
        let other = (master + 1) % 3;
        assert_eq!(sent_to(&cluster, other, &keys[0]), cluster.nodes[master].port());
        assert_eq!(cluster.url(master), format!("redis://127.0.0.1:{}/", cluster.nodes[master].port()));
    }
    let chosen = keys_in(vec![7..=7], |n| format!("{n}{{x")).next().unwrap();
    assert_eq!((slot_of(&chosen), cluster.owner_of_key(&chosen)), (7, 0));
    let ports = [1, 5].map(|node| cluster.nodes[node].port());
    assert_eq!(
        cluster.url_of_seeds(&[1, 5]),
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}/", ports[0], ports[1])
    );
}

#[test]
fn clusters_do_not_meet() {
    let small = Plan { masters: 1, replicas: 0, ..Plan::default() };
    let [a, b] = [(); 2].map(|()| Cluster::start_as(&small));
    set(&mut a.connection(0), "k", "v").unwrap();
    assert_eq!(get(&mut b.connection(0), "k"), None);
    assert_eq!([&a, &b].map(|cluster| cluster.nodes[0].view().unwrap().len()), [1, 1]);
}

#[test]
fn further_arguments_reach_each_node() {
    let args = ["--maxclients", "77"].map(str::to_owned).to_vec();
    let cluster = Cluster::start_as(&Plan { masters: 2, replicas: 0, args, ..Plan::default() });
    for node in 0..2 {
        let (_, limit): (String, String) = cluster.run(node, &["CONFIG", "GET", "maxclients"]);
        assert_eq!(limit, "77");
    }
}
