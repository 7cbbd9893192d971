//! Nodes that come and go, and are reached in other ways.

use super::{get, key, set};
use crate::support::cluster::{Cluster, Plan};
use redis::Client;

#[test]
fn a_node_comes_takes_slots_and_goes() {
    let mut cluster = Cluster::start_as(&Plan { masters: 2, replicas: 0, ..Plan::default() });
    let keys: Vec<_> = (0..100).map(key).collect();
    let owner = |cluster: &Cluster, key: &str| cluster.connection(cluster.owner_of_key(key));
    keys.iter().for_each(|key| set(&mut owner(&cluster, key), key, key).unwrap());
    let new = cluster.add();
    assert_eq!((new, cluster.masters()), (2, vec![0, 1]));
    cluster.reshard(0..100, new);
    assert_eq!(cluster.masters(), [0, 1, 2]);
    assert_eq!(cluster.slots_of(new), [0..=99]);

    let old = 0;
    cluster.remove(old);
    assert_eq!(cluster.masters(), [1, 2]);
    keys.iter().for_each(|key| assert_eq!(get(&mut owner(&cluster, key), key).as_ref(), Some(key)));
    assert_eq!(cluster.nodes[old].view().unwrap().len(), 1);
    assert!(cluster.nodes[1].view().unwrap().iter().all(|seen| seen.port != cluster.nodes[old].port()));
    cluster.join(old);
    assert_eq!(cluster.nodes[1].view().unwrap().len(), 3);
}

#[test]
fn the_replica_of_a_master_that_goes_is_given_to_another_one() {
    let mut cluster = Cluster::start_as(&Plan { masters: 2, ..Plan::default() });
    cluster.remove(1);
    assert_eq!(cluster.masters(), [0]);
    assert_eq!(cluster.replicas_of(0), [2, 3]);
    cluster.remove(2);
    assert_eq!(cluster.replicas_of(0), [3]);
    assert_eq!(cluster.add_replica(0), 4);
    assert_eq!(cluster.replicas_of(0), [3, 4]);
}

#[test]
fn a_node_comes_back_as_a_stranger() {
    let mut cluster = Cluster::start_as(&Plan { masters: 1, ..Plan::default() });
    set(&mut cluster.connection(0), "k", "v").unwrap();
    let id = cluster.nodes[1].id().to_owned();
    cluster.nodes[1].restart_as_a_stranger();
    assert_ne!(cluster.nodes[1].id(), id);
    assert_eq!(cluster.nodes[1].view().unwrap().len(), 1);
    cluster.join(1);
    assert!(cluster.nodes[0].view().unwrap().iter().all(|seen| seen.id != id));
    cluster.follow(1, 0);
    cluster.wait_until_well();
    assert_eq!(cluster.replicas_of(0), [1]);
}

#[test]
fn each_node_is_reached_by_a_network_of_its_own() {
    let cluster = Cluster::start_as(&Plan { masters: 2, networked: true, ..Plan::default() });
    let ways: Vec<_> = cluster.nodes.iter().map(|node| node.way.as_ref().unwrap()).collect();
    assert_eq!(cluster.nodes[1].port(), ways[1].port());
    let mut client = Client::open(cluster.url(0)).unwrap().get_connection().unwrap();
    let [here, there] = [0, 1].map(|node| cluster.keys_on(node, key).next().unwrap());
    set(&mut client, &here, "v").unwrap();
    let error = set(&mut client, &there, "v").unwrap_err();
    assert_eq!(error.redirect_node().unwrap().0, format!("127.0.0.1:{}", ways[1].port()));
    ways[0].reset();
    assert!(set(&mut client, &here, "v").unwrap_err().is_io_error());
    // Replicas and moving slots do not mind.
    cluster.wait_until_well();
    cluster.reshard(cluster.slots_of(0).into_iter().flatten().take(10), 1);
    assert_eq!(cluster.fail_over_to(3), 1);
}

#[test]
fn commands_and_keys_of_all_nodes_are_counted() {
    let cluster = Cluster::start();
    let sent = || [cluster.calls("publish"), cluster.calls("spublish"), cluster.published_on_the_bus()];
    assert_eq!(sent(), [0; 3]);
    let keys: Vec<_> = (0..3).map(|node| cluster.keys_on(node, key).next().unwrap()).collect();
    for (node, key) in keys.iter().enumerate() {
        set(&mut cluster.connection(node), key, "v").unwrap();
        cluster.run::<()>(node, &["EVAL", "redis.call('SPUBLISH', KEYS[1], 'x')", "1", key]);
        cluster.run::<()>(node, &["PUBLISH", "anywhere", "x"]);
        cluster.wait_for_replicas(node);
    }
    assert_eq!(sent(), [3, 3, 15]);
    assert_eq!(cluster.calls("set"), 6);
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(cluster.keys("*"), sorted);
}

#[test]
fn scripts_are_forgotten_by_one_node_alone() {
    let cluster = Cluster::start_as(&Plan { masters: 2, replicas: 0, ..Plan::default() });
    let [a, b] = [0, 1].map(|node| cluster.run::<String>(node, &["SCRIPT", "LOAD", "return 1"]));
    assert_eq!(a, b);
    cluster.nodes[0].flush_scripts();
    let known = [0, 1].map(|node| cluster.run::<Vec<bool>>(node, &["SCRIPT", "EXISTS", &a]));
    assert_eq!(known, [[false], [true]]);
}

#[cfg(feature = "tls")]
#[test]
fn all_but_the_kit_uses_tls_alone() {
    use crate::support::certificates::{authority, certificate, write};
    use crate::support::cluster::TlsFiles;
    use redis::{ClientTlsConfig, TlsCertificates};

    let authority = authority("authority");
    let (shown, secret) = certificate(&authority, "127.0.0.1");
    let dir = tempfile::tempdir().unwrap();
    let file = |name, text: &str| write(dir.path(), name, text);
    let files = TlsFiles {
        certificate: file("node.pem", &shown),
        key: file("node.key", &secret),
        authority: file("ca.pem", &authority.pem()),
    };
    let cluster = Cluster::start_as(&Plan { masters: 2, networked: true, tls: Some(files), ..Plan::default() });
    assert!(cluster.url_of_seeds(&[0]).starts_with("rediss+cluster://"));
    let client_tls = ClientTlsConfig { client_cert: shown.into_bytes(), client_key: secret.into_bytes() };
    let trusted = TlsCertificates { client_tls: Some(client_tls), root_cert: Some(authority.pem().into_bytes()) };
    let mut client = Client::build_with_tls(cluster.url(0), trusted).unwrap().get_connection().unwrap();
    let [here, there] = [0, 1].map(|node| cluster.keys_on(node, key).next().unwrap());
    set(&mut client, &here, "v").unwrap();
    let error = set(&mut client, &there, "v").unwrap_err();
    assert_eq!(error.redirect_node().unwrap().0, format!("127.0.0.1:{}", cluster.nodes[1].port()));
    cluster.move_slot(crate::support::cluster::slot_of(&here), 1);
    cluster.wait_for_replicas(1);
    assert_eq!(cluster.fail_over_to(3), 1);
    assert_eq!(get(&mut cluster.connection(3), &here).as_deref(), Some("v"));
}
