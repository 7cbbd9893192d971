//! An examination of the servers of a store, for an operator: what locks need of them, right by right, and what could cost a lock.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | which servers are examined, and in what order |
//! | `finding.rs` | what is found |
//! | `info.rs` | what a server says of itself |
//! | `rights.rs` | whether the login may do what locks do |
//! | `messages.rs` | whether a client that waits is heard |
//! | `watch.rs` | clock and round trip |

mod finding;
mod info;
mod messages;
mod rights;
mod watch;

use super::node::Node;
use super::processor::RedisLockProcessor;
use super::script::scripts::Form;
use super::script::slot::{SLOTS, tag_of};
use super::ways::Topology;
use crate::error::Error;
use crate::timing::end_of;
use ::redis::Value;
pub use finding::{Finding, Severity, Subject};
use std::time::{Duration, Instant};

/// The server that is being examined, and what was found so far.
struct Examination<'a> {
    node: &'a Node,
    form: Form,
    server: String,
    /// The name of a lock of this server that nobody uses.
    key: String,
    deadline: Instant,
    findings: Vec<Finding>,
}

impl RedisLockProcessor {
    /// Examines the server, or each master of a Cluster: whether it can be reached, its version and role, right by right what the login may
    /// do, whether messages arrive, and what could cost a lock: eviction, persistence, replicas, the clock, and long round trips.
    ///
    /// Blocks for at most `limit` a server. Writes one key for a moment, `DLOCK_doctor_…`, which is no lock's, and which ends after ten seconds
    /// if it cannot be removed. The findings are in the order in which they should be mended.
    #[must_use]
    pub fn examine(&self, limit: Duration) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &self.topology {
            Topology::One(one) => findings = self.examine_node(&one.node, "doctor", self.address.to_string(), limit),
            Topology::Cluster(cluster) => match cluster.masters(end_of(limit, Instant::now())) {
                Ok((masters, unowned)) => {
                    findings.push(slots(self.address.to_string(), unowned));
                    for (slot, node) in masters {
                        let name = format!("doctor_{{{}}}", tag_of(slot));
                        let server = node.transport.endpoint().address.to_string();
                        findings.extend(self.examine_node(&node, &name, server, limit));
                    }
                }
                Err(error) => findings.push(unreachable(self.address.to_string(), &error)),
            },
        }
        findings
    }

    fn examine_node(&self, node: &Node, name: &str, server: String, limit: Duration) -> Vec<Finding> {
        let mut examination = Examination {
            node,
            form: self.ways().form(),
            server,
            key: format!("DLOCK_{name}_{}", std::process::id()),
            deadline: end_of(limit, Instant::now()),
            findings: Vec::new(),
        };
        match examination.ask(&["HELLO"]) {
            Err(error) => examination.findings.push(unreachable(examination.server.clone(), &error)),
            Ok(_) => {
                examination.fine(Subject::Connection, "it answers, and accepts the login".to_owned());
                examination.info(self.wanted_acks());
                examination.rights(self.wanted_acks() > 0);
                examination.messages(self);
                examination.watch();
            }
        }
        examination.findings
    }
}

impl Examination<'_> {
    /// Sends one command. An error of the server is a value.
    fn ask(&self, words: &[&str]) -> Result<Value, Error> {
        self.node.say(words, self.left())
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn add(&mut self, subject: Subject, severity: Severity, message: String, advice: Option<&str>) {
        let (server, advice) = (self.server.clone(), advice.map(str::to_owned));
        self.findings.push(Finding { server, subject, severity, message, advice });
    }

    fn fine(&mut self, subject: Subject, message: String) {
        self.add(subject, Severity::Fine, message, None);
    }

    fn notice(&mut self, subject: Subject, message: String, advice: &str) {
        self.add(subject, Severity::Notice, message, Some(advice));
    }

    fn wrong(&mut self, subject: Subject, message: String, advice: &str) {
        self.add(subject, Severity::Wrong, message, Some(advice));
    }

    /// Notes that a command has failed for a reason that has nothing to do with what it asks for.
    fn failed(&mut self, subject: Subject, error: &Error) {
        self.wrong(subject, error.to_string(), "examine the server again; if this stays, look at its log");
    }
}

fn unreachable(server: String, error: &Error) -> Finding {
    let advice = match error {
        Error::Denied { .. } => "correct the user name and the password in the URL, or make that user on the server",
        Error::Unsupported { .. } => "give the URL of another server, or of the kind that this one is",
        _ => "check the address, the network, TLS, and whether the server runs",
    };
    Finding {
        server,
        subject: Subject::Connection,
        severity: Severity::Wrong,
        message: error.to_string(),
        advice: Some(advice.to_owned()),
    }
}

fn slots(server: String, unowned: usize) -> Finding {
    let subject = Subject::Slots;
    if unowned == 0 {
        let message = format!("all {SLOTS} slots have an owner");
        return Finding { server, subject, severity: Severity::Fine, message, advice: None };
    }
    let message = format!("{unowned} of {SLOTS} slots have no owner: locks of these slots cannot be used");
    let advice = Some("give the slots to a node: redis-cli --cluster fix".to_owned());
    Finding { server, subject, severity: Severity::Wrong, message, advice }
}
