//! Maps each error reply of the server to an error of this crate.
//!
//! The code is the reply's first word. Redis 7.0 says `ERR` for some errors that have a code of their own elsewhere: inside scripts, and
//! before it has read anything. For these errors the words after `ERR` decide, and only their beginning is compared.
//!
//! An error that is raised in a script stops the script between its calls, and the server adds a position to the words. It is unknown what
//! the script had written before, so the outcome is unknown, whatever the code is. If an error has left nothing behind, the script returns
//! it as its reply, which has no position.
//!
//! What each class means to the operation that sent the command:
//!
//! | answer | becomes | an acquirer | a renewal or release |
//! |---|---|---|---|
//! | refused connection, LOADING, BUSY, READONLY, MASTERDOWN, NOREPLICAS, too many clients, … | `Backend`, not executed | `lock()` waits it out (unless the store never answered), with backoff and jitter | repeats; says nothing about loss |
//! | OOM, MISCONF | `Backend`, refused | waits and warns; `try_lock` and timed calls fail by name | is not hit (`allow-oom`), or repeats |
//! | time-out, closed connection, unknown replies, any error that a script raised in its middle | `Backend`, unknown | polls what became of it, then waits; if given up, it is cleaned up | repeats; "not ours" after it is no loss |
//! | NOAUTH, WRONGPASS, NOPERM, and what 7.0 says in scripts instead, unless it was raised | `Denied`, nothing done | gets it at once | a renewal repeats until the deadline; a release goes on the clean-up list |
//! | too few replicas have acknowledged what the command did | `Backend`, unacknowledged; an attempt to lock is undone first | `lock()` waits it out, with backoff and jitter, and warns; `try_lock` and timed calls fail by name | a renewal repeats, and the deadline does not move |
//! | a key of another type | `Conflict` | gets it at once | loss (extend, probe), error (release) |
//! | HELLO of a replica | `Backend`, not executed | `lock()` waits it out (unless the store never answered) | repeats; says nothing about loss |
//! | in a Cluster: MOVED, ASK, TRYAGAIN | none: the call is sent where it belongs; what is left at its limit is `Backend`, not executed | `lock()` waits it out | repeats; a posted release goes on the clean-up list |
//! | CROSSSLOT; outside a Cluster MOVED and ASK; HELLO of a Sentinel, a server before 7.0, a Cluster node where one server is wanted or the reverse | `Unsupported` | gets it at once | as `Denied` |
//!
//! From 7.2 on, denials name the user. This file hides what stands between "User " and " has no permissions". Other servers use other
//! words. So `Address::hide` then also hides the login's own user wherever it stands as a word.
//!
//! An *outcome* is not an error: busy, gone and lost are values of the outcome types.

use crate::error::{BackendFailure, Error};
use ::redis::{ServerError, Value};
use std::borrow::Cow;

/// Stands for a text that is not shown.
pub(super) const HIDDEN: &str = "***";

/// What kind of error a reply stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    NotExecuted,
    Refused,
    Denied,
    Conflict,
    Unsupported,
}

/// The whole table: code, beginning of the text after it (an empty one matches any text), class. The first matching line counts; a
/// reply that matches none has an unknown outcome.
const TABLE: &[(&str, &str, Class)] = &[
    ("LOADING", "", Class::NotExecuted),
    ("BUSY", "", Class::NotExecuted),
    ("READONLY", "", Class::NotExecuted),
    ("CLUSTERDOWN", "", Class::NotExecuted),
    ("TRYAGAIN", "", Class::NotExecuted),
    ("MASTERDOWN", "", Class::NotExecuted),
    (WITHOUT_REPLICAS, "", Class::NotExecuted),
    ("NOSCRIPT", "", Class::NotExecuted),
    ("ERR", "max number of clients reached", Class::NotExecuted),
    ("OOM", "", Class::Refused),
    ("MISCONF", "", Class::Refused),
    ("NOAUTH", "", Class::Denied),
    ("WRONGPASS", "", Class::Denied),
    ("NOPERM", "", Class::Denied),
    // 7.0 inside scripts: "can't run this command …", "can't access at least one of the keys …", "can't publish …".
    ("ERR", "The user executing the script", Class::Denied),
    // 7.2 and newer inside scripts.
    ("ERR", "ACL failure in script", Class::Denied),
    ("CONFLICT", "", Class::Conflict),
    ("WRONGTYPE", "", Class::Conflict),
    ("MOVED", "", Class::Unsupported),
    ("ASK", "", Class::Unsupported),
    ("CROSSSLOT", "", Class::Unsupported),
    // The command was renamed, or the server only claims to be Redis.
    ("ERR", "unknown command", Class::Unsupported),
    ("ERR", "Unknown Redis command", Class::Unsupported),
    // Valkey inside scripts.
    ("ERR", "Unknown command", Class::Unsupported),
];

