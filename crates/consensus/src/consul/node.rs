//! Sessions that outlive agents and servers.
//!
//! A session of Consul belongs to a node of the catalog, and ends when the node is removed. Consul removes the node of a server that has been dead
//! for some seconds (autopilot's `cleanup_dead_servers`, on by default). It also removes the node of an agent that leaves, for example by SIGTERM. By
//! default a session is on such a node. So it could end while its holder lives, and another process would get the lock.
//!
//! So our sessions belong to a node of their own. It is registered once, and has no agent and no checks. Nothing in Consul removes it: the leader
//! removes nodes with the check `serfHealth`, an agent maintains only its own node, and autopilot removes servers. Only the end of its time to live,
//! or a person, ends a session there. If somebody has removed the node, Consul refuses the next session, and the client registers the node again.
//!
//! A token without the right to register the node gets sessions on the node of the agent or server that answers. Consul's lock-delay then protects
//! the holder: nobody gets the lock for a whole lease after a session's end, and no holder counts on its lease for longer than that after its last
//! renewal. Consul's lock-delay is at most 60 s, so longer leases are refused in that case.
//!
//! On our own node the lock-delay is the one that the program asks for. A whole lease would keep waiters out for longer after each crash, and would
//! protect only from a person who removes the node or ends a session.

use super::client::{ConsulClient, odd};
use crate::deadline::Deadline;
use crate::kv::Life;
use crate::log;
use crate::sync::atomic::Ordering;
use crate::timing::TRIES;
use crate::timing::consul::LONGEST_LOCK_DELAY;
use redis_dlock::{BackendFailure, Error};
use serde_json::{Value, json};
use std::time::Duration;
use ureq::http::Method;

/// The node that our sessions belong to.
const NODE: &str = "dlock";

/// The address of the node, which Consul requires. RFC 5737 reserves it for documentation, so no machine has it.
const ADDRESS: &str = "192.0.2.1";

/// The right to register the node.
const RIGHT: &str = "node \"dlock\" { policy = \"write\" }";

/// The beginning of the names of our sessions.
pub(super) const NAMED: &str = "dlock ";

/// Creates a session that lasts for its time to live, whatever becomes of agents and servers.
pub(super) fn open_lasting_session(
    client: &ConsulClient,
    life: Life,
    name: &str,
    deadline: Deadline,
) -> Result<String, Error> {
    for _ in 0..TRIES {
        if let Some(id) = create(client, Some(NODE), life, name, deadline)? {
            return Ok(id);
        }
        match register(client, deadline) {
            Ok(()) => {}
            Err(Error::Denied { message, .. }) => return open_on_agent(client, &message, life, name, deadline),
            Err(error) => return Err(error),
        }
    }
    Err(unregistered("somebody takes it out of the catalog again and again"))
}

/// Puts the node into the catalog. Several clients may do so at once: they write the same.
fn register(client: &ConsulClient, deadline: Deadline) -> Result<(), Error> {
    let body = json!({ "Node": NODE, "Address": ADDRESS, "NodeMeta": { "purpose": "sessions of redis-dlock" } });
    client.call(Method::PUT, "/v1/catalog/register", &body, true, deadline).map(drop)
}

/// Creates a session on the node of the agent or server that is asked. Its end keeps others out for a lease.
fn open_on_agent(
    client: &ConsulClient,
    refusal: &str,
    life: Life,
    name: &str,
    deadline: Deadline,
) -> Result<String, Error> {
    let delay = life.delay.max(life.needed);
    if delay > LONGEST_LOCK_DELAY {
        return Err(Error::denied(format!(
            "the token may not register the node {NODE:?}, and without it no lease is safe that is longer than {LONGEST_LOCK_DELAY:?}, \
             such as {:?}: give the token the right {RIGHT} ({refusal})",
            life.needed
        )));
    }
    // ORDERING: SeqCst, as all flags of these stores. The thread that sets it first warns.
    if !client.is_on_agents.swap(true, Ordering::SeqCst) {
        log::warn(format_args!(
            "the token may not register the node {NODE:?}: give it the right {RIGHT}. Until then a lock is lost when the agent or server that \
             created its session dies or leaves, and nobody gets it for a lease after that ({refusal})"
        ));
    }
    create(client, None, Life { delay, ..life }, name, deadline)?.ok_or_else(|| {
        unregistered(&format!(
            "the token may not register it, and the node of the agent or server that was asked is not in the catalog, either: give the \
             token the right {RIGHT}"
        ))
    })
}

/// The error for a session that Consul has not created, because its node is missing.
fn unregistered(why: &str) -> Error {
    Error::backend(BackendFailure::NotExecuted, format!("Consul has no node {NODE:?} for a session: {why}"))
}

/// Creates a session. `None` if there is no such node.
fn create(
    client: &ConsulClient,
    node: Option<&str>,
    life: Life,
    name: &str,
    deadline: Deadline,
) -> Result<Option<String>, Error> {
    let text = |time: Duration| format!("{}ms", time.as_millis());
    // Without checks: only the time to live counts. By default, the session ends when the node's health check fails.
    let mut body = json!({
        "Name": format!("{NAMED}{name}"), "TTL": text(life.time), "LockDelay": text(life.delay),
        "Behavior": "delete", "NodeChecks": [], "ServiceChecks": [],
    });
    if let Some(node) = node {
        body["Node"] = node.into();
    }
    let Some(reply) = client.call(Method::PUT, "/v1/session/create", &body, false, deadline)? else {
        return Ok(None);
    };
    let id = reply.body.get("ID").and_then(Value::as_str).ok_or_else(|| odd("the session"))?;
    Ok(Some(id.to_owned()))
}
