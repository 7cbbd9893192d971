//! `dlock doctor` tells an operator what is wrong with the servers. It examines what locks need, right by right, and what could cost a lock.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the subcommand, and how findings are printed |
//! | `finding.rs` | what is found |
//! | `examination.rs` | which servers of Redis are examined, and in what order |
//! | `examination/info.rs` | what a server says of itself |
//! | `examination/rights.rs` | whether the login may do what locks do |
//! | `examination/messages.rs` | whether a client that waits is heard |
//! | `examination/clock.rs` | clock and round trip |
//! | `other.rs` | a store of another kind, by the port alone |
//! | `consensus/mod.rs`, `consensus/etcd.rs`, `consensus/consul.rs` | the servers of etcd and Consul |

#[cfg(any(feature = "consul", feature = "etcd"))]
mod consensus;
mod examination;
mod finding;
mod other;

use crate::args::Doctor;
use crate::output;
use crate::settings::Settings;
use crate::status::{Failure, UNSOUND};
use crate::store::{Builder, Store};
use crate::threads;
use anstyle::{AnsiColor, Style};
use finding::{Finding, Severity};
use redis_dlock::Error;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

pub(crate) fn examine(settings: &Settings, wanted: &Doctor) -> Result<u8, Failure> {
    let builder = settings.builder()?;
    let connected = connect(&builder, wanted)?;
    let findings = match (builder, connected) {
        (Builder::Redis(_), Some((Ok(Store::Redis(store)), left))) => examination::examine(&store, settings, left),
        (Builder::Redis(builder), Some((_, left))) => examination::examine(&builder.build()?, settings, left),
        (Builder::Redis(builder), None) => examination::silent(&builder.build()?, wanted.limit),
        #[cfg(feature = "etcd")]
        (Builder::Etcd(builder), _) => consensus::etcd::examine(&builder.build()?, wanted.limit)?,
        #[cfg(feature = "consul")]
        (Builder::Consul(builder), _) => consensus::consul::examine(&builder.build()?, wanted.limit)?,
        (Builder::Other(other, url), _) => other::examine(other.scheme, &*(other.open)(&url)?, wanted.limit),
    };
    output::print(&if wanted.json { document(&findings) } else { page(&findings) })?;
    Ok(if worst(&findings) == Severity::Wrong { UNSOUND } else { 0 })
}

/// The outcome of a connect, and how much is left of `--limit`.
type Connected = (Result<Store, Error>, Duration);

/// Waits for the server as long as `--wait` says, and connects to Redis: the connect detects a Cluster by itself. If the connect fails, the
/// examination tells why. The connect runs on a thread, because it has limits of its own. Returns `None` if it has not ended in time, or if there is
/// none: without `--wait`, only Redis needs one.
fn connect(builder: &Builder, wanted: &Doctor) -> Result<Option<Connected>, Failure> {
    let wait = wanted.wait.unwrap_or_default();
    let of_connect = if matches!(builder, Builder::Redis(_)) { wanted.limit } else { Duration::ZERO };
    let (begun, limit, builder) = (Instant::now(), wait.saturating_add(of_connect), builder.clone());
    if limit.is_zero() {
        return Ok(None);
    }
    let (tell, told) = channel();
    let connect = move || drop(tell.send(builder.wait(begun.checked_add(wait))));
    threads::start("dlock-dial", connect)?;
    let connected = told.recv_timeout(limit).ok();
    Ok(connected.map(|connected| (connected, limit.saturating_sub(begun.elapsed()).min(wanted.limit))))
}

fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Fine)
}

fn document(findings: &[Finding]) -> String {
    let finding = |finding: &Finding| {
        json!({
            "server": finding.server,
            "subject": finding.subject.to_string(),
            "severity": finding.severity.to_string(),
            "message": finding.message,
            "advice": finding.advice,
        })
    };
    let findings_of: Vec<Value> = findings.iter().map(finding).collect();
    format!("{:#}\n", json!({ "worst": worst(findings).to_string(), "findings": findings_of }))
}

/// The findings, server by server, each on a line of its own.
fn page(findings: &[Finding]) -> String {
    let (mut page, mut server) = (String::new(), "");
    for finding in findings {
        if finding.server != server {
            server = &finding.server;
            let gap = if page.is_empty() { "" } else { "\n" };
            let _ = writeln!(page, "{gap}{server}");
        }
        let style = style(finding.severity);
        let Finding { subject, severity, message, .. } = finding;
        let advice = finding.advice.as_ref().map_or_else(String::new, |advice| format!(" → {advice}"));
        let _ = writeln!(page, "  {style}{severity:<6}{style:#}  {subject:<11}  {message}{advice}");
    }
    page
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Wrong => AnsiColor::Red.on_default().bold(),
        Severity::Notice => AnsiColor::Yellow.on_default(),
        Severity::Fine => AnsiColor::Green.on_default(),
    }
}
