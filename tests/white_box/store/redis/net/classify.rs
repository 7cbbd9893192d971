//! Unit tests of `src/store/redis/net/classify.rs`.

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
    let is =
        |line: &str| is_redirection(&::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply"));
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
    for (line, want, advice) in [
        ("NOREPLICAS Not enough good replicas to write.", NotExecuted, "min-replicas-to-write"),
        ("OOM command not allowed when used memory > 'maxmemory'.", Refused, "raise maxmemory"),
    ] {
        let told = |message: &str| message.starts_with(line) && message.contains(advice);
        assert!(matches!(of(line), Error::Backend { failure, message, .. } if failure == want && told(&message)));
    }
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
