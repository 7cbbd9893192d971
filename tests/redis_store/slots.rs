//! Every name of a lock falls into one slot of Redis Cluster, asked of a real one. The helper keys are read off what the
//! store writes on a plain server with the same names.

use crate::outcomes::{acquire, setup};
use crate::server::{LONG, Server};
use redis_dlock::LockProcessor;

#[test]
fn queues_share_the_slot_of_their_lock_key() {
    let cluster = Server::start(&["--cluster-enabled", "yes"]);
    let (server, store) = setup();
    let long = "x".repeat(10_000);
    let names =
        ["", " ", "a", "a b", "a}b", "{}", "{}x", "{x}y", "{{x}}", "a{b}{c}", "}{", "é{ü}", "{", "\n{\0}", &long];
    for name in names {
        store.acquire(&acquire(name, "a-1", true), LONG).unwrap();
        store.acquire(&acquire(name, "b-1", true), LONG).unwrap();
        let queue = server.run::<Vec<String>>(&["KEYS", "DLOCK:1:{*}:queue:*"]).pop().unwrap();
        let slot = |key: &str| cluster.run::<u16>(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(slot(&queue), slot(name), "{name:?} {queue:?}");
        server.run::<()>(&["FLUSHALL"]);
    }
}
