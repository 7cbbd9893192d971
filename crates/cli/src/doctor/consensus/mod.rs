//! What is wrong with the servers of a consensus store: etcd, Consul.
//!
//! An examination asks each server of the URL about itself. With the first server that answers, it does what locks do. It writes entries below the
//! prefix with names that no lock has, and deletes them. A session of its own holds them, so they go if it is interrupted.

#[cfg(feature = "consul")]
pub(super) mod consul;
#[cfg(feature = "etcd")]
pub(super) mod etcd;

use super::finding::{Finding, Findings, Subject};
use crate::timing::{self, BETWEEN_WRITES, ROUND_TRIP_LONG};
use dlock_consensus::Server;
use redis_dlock::{BackendFailure, Error};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// Where locks write: the lock and its waiters, messages, marks of sessions, records, orders that broke a hold. An examination adds a name of its
/// own.
const PLACES: [&str; 5] = ["DLOCK_doctor-", ".inbox/doctor-", ".session/doctor-", ".client/doctor-", ".broken/doctor-"];

/// How many writes are measured. The median counts.
const TIMES: usize = 5;

/// The advice for a server that does not answer.
const UNREACHABLE: &str = "check the address, the network, TLS, and whether the server runs";

/// The advice for a datacenter that Consul does not know, in addition to the error.
const PLACE: &str = "`consul catalog datacenters` names those that the server knows; a new one may take a minute";

/// The advice for slow writes.
const SLOW: &str = "look at the disks of the servers and the network between them: each lock waits for two such writes";

/// The server that is being examined, and its findings so far.
struct ServerExamination<'s> {
    server: &'s Server,
    deadline: Instant,
    findings: Findings,
}

impl<'s> ServerExamination<'s> {
    fn of(server: &'s Server, limit: Duration) -> Self {
        Self { server, deadline: timing::after(limit), findings: Findings::of(server.address().to_owned()) }
    }

    /// Sends one request to the server.
    fn ask(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let text = self.server.ask(path, &body, self.deadline.saturating_duration_since(Instant::now()))?;
        serde_json::from_str(&text)
            .map_err(|e| Error::backend_caused_by(BackendFailure::Unknown, "an answer that is no JSON", e))
    }

    /// Adds the finding that the server cannot be used, and why.
    fn unreachable(&mut self, error: &Error, login: &str) {
        let advice = match error {
            Error::Denied { .. } => login,
            Error::Unsupported { .. } => "give the URL of another server, or of the kind that this one is",
            error if error.to_string().contains("No path to datacenter") => PLACE,
            _ => UNREACHABLE,
        };
        self.findings.wrong(Subject::Connection, words_of(error), advice);
    }

    /// Adds how long a majority takes to agree on a write.
    fn time_of_writes(&mut self, write: impl Fn(&Self) -> Result<Value, Error>) {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            thread::sleep(BETWEEN_WRITES);
            let start = Instant::now();
            if let Err(error) = write(self) {
                let message = format!("the writes that measure the time did not end: {}", words_of(&error));
                return self.findings.notice(Subject::RoundTrip, message, SLOW);
            }
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let median = times[TIMES / 2];
        let message = format!("a write takes {} ms until a majority has it", median.as_millis());
        if median > ROUND_TRIP_LONG {
            self.findings.notice(Subject::RoundTrip, message, SLOW);
        } else {
            self.findings.fine(Subject::RoundTrip, message);
        }
    }

    /// Adds how many servers vote, and how many of them may die.
    fn majority(&mut self, voters: usize) {
        let spare = voters.saturating_sub(1) / 2;
        let message = match voters {
            1 => "1 server votes, and may not be away".to_owned(),
            _ => format!("{voters} servers vote, of which {spare} may be away"),
        };
        match spare {
            0 => self.findings.notice(
                Subject::Quorum,
                message,
                "let three or five servers vote: while one is away, nobody can lock",
            ),
            _ => self.findings.fine(Subject::Quorum, message),
        }
    }
}

/// The server's words about a failure, without the library's advice for programs.
fn words_of(error: &Error) -> String {
    match error {
        Error::Denied { message, .. } | Error::Backend { message, .. } => message.clone(),
        error => error.to_string(),
    }
}

/// Examines each of these servers, and then does what locks do with the first one that answers. `of_itself` returns the names of the cluster of a
/// server that answers: servers of one cluster have one in common.
fn examine_each(
    servers: &[Server],
    limit: Duration,
    of_itself: impl Fn(&mut ServerExamination<'_>) -> Option<Vec<String>>,
    of_locks: impl Fn(&mut ServerExamination<'_>),
) -> Vec<Finding> {
    let (mut findings, mut clusters) = (Vec::new(), Vec::<String>::new());
    let mut is_done = false;
    for server in servers {
        let mut examination = ServerExamination::of(server, limit);
        if let Some(cluster) = of_itself(&mut examination) {
            if !clusters.is_empty() && !cluster.is_empty() && !cluster.iter().any(|name| clusters.contains(name)) {
                let message =
                    "it is of another cluster than the servers before it: two may hold a lock, one in each cluster";
                examination.findings.wrong(Subject::Quorum, message, "name the servers of one cluster in the URL");
            }
            clusters.extend(cluster);
            if !is_done {
                is_done = true;
                of_locks(&mut examination);
            }
        }
        findings.extend(examination.findings.into_list());
    }
    findings
}
