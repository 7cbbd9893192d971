//! How nodes are found.

use super::{LEASE, generator, lock, target_on};
use crate::support::cluster::{Cluster, Plan};
use crate::support::free_port;
use parking_lot::Mutex;
use redis_dlock::{DLockConfig, DLockGenerator, Error, RedisBuilder, RedisLockProcessor};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Shows: G1, G2.
#[test]
fn any_node_leads_to_all_masters() {
    let cluster = Cluster::start();
    for node in 0..cluster.nodes.len() {
        let generator = DLockGenerator::connect(&cluster.url(node)).unwrap();
        for master in 0..3 {
            let lock = lock(&generator, &target_on(&cluster, master));
            let first = lock.lock().unwrap().fencing_token();
            assert!(lock.lock().unwrap().fencing_token() > first);
            let guard = lock.lock().unwrap();
            assert_eq!(cluster.run::<u64>(master, &["EXISTS", lock.key()]), 1);
            guard.unlock().unwrap();
        }
    }
    // The fence of each slot stays, and nothing else.
    let left = cluster.keys("*");
    assert!(left.iter().all(|key| key.starts_with("DLOCK:1:{") && key.ends_with("}:fence")), "{left:?}");
    assert_eq!(left.len(), 3);
}

#[test]
fn seeds_that_do_not_answer_are_passed_over() {
    let cluster = Cluster::start();
    let seeds = cluster.url_of_seeds(&[1]).replace("://", &format!("://127.0.0.1:{},", free_port()));
    let generator = DLockGenerator::connect(&seeds).unwrap();
    (0..3).for_each(|master| lock(&generator, &target_on(&cluster, master)).lock().unwrap().unlock().unwrap());
    // `build` asks nobody; the first call finds the nodes.
    let store = RedisLockProcessor::builder(&seeds).unwrap().build().unwrap();
    let generator = DLockGenerator::new(store).unwrap();
    lock(&generator, &target_on(&cluster, 2)).lock().unwrap().unlock().unwrap();
    let nobody = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let error = DLockGenerator::connect(&nobody).unwrap_err();
    assert!(matches!(&error, Error::Backend { .. }), "{error}");
    let ports: Vec<_> = nobody.trim_start_matches("redis+cluster://").split(',').collect();
    assert!(ports.iter().all(|place| error.to_string().contains(place)), "{error}");
}

/// A Cluster has one database; another one in the URL is named, whether the URL says that it is a Cluster or the node does.
#[test]
fn another_database_than_0_is_refused_by_its_number() {
    let cluster = Cluster::start_as(&Plan { masters: 1, replicas: 0, ..Plan::steady() });
    for url in [cluster.url(0), cluster.url_of_seeds(&[0])] {
        let error = DLockGenerator::connect(&format!("{url}7")).unwrap_err();
        assert!(matches!(&error, Error::InvalidConfig { .. }), "{url}7: {error}");
        let words = error.to_string();
        assert!(
            words.contains("database") && words.contains('7') && words.contains("leave the database out"),
            "{words}"
        );
        DLockGenerator::connect(&format!("{url}0"))
            .unwrap()
            .generate("DB", "0")
            .unwrap()
            .lock()
            .unwrap()
            .unlock()
            .unwrap();
    }
}

fn masters_are_locked_on(cluster: &Cluster, builder: RedisBuilder) {
    let generator = DLockGenerator::new(builder.connect().unwrap()).unwrap();
    for master in 0..3 {
        let target = target_on(cluster, master);
        lock(&generator, &target).lock().unwrap().unlock().unwrap();
        // The owner changes, and the next call is told so by a MOVED.
        let slot = crate::support::cluster::slot_of(lock(&generator, &target).key());
        cluster.move_slot(slot, (master + 1) % 3);
        lock(&generator, &target).lock().unwrap().unlock().unwrap();
    }
}

/// The names that nodes tell mean nothing to this machine.
#[test]
fn addresses_are_mapped() {
    let args = ["--cluster-announce-hostname", "nowhere.invalid", "--cluster-preferred-endpoint-type", "hostname"];
    let cluster = Cluster::start_as(&Plan { args: args.map(str::to_owned).to_vec(), ..Plan::default() });
    let told = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&told);
    let map = move |host: &str, port: u16| {
        seen.lock().insert(host.to_owned());
        ("127.0.0.1".to_owned(), port)
    };
    masters_are_locked_on(&cluster, RedisLockProcessor::builder(&cluster.url(0)).unwrap().address_map(map));
    assert_eq!(told.lock().iter().map(String::as_str).collect::<Vec<_>>(), ["nowhere.invalid"]);
}

/// A node that does not say where it is, is where it was asked.
#[test]
fn nodes_that_name_no_host_are_found() {
    let args = ["--cluster-preferred-endpoint-type", "unknown-endpoint"];
    let cluster = Cluster::start_as(&Plan { args: args.map(str::to_owned).to_vec(), ..Plan::default() });
    masters_are_locked_on(&cluster, RedisLockProcessor::builder(&cluster.url_of_seeds(&[1])).unwrap());
}

/// Each node has at most four connections for calls, and one to listen.
#[test]
fn connections_are_few_and_end_with_the_client() {
    let cluster = Cluster::start();
    let generator = generator(&cluster);
    let target = target_on(&cluster, 1);
    std::thread::scope(|scope| {
        for n in 0..16 {
            let (generator, target) = (&generator, &target);
            scope.spawn(move || {
                for turn in 0..20 {
                    // Keys of one slot, by their braces.
                    let config = DLockConfig::new("CLUSTER", format!("{{{target}}}-{n}-{turn}")).with_lease(LEASE);
                    let lock = generator.generate_with(config).unwrap();
                    lock.lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    let ours = |node: usize| {
        let list: String = cluster.run(node, &["CLIENT", "LIST"]);
        list.lines().filter(|line| line.contains("name=redis-dlock ")).count()
    };
    for node in 0..cluster.nodes.len() {
        assert!(ours(node) <= 5, "{}", ours(node));
    }
    generator.close();
    crate::support::crew::eventually("the connections end", || (0..cluster.nodes.len()).all(|node| ours(node) == 0));
}
