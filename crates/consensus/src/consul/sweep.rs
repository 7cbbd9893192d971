//! Deletes the inboxes of clients that have died.
//!
//! A client deletes its inbox when it closes. A client that is killed leaves its inbox behind. No session holds an inbox, because any client may
//! write to it, and it stays between messages. So each client that opens an inbox looks at all of them, and again every ten minutes while it listens.
//! It deletes those whose clients have no session. A client has a session under its own name for each tenure, and one for its record: see
//! `Session::client`.
//!
//! A living client has no session, either, while it neither holds nor waits and keeps no record. These orders of events are harmless:
//!
//! * Its inbox is listed, then the client begins a tenure and gets a message, then its session is looked for. There is a session.
//! * The session is looked for, then the client begins a tenure and gets a message. The inbox has changed since it was listed, so it is not deleted.
//! * The client has an unread message, and no session. The message belongs to a tenure that has ended with its session. A session holds what another
//!   client has said to it, so that is left alone.
//! * The inbox is deleted while the client listens. The client takes that for a missed change, and asks about all that it waits for. The next message
//!   to it writes the inbox again, or the client does so itself: see `query.rs`.
//!
//! A client deletes neither its own inbox, nor one that is back after it has deleted it: somebody has written it again, so its client may live. (If
//! not, the next client that comes deletes it.) Otherwise idle clients without a record would delete one another's inboxes again and again.
//!
//! Several clients may delete the same inboxes at once: an inbox that has gone already counts as deleted.

use super::client::ConsulClient;
use super::encode;
use super::node::NAMED;
use crate::deadline::Deadline;
use crate::kv::Entry;
use crate::names::encoded;
use crate::timing::consul::{SWEEPING, SWEEPS};
use redis_dlock::Error;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Instant;
use ureq::http::Method;

/// How many inboxes a transaction deletes: as many operations as Consul takes.
const TOGETHER: usize = 64;

/// How many inboxes one sweep deletes.
const MOST: usize = 4 * TOGETHER;

/// When a client sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The time of the last complete sweep. `None` if there was none, or if another one has begun.
    done: Option<Instant>,
    /// The clients whose inboxes it has deleted, without those whose inboxes were not back at the next sweep.
    deleted: HashSet<String>,
}

impl Sweep {
    /// Sweeps the inboxes beside this one, if it is time. If this fails, the next sweep does it.
    pub(super) fn go_if_due(&mut self, client: &ConsulClient, inbox: &str) {
        let is_due = self.done.is_none_or(|done| done.elapsed() >= SWEEPS);
        let Some((all, own)) = inbox.rsplit_once('/').filter(|_| is_due) else { return };
        if !matches!(self.go(client, &format!("{all}/"), own, Deadline::after(SWEEPING)), Ok(true)) {
            self.done = Some(Instant::now());
        }
    }

    /// Deletes inboxes whose clients have no session. Returns whether there may be more.
    fn go(&mut self, client: &ConsulClient, inboxes: &str, own: &str, deadline: Deadline) -> Result<bool, Error> {
        // First the inboxes, then the sessions.
        let path = format!("/v1/kv/{}?recurse&consistent", encode::in_url(inboxes));
        let found = client.call(Method::GET, &path, &Value::Null, true, deadline)?;
        let found = found.and_then(|reply| encode::entries(&reply.body)).unwrap_or_default();
        let reply = client.call(Method::GET, "/v1/session/list?consistent", &Value::Null, true, deadline)?;
        let Some(sessions) = reply.filter(|reply| !reply.is_filtered) else { return Ok(false) };
        let sessions = sessions.body.as_array().map(Vec::as_slice).unwrap_or_default();
        let owner = |path: &str| Some(path.strip_prefix(inboxes)?.split('/').next()?.to_owned());
        let owners: HashSet<_> = found.iter().filter_map(|inbox| owner(&inbox.path)).collect();
        // What was deleted a moment ago may not be back yet.
        if self.done.take().is_some() {
            self.deleted.retain(|deleted| owners.contains(deleted));
        }
        let living: HashSet<_> = sessions
            .iter()
            .filter_map(|session| session.get("Name")?.as_str()?.strip_prefix(NAMED).map(encoded))
            .collect();
        let may_live = |owner: &String| owner == own || living.contains(owner) || self.deleted.contains(owner);
        // An entry that a session holds goes with that session. It is not the inbox of a dead client.
        let is_left = |inbox: &&Entry| {
            inbox.is_ours && !inbox.is_held && owner(&inbox.path).is_some_and(|owner| !may_live(&owner))
        };
        let left: Vec<_> = found.iter().filter(is_left).map(|inbox| (inbox.path.clone(), inbox.changed)).collect();
        for some in left.chunks(TOGETHER).take(MOST / TOGETHER) {
            if delete(client, some, deadline)? {
                self.deleted.extend(some.iter().filter_map(|(path, _)| owner(path)));
            }
        }
        Ok(left.len() > MOST)
    }
}

/// Deletes entries that have not changed since an index, and may have gone. An entry that has changed stays, and so do those in the same transaction.
/// Returns whether all have gone.
pub(super) fn delete(client: &ConsulClient, entries: &[(String, u64)], deadline: Deadline) -> Result<bool, Error> {
    let mut is_done = true;
    for some in entries.chunks(TOGETHER) {
        let reply = client.call(Method::PUT, "/v1/txn", &encode::delete(some), true, deadline)?;
        is_done &= reply.is_some_and(|reply| reply.status == 200);
    }
    Ok(is_done)
}
