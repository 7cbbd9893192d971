//! [`Store`] for Redis: a server for each test, whose clock is moved by hand, or the master of a service or the masters of a cluster that
//! several cases share, and real time.

use crate::support::clock_shim::ServerByHand;
use crate::support::crew::eventually;
use crate::support::sentinels::Service;
use dlock_conformance::Store;
use parking_lot::Mutex;
use redis_dlock::processor::{Claim, LockProcessor, Operations};
use redis_dlock::{ManualClock, RedisLockProcessor};
use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Helper keys and inboxes have names like this; the fence is the one that may stay for ever.
const FENCE: &str = "DLOCK:1:fence";

/// The fence of a slot in a cluster has a number in braces before its last word.
fn is_fence(key: &str) -> bool {
    key == FENCE || (key.starts_with("DLOCK:1:{") && key.ends_with("}:fence"))
}

/// How long a processor waits for the server.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct RedisStore {
    name: &'static str,
    /// What processors connect to.
    url: String,
    admins: Mutex<Vec<redis::Connection>>,
    /// Whether processors come with a connection that has had a number, so that they try plain commands first.
    proved: bool,
    is_cluster: bool,
    /// The clock that the server follows.
    clock: Option<Arc<ManualClock>>,
    /// What must run as long as the store is used.
    _servers: Arc<dyn Any + Send + Sync>,
}

impl RedisStore {
    pub(crate) fn start() -> Self {
        Self::by(Arc::default())
    }

    /// On a clock that others move, too.
    pub(crate) fn by(clock: Arc<ManualClock>) -> Self {
        Self::on(Arc::new(ServerByHand::start(&clock)), clock)
    }

    /// On a server that others use, too, and its clock.
    pub(crate) fn on(server: Arc<ServerByHand>, clock: Arc<ManualClock>) -> Self {
        let url = server.url();
        Self { clock: Some(clock), ..Self::of("redis", url.clone(), &[url], server) }
    }

    /// An administrator connects to the server, or to all masters.
    fn of(name: &'static str, url: String, server_urls: &[String], servers: Arc<dyn Any + Send + Sync>) -> Self {
        let admins = Mutex::new(connections(server_urls));
        Self { name, url, admins, proved: false, is_cluster: false, clock: None, _servers: servers }
    }

    /// A store on the first master of a service, reached by its Sentinels. The master is as empty as a new one; nobody else uses it.
    pub(crate) fn behind(service: &Arc<Service>) -> Self {
        let url = service.servers[0].url();
        Self::of("redis behind Sentinels", service.url(), &[url], service.clone()).emptied()
    }

    /// A store on the masters of a cluster, which are as empty as new ones; nobody else uses them.
    pub(crate) fn on_cluster(url: String, masters: &[String]) -> Self {
        let store = Self::of("redis cluster", url, masters, Arc::new(()));
        Self { is_cluster: true, ..store }.emptied()
    }

    fn emptied(self) -> Self {
        self.deny(&[]);
        self.flush();
        self.everywhere::<()>(redis::cmd("SCRIPT").arg("FLUSH"));
        // The clients of a new case have the names of those before, which must not be heard any more.
        eventually("the inboxes before are closed", || {
            let channels =
                |kind: &str| -> Vec<Vec<String>> { self.everywhere(redis::cmd("PUBSUB").arg(kind).arg("DLOCK:*")) };
            channels("CHANNELS").iter().chain(&channels("SHARDCHANNELS")).all(Vec::is_empty)
        });
        self
    }

    pub(crate) fn start_proved() -> Self {
        Self { proved: true, ..Self::start() }
    }

    /// Runs a command about a key where the key belongs.
    fn admin<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let mut admins = self.admins.lock();
        let mut answers = admins.iter_mut().map(|admin| command.query(admin));
        let answer = answers.find(|answer: &Result<T, redis::RedisError>| match answer {
            Err(error) => error.code() != Some("MOVED"),
            Ok(_) => true,
        });
        answer.expect("a server has the key").unwrap()
    }

    /// Runs a command on all servers.
    fn everywhere<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Vec<T> {
        self.admins.lock().iter_mut().map(|admin| command.query(admin).unwrap()).collect()
    }
}

fn connections(urls: &[String]) -> Vec<redis::Connection> {
    urls.iter().map(|url| redis::Client::open(url.as_str()).unwrap().get_connection().unwrap()).collect()
}

/// Lets the connection have a number from a script, and the server know all scripts.
pub(crate) fn prove(store: &RedisLockProcessor) {
    let claim = Claim::new("DLOCK_t_proof", "prover", "prover-1", Duration::from_secs(10));
    let limit = Duration::from_secs(20);
    store.acquire(&claim, limit).unwrap();
    store.poll(&claim, limit).unwrap();
    store.extend(&claim, limit).unwrap();
    store.probe(&claim, limit).unwrap();
    store.release(&claim, limit).unwrap();
}

