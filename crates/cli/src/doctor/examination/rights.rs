//! Whether the login may do what locks do.
//!
//! Each command is sent once, with arguments by which it changes nothing that anybody needs. It concerns a key of the examination, whose value is a
//! number: the server refuses commands for lists after it has checked the rights. A replica also checks the rights before it refuses a write.

use super::messages::inbox;
use super::{Examination, Part, words_of};
use crate::doctor::finding::Subject;
use redis_dlock::Error;

/// How long the key lasts if it cannot be removed, in milliseconds.
const LASTS: &str = "10000";

/// A script that no server knows.
const UNKNOWN_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// The rights that locks do not need, and what they are for.
const OPTIONAL: [(&str, &str); 2] = [
    ("+scan", "give the login +scan if it is to list locks: list, dlock ls and dlock watch need it, and locks do not"),
    (
        "+info",
        "give the login +info, so that a client notices at once when another server answers, and so that this examination sees more",
    ),
];

/// The errors of a server that would have executed the command with other arguments, or as the master of this slot.
const REACHED: [&str; 4] = ["NOSCRIPT", "READONLY", "MOVED", "not an integer"];

/// A command that tries a right.
struct Trial<'a> {
    right: &'static str,
    words: Vec<&'a str>,
    /// Whether the command would leave something behind if the key were missing.
    needs_key: bool,
}

fn trial<'a>(right: &'static str, words: &[&'a str]) -> Trial<'a> {
    Trial { right, words: words.to_vec(), needs_key: false }
}

fn on_key<'a>(right: &'static str, words: &[&'a str]) -> Trial<'a> {
    Trial { needs_key: true, ..trial(right, words) }
}

fn is_optional(right: &str) -> bool {
    OPTIONAL.iter().any(|(known, _)| *known == right)
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Allowed,
    Denied,
    /// The server refused the command for another reason.
    Failed,
}

pub(super) fn look(examination: &mut Examination) {
    let (key, channel) = (examination.key.clone(), inbox(examination));
    let own = format!("DLOCK:1:{{{}}}:gapped:{key}", examination.tag.unwrap_or(0));
    let (key, channel) = (key.as_str(), channel.as_str());
    let mut trials = vec![
        trial("+get", &["GET", key]),
        trial("~DLOCK:1:*", &["GET", &own]),
        trial("+pttl", &["PTTL", key]),
        trial("+pexpire", &["PEXPIRE", key, LASTS]),
        trial("+pexpiretime", &["PEXPIRETIME", key]),
        on_key("+incr", &["INCR", key]),
        on_key("+decr", &["DECR", key]),
        trial("+llen", &["LLEN", key]),
        trial("+lindex", &["LINDEX", key, "0"]),
        trial("+lpop", &["LPOP", key]),
        trial("+lpos", &["LPOS", key, "x"]),
        trial("+lrem", &["LREM", key, "0", "x"]),
        on_key("+lpush", &["LPUSH", key, "x"]),
        on_key("+rpush", &["RPUSH", key, "x"]),
        trial("+time", &["TIME"]),
        trial("+info", &["INFO", "server"]),
        trial("+eval", &["EVAL", "return 1", "1", key]),
        trial("+scan", &["SCAN", "0", "COUNT", "1"]),
        trial("+evalsha", &["EVALSHA", UNKNOWN_SCRIPT, "1", key]),
    ];
    match examination.tag {
        None => trials.extend([
            trial("+publish &DLOCK:1:*", &["PUBLISH", channel, "hello"]),
            trial("+pubsub|numsub", &["PUBSUB", "NUMSUB", channel]),
        ]),
        Some(_) => trials.extend([
            trial("+spublish &DLOCK:1:*", &["SPUBLISH", channel, "hello"]),
            trial("+pubsub|shardnumsub", &["PUBSUB", "SHARDNUMSUB", channel]),
            trial("+cluster|slots", &["CLUSTER", "SLOTS"]),
            trial("+asking", &["ASKING"]),
        ]),
    }
    if examination.acks > 0 {
        trials.push(trial("+wait", &["WAIT", "0", "0"]));
    }
    let writes = trial("+set ~DLOCK_*", &["SET", key, "1", "PX", LASTS]);
    let removes = trial("+del", &["DEL", key]);
    let written = attempt(examination, &writes);
    let is_written = written == Tried::Allowed || examination.part == Part::Replica;
    let trials = trials.into_iter().filter(|trial| is_written || !trial.needs_key).chain([removes]);
    let mut tried = vec![(writes.right, written)];
    tried.extend(trials.map(|trial| (trial.right, attempt(examination, &trial))));
    let is_all = tried.iter().all(|(right, tried)| *tried == Tried::Allowed || is_optional(right));
    let has: Vec<_> = tried.iter().filter(|(_, tried)| *tried == Tried::Allowed).map(|(right, _)| *right).collect();
    let which = if is_all { "has the rights that locks need" } else { "has only" };
    examination.findings.fine(Subject::Rights, format!("the login {which}: {}", has.join(" ")));
}

/// Tries a right. Adds a finding if something is wrong.
fn attempt(examination: &mut Examination, trial: &Trial<'_>) -> Tried {
    let error = match examination.ask(&trial.words) {
        Ok(_) => return Tried::Allowed,
        Err(error) => error,
    };
    let words = words_of(&error);
    match error {
        Error::Denied { .. } => {
            match OPTIONAL.iter().find(|(right, _)| *right == trial.right) {
                Some((_, advice)) => examination.findings.notice(Subject::Rights, words, advice),
                None => examination.findings.wrong(Subject::Rights, words, &format!("give the login {}", trial.right)),
            }
            return Tried::Denied;
        }
        // The key has another type, so the right was checked.
        Error::Conflict { .. } => return Tried::Allowed,
        _ if REACHED.iter().any(|answer| words.contains(answer)) && may_refuse(examination, &words) => {
            return Tried::Allowed;
        }
        Error::Backend { source: None, .. } => {
            examination.findings.wrong(
                Subject::Writes,
                words,
                "mend what the server names; until then it refuses locks",
            );
        }
        error => examination.findings.failed(Subject::Rights, &error),
    }
    Tried::Failed
}

/// Whether a sound server with this part may refuse a command with these words.
fn may_refuse(examination: &Examination, words: &str) -> bool {
    examination.part == Part::Replica || !words.contains("READONLY") && !words.contains("MOVED")
}
