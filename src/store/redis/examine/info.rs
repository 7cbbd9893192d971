//! What a server says of itself: version, role, eviction, persistence, replicas.

use super::{Examination, Subject};
use ::redis::Value;
use std::collections::HashMap;

/// The oldest version of Redis that locks work on.
const OLDEST: u64 = 7;

/// The fields of the reply to `INFO`.
struct Fields<'a>(HashMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Self {
        Self(text.lines().filter_map(|line| line.trim_end().split_once(':')).collect())
    }

    fn text(&self, name: &str) -> &'a str {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name) == value
    }
}

impl Examination<'_> {
    /// Asks the server what it says of itself. `acks` is the number of replicas that must acknowledge.
    pub(super) fn info(&mut self, acks: u32) {
        let text = match self.ask(&["INFO"]) {
            Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(Value::SimpleString(text) | Value::VerbatimString { text, .. }) => text,
            // The right to ask is examined with the others.
            Ok(_) => {
                return self.notice(Subject::Version, "the server does not say what it is".to_owned(), WITHOUT_INFO);
            }
            Err(error) => return self.failed(Subject::Version, &error),
        };
        let fields = Fields::read(&text);
        self.version(&fields);
        self.role(&fields);
        self.eviction(&fields);
        self.persistence(&fields);
        self.replicas(&fields, acks);
    }

    fn version(&mut self, fields: &Fields<'_>) {
        let (redis, valkey) = (fields.text("redis_version"), fields.text("valkey_version"));
        let name = if valkey.is_empty() { format!("Redis {redis}") } else { format!("Valkey {valkey}") };
        match redis.split('.').next().and_then(|major| major.parse::<u64>().ok()) {
            Some(major) if major >= OLDEST => self.fine(Subject::Version, name),
            Some(_) => self.wrong(Subject::Version, format!("{name} is too old"), "use Redis 7.0 or newer, or Valkey"),
            None => {
                let message = "the server does not tell its version".to_owned();
                self.notice(Subject::Version, message, "find out whether a proxy answers in its place");
            }
        }
    }

    fn role(&mut self, fields: &Fields<'_>) {
        match fields.text("role") {
            "master" => self.fine(Subject::Role, "it is a master".to_owned()),
            "" => self.notice(Subject::Role, "the server does not tell its role".to_owned(), WITHOUT_INFO),
            _ => {
                let (host, port) = (fields.text("master_host"), fields.text("master_port"));
                let message = format!("it is a replica of {host}:{port}, and refuses every lock");
                self.wrong(Subject::Role, message, "connect to the master, or through the Sentinels that watch it");
            }
        }
    }

    fn eviction(&mut self, fields: &Fields<'_>) {
        let (policy, most) = (fields.text("maxmemory_policy"), fields.number("maxmemory"));
        match (policy, most) {
            ("", _) | (_, None) => {
                let message = "the server does not tell which keys it drops when its memory is full".to_owned();
                self.notice(Subject::Eviction, message, "make sure that it drops none with a TTL");
            }
            ("noeviction", _) => self.fine(Subject::Eviction, "it drops no keys (noeviction)".to_owned()),
            (policy, Some(0)) => {
                let message = format!("maxmemory is 0, so {policy} drops no keys");
                self.fine(Subject::Eviction, message);
            }
            (policy, Some(most)) => {
                let message =
                    format!("{policy} drops keys above {most} bytes, and the keys of held locks may be among them");
                self.wrong(
                    Subject::Eviction,
                    message,
                    "set maxmemory-policy to noeviction, or keep locks on a server of their own",
                );
            }
        }
    }

    fn persistence(&mut self, fields: &Fields<'_>) {
        if fields.is("rdb_last_bgsave_status", "err") || fields.is("aof_last_write_status", "err") {
            let message = "the last attempt to save its data failed, so it may refuse writes".to_owned();
            self.wrong(Subject::Persistence, message, "look at the server's log; often its disk is full");
        } else if fields.is("aof_enabled", "1") {
            self.fine(Subject::Persistence, "it keeps an append-only file".to_owned());
        } else if fields.is("aof_enabled", "0") {
            let message =
                "it keeps no append-only file: after a restart it has lost the locks of the last minutes, or all";
            self.notice(Subject::Persistence, message.to_owned(), WITHOUT_FILE);
        }
    }

    fn replicas(&mut self, fields: &Fields<'_>, acks: u32) {
        let Some(count) = fields.number("connected_slaves").filter(|_| fields.is("role", "master")) else { return };
        let good = fields.number("min_slaves_good_slaves");
        let message = match good {
            Some(good) => format!("{count} replicas, of which {good} have acknowledged lately"),
            None => format!("{count} replicas"),
        };
        if u64::from(acks) > good.unwrap_or(count) {
            let message = format!("{message}; {acks} must acknowledge each lock");
            self.wrong(Subject::Replicas, message, "start replicas, or ask for fewer acknowledgements (replica_acks)");
        } else if count == 0 {
            self.notice(Subject::Replicas, "no replicas: nothing takes over if it fails".to_owned(), WITHOUT_REPLICAS);
        } else if acks == 0 && good.is_none() {
            let message = format!("{message}; writes do not wait for them, so a failover may lose locks");
            self.notice(Subject::Replicas, message, WITHOUT_ACKS);
        } else {
            self.fine(Subject::Replicas, message);
        }
    }
}

const WITHOUT_INFO: &str =
    "give the login the right +info, so that a client notices at once when another server answers";
const WITHOUT_FILE: &str =
    "holders learn of it, but two may be inside for a moment; set appendonly to yes if that matters";
const WITHOUT_REPLICAS: &str = "add replicas with Sentinels, or a Cluster, if locks must outlive the server";
const WITHOUT_ACKS: &str =
    "use replica_acks, or set min-replicas-to-write on the server, and check fencing tokens where the work is written";
