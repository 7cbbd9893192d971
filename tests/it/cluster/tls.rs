//! TLS to all nodes.

use super::{lock, target_on};
use crate::support::certificates::{authority, certificate, write};
use crate::support::cluster::{Cluster, Plan, TlsFiles, slot_of};
use redis_dlock::{DLockGenerator, RedisLockProcessor};

/// Shows: G7.
#[test]
fn all_nodes_are_asked_over_tls_alone() {
    let authority = authority("authority");
    let (shown, key) = certificate(&authority, "127.0.0.1");
    let dir = tempfile::tempdir().unwrap();
    let file = |name, text: &str| write(dir.path(), name, text);
    let files = TlsFiles {
        certificate: file("server.pem", &shown),
        key: file("server.key", &key),
        authority: file("ca.pem", &authority.pem()),
    };
    let cluster = Cluster::start_as(&Plan { tls: Some(files), ..Plan::default() });
    for url in [cluster.url(0), cluster.url_of_seeds(&[1, 2])] {
        let (chain, key) = certificate(&authority, "client");
        let builder = RedisLockProcessor::builder(&url).unwrap().tls_root_certificates(authority.pem());
        let generator = DLockGenerator::new(builder.tls_client_certificate(chain, key).connect().unwrap()).unwrap();
        for master in 0..3 {
            let lock = lock(&generator, &target_on(&cluster, master));
            let guard = lock.lock_owned().unwrap();
            let waits = lock.clone();
            let other = std::thread::spawn(move || waits.lock_owned().unwrap().unlock().unwrap());
            cluster.move_slot(slot_of(lock.key()), (master + 1) % 3);
            guard.unlock().unwrap();
            other.join().unwrap();
        }
    }
}
