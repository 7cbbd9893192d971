//! What a server says of itself: version, role, eviction, persistence, replicas.

use super::{Examination, Part};
use crate::doctor::finding::Subject;
use redis_dlock::Error;
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

/// Examines what the server says of itself.
pub(super) fn look(examination: &mut Examination) {
    let text = match examination.ask(&["INFO"]) {
        Ok(texts) => texts.concat(),
        // `rights.rs` examines the right to ask.
        Err(Error::Denied { .. }) => return,
        Err(error) => return examination.findings.failed(Subject::Version, &error),
    };
    let fields = Fields::read(&text);
    version(examination, &fields);
    role(examination, &fields);
    eviction(examination, &fields);
    persistence(examination, &fields);
    if examination.part == Part::Master {
        replicas(examination, &fields);
    }
}

fn version(examination: &mut Examination, fields: &Fields<'_>) {
    let (redis, valkey) = (fields.text("redis_version"), fields.text("valkey_version"));
    let name = if valkey.is_empty() { format!("Redis {redis}") } else { format!("Valkey {valkey}") };
    match redis.split('.').next().and_then(|major| major.parse::<u64>().ok()) {
        Some(major) if major >= OLDEST => examination.findings.fine(Subject::Version, name),
        Some(_) => examination.findings.wrong(
            Subject::Version,
            format!("{name} is too old"),
            "use Redis 7.0 or newer, or Valkey",
        ),
        None => {
            let message = "the server does not tell its version".to_owned();
            examination.findings.notice(Subject::Version, message, "find out whether a proxy answers in its place");
        }
    }
}

fn role(examination: &mut Examination, fields: &Fields<'_>) {
    let (host, port) = (fields.text("master_host"), fields.text("master_port"));
    match (fields.text("role"), examination.part) {
        ("master", Part::Master) => examination.findings.fine(Subject::Role, "it is a master"),
        ("", _) => examination.findings.notice(Subject::Role, "the server does not tell its role", WITHOUT_ROLE),
        (_, Part::Master) => {
            examination.part = Part::Replica;
            let message = format!("it is a replica of {host}:{port}, and refuses every lock");
            examination.findings.wrong(
                Subject::Role,
                message,
                "connect to the master, or through the Sentinels that watch it",
            );
        }
        ("master", Part::Replica) => {
            let message = "its master calls it a replica, and it says that it is a master itself";
            examination.findings.notice(
                Subject::Role,
                message,
                "examine the servers again: a failover may be under way",
            );
        }
        (_, Part::Replica) if fields.is("master_link_status", "up") => {
            examination.findings.fine(Subject::Role, format!("it is a replica of {host}:{port}, and follows it"));
        }
        (_, Part::Replica) => {
            let message = format!("it is a replica of {host}:{port}, and has no connection to it");
            examination.findings.wrong(
                Subject::Role,
                message,
                "look at its log: after a failover to it, locks would be missing",
            );
        }
    }
}

fn eviction(examination: &mut Examination, fields: &Fields<'_>) {
    let (policy, most) = (fields.text("maxmemory_policy"), fields.number("maxmemory"));
    match (policy, most) {
        ("", _) | (_, None) => {
            let message = "the server does not tell which keys it drops when its memory is full".to_owned();
            examination.findings.notice(Subject::Eviction, message, "make sure that it drops none with a TTL");
        }
        ("noeviction", _) => examination.findings.fine(Subject::Eviction, "it drops no keys (noeviction)"),
        (policy, Some(0)) => {
            let message = format!("maxmemory is 0, so {policy} drops no keys");
            examination.findings.fine(Subject::Eviction, message);
        }
        (policy, Some(most)) => {
            let message =
                format!("{policy} drops keys above {most} bytes, and the keys of held locks may be among them");
            examination.findings.wrong(
                Subject::Eviction,
                message,
                "set maxmemory-policy to noeviction, or keep locks on a server of their own",
            );
        }
    }
}

