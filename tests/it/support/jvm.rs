//! The JVM's side of a lock, with its literal commands.
//!
//! `SET key locker NX PX lease`, and the two scripts of `com.baidu.fsg.dlock.processor.impl.RedisLockProcessor`.

use super::RedisServer;
use std::time::Duration;

/// The JVM's side of one lock.
pub(crate) struct Jvm {
    connection: redis::Connection,
    locker: &'static str,
}

impl Jvm {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection(), locker: "10.0.0.5-17" }
    }

    pub(crate) fn update_for_lock(&mut self, key: &str, lease: Duration) -> bool {
        let reply: Option<String> = redis::cmd("SET")
            .arg(key)
            .arg(self.locker)
            .arg("NX")
            .arg("PX")
            .arg(lease.as_millis() as u64)
            .query(&mut self.connection)
            .unwrap();
        reply.as_deref() == Some("OK")
    }

    pub(crate) fn expand_lock_expire(&mut self, key: &str, lease: Duration) -> bool {
        let script = "if (redis.call('get', KEYS[1]) == ARGV[1]) then     return redis.call('pexpire', KEYS[1], ARGV[2]); else    return nil; end; ";
        self.eval(script, key, &[self.locker, &lease.as_millis().to_string()])
    }

    pub(crate) fn update_for_unlock(&mut self, key: &str) -> bool {
        let script = "if (redis.call('get', KEYS[1]) == ARGV[1]) then     return redis.call('del', KEYS[1]); else     return nil; end;";
        self.eval(script, key, &[self.locker])
    }

    pub(crate) fn is_lock_free(&mut self, key: &str) -> bool {
        redis::cmd("GET").arg(key).query::<Option<String>>(&mut self.connection).unwrap().is_none()
    }

    fn eval(&mut self, script: &str, key: &str, args: &[&str]) -> bool {
        redis::cmd("EVAL")
            .arg(script)
            .arg(1)
            .arg(key)
            .arg(args)
            .query::<Option<i64>>(&mut self.connection)
            .unwrap()
            .is_some()
    }

    pub(crate) fn value_and_ttl(&mut self, key: &str) -> (Option<String>, i64) {
        redis::pipe().get(key).pttl(key).query(&mut self.connection).unwrap()
    }
}
