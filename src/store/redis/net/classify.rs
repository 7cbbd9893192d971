//! Decides which error each error reply of the server becomes.
//!
//! The code is the reply's first word. Redis 7.0 says `ERR` for some errors that have a code of their own elsewhere (inside scripts,
//! and before it has read anything); for these the words after it decide, and only their beginning is compared.
//!
//! An error raised by a script stopped it between its calls, and the server adds a position to the words. Nobody knows what the script
//! had written before, so the outcome is unknown, whatever the code is. A script returns an error that left nothing behind as its
//! reply, which carries no position.
//!
//! What the classes mean to those who asked:
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
//! From 7.2 on, denials name the user. This file hides what stands between "User " and " has no permissions". Because other servers use
//! other words, `Address::hide` then hides the login's own user wherever it stands as a word.
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

/// The server's words do not name the setting, which an operator must know to understand them.
const WHICH_SETTING: &str = " (fewer replicas follow it than min-replicas-to-write demands)";

/// What the server appends to the words of an error that a script raised, followed by the line number.
const RAISED: &str = ", on @user_script:";

/// Returns the error that an error reply to a command about `key` stands for.
pub(crate) fn classify(reply: &ServerError, key: &str) -> Error {
    let (code, detail) = (reply.code(), reply.details().unwrap_or_default());
    let words = if detail.is_empty() { code.to_owned() } else { format!("{code} {detail}") };
    let mut words = without_user(&words).into_owned();
    if code == WITHOUT_REPLICAS {
        words.push_str(WHICH_SETTING);
    }
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
mod tests {
    use super::*;

    fn of(line: &str) -> Error {
        match ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(e)) => classify(&e, "DLOCK_a_b"),
            other => panic!("{line:?} became {other:?}"),
        }
    }

    /// Shows: S6.
    #[test]
    fn what_sends_a_call_elsewhere_was_not_executed_however_it_is_worded() {
        let is = |line: &str| {
            is_redirection(&::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply"))
        };
        for line in ["MOVED 1 h:7", "MOVED 1 host", "MOVED", "ASK 1 ?:0", "ASK"] {
            assert!(is(line), "{line}");
        }
        for line in ["TRYAGAIN x", "ERR MOVED 1 h:7", "MOVED 1 h:7 script: 5e3e, on @user_script:2."] {
            assert!(!is(line), "{line}");
        }
    }

    /// Shows: S6.
    #[test]
    fn every_reply_has_its_class() {
        use BackendFailure::{NotExecuted, Refused, Unknown};
        for (line, want) in [
            ("LOADING Redis is loading the dataset in memory", NotExecuted),
            ("BUSY Redis is busy running a script.", NotExecuted),
            ("READONLY You can't write against a read only replica.", NotExecuted),
            ("CLUSTERDOWN Hash slot not served", NotExecuted),
            ("TRYAGAIN Multiple keys request during rehashing of slot", NotExecuted),
            ("MASTERDOWN Link with MASTER is down", NotExecuted),
            ("ERR max number of clients reached", NotExecuted),
            ("OOM command not allowed when used memory > 'maxmemory'.", Refused),
            ("MISCONF Redis is configured to save RDB snapshots", Refused),
            ("ERR wrong number of arguments for 'evalsha' command", Unknown),
            ("SOMETHING new", Unknown),
            ("BARE", Unknown),
            // Raised inside a script: by a missing right (7.0; newer), by another type, by a bug in the script.
            (
                "ERR The user executing the script can't run this command or subcommand script: 5e3e, on @user_script:2.",
                Unknown,
            ),
            (
                "ERR ACL failure in script: User *** has no permissions to run the 'del' command script: 5e3e, on @user_script:2.",
                Unknown,
            ),
            ("NOPERM User *** has no permissions to run the 'del' command script: 5e3e, on @user_script:2.", Unknown),
            ("WRONGTYPE Operation against a key script: 5e3e, on @user_script:34.", Unknown),
            ("ERR Unknown Redis command called from script script: 5e3e, on @user_script:34.", Unknown),
            ("ERR user_script:2: attempt to compare number with nil script: 5e3e, on @user_script:2.", Unknown),
        ] {
            match of(line) {
                Error::Backend { failure, message, .. } => assert_eq!((failure, message.as_str()), (want, line)),
                other => panic!("{line:?} became {other:?}"),
            }
        }
        let line = "NOREPLICAS Not enough good replicas to write.";
        let named = |message: &str| message.starts_with(line) && message.contains("min-replicas-to-write");
        assert!(matches!(of(line), Error::Backend { failure: NotExecuted, message, .. } if named(&message)));
        for line in [
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR The user executing the script can't run this command or subcommand",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
            "ERR The user executing the script can't publish to the channel mentioned in the command",
        ] {
            assert!(matches!(of(line), Error::Denied { message } if message == line), "{line}");
        }
        // 7.2 and newer, and Valkey, name the user: once in their words, and with names that no server accepts.
        for (line, shown) in [
            (
                "NOPERM User alice has no permissions to run the 'set' command",
                "NOPERM User *** has no permissions to run the 'set' command",
            ),
            (
                "ERR ACL failure in script: User alice has no permissions to run the 'set' command",
                "ERR ACL failure in script: User *** has no permissions to run the 'set' command",
            ),
            (
                "NOPERM User \"odd'\\é has no permissions to access the 'a' key",
                "NOPERM User *** has no permissions to access the 'a' key",
            ),
            (
                "NOPERM User a User has no permissions b has no permissions to run the 'set' command",
                "NOPERM User *** has no permissions to run the 'set' command",
            ),
            ("NOPERM No permissions to access a key", "NOPERM No permissions to access a key"),
            (
                "ERR ACL failure in script: No permissions to access a channel",
                "ERR ACL failure in script: No permissions to access a channel",
            ),
        ] {
            assert!(matches!(of(line), Error::Denied { message } if message == shown), "{line}: {:?}", of(line));
        }
        for line in [
            "x ERR ACL failure in script: User alice has no permissions to run the 'set' command",
            "ERR ACL failure in script: User alice has no permissions to run the 'set' command script: 7d2f, on @user_script:2.",
        ] {
            let unknown = of(line);
            assert!(!unknown.to_string().contains("alice"), "{unknown}");
        }
        for line in ["MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381", "CROSSSLOT Keys in request"] {
            assert!(matches!(of(line), Error::Unsupported { message } if message.contains(line)), "{line}");
        }
        assert!(
            matches!(of("ERR unknown command 'evalsha'"), Error::Unsupported { message } if message.contains("evalsha"))
        );
        for line in ["ERR Unknown Redis command called from script", "ERR Unknown command called from script"] {
            assert!(matches!(of(line), Error::Unsupported { message } if message.contains(line)), "{line}");
        }
        assert!(matches!(of("WRONGTYPE Operation"), Error::Conflict { key, .. } if key == "DLOCK_a_b"));
        assert!(matches!(of("CONFLICT queue: x"), Error::Conflict { message, .. } if message == "queue: x"));
    }
}
