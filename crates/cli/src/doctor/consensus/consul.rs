//! What is wrong with Consul's servers and agents.

use super::super::finding::{Finding, Subject};
use super::{PLACES, ServerExamination, examine_each, words_of};
use crate::timing::ELECTION_SHORT;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_consensus::ConsulLockProcessor;
use redis_dlock::port::LockProcessor;
use redis_dlock::{BackendFailure, Error};
use serde_json::{Value, json};
use std::time::Duration;

/// The advice for a token that Consul does not know.
const TOKEN: &str = "correct the token: token@host";

/// Consul's error for such a token.
const UNKNOWN: &str = "ACL not found";

pub(in super::super) fn examine(store: &ConsulLockProcessor, limit: Duration) -> Result<Vec<Finding>, Error> {
    let (prefix, lease) = (store.prefix(), store.limits().shortest_lease);
    Ok(examine_each(&store.servers()?, limit, of_itself, |examination| of_locks(examination, prefix, lease)))
}

/// Examines what the server or agent says of itself. Returns the addresses of the servers that vote if it answers.
fn of_itself(examination: &mut ServerExamination<'_>) -> Option<Vec<String>> {
    let leader = match examination.ask("/v1/status/leader", &Value::Null) {
        Ok(leader) => leader,
        Err(error) => {
            examination.unreachable(&error, TOKEN);
            return None;
        }
    };
    examination.findings.fine(Subject::Connection, "it answers");
    // Only a token with the right `agent` sees this, and locks do not need that right.
    if let Ok(own) = examination.ask("/v1/agent/self", &Value::Null) {
        let of = |name: &str| own["Config"][name].as_str().unwrap_or_default().to_owned();
        let kind = if own["Config"]["Server"] == true { "a server" } else { "an agent" };
        let (version, datacenter) = (of("Version"), of("Datacenter"));
        examination.findings.fine(Subject::Version, format!("Consul {version}, {kind} of {datacenter}"));
        election(examination, &own);
    }
    match leader.as_str() {
        Some("") | None => no_majority(examination, "it knows no leader"),
        Some(_) => examination.findings.fine(Subject::Role, "it knows a leader"),
    }
    let peers = examination.ask("/v1/status/peers", &Value::Null).unwrap_or_default();
    Some(peers.as_array().into_iter().flatten().filter_map(|peer| Some(peer.as_str()?.to_owned())).collect())
}

/// How long a server waits for its leader before it elects another one. That is five seconds unless `raft_multiplier` says otherwise.
fn election(examination: &mut ServerExamination<'_>, own: &Value) {
    let wait = own["DebugConfig"]["ConsulRaftElectionTimeout"].as_str().filter(|_| own["Config"]["Server"] == true);
    let seconds = wait.and_then(|wait| wait.strip_suffix('s')?.parse::<f64>().ok());
    if let Some(seconds) = seconds.filter(|seconds| *seconds > ELECTION_SHORT.as_secs_f64()) {
        let message = format!(
            "an election begins after {seconds} s: when the leader dies, nothing is written for two and a half times that, and locks with \
             leases of less than {} s may be lost",
            (seconds * 8.0).ceil()
        );
        let advice = "set performance { raft_multiplier = 1 } of the servers, as Consul advises for production, or take longer leases";
        examination.findings.notice(Subject::Quorum, message, advice);
    }
}

fn no_majority(examination: &mut ServerExamination<'_>, why: &str) {
    let advice = "bring back a majority of the servers: until then nobody can lock, and nobody can unlock";
    examination.findings.wrong(
        Subject::Quorum,
        format!("{why}: no majority of the servers reaches one another"),
        advice,
    );
}

/// Does with one server what locks do: tries sessions and each right by itself, and measures how long a write takes.
fn of_locks(examination: &mut ServerExamination<'_>, prefix: &str, lease: Duration) {
    autopilot(examination);
    let Some((session, is_lasting)) = session(examination, lease) else { return };
    if is_lasting {
        examination.findings.fine(Subject::Sessions, "sessions are on the node dlock, and end by their time alone");
    }
    let before = examination.findings.len();
    for place in PLACES {
        let what = format!("{prefix}{place}…");
        match write(examination, prefix, place, &session).and_then(|_| read(examination, prefix, place)) {
            Ok(true) => {}
            Ok(false) => rights(examination, &format!("it may write {what}, and not read it"), &key_right(prefix)),
            Err(Error::Denied { message, .. }) => {
                rights(examination, &format!("{what}: {message}"), &key_right(prefix));
            }
            Err(error) => {
                let advice = "mend what the message names, and examine the servers again";
                examination.findings.wrong(Subject::Writes, format!("{what}: {}", words_of(&error)), advice);
                break;
            }
        }
    }
    if examination.findings.len() == before {
        examination.findings.fine(Subject::Rights, format!("the token may read and write {prefix}"));
        examination.time_of_writes(|examination| write(examination, prefix, PLACES[0], &session));
    }
    // The entries of the session go with it.
    let _ = examination.ask(&format!("/v1/session/destroy/{}", session.as_str().unwrap_or_default()), &json!({}));
}

/// The path of an examination's entry in one of these places.
fn entry(prefix: &str, place: &str) -> String {
    format!("{prefix}{place}{}/doctor", std::process::id())
}

fn write(examination: &ServerExamination<'_>, prefix: &str, place: &str, session: &Value) -> Result<Value, Error> {
    let value = STANDARD.encode("doctor");
    let lock = json!({ "Verb": "lock", "Key": entry(prefix, place), "Value": value, "Session": session });
    let answer = examination.ask("/v1/txn", &json!([{ "KV": lock }]))?;
    refusal(&answer).map_or(Ok(answer), Err)
}

