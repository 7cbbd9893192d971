//! Unit tests of `src/store/redis/net/handshake.rs`.

use super::*;

fn hello(wire: &str) -> Result<(), Error> {
    let address = Address::parse("redis://host").expect("a URL");
    let part = check_hello(&::redis::parse_redis_value(wire.as_bytes()).expect("RESP"), &address)?;
    part.check_kind(false, &address)?;
    part.check_master(&address)
}

#[test]
fn servers_that_cannot_carry_locks_are_named() {
    let of = |version: &str, mode: &str| {
        hello(&format!("*4\r\n+version\r\n${}\r\n{version}\r\n+mode\r\n+{mode}\r\n", version.len()))
    };
    assert!(of("7.0.15", "standalone").is_ok());
    assert!(of("10.0", "standalone").is_ok());
    for (version, mode, word) in [
        ("6.2.1", "standalone", "6.2.1"),
        ("7.0.15", "cluster", "Cluster"),
        ("7.2", "sentinel", "Sentinel"),
        ("", "standalone", "7.0"),
    ] {
        match of(version, mode) {
            Err(Error::Unsupported { message }) => assert!(message.contains(word), "{message}"),
            other => panic!("{version} {mode}: {other:?}"),
        }
    }
    assert!(
        matches!(hello("-ERR unknown command `HELLO`\r\n"), Err(Error::Unsupported { message }) if message.contains("7.0"))
    );
    assert!(matches!(hello("-NOAUTH HELLO must be\r\n"), Err(Error::Denied { .. })));
    assert!(matches!(hello("+OK\r\n"), Err(Error::Unsupported { .. })));
    let quoting = "ERR unknown command `HELLO`, with args beginning with: `2`, `AUTH`, `ann`, `s3crt`, ";
    for line in [quoting, "ERR what is HELLO 2 AUTH ann s3", "DENIED s3crt", "NOPERM s3crt is no password"] {
        let address = Address::parse("redis://ann:s3crt@host").expect("a URL");
        let reply = ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("RESP");
        let shown = check_hello(&reply, &address).expect_err(line).to_string();
        let code = line.split(' ').next().unwrap_or_default();
        assert!(!shown.contains("s3") && !shown.contains("ann") && shown.contains(code), "{shown}");
    }
    let of = |role: &str| hello(&format!("*4\r\n+version\r\n+7.0.15\r\n+role\r\n+{role}\r\n"));
    assert!(of("master").is_ok());
    for role in ["replica", "slave"] {
        let refused = of(role);
        assert!(
            matches!(&refused, Err(Error::Backend { failure: BackendFailure::NotExecuted, message, .. }) if message.contains("replica")),
            "{refused:?}"
        );
    }
    let of_cluster = check_hello(
        &::redis::parse_redis_value(b"*6\r\n+version\r\n+7.2.1\r\n+mode\r\n+cluster\r\n+role\r\n+replica\r\n")
            .expect("RESP"),
        &Address::parse("redis://host").expect("a URL"),
    );
    assert_eq!(of_cluster.expect("a node"), Part { is_in_cluster: true, is_replica: true });
    let full = hello("-ERR max number of clients reached\r\n");
    assert!(matches!(full, Err(Error::Backend { failure: BackendFailure::NotExecuted, .. })), "{full:?}");
}