fn persistence(examination: &mut Examination, fields: &Fields<'_>) {
    if fields.is("rdb_last_bgsave_status", "err") || fields.is("aof_last_write_status", "err") {
        let message = "the last attempt to save its data failed, so it may refuse writes".to_owned();
        examination.findings.wrong(Subject::Persistence, message, "look at the server's log; often its disk is full");
    } else if fields.is("aof_enabled", "1") {
        examination.findings.fine(Subject::Persistence, "it keeps an append-only file");
    } else if fields.is("aof_enabled", "0") {
        let message = "it keeps no append-only file: after a restart it has lost the locks of the last minutes, or all";
        examination.findings.notice(Subject::Persistence, message, WITHOUT_FILE);
    }
}

/// Looks at the replicas. A replica that still gets its first copy of the data does not count as one with a copy.
fn replicas(examination: &mut Examination, fields: &Fields<'_>) {
    let listed: Vec<_> = (0..).map_while(|n| fields.0.get(&*format!("slave{n}")).copied().map(Replica::read)).collect();
    let late = listed.iter().filter(|replica| replica.state != "online").count();
    let count = listed.len() - late;
    examination.replicas = listed.iter().filter_map(Replica::place).collect();
    let good = fields.number("min_slaves_good_slaves").map(|good| good as usize);
    let mut message = match count {
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    };
    if let Some(good) = good {
        message.push_str(&format!(", of which {good} have acknowledged lately"));
    }
    if late > 0 {
        message.push_str(&format!("; {late} more without a copy of the data yet"));
    }
    let acks = examination.acks as usize;
    if acks > good.unwrap_or(count).min(count) {
        let message = format!("{message}; {acks} must acknowledge each lock");
        examination.findings.wrong(
            Subject::Replicas,
            message,
            "start replicas, or ask for fewer acknowledgements (--replica-acks)",
        );
    } else if count == 0 {
        let message = format!("{message}: nothing takes over if it fails");
        examination.findings.notice(Subject::Replicas, message, WITHOUT_REPLICAS);
    } else if acks == 0 && good.is_none() {
        let message = format!("{message}; writes do not wait for them, so a failover may lose locks");
        examination.findings.notice(Subject::Replicas, message, WITHOUT_ACKS);
    } else {
        examination.findings.fine(Subject::Replicas, message);
    }
}

/// What a master says of a replica: `ip=10.0.0.2,port=6379,state=online,offset=1,lag=0`.
#[derive(Debug)]
struct Replica<'a> {
    host: &'a str,
    port: &'a str,
    state: &'a str,
}

impl<'a> Replica<'a> {
    fn read(text: &'a str) -> Self {
        let field = |name: &str| {
            let mut fields = text.split(',').filter_map(|field| field.split_once('='));
            fields.find(|(known, _)| *known == name).map_or("", |(_, value)| value)
        };
        Self { host: field("ip"), port: field("port"), state: field("state") }
    }

    /// The address of the replica, if it has a copy of the data.
    fn place(&self) -> Option<(String, u16)> {
        let port = self.port.parse().ok().filter(|_| self.state == "online" && !self.host.is_empty())?;
        Some((self.host.to_owned(), port))
    }
}

const WITHOUT_ROLE: &str = "find out whether a proxy answers in its place";
const WITHOUT_FILE: &str =
    "holders learn of it, but two may be inside for a moment; set appendonly to yes if that matters";
const WITHOUT_REPLICAS: &str = "add replicas with Sentinels, or a Cluster, if locks must outlive the server";
const WITHOUT_ACKS: &str = "use --replica-acks, or set min-replicas-to-write on the server, and check fencing tokens where the work is written";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_a_copy_of_the_data_is_none() {
        let of = |state: &str| format!("ip=10.0.0.2,port=6379,state={state},offset=0,lag=0");
        assert_eq!(Replica::read(&of("online")).place(), Some(("10.0.0.2".to_owned(), 6379)));
        for state in ["wait_bgsave", "send_bulk", ""] {
            assert_eq!(Replica::read(&of(state)).place(), None, "{state}");
        }
    }
}
