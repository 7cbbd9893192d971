//! One key on a server, whose user is denied commands for the time of one step.

use super::steps::{DELAYED, Queue};
use crate::support::monitor::{Executed, Monitor};
use crate::support::queue::outlast_the_unheard;
use crate::support::{Asking, claim};
use crate::support::{LONG, RedisServer};
use redis_dlock::processor::{Limit, Operations};
use redis_dlock::{Error, Inbox, LockProcessor, Message, RedisLockProcessor, Request};
use std::time::Duration;

pub(crate) const KEY: &str = "DLOCK_DENIED_x";
pub(crate) const LEASE: Duration = Duration::from_secs(30);
const FENCE: &str = "DLOCK:1:fence";
const LEASE_MS: &str = "30000";

/// What is in the store, apart from the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) holder: Option<String>,
    /// The lockers in the queue, without marks.
    pub(super) queue: Vec<String>,
    /// Whether key and queue end by themselves.
    pub(super) holder_ends: bool,
    pub(super) queue_ends: bool,
}

impl Stored {
    pub(super) fn has(&self, locker: &str) -> bool {
        self.holder.as_deref() == Some(locker) || self.queue.iter().any(|waiting| waiting == locker)
    }
}

pub(super) struct Scene {
    server: RedisServer,
    admin: redis::Connection,
    inboxes: [Box<dyn Inbox>; 2],
    queue_key: String,
    gapped_key: String,
    turn: u32,
    /// How many outcomes were unknown until now.
    pub(super) raised: u32,
    /// The store of an operator, with all rights.
    free: RedisLockProcessor,
    /// The store of the user.
    pub(super) store: RedisLockProcessor,
}

impl Scene {
    pub(super) fn new() -> Self {
        let server = RedisServer::start();
        let free = RedisLockProcessor::connect(&server.url()).unwrap();
        let mut admin = server.connection();
        for waiter in ["z-1", "z-2"] {
            free.ask(&claim(KEY, waiter, LEASE), true, LONG).unwrap();
        }
        let queue_key =
            redis::cmd("KEYS").arg("DLOCK:1:{*}:queue:*").query::<Vec<String>>(&mut admin).unwrap().pop().unwrap();
        let gapped_key = queue_key.replacen(":queue:", ":gapped:", 1);
        let inboxes = ["b", "d"].map(|client| free.open(client, LONG).unwrap());
        Self::set_user(&mut admin, &[]);
        let store = Self::connect(&server);
        Self { server, admin, inboxes, queue_key, gapped_key, turn: 0, raised: 0, free, store }
    }

    fn connect(server: &RedisServer) -> RedisLockProcessor {
        RedisLockProcessor::connect(&server.url().replace("//", "//user:p@")).unwrap()
    }

    fn set_user(admin: &mut redis::Connection, denied: &[&str]) {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("user").arg(&["reset", "on", ">p", "~*", "&*", "+@all"]);
        denied.iter().for_each(|denied| {
            command.arg(format!("-{denied}"));
        });
        command.exec(admin).unwrap();
    }