/// The code of a server that fewer replicas follow than its settings demand. It refuses every command that writes.
const WITHOUT_REPLICAS: &str = "NOREPLICAS";

/// What an operator must know to understand the server's words, or to do something: of a code, text to append to them.
const ADVICE: [(&str, &str); 2] = [
    (WITHOUT_REPLICAS, " (fewer replicas follow it than min-replicas-to-write demands)"),
    ("OOM", " (raise maxmemory, or remove other data)"),
];

/// What the server appends to the words of an error that a script raised, followed by the line number.
const RAISED: &str = ", on @user_script:";

/// Returns the error that an error reply to a command about `key` stands for.
pub(crate) fn classify(reply: &ServerError, key: &str) -> Error {
    let (code, detail) = (reply.code(), reply.details().unwrap_or_default());
    let words = if detail.is_empty() { code.to_owned() } else { format!("{code} {detail}") };
    let mut words = without_user(&words).into_owned();
    words.extend(ADVICE.iter().filter(|(of, _)| *of == code).map(|(_, advice)| *advice));
    let fits = |(c, text, _): &&(&str, &str, Class)| *c == code && detail.starts_with(text);
    let class = if detail.contains(RAISED) { None } else { TABLE.iter().find(fits).map(|(_, _, class)| *class) };
    match class {
        Some(Class::NotExecuted) => Error::backend(BackendFailure::NotExecuted, words),
        Some(Class::Refused) => Error::backend(BackendFailure::Refused, words),
        Some(Class::Denied) => Error::Denied { message: words },
        Some(Class::Conflict) => {
            let message = if code == "CONFLICT" { without_user(detail).into_owned() } else { words };
            Error::Conflict { key: key.to_owned(), message }
        }
        Some(Class::Unsupported) => {
            let message = if code == "ERR" {
                format!("the server lacks a command that the lock needs: {words}")
            } else {
                format!(
                    "the server is a node of a Redis Cluster ({words}): use a URL that begins with \
                     redis+cluster://. If it does, the crate is at fault: please report it"
                )
            };
            Error::Unsupported { message }
        }
        None => Error::backend(BackendFailure::Unknown, words),
    }
}

/// Hides the name in "User {name} has no permissions …", the words of Redis 7.2 and newer and of Valkey. These servers accept no names
/// with white space; a name with white space is hidden as well.
pub(super) fn without_user(words: &str) -> Cow<'_, str> {
    let (before, after) = ("User ", " has no permissions");
    let start = words.find(before).map(|at| at + before.len());
    // The last match, because a name may contain these words.
    match start.and_then(|start| Some((start, start + words[start..].rfind(after)?))) {
        Some((start, end)) => Cow::Owned([&words[..start], HIDDEN, &words[end..]].concat()),
        None => Cow::Borrowed(words),
    }
}

/// Whether a reply says that the server is no master, or has just started. `UNBLOCKED` ends a `WAIT` when a master becomes a replica.
pub(crate) fn is_no_master(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if matches!(e.code(), "READONLY" | "MASTERDOWN" | "LOADING" | "UNBLOCKED"))
}

/// Whether a reply says that the server follows a master. It keeps all connections when it is made a replica.
pub(crate) fn is_demotion(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if matches!(e.code(), "READONLY" | "MASTERDOWN" | "UNBLOCKED"))
}

/// Whether a reply sends its call to another node of a Cluster, however it names that node. The call was not executed.
pub(crate) fn is_redirection(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if matches!(e.code(), "MOVED" | "ASK") && !e.details().is_some_and(|words| words.contains(RAISED)))
}

/// Whether a reply says that the server does not know the script.
pub(crate) fn is_noscript(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if e.code() == "NOSCRIPT")
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/net/classify.rs"]
mod tests;
