//! Sends the protocol's requests to etcd.
//!
//! | the protocol's | is |
//! |---|---|
//! | session | a lease, with the entries that are attached to it |
//! | index | a revision: it rises with each transaction that writes |
//! | check | a comparison of a transaction, also of all entries with a prefix |
//!
//! The leader keeps the leases. Renewing a lease is no write: the leader counts the time, and a new leader begins all leases again. So an election
//! makes leases longer, never shorter. A lease that is shorter than an election is nevertheless a bad choice: the holder cannot renew it meanwhile.
//!
//! Renewals need no order, and each has an answer of its own. So one stream carries many of them. Those that were answered count even if the stream
//! breaks.
//!
//! etcd grants no lease that is shorter than one and a half of its election time-outs. It makes such a lease longer, without an error. A dead holder
//! would then keep others out for longer than the lease says, so shorter leases are refused here, by name.

use super::client::{EtcdClient, odd};
use super::encode;
use super::watch::Watch;
use crate::deadline::Deadline;
use crate::kv::{Committed, Entry, Kv, Life, Listening, Transaction, limits};
use crate::timing::etcd::{SHORTEST, TICK};
use redis_dlock::port::{Claim, StoreLimits};
use redis_dlock::{BackendFailure, Error};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How many entries a page of a list has.
const PAGE: usize = 1000;

impl Kv for Arc<EtcdClient> {
    fn limits(&self) -> StoreLimits {
        let mut limits = limits(SHORTEST);
        limits.tick = TICK;
        limits
    }

    fn has_answered(&self) -> bool {
        self.http.has_answered()
    }

    /// A quarter longer, in whole seconds: etcd knows no other unit, and truncating would end the session before the lease. The lock-delay is a part of it.
    fn life(&self, claim: &Claim<'_>) -> Life {
        Life { needed: claim.lease, ..self.delay(claim.lease + claim.lease / 4) }
    }

    fn delay(&self, needed: Duration) -> Life {
        let time = Duration::from_secs(needed.as_secs() + u64::from(needed.subsec_nanos() > 0)).max(SHORTEST);
        Life { time, needed, delay: Duration::ZERO }
    }

    /// etcd chooses its identity. If the answer is lost, the lease ends by itself, and holds nothing until then.
    fn open_session(&self, life: Life, _client: &str, deadline: Deadline) -> Result<String, Error> {
        let body = json!({ "TTL": life.time.as_secs().to_string() });
        let answer = self.call("/v3/lease/grant", &body, false, deadline)?.ok_or_else(|| odd("the lease"))?;
        let id = answer.get("ID").and_then(Value::as_str).ok_or_else(|| odd("the lease"))?;
        Ok(id.to_owned())
    }

    /// The highest term in any answer. If two looks show the same term, the leader of that term has made a renewal between them.
    fn term(&self) -> u64 {
        self.cluster.lock().term()
    }

    fn renew(&self, session: &str, deadline: Deadline) -> Result<bool, Error> {
        self.renew_one(session, deadline)
    }

    /// One request renews all leases, each by itself, the most urgent ones first. So a slow server has renewed the most urgent ones when the time is
    /// over.
    fn renew_all(&self, sessions: &[&str], deadline: Deadline) -> Vec<Result<bool, Error>> {
        self.renew_some(sessions, deadline)
    }

    fn renewed_together(&self) -> usize {
        usize::MAX
    }

    /// The end of a lease is a write: when it is answered, a majority has it, and a transaction that names the lease is refused. A lease that does
    /// not exist any more has ended earlier.
    ///
    /// A server of another cluster does not know the lease, either, and its error does not say of which cluster it is. The answer to a renewal does, and
    /// comes from the client's own cluster. So a lease has ended if a renewal does not find it either, and otherwise is ended once more.
    fn end_session(&self, session: &str, deadline: Deadline) -> Result<(), Error> {
        let body = json!({ "ID": session });
        let is_found = || Ok::<_, Error>(self.call("/v3/lease/revoke", &body, true, deadline)?.is_some());
        if is_found()? || !self.renew_one(session, deadline)? || is_found()? {
            return Ok(());
        }
        let message = "one server of etcd renews a lease that another one does not find: name the servers of one cluster in the URL";
        Err(Error::backend(BackendFailure::Unknown, message))
    }

    /// A transaction is executed whole or not at all. It fails as a whole when a lease that it names has ended.
    ///
    /// etcd checks its quota before it passes a transaction on, and again when it executes it. Both have the same error, and the second one comes after
    /// the execution.
    fn commit(&self, transaction: &Transaction, deadline: Deadline) -> Result<Committed, Error> {
        let answer = self.call("/v3/kv/txn", &encode::transaction(transaction), false, deadline);
        match answer.map_err(of_perhaps_executed)? {
            Some(answer) => encode::committed(&answer).ok_or_else(|| odd("the outcome of a transaction")),
            None => Ok(Committed::NoSession),
        }
    }

    /// A read is confirmed by a majority unless it asks not to be, and ours does not ask.
    fn look(&self, prefix: &str, deadline: Deadline) -> Result<Vec<Entry>, Error> {
        let answer = self.call("/v3/kv/range", &encode::range(prefix), true, deadline)?;
        answer.as_ref().and_then(encode::entries).ok_or_else(|| odd("the entries"))
    }

    /// An entry whose path is no text is not ours. If there are so many that a page has no others, the page behind it is read.
    fn page(&self, prefix: &str, from: &str, deadline: Deadline) -> Result<(Vec<Entry>, bool), Error> {
        let mut from = from.as_bytes().to_vec();
        loop {
            let answer = self.call("/v3/kv/range", &encode::page(prefix, &from, PAGE), true, deadline)?;
            match answer.as_ref().and_then(encode::some_entries).ok_or_else(|| odd("the entries"))? {
                (entries, Some(last)) if entries.is_empty() => from = [&last[..], b"\0"].concat(),
                (entries, last) => return Ok((entries, last.is_some())),
            }
        }
    }

    fn look_all(&self, prefixes: &[String], deadline: Deadline) -> Result<Vec<Vec<Entry>>, Error> {
        match self.call("/v3/kv/txn", &encode::looks(prefixes), true, deadline) {
            // The server's setting `--max-txn-ops`.
            Err(Error::Backend { message, .. }) if message.contains("too many operations") && prefixes.len() > 1 => {
                let (some, others) = prefixes.split_at(prefixes.len() / 2);
                Ok([self.look_all(some, deadline)?, self.look_all(others, deadline)?].concat())
            }
            answer => {
                answer?.and_then(|answer| encode::looked(&answer, prefixes.len())).ok_or_else(|| odd("the entries"))
            }
        }
    }

    fn listen(&self, path: &str, deadline: Deadline) -> Result<Box<dyn Listening>, Error> {
        Ok(Box::new(Watch::open(self.clone(), path, deadline)?))
    }

    fn close(&self) {
        self.http.close();
    }
}

/// Converts a refusal that may have come after the execution.
fn of_perhaps_executed(error: Error) -> Error {
    match error {
        Error::Backend { failure: BackendFailure::Refused, message, .. } => {
            Error::backend(BackendFailure::Unknown, message)
        }
        other => other,
    }
}