    fn run<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.admin).unwrap()
    }

    /// Lockers of this turn: `a` holds, `b` and `d` are live, `dead` and `gone` are not, `x` asks, `next` follows `a`.
    pub(super) fn locker(&self, name: &str) -> String {
        format!("{name}-{}", self.turn)
    }

    /// Sets the stage for the next step.
    pub(super) fn prepare(&mut self, held: bool, queue: &[Queue], broken_fence: bool) {
        self.turn += 1;
        let mut script = redis::pipe();
        script.cmd("FLUSHALL");
        if broken_fence {
            script.cmd("SET").arg(FENCE).arg("9007199254740991");
        }
        if held {
            script.cmd("SET").arg(KEY).arg(self.locker("a")).arg("PX").arg(LEASE_MS);
        }
        let (seconds, micros): (u64, u64) = self.run(&["TIME"]);
        for entry in queue {
            let entry = entry.text(|name| self.locker(name), (seconds, micros));
            script.cmd("RPUSH").arg(&self.queue_key).arg(entry);
            script.cmd("PEXPIRE").arg(&self.queue_key).arg("60000");
        }
        script.exec(&mut self.admin).unwrap();
    }

    /// A connection whose first question about the key is a script: it has had no number yet, or the key was busy just before.
    pub(super) fn reconnect(&mut self, warm: bool) {
        self.store = Self::connect(&self.server);
        if !warm {
            return;
        }
        let ask = |store: &RedisLockProcessor, key: &str| {
            let request = claim(key, "w-1", LEASE);
            store.acquire(&request, LONG).unwrap()
        };
        let fence: Option<String> = self.run(&["GET", FENCE]);
        self.run::<()>(&["DEL", FENCE]);
        self.run::<()>(&["SET", KEY, "somebody-1"]);
        assert!(matches!(ask(&self.store, KEY), redis_dlock::AcquireOutcome::Busy(_)));
        assert!(matches!(ask(&self.store, "DLOCK_DENIED_warm"), redis_dlock::AcquireOutcome::Acquired(_)));
        self.run::<()>(&["DEL", KEY]);
        if let Some(fence) = fence {
            self.run::<()>(&["SET", FENCE, &fence]);
        }
    }

    /// The commands that the server is asked for meanwhile, those that it refuses, too.
    pub(super) fn commands_during<T>(&mut self, work: impl FnOnce(&Self) -> T) -> (T, Vec<String>) {
        self.run::<()>(&["CONFIG", "RESETSTAT"]);
        let result = work(self);
        let stats: String = self.run(&["INFO", "commandstats"]);
        let names = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split([':', '|']).next());
        let called = names.map(str::to_owned).filter(|name| !["config", "info"].contains(&name.as_str()));
        (result, called.collect())
    }

    /// What the server executes meanwhile.
    pub(super) fn executed_during<T>(&self, work: impl FnOnce(&Self) -> T) -> (T, Vec<Executed>) {
        let monitor = Monitor::start(&self.server);
        let result = work(self);
        (result, monitor.stop(&self.server))
    }

    /// Everything in the server, as `DUMP` gives it.
    pub(super) fn contents(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.server.contents()
    }

    pub(super) fn deny(&mut self, commands: &[&str]) {
        Self::set_user(&mut self.admin, commands);
    }

    pub(super) fn stored(&mut self) -> Stored {
        let (holder, entries, holder_life, queue_life): (_, Vec<String>, i64, i64) = redis::pipe()
            .cmd("GET")
            .arg(KEY)
            .cmd("LRANGE")
            .arg(&self.queue_key)
            .arg("0")
            .arg("-1")
            .cmd("PTTL")
            .arg(KEY)
            .cmd("PTTL")
            .arg(&self.queue_key)
            .query(&mut self.admin)
            .unwrap();
        let lockers = entries.iter().filter(|entry| !entry.starts_with("gap ") && !entry.starts_with("keep "));
        let queue = lockers.map(|entry| entry.split_once(' ').expect("an entry").1.to_owned()).collect();
        // -1 is for ever, -2 is nothing.
        let (holder_ends, queue_ends) = (holder_life != -1, queue_life != -1);
        Stored { holder, queue, holder_ends, queue_ends }
    }

    /// Waits until the locker's client has heard of its grant.
    pub(super) fn hear_grant(&mut self, locker: &str) {
        let inbox = &mut self.inboxes[usize::from(locker.starts_with('d'))];
        while let Some(message) = inbox.next(LONG).unwrap() {
            if matches!(&message, Message::Granted { locker: granted, .. } if granted == locker) {
                return;
            }
        }
        panic!("{locker} was granted the key, and not told");
    }

    pub(super) fn release(&self, locker: &str) -> Result<redis_dlock::ReleaseOutcome, Error> {
        let request = claim(KEY, locker, LEASE);
        self.free.release(&request, LONG)
    }

    /// All clients are done, by the rules: who asked last polls, and everybody releases once. Then the lock must be usable.
    pub(super) fn end_all(&mut self) {
        let lockers = ["a", "x", "b", "d", "next"].map(|name| self.locker(name));
        let (key, lease) = (KEY, LEASE);
        let requests: Vec<_> = lockers
            .iter()
            .flat_map(|locker| {
                let release = claim(key, locker, lease);
                [Request::Poll(claim(key, locker, lease)), Request::Release(release)]
            })
            .collect();
        self.free.run(&requests, Limit::Attempt(LONG)).into_iter().for_each(|result| drop(result.unwrap()));
        if self.stored().holder.as_deref() == Some(DELAYED) {
            // As if its time were over.
            self.run::<()>(&["DEL", KEY]);
        }
        let head: Option<String> = self.run(&["LINDEX", &self.queue_key.clone(), "0"]);
        if head.is_some_and(|entry| entry.starts_with("gap ")) {
            // As if its time were over.
            self.run::<()>(&["LPOP", &self.queue_key.clone()]);
        }
        self.run::<()>(&["DEL", &self.gapped_key.clone()]);
        for name in ["last", "very-last", "last-of-all"] {
            let last = self.locker(name);
            let outcome = self.free.ask(&claim(KEY, &last, LEASE), true, LONG).unwrap();
            assert!(matches!(outcome, redis_dlock::AcquireOutcome::Acquired(_)), "held by nobody: {outcome:?}");
            self.release(&last).unwrap();
            // Whoever is dead was passed over, and is dropped when it is met again.
            outlast_the_unheard(&mut self.admin);
        }
        let left: Vec<String> = self.run(&["KEYS", "DLOCK*x"]);
        assert!(left.is_empty(), "{left:?}");
    }
}
