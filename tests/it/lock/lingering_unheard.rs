//! A lock that lingers, when its client cannot hear any more that others want it.

use crate::support::RedisServer;
use crate::support::crew::eventually;
use redis_dlock::{DLockConfig, DLockGenerator};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Shows: L4.
#[test]
fn it_ends_when_the_subscription_breaks() {
    let server = RedisServer::start();
    let generator = DLockGenerator::connect(&server.url()).unwrap();
    let lock = generator.generate_with(DLockConfig::new("TEST", "x").with_lease(HOUR).with_linger(HOUR)).unwrap();
    let lingers = || {
        lock.lock().unwrap().unlock().unwrap();
        server.run::<bool>(&["EXISTS", lock.key()])
    };
    eventually("it is subscribed", lingers);
    server.run::<()>(&["ACL", "SETUSER", "default", "-subscribe"]);
    assert_eq!(server.run::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
    eventually("it is given back", || !server.run::<bool>(&["EXISTS", lock.key()]));
    assert!(!lingers());
}