impl Store for RedisStore {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        // A cluster may be away for a while, and leases are extended early for that; the tests are about one that is not.
        let always_there = Duration::from_millis(1);
        // No case is about a server that is slow, and this machine may be.
        let builder = RedisLockProcessor::builder(&self.url).unwrap().io_timeout(PATIENCE).connect_timeout(PATIENCE);
        let builder = if self.is_cluster { builder.failover_within(always_there) } else { builder };
        let store = builder.connect().unwrap();
        if self.proved {
            prove(&store);
        }
        Arc::new(store)
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

    fn take(&self, key: &str, holder: &str, lease: Duration) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(holder).arg("NX").arg("PX").arg(u64::try_from(lease.as_millis()).unwrap());
        self.admin::<Option<String>>(&set).is_some()
    }

    fn deny(&self, commands: &[&'static str]) -> bool {
        let mut user = redis::cmd("ACL");
        user.arg("SETUSER").arg("default").arg("+@all");
        commands.iter().for_each(|command| {
            user.arg(format!("-{command}"));
        });
        self.everywhere::<()>(&user);
        true
    }

    fn flush(&self) {
        self.everywhere::<()>(&redis::cmd("FLUSHALL"));
        // A lost counter begins again at the time, which does not stand as still as this clock.
        self.clock.iter().for_each(|clock| clock.advance(Duration::from_millis(10)));
    }

    fn pass_time(&self, time: Duration) {
        // Redis cuts times to milliseconds and drops a key in the one after its end.
        match &self.clock {
            Some(clock) => clock.advance(time + Duration::from_millis(1)),
            None => thread::sleep(time + Duration::from_millis(10)),
        }
    }

    fn pass_time_of_gaps(&self, key: &str, time: Duration) {
        if self.clock.is_some() {
            return self.pass_time(time);
        }
        // What would end earlier is made to: the queue, what keeps the time since the last gap, the gap itself, and the time for
        // which places are kept.
        let script = "local time = tonumber(ARGV[1])
            for _, found in ipairs(redis.call('KEYS', 'DLOCK:1:{*:' .. KEYS[1])) do
                redis.call('PEXPIRE', found, redis.call('PTTL', found) - time)
                for place = 0, redis.call('TYPE', found).ok == 'list' and 1 or -1 do
                    local entry = redis.call('LINDEX', found, place) or ''
                    local ends, length = string.match(entry, '^gap (%d+) (%d+)$')
                    if ends then
                        redis.call('LSET', found, place, string.format('gap %.0f %s', ends - time, length))
                    end
                    ends, length = string.match(entry, '^keep (%d+) (%d+)$')
                    if ends then
                        redis.call('LSET', found, place, string.format('keep %.0f %s', ends - time, length))
                    end
                end
            end";
        let time = u64::try_from(time.as_millis()).unwrap();
        self.admin::<()>(redis::cmd("EVAL").arg(script).arg(1).arg(key).arg(time));
    }

    fn leftovers(&self) -> Vec<String> {
        let mut keys = self.everywhere::<Vec<String>>(redis::cmd("KEYS").arg("*")).concat();
        keys.retain(|key| !is_fence(key));
        // What tells of a broken hold ends by itself, with the lease.
        let ends = |key: &str| self.admin::<i64>(redis::cmd("PTTL").arg(key)) != -1;
        keys.retain(|key| !(key.contains("}:broken:") && ends(key)));
        keys
    }

    fn expirations(&self) -> u64 {
        let stats: Vec<String> = self.everywhere(redis::cmd("INFO").arg("stats"));
        let count = |stats: &String| -> u64 {
            stats.lines().find_map(|line| line.strip_prefix("expired_keys:")).unwrap().parse().unwrap()
        };
        stats.iter().map(count).sum()
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

#[test]
fn an_administrator_sees_and_changes_keys() {
    let store = RedisStore::start();
    let lease = Duration::from_millis(50);
    store.overwrite("a", "somebody", None);
    store.overwrite("b", "somebody", Some(lease));
    store.overwrite(FENCE, "7", None);
    store.pass_time(lease * 2);
    assert_eq!(store.leftovers(), ["a"]);
    assert!(!store.take("a", "a JVM", lease));
    assert!(store.delete("a"));
    assert!(store.take("a", "a JVM", Duration::from_secs(60)));
    assert!(store.delete("a"));
    assert!(!store.delete("a"));
    assert!(store.leftovers().is_empty());
    store.flush();
    assert_eq!(store.admin::<u64>(&redis::cmd("DBSIZE")), 0);
}
