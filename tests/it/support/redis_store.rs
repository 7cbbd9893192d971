//! [`Store`] for Redis: a server for each test, and real time.

use super::redis_server::RedisServer;
use super::store::Store;
use parking_lot::Mutex;
use redis_dlock::{Error, LockProcessor};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Helper keys and inboxes have names like this; the fence is the one that may stay for ever.
const FENCE: &str = "DLOCK:1:fence";

type Connect = fn(&str) -> Result<Arc<dyn LockProcessor>, Error>;

pub(crate) struct RedisStore {
    server: RedisServer,
    connect: Connect,
    admin: Mutex<redis::Connection>,
}

impl RedisStore {
    /// Starts a server whose processors are made by `connect` from its URL.
    pub(crate) fn start(connect: Connect) -> Self {
        let server = RedisServer::start();
        let admin = Mutex::new(server.connection());
        Self { server, connect, admin }
    }

    fn admin<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        command.query(&mut *self.admin.lock()).unwrap()
    }
}

impl Store for RedisStore {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        (self.connect)(&self.server.url()).unwrap()
    }

    fn delete(&self, key: &str) -> bool {
        self.admin::<u64>(redis::cmd("DEL").arg(key)) == 1
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(holder);
        if let Some(lease) = lease {
            set.arg("PX").arg(u64::try_from(lease.as_millis()).unwrap());
        }
        self.admin::<()>(&set);
    }

    fn flush(&self) {
        self.admin::<()>(&redis::cmd("FLUSHALL"));
    }

    fn pass_time(&self, time: Duration) {
        thread::sleep(time);
    }

    fn leftovers(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.admin(redis::cmd("KEYS").arg("*"));
        keys.retain(|key| key != FENCE);
        keys
    }
}

#[test]
fn an_administrator_sees_and_changes_keys() {
    let store = RedisStore::start(|_| unreachable!("no processor is asked for"));
    let lease = Duration::from_millis(50);
    store.overwrite("a", "somebody", None);
    store.overwrite("b", "somebody", Some(lease));
    store.overwrite(FENCE, "7", None);
    store.pass_time(lease * 2);
    assert_eq!(store.leftovers(), ["a"]);
    assert!(store.delete("a"));
    assert!(!store.delete("a"));
    assert!(store.leftovers().is_empty());
    store.flush();
    assert_eq!(store.admin::<u64>(&redis::cmd("DBSIZE")), 0);
}