/// Returns whether the entry that was written is found. A token without the right is told that there is none.
fn read(examination: &ServerExamination<'_>, prefix: &str, place: &str) -> Result<bool, Error> {
    let get = json!([{ "KV": { "Verb": "get", "Key": entry(prefix, place) } }]);
    let found = examination.ask("/v1/txn?consistent", &get)?;
    Ok(refusal(&found).is_none() && found["Results"].as_array().is_some_and(|all| !all.is_empty()))
}

fn key_right(prefix: &str) -> String {
    format!("key_prefix \"{prefix}\" {{ policy = \"write\" }}")
}

fn rights(examination: &mut ServerExamination<'_>, message: &str, right: &str) {
    let advice =
        if message.contains(UNKNOWN) { TOKEN.to_owned() } else { format!("give the token this right: {right}") };
    examination.findings.wrong(Subject::Rights, message, &advice);
}

/// Returns why a transaction was refused.
fn refusal(answer: &Value) -> Option<Error> {
    let errors = answer["Errors"].as_array().filter(|errors| !errors.is_empty())?;
    let words: Vec<_> = errors.iter().filter_map(|error| error["What"].as_str()).collect();
    let words = words.join("; ");
    let is_denied = words.to_lowercase().contains("permission denied");
    Some(if is_denied { Error::denied(words) } else { Error::backend(BackendFailure::Refused, words) })
}

/// The servers that have failed. A server that has just begun is unhealthy for some seconds, too, but does not count as failed. Nor does one that
/// answers the other servers' gossip but lags behind their log.
fn failed(state: &Value) -> impl Iterator<Item = &str> {
    let servers = state["Servers"].as_object().into_iter().flat_map(|servers| servers.values());
    let failed = servers.filter(|server| server["Healthy"] == false && server["NodeStatus"] != "alive");
    failed.filter_map(|server| server["Name"].as_str())
}

/// Examines how many servers vote, and how many may die, as autopilot sees it. Only a token with the right `operator` sees this, and locks do not
/// need that right. Any token sees the number of voting servers. It asks for `state`, because `health` has the status 429 while a server fails.
fn autopilot(examination: &mut ServerExamination<'_>) {
    match examination.ask("/v1/operator/autopilot/state", &Value::Null) {
        Ok(state) if state["FailureTolerance"] == 0 && failed(&state).next().is_some() => {
            let ill = failed(&state).collect::<Vec<_>>().join(", ");
            let message = format!("autopilot counts {ill} as failed: when another server fails, nobody can lock");
            examination.findings.notice(Subject::Quorum, message, "bring that server back, or let another one join");
        }
        _ => match examination.ask("/v1/status/peers", &Value::Null) {
            Ok(peers) => examination.majority(peers.as_array().map_or(0, Vec::len)),
            Err(error) => no_majority(examination, &words_of(&error)),
        },
    }
}

/// The right to register the node of the sessions.
const NODE: &str = "node \"dlock\" { policy = \"write\" }";

/// Creates a session as a lock does, with the shortest lease. Returns it, and whether only its time to live ends it. `None` if it was not created.
fn session(examination: &mut ServerExamination<'_>, lease: Duration) -> Option<(Value, bool)> {
    let create = |node: Option<&str>| {
        let mut body = json!({
            "Name": "dlock doctor", "TTL": format!("{}ms", lease.as_millis()), "LockDelay": "0ms", "Behavior": "delete",
            "NodeChecks": [], "ServiceChecks": [],
        });
        if let Some(node) = node {
            body["Node"] = node.into();
        }
        body
    };
    let mut made = examination.ask("/v1/session/create", &create(Some("dlock")));
    if matches!(&made, Ok(none) if none.is_null()) {
        // Nobody has registered the node yet. A lock would do so.
        let node =
            json!({ "Node": "dlock", "Address": "192.0.2.1", "NodeMeta": { "purpose": "sessions of redis-dlock" } });
        made = match examination.ask("/v1/catalog/register", &node) {
            Ok(_) => examination.ask("/v1/session/create", &create(Some("dlock"))),
            Err(error) => {
                let message = format!(
                    "nobody has registered the node dlock, and the token may not ({}): locks are lost with the agent or server that created \
                     their sessions",
                    words_of(&error)
                );
                examination.findings.notice(Subject::Sessions, message, &format!("give the token this right: {NODE}"));
                let made = examination.ask("/v1/session/create", &create(None));
                return of_session(examination, made, "session_prefix \"\" { policy = \"write\" }")
                    .map(|id| (id, false));
            }
        };
    }
    of_session(examination, made, "session \"dlock\" { policy = \"write\" }").map(|id| (id, true))
}

fn of_session(examination: &mut ServerExamination<'_>, made: Result<Value, Error>, right: &str) -> Option<Value> {
    match made {
        Ok(session) if session["ID"].is_string() => return Some(session["ID"].clone()),
        Ok(other) => {
            examination.findings.wrong(
                Subject::Sessions,
                format!("no session was made: {other}"),
                "look at the server's log",
            );
        }
        Err(Error::Denied { message, .. }) => rights(examination, &message, right),
        Err(Error::Unsupported { message, .. }) => {
            let advice = "set session_ttl_min of the servers to 10s, or use longer leases than that";
            examination.findings.wrong(Subject::Sessions, message, advice);
        }
        Err(error) => no_majority(examination, &words_of(&error)),
    }
    None
}
