//! The tests of the lock, on a Cluster.

use crate::support::cluster::{Cluster, Plan};
use crate::support::lab::ON_CLUSTER;
use std::env;
use std::process::Command;
use std::thread;

/// How many clusters share the tests.
const SHARES: usize = 2;

/// Numbers are not trusted unchecked in a Cluster, so an extension brings one, and not thousands: holds that go on in one process ask once in
/// 1,024 holds.
const OF_ONE_SERVER: [&str; 1] =
    ["lock::lingering::redis::a_thread_that_comes_back_again_and_again_asks_the_store_once"];

/// Each test of `lock::` that runs on a server runs on a cluster, in a process for each share of them, one after another: the nodes take
/// seconds to agree.
#[test]
fn every_test_of_the_lock_holds_on_a_cluster() {
    let this = env::current_exe().unwrap();
    let listed = Command::new(&this).args(["lock::", "--list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let of_lock = |name: &&str| name.starts_with("lock::") && name.contains("::redis::");
    let names: Vec<_> = names.filter(of_lock).filter(|name| !OF_ONE_SERVER.contains(name)).collect();
    assert!(names.len() > 50, "the tests are not found: {listed}");
    thread::scope(|scope| {
        for share in 0..SHARES {
            let (this, names) = (&this, &names);
            scope.spawn(move || {
                let cluster = Cluster::start_as(&Plan::steady());
                let masters: Vec<_> = cluster.masters().into_iter().map(|node| cluster.url(node)).collect();
                let names: Vec<_> = names.iter().skip(share).step_by(SHARES).collect();
                let run = Command::new(this)
                    .args(&names)
                    .args(["--exact", "--test-threads", "1"])
                    .env(ON_CLUSTER, masters.join(","))
                    .output()
                    .unwrap();
                let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
                assert!(run.status.success(), "{out}{err}");
                assert!(out.contains(&format!("{} passed", names.len())), "{out}{err}");
                assert_eq!(cluster.published_on_the_bus(), 0);
                for master in cluster.masters() {
                    assert!(cluster.nodes[master].calls("evalsha") > 0, "locks were kept on each master");
                }
            });
        }
    });
}
