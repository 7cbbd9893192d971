//! Which servers are examined, and in what order.

mod clock;
mod info;
mod messages;
mod rights;

use super::finding::{Finding, Findings, Severity, Subject};
use crate::settings::{Settings, mapped};
use crate::timing;
use redis_dlock::{BackendFailure, Error, RedisLockProcessor, Server};
use std::time::{Duration, Instant};

/// How many slots a Cluster has.
const SLOTS: usize = 16_384;

/// The part that a server plays for the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Master,
    /// The server takes over if its master fails.
    Replica,
}

/// The server that is being examined, and its findings so far.
pub(super) struct Examination {
    pub(super) server: Server,
    pub(super) part: Part,
    /// The hash tag that puts a key on this server of a Cluster.
    pub(super) tag: Option<u32>,
    /// How many replicas must acknowledge a lock.
    pub(super) acks: u32,
    /// A key of this server that no lock has.
    pub(super) key: String,
    /// The addresses of the server's replicas, as the server tells them.
    pub(super) replicas: Vec<(String, u16)>,
    deadline: Instant,
    pub(super) findings: Findings,
}

/// Examines the server, or each master of a Cluster, and their replicas. The findings are in the order in which they should be mended.
///
/// Blocks for at most `limit` a server. Writes one key for a moment, `DLOCK_doctor-…`. It belongs to no lock, and expires after ten seconds if it
/// cannot be removed.
pub(super) fn examine(store: &RedisLockProcessor, settings: &Settings, limit: Duration) -> Vec<Finding> {
    let servers = match store.servers(limit) {
        Ok(servers) => servers,
        Err(error) => return unreachable("the servers".to_owned(), &error),
    };
    let acks = settings.acks();
    let mut findings = Vec::new();
    if let Some(first) = servers.first().filter(|first| first.hash_tag().is_some()) {
        findings.extend(slots(first.address(), SLOTS - servers.iter().map(Server::slots).sum::<usize>()));
    }
    for server in servers {
        let mut master = Examination::of(server.clone(), Part::Master, acks, limit);
        master.look();
        let replicas = std::mem::take(&mut master.replicas);
        findings.extend(master.findings.into_list());
        for (host, port) in replicas {
            let (host, port) = mapped(settings.address_map(), &host, port);
            let mut replica = Examination::of(server.beside(&host, port), Part::Replica, acks, limit);
            replica.tag = master.tag;
            replica.look();
            findings.extend(replica.findings.into_list());
        }
    }
    findings
}

/// The findings for a server if no connect has ended in time.
pub(super) fn silent(store: &RedisLockProcessor, limit: Duration) -> Vec<Finding> {
    let server = match store.servers(Duration::ZERO).as_deref() {
        Ok([server]) => server.address(),
        _ => "the servers".to_owned(),
    };
    unreachable(server, &Error::backend(BackendFailure::Unknown, format!("no answer within {limit:?} (--limit)")))
}

fn unreachable(server: String, error: &Error) -> Vec<Finding> {
    let mut findings = Findings::of(server);
    let (severity, advice) = how_unreachable(error, Part::Master);
    findings.add(Subject::Connection, severity, &words_of(error), Some(advice));
    findings.into_list()
}

impl Examination {
    fn of(server: Server, part: Part, acks: u32, limit: Duration) -> Self {
        let tag = server.hash_tag();
        let place = tag.map_or_else(String::new, |tag| format!("{{{tag}}}-"));
        // The key of a lock has a `_` between its type and its target.
        let key = format!("DLOCK_doctor-{place}{}", std::process::id());
        let findings = Findings::of(server.address());
        Self { server, part, tag, acks, key, replicas: Vec::new(), deadline: timing::after(limit), findings }
    }

    fn look(&mut self) {
        if let Err(error) = self.ask(&["HELLO"]) {
            let (severity, advice) = how_unreachable(&error, self.part);
            return self.findings.add(Subject::Connection, severity, &words_of(&error), Some(advice));
        }
        self.findings.fine(Subject::Connection, "it answers, and accepts the login");
        info::look(self);
        rights::look(self);
        if self.part == Part::Master {
            messages::look(self);
            clock::look(self);
        }
    }

    /// Sends one command.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Vec<String>, Error> {
        let left = self.left();
        self.server.ask(words, left)
    }

    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// The words of a server that denies something, without the library's advice for programs.
pub(super) fn words_of(error: &Error) -> String {
    match error {
        Error::Denied { message, .. } => message.clone(),
        error => error.to_string(),
    }
}

/// How bad it is that a server cannot be used, and what to do about it.
fn how_unreachable(error: &Error, part: Part) -> (Severity, &'static str) {
    match (error, part) {
        (Error::Denied { .. }, Part::Master) => {
            (Severity::Wrong, "correct the user name and the password, or make that user on the server")
        }
        (Error::Denied { .. }, Part::Replica) => (
            Severity::Wrong,
            "make the same user with the same password on the replica: users are not replicated, and after a failover nobody could lock",
        ),
        (Error::InvalidConfig { .. }, _) => (Severity::Wrong, "correct the URL or the setting"),
        (Error::Unsupported { .. }, _) => {
            (Severity::Wrong, "give the URL of another server, or of the kind that this one is")
        }
        (_, Part::Master) => (Severity::Wrong, "check the address, the network, TLS, and whether the server runs"),
        (_, Part::Replica) => (
            Severity::Notice,
            "its master names this address: if it is another one from here, map it with --address-map; else look at the replica",
        ),
    }
}

fn slots(server: String, unowned: usize) -> Vec<Finding> {
    let mut findings = Findings::of(server);
    if unowned == 0 {
        findings.fine(Subject::Slots, format!("all {SLOTS} slots have an owner"));
    } else {
        let message = format!("{unowned} of {SLOTS} slots have no owner: locks of these slots cannot be used");
        findings.wrong(Subject::Slots, message, "give the slots to a node: redis-cli --cluster fix");
    }
    findings.into_list()
}
