//! What the protocol needs, by requests to etcd.

use super::client::{Client, odd};
use super::encode;
use super::watch::Watch;
use crate::deadline::Deadline;
use crate::json::number;
use crate::kv::{Committed, Entry, Kv, Life, Listening, Transaction};
use crate::sync::atomic::Ordering;
use redis_dlock::processor::{Claim, DeadWaiters, StoreLimits};
use redis_dlock::{BackendFailure, Error};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long the servers may need to elect another leader.
const ELECTION: Duration = Duration::from_secs(3);

/// The shortest lease of which etcd, with its usual election time-out of a second, does not make a longer one.
const SHORTEST: Duration = Duration::from_secs(2);

impl Kv for Arc<Client> {
    fn limits(&self) -> StoreLimits {
        let mut limits = StoreLimits::default();
        limits.shortest_lease = SHORTEST;
        limits.tick = Duration::from_secs(1);
        limits.command = Duration::from_secs(3);
        limits.outage = ELECTION;
        limits.dead_holder_leases = 3;
        limits.dead_waiters = DeadWaiters::AfterLeases(3);
        limits.remaining_known = false;
        limits
    }

    fn has_answered(&self) -> bool {
        self.http.has_answered()
    }

    /// A quarter longer, in whole seconds. The lock-delay is a part of it.
    fn life(&self, claim: &Claim<'_>) -> Life {
        let quarter = claim.lease + claim.lease / 4;
        let time = Duration::from_secs(quarter.as_secs() + u64::from(quarter.subsec_nanos() > 0)).max(SHORTEST);
        Life { time, needed: claim.lease, delay: Duration::ZERO }
    }

    fn open_session(&self, life: Life, _client: &str, deadline: Deadline) -> Result<String, Error> {
        let body = json!({ "TTL": life.time.as_secs().to_string() });
        let answer = self.call("/v3/lease/grant", &body, false, deadline)?.ok_or_else(|| odd("the lease"))?;
        let id = answer.get("ID").and_then(Value::as_str).ok_or_else(|| odd("the lease"))?;
        Ok(id.to_owned())
    }

    fn term(&self) -> u64 {
        self.term.load(Ordering::SeqCst)
    }

    fn renew(&self, session: &str, deadline: Deadline) -> Result<bool, Error> {
        let body = json!({ "ID": session });
        let Some(answer) = self.call("/v3/lease/keepalive", &body, true, deadline)? else { return Ok(false) };
        if let Some(error) = answer.get("error") {
            return Err(Error::backend(BackendFailure::Unknown, format!("etcd did not renew a lease: {error}")));
        }
        // A leader that has been replaced and does not know it yet renews in vain (etcd's issue 15247). `term` shows others.
        if encode::term(&answer).is_some_and(|term| term < self.term()) {
            let message = "a server of etcd renewed a lease that does not lead any more";
            return Err(Error::backend(BackendFailure::Unknown, message));
        }
        // What is zero is left out: the lease has ended.
        let left = answer.get("result").and_then(|result| number(result.get("TTL")?));
        Ok(left.is_some_and(|left| left > 0))
    }

    fn end_session(&self, session: &str, deadline: Deadline) -> Result<(), Error> {
        self.call("/v3/lease/revoke", &json!({ "ID": session }), true, deadline).map(drop)
    }

    fn commit(&self, transaction: &Transaction, deadline: Deadline) -> Result<Committed, Error> {
        match self.call("/v3/kv/txn", &encode::transaction(transaction), false, deadline)? {
            Some(answer) => encode::committed(&answer).ok_or_else(|| odd("the outcome of a transaction")),
            None => Ok(Committed::NoSession),
        }
    }

    fn look(&self, prefix: &str, deadline: Deadline) -> Result<Vec<Entry>, Error> {
        let answer = self.call("/v3/kv/range", &encode::range(prefix), true, deadline)?;
        answer.as_ref().and_then(encode::entries).ok_or_else(|| odd("the entries"))
    }

    fn listen(&self, path: &str, deadline: Deadline) -> Result<Box<dyn Listening>, Error> {
        Ok(Box::new(Watch::open(self.clone(), path, deadline)?))
    }

    fn close(&self) {
        self.http.close();
    }
}
