//! The findings of an examination.

use crate::output::one_line;
use redis_dlock::Error;
use std::fmt;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The address of the server, without a password.
    pub(crate) server: String,
    pub(crate) subject: Subject,
    /// Whether anything has to be done.
    pub(crate) severity: Severity,
    /// What was found, on one line.
    pub(crate) message: String,
    /// What to do, on one line. `None` if there is nothing to do.
    pub(crate) advice: Option<String>,
}

/// What an examination looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Whether the server can be reached and accepts the login.
    Connection,
    /// Which slots of a Cluster have an owner.
    Slots,
    /// Which server it is, and how old.
    Version,
    /// Whether it is a master, or leads.
    Role,
    /// Whether a majority of the servers can agree.
    #[cfg(any(feature = "consul", feature = "etcd"))]
    Quorum,
    /// The sessions of Consul that hold locks.
    #[cfg(feature = "consul")]
    Sessions,
    /// The rights of the login.
    Rights,
    /// Whether the server accepts writes.
    Writes,
    /// Whether scripts see the subscription of a client that waits.
    Messages,
    /// Which keys the server drops when its memory is full.
    Eviction,
    /// Whether the server's data survive a restart.
    Persistence,
    /// The replicas of the server.
    Replicas,
    /// The server's clock beside the clock of this machine.
    Clock,
    /// How long a command takes.
    RoundTrip,
}

impl Subject {
    fn text(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Slots => "slots",
            Self::Version => "version",
            Self::Role => "role",
            #[cfg(any(feature = "consul", feature = "etcd"))]
            Self::Quorum => "majority",
            #[cfg(feature = "consul")]
            Self::Sessions => "sessions",
            Self::Rights => "rights",
            Self::Writes => "writes",
            Self::Messages => "messages",
            Self::Eviction => "eviction",
            Self::Persistence => "persistence",
            Self::Replicas => "replicas",
            Self::Clock => "clock",
            Self::RoundTrip => "round trip",
        }
    }
}

/// Shows one or two words, such as `round trip`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Whether a [`Finding`] asks for something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// All is well.
    Fine,
    /// Locks work, but an operator should know this.
    Notice,
    /// Locks do not work, or may be lost.
    Wrong,
}

/// Shows `fine`, `notice` or `wrong`.
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "fine",
            Self::Notice => "notice",
            Self::Wrong => "wrong",
        })
    }
}

/// The findings for one server so far.
pub(super) struct Findings {
    /// The address of the server, without a password.
    server: String,
    list: Vec<Finding>,
}

impl Findings {
    pub(super) fn of(server: String) -> Self {
        Self { server, list: Vec::new() }
    }

    /// Adds a finding, unless it is there already.
    pub(super) fn add(&mut self, subject: Subject, severity: Severity, message: &str, advice: Option<&str>) {
        let (server, advice) = (self.server.clone(), advice.map(str::to_owned));
        let finding = Finding { server, subject, severity, message: one_line(message), advice };
        if !self.list.contains(&finding) {
            self.list.push(finding);
        }
    }

    pub(super) fn fine(&mut self, subject: Subject, message: impl AsRef<str>) {
        self.add(subject, Severity::Fine, message.as_ref(), None);
    }

    pub(super) fn notice(&mut self, subject: Subject, message: impl AsRef<str>, advice: &str) {
        self.add(subject, Severity::Notice, message.as_ref(), Some(advice));
    }

    pub(super) fn wrong(&mut self, subject: Subject, message: impl AsRef<str>, advice: &str) {
        self.add(subject, Severity::Wrong, message.as_ref(), Some(advice));
    }

    /// Adds the finding that a command has failed for a reason that does not concern its subject.
    pub(super) fn failed(&mut self, subject: Subject, error: &Error) {
        self.wrong(subject, error.to_string(), "examine the server again; if this stays, look at its log");
    }

    #[cfg(any(feature = "consul", feature = "etcd"))]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        self.list
    }
}
