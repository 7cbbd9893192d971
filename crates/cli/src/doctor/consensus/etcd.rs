//! What is wrong with etcd's servers.

use super::super::finding::{Finding, Subject};
use super::{PLACES, ServerExamination, examine_each, words_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_consensus::EtcdLockProcessor;
use redis_dlock::Error;
use serde_json::{Value, json};
use std::time::Duration;

/// How long an entry of an examination lives if it is not deleted, in seconds.
const LIFE: u64 = 10;

/// The advice for a login that is not accepted.
const LOGIN: &str = "correct the user and the password: user:password@host";

/// The library's error if users are enabled and the URL has no user.
const NO_LOGIN: &str = "wants to know its users";

pub(in super::super) fn examine(store: &EtcdLockProcessor, limit: Duration) -> Result<Vec<Finding>, Error> {
    let prefix = store.prefix();
    Ok(examine_each(&store.servers()?, limit, of_itself, |examination| of_locks(examination, prefix)))
}

/// Examines what the server says of itself. Returns the name of its cluster if it answers.
fn of_itself(examination: &mut ServerExamination<'_>) -> Option<Vec<String>> {
    let status = match examination.ask("/v3/maintenance/status", &json!({})) {
        Ok(status) => status,
        Err(error) => {
            examination.unreachable(&error, LOGIN);
            return None;
        }
    };
    examination.findings.fine(Subject::Connection, "it answers");
    version(examination, status["version"].as_str().unwrap_or_default());
    let errors: Vec<_> = status["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if errors.iter().any(|error| error.contains("NOSPACE")) {
        let advice = "compact and defragment it, raise --quota-backend-bytes, then `etcdctl alarm disarm`";
        examination.findings.wrong(
            Subject::Writes,
            "its space is used up (alarm NOSPACE): it refuses every write",
            advice,
        );
    }
    let is_learner = status["isLearner"] == true;
    match status["leader"].as_str() {
        None | Some("0") => {
            let advice = "bring back a majority of the servers: until then nobody can lock, and nobody can unlock";
            examination.findings.wrong(
                Subject::Quorum,
                "it has no leader: no majority of the servers reaches one another",
                advice,
            );
        }
        Some(leader) if status["header"]["member_id"] == leader => examination.findings.fine(Subject::Role, "it leads"),
        Some(_) if is_learner => examination.findings.notice(
            Subject::Role,
            "it is a learner, which does not vote",
            "leave it out of the URL until it is promoted",
        ),
        Some(_) => examination.findings.fine(Subject::Role, "it follows a leader"),
    }
    Some(status["header"]["cluster_id"].as_str().map(str::to_owned).into_iter().collect())
}

/// A leader that is suspended may end leases that are still renewed when it resumes: issue 15247 of etcd.
fn version(examination: &mut ServerExamination<'_>, version: &str) {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
    let number = [(); 3].map(|()| parts.next().unwrap_or_default());
    let message = format!("etcd {version}");
    match number {
        [0..=2, ..] | [3, 0..=3, _] => examination.findings.wrong(Subject::Version, message, "run etcd 3.4 or newer"),
        [3, 4, ..=30] | [3, 5, ..=12] => examination.findings.notice(
            Subject::Version,
            format!(
                "{message}: after its leader was suspended, leases may end that are still renewed (etcd's issue 15247)"
            ),
            "run 3.4.31, 3.5.13 or newer",
        ),
        _ => examination.findings.fine(Subject::Version, message),
    }
}

/// Does with one server what locks do: tries each right by itself, and measures how long a write takes.
fn of_locks(examination: &mut ServerExamination<'_>, prefix: &str) {
    match examination.ask("/v3/cluster/member/list", &json!({})) {
        Ok(list) => {
            let members = list["members"].as_array().map(Vec::as_slice).unwrap_or_default();
            examination.majority(members.iter().filter(|member| member["isLearner"] != true).count());
        }
        // Locks do not need this right.
        Err(Error::Denied { .. }) => {}
        Err(error) => {
            let advice = "bring back a majority of the servers: until then nobody can lock, and nobody can unlock";
            return examination.findings.wrong(
                Subject::Quorum,
                format!("no majority has answered: {}", words_of(&error)),
                advice,
            );
        }
    }
    let lease = match examination.ask("/v3/lease/grant", &json!({ "TTL": LIFE.to_string() })) {
        Ok(lease) => lease["ID"].clone(),
        Err(error) => return failed(examination, "lease", &error, prefix),
    };
    let name = std::process::id();
    let before = examination.findings.len();
    for place in PLACES {
        let path = STANDARD.encode(format!("{prefix}{place}{name}"));
        let put = json!({ "key": path, "value": "", "lease": lease });
        let refused = [("write", "/v3/kv/put", put), ("read", "/v3/kv/range", json!({ "key": path }))]
            .into_iter()
            .find_map(|(right, call, body)| Some((right, examination.ask(call, &body).err()?)));
        if let Some((_, error)) = refused.as_ref().filter(|(_, error)| words_of(error).contains(NO_LOGIN)) {
            // The server answers the status to everybody, but executes nothing without a login.
            examination.unreachable(error, LOGIN);
            break;
        }
        if let Some((right, error)) = refused {
            failed(examination, &format!("{right} of {prefix}{place}…"), &error, prefix);
            if !matches!(error, Error::Denied { .. }) {
                break;
            }
        }
    }
    if examination.findings.len() == before {
        examination.findings.fine(Subject::Rights, format!("the login may read and write {prefix}"));
        let path = STANDARD.encode(format!("{prefix}{}{name}", PLACES[0]));
        examination.time_of_writes(|examination| {
            examination.ask("/v3/kv/put", &json!({ "key": path, "value": "", "lease": lease }))
        });
    }
    // The entries of the lease go with it.
    let _ = examination.ask("/v3/lease/revoke", &json!({ "ID": lease }));
}

/// Adds why a step that locks need has failed.
fn failed(examination: &mut ServerExamination<'_>, what: &str, error: &Error, prefix: &str) {
    let message = format!("{what}: {}", words_of(error));
    match error {
        Error::Denied { .. } => {
            let advice = format!(
                "etcdctl role grant-permission ROLE readwrite {prefix} --prefix=true, and the role to the user"
            );
            examination.findings.wrong(Subject::Rights, message, &advice);
        }
        _ => examination.findings.wrong(
            Subject::Writes,
            message,
            "mend what the message names, and examine the servers again",
        ),
    }
}
