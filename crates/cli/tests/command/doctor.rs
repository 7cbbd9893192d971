//! `dlock doctor`, as an operator uses it.

use super::kit::{Kit, Start, bare};
use super::support::free_port;
use rustix::process::Signal;

#[test]
fn a_server_in_order_is_told_to_be_so() {
    let kit = Kit::new();
    let ended = kit.dlock(&["doctor"]).end().expect(0);
    assert_eq!(ended.err, "");
    for word in ["connection", "version", "rights", "messages", "round trip", "notice  persistence"] {
        assert!(ended.out.contains(word), "{word}: {}", ended.out);
    }
    let rights: Vec<_> = ended.out.lines().filter(|line| line.contains("rights")).collect();
    let [line] = rights[..] else { panic!("one line: {}", ended.out) };
    for right in ["  fine    rights  ", " +get ", " +evalsha", " +scan ", " +publish &DLOCK:1:*"] {
        assert!(line.contains(right), "{right}: {line}");
    }
    assert!(!ended.out.contains('\u{1b}'), "no colour where no terminal is: {}", ended.out);
    // A finding is a line, with what to do.
    let (server, findings) = ended.out.split_once('\n').unwrap();
    assert!(server.starts_with("127.0.0.1:"), "{ended:?}");
    for line in findings.lines() {
        assert!(["  fine  ", "  notice"].iter().any(|begin| line.starts_with(begin)), "{line}");
        assert_eq!(line.contains(" → "), line.starts_with("  notice"), "{line}");
    }
    kit.expect_free();
}

#[test]
fn what_is_wrong_has_a_status_and_an_advice() {
    let kit = Kit::new();
    let limit = ["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"];
    kit.server.run::<()>(&limit);
    let texts = ["wrong   eviction     allkeys-lru", "→ set maxmemory-policy"];
    kit.dlock(&["doctor"]).end().expect(1).shows(texts);
    kit.server.run::<()>(&["ACL", "SETUSER", "dlock", "reset", "on", ">secret", "~*", "&*", "+@all", "-lpos"]);
    let url = kit.server.url().replace("//", "//dlock:secret@");
    let ended = kit.dlock(&["doctor", "--url", &url]).end().expect(1);
    assert!(ended.out.contains("→ give the login +lpos") && !ended.out.contains("secret"), "{ended:?}");
    assert!(ended.out.contains("rights       the login has only: ") && ended.out.contains(" +lpop "), "{ended:?}");
    // Who lists no locks needs no right to.
    kit.server.run::<()>(&limit[..2].iter().chain(&["maxmemory-policy", "noeviction"]).copied().collect::<Vec<_>>());
    kit.server.run::<()>(&["ACL", "SETUSER", "dlock", "+lpos", "-scan"]);
    kit.dlock(&["doctor", "--url", &url]).end().expect(0).shows(["notice  rights", "→ give the login +scan"]);
}

#[test]
fn a_server_that_is_not_there_is_a_finding() {
    let kit = Kit::new();
    let url = format!("redis://:secret@127.0.0.1:{}", free_port());
    let ended = kit.dlock(&["doctor", "--url", &url]).end().expect(1);
    assert!(ended.out.contains("wrong   connection") && ended.out.contains("→ check the address"), "{ended:?}");
    assert!(!ended.out.contains("secret"), "{ended:?}");
    bare(kit.home.path(), &["doctor"]).end().expect(64).says(["no server"]);
}

/// Whatever a connect may take.
#[test]
fn a_server_that_hangs_has_the_time_of_the_limit() {
    let kit = Kit::new();
    kit.server.signal(Signal::STOP);
    let words = ["doctor", "--limit", "1s", "--connect-timeout", "1h", "--io-timeout", "1h"];
    let texts = ["wrong   connection ", "no answer within 1s (--limit) → check "];
    let ended = kit.dlock(&words).end().expect(1).shows(texts);
    assert!(ended.out.starts_with(&format!("127.0.0.1:{}\n", kit.server.port())), "{ended:?}");
    kit.server.signal(Signal::CONT);
}

#[test]
fn a_server_that_is_away_is_waited_for_if_that_is_wanted() {
    let mut kit = Kit::new();
    kit.server.kill();
    let ended = kit.dlock(&["doctor", "--wait", "2s"]).end().expect(1);
    assert!(ended.err.contains("waiting for the server") && ended.out.contains("wrong   connection"), "{ended:?}");
    let err = std::fs::File::create(kit.path("err")).unwrap();
    let waiting = kit.dlock(&["doctor", "--wait", "1h"]).stderr(err).start_quietly();
    assert!(kit.line_of("err").contains("waiting for the server"));
    kit.server.restart();
    waiting.end().expect(0);
    assert_eq!(std::fs::read_to_string(kit.path("err")).unwrap().lines().count(), 1, "it is said once");
}
