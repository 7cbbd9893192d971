//! One Sentinel: its connection, which is kept, and the two questions.

use super::timing::{ASK_AGAIN, PATIENCE};
use super::view::MasterReport;
use crate::backoff::Cooldown;
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::address::Address;
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::endpoint::Dialer;
use crate::store::redis::net::handshake::{self, text};
use crate::store::redis::net::link::Link;
use crate::store::redis::net::resp::shape;
use crate::sync::unseen::Mutex;
use ::redis::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Returns whether a limit leaves a Sentinel all of its time. A Sentinel that had less is not to blame if it gives no answer.
pub(super) fn is_whole(start: Instant, deadline: Instant) -> bool {
    deadline >= start + PATIENCE
}

/// One Sentinel.
pub(super) struct Sentinel {
    pub(super) address: Address,
    line: Mutex<SentinelConnection>,
}

#[derive(Default)]
struct SentinelConnection {
    /// The connection, if it is in step.
    link: Option<Link>,
    /// Lasts for a while after the last question without an answer.
    cooldown: Cooldown<Instant>,
}

/// What a Sentinel knows of the master of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentinelAnswer {
    pub(super) report: MasterReport,
    /// After how long without an answer from it the Sentinel takes it for dead.
    pub(super) down_after: Duration,
    /// Whether this Sentinel leads a failover that is not finished: then the address is still the old master's.
    pub(super) fails_over: bool,
}

impl Sentinel {
    pub(super) fn new(address: Address) -> Self {
        Self { address, line: Mutex::default() }
    }

    /// Returns `true` if it does not answer and was asked just now: then the next question can wait. Does not wait for a question that is under
    /// way.
    pub(super) fn is_cooling_down(&self, now: Instant) -> bool {
        self.line.try_lock().is_some_and(|line| line.cooldown.lasts(now))
    }

    /// Asks where the master of a service is. Returns `None` if the Sentinel watches no service of that name. Fails with [`Error::Backend`]
    /// (not executed), [`Error::Denied`], or [`Error::Unsupported`] if it is no Sentinel.
    pub(super) fn master(
        &self,
        dialer: &Dialer,
        service: &str,
        deadline: Instant,
    ) -> Result<Option<SentinelAnswer>, Error> {
        match self.ask(dialer, &["SENTINEL", "MASTER", service], deadline)? {
            Value::ServerError(e) if e.details().is_some_and(|words| words.starts_with("No such master")) => Ok(None),
            Value::ServerError(e) => Err(self.address.hide(classify(&e, service))),
            reply => read_master(&reply).map(Some).ok_or_else(|| self.strange("SENTINEL MASTER", &reply)),
        }
    }

    /// Asks which other Sentinels watch a service.
    pub(super) fn others(
        &self,
        dialer: &Dialer,
        service: &str,
        deadline: Instant,
    ) -> Result<Vec<(String, u16)>, Error> {
        match self.ask(dialer, &["SENTINEL", "SENTINELS", service], deadline)? {
            Value::ServerError(e) => Err(self.address.hide(classify(&e, service))),
            Value::Array(others) => Ok(others.iter().filter_map(|other| place(&fields(other)?)).collect()),
            reply => Err(self.strange("SENTINEL SENTINELS", &reply)),
        }
    }

    fn strange(&self, question: &str, reply: &Value) -> Error {
        let message = format!("{} answered {question} with {}", self.address, shape(reply));
        Error::backend(BackendFailure::NotExecuted, message)
    }

    /// Asks one question on the kept connection, or on a new one. A connection without an answer is not used again.
    fn ask(&self, dialer: &Dialer, words: &[&str], deadline: Instant) -> Result<Value, Error> {
        let start = Instant::now();
        let is_whole = is_whole(start, deadline);
        let deadline = deadline.min(start + PATIENCE);
        let busy = || {
            let message = format!("{} did not answer in time", self.address);
            Error::backend(BackendFailure::NotExecuted, message)
        };
        let mut line = self.line.try_lock_until(deadline).ok_or_else(busy)?;
        // A kept connection may have been closed meanwhile, which is no failure of the Sentinel.
        let kept = line.link.take().and_then(|mut link| Some((link.ask(words, deadline).ok()??, link)));
        let asked_anew = || {
            let mut link = dialer.dial(&self.address, deadline)?;
            handshake::run_with_sentinel(&mut link, &self.address, deadline)?;
            let reply = link.ask(words, deadline).map_err(|e| handshake::failed(&self.address, e))?;
            Ok((reply.ok_or_else(busy)?, link))
        };
        let answer = kept.map_or_else(asked_anew, Ok);
        if answer.is_ok() {
            line.cooldown.end();
        } else if is_whole {
            line.cooldown.fail(start, ASK_AGAIN);
        }
        answer.map(|(reply, link)| {
            line.link = Some(link);
            reply
        })
    }

    /// Closes the connection. Does not wait for a question that is under way.
    pub(super) fn hang_up(&self) {
        if let Some(mut line) = self.line.try_lock() {
            line.link = None;
        }
    }
}

/// The fields of an answer, which is a list of names and values.
fn fields(reply: &Value) -> Option<HashMap<&str, &str>> {
    let Value::Array(list) = reply else { return None };
    list.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
}

fn place(fields: &HashMap<&str, &str>) -> Option<(String, u16)> {
    let host = fields.get("ip").filter(|host| !host.is_empty())?;
    Some(((*host).to_owned(), fields.get("port")?.parse().ok().filter(|port| *port != 0)?))
}

/// Both readers, for the fuzz target: a port is never zero, and a name never empty.
#[cfg(any(test, fuzzing))]
pub(super) fn read(reply: &Value) {
    if let Some(SentinelAnswer { report: MasterReport { at: (host, port), .. }, .. }) = read_master(reply) {
        assert!(port != 0 && !host.is_empty());
    }
    if let Some((host, port)) = fields(reply).as_ref().and_then(place) {
        assert!(port != 0 && !host.is_empty());
    }
}

fn read_master(reply: &Value) -> Option<SentinelAnswer> {
    let fields = fields(reply)?;
    let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
    let down_after = Duration::from_millis(number("down-after-milliseconds")?);
    let fails_over =
        fields.get("flags").is_some_and(|flags| flags.split(',').any(|flag| flag == "failover_in_progress"));
    let report = MasterReport { epoch: number("config-epoch")?, at: place(&fields)? };
    Some(SentinelAnswer { report, down_after, fails_over })
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/sentinel/ask.rs"]
mod tests;
