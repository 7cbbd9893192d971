//! What an operator is told of a server: each thing that could cost a lock, on a server that really has it.

use crate::acl::rules;
use crate::support::cluster::{Cluster, Plan};
use crate::support::crew::eventually;
use crate::support::{LONG, Proxy, RedisServer, free_port};
use redis_dlock::{Finding, RedisLockProcessor, Severity, Subject};
use std::time::Duration;

fn examine(url: &str) -> Vec<Finding> {
    let findings = RedisLockProcessor::builder(url).unwrap().build().unwrap().examine(LONG);
    for finding in &findings {
        assert_eq!(finding.advice.is_some(), finding.severity != Severity::Fine, "{finding:?}");
        let words = [Some(&finding.message), finding.advice.as_ref()];
        assert!(words.into_iter().flatten().all(|text| !text.is_empty() && !text.contains('\n')), "{finding:?}");
    }
    findings
}

/// What was found of one subject.
fn of(findings: &[Finding], subject: Subject) -> Vec<(Severity, &str)> {
    findings.iter().filter(|f| f.subject == subject).map(|f| (f.severity, f.message.as_str())).collect()
}

fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap()
}

#[track_caller]
fn is_wrong(findings: &[Finding], subject: Subject, word: &str) {
    let found = of(findings, subject);
    let is_it = |(severity, message): &(Severity, &str)| *severity == Severity::Wrong && message.contains(word);
    assert!(found.iter().any(is_it), "{word:?} is not in {findings:#?}");
}

#[test]
fn a_server_in_good_order_is_told_to_be_so_and_left_as_it_was() {
    let server = RedisServer::start_with(&["--appendonly", "yes"]);
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    eventually("the replica follows", || server.run::<String>(&["INFO", "replication"]).contains("connected_slaves:1"));
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    eventually("it acknowledges", || {
        server.run::<String>(&["INFO", "replication"]).contains("min_slaves_good_slaves:1")
    });
    let findings = examine(&server.url());
    assert_eq!(worst(&findings), Severity::Fine, "{findings:#?}");
    let mut subjects: Vec<_> = findings.iter().map(|finding| finding.subject).collect();
    subjects.dedup();
    use Subject::*;
    let all = [Connection, Version, Role, Eviction, Persistence, Replicas, Rights, Messages, Clock, RoundTrip];
    assert_eq!(subjects, all);
    let address = format!("127.0.0.1:{}", server.port());
    assert!(findings.iter().all(|finding| finding.server.contains(&address)), "{findings:#?}");
    assert_eq!(server.contents(), []);
    let findings = examine(&replica.url());
    is_wrong(&findings, Connection, "is a replica");
    // One that becomes a replica later.
    let store = RedisLockProcessor::connect(&server.url()).unwrap();
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    server.run::<()>(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let findings = store.examine(LONG);
    assert!(worst(&findings) == Severity::Wrong, "{findings:#?}");
    assert!(findings.iter().any(|finding| finding.message.contains("replica")), "{findings:#?}");
}

/// Each right of the line in the manual, and that no other one is needed.
#[test]
fn each_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let url = server.url().replace("//", "//dlock:PASSWORD@");
    let rules = rules();
    let set = |without: Option<&str>| {
        let words = rules.iter().map(String::as_str).filter(|word| Some(*word) != without);
        server.run::<()>(&words.collect::<Vec<_>>());
    };
    set(None);
    let found = examine(&url);
    assert_ne!(worst(&found), Severity::Wrong, "{found:#?}");
    let rights: Vec<_> = rules.iter().filter(|word| word.starts_with(['+', '~', '&'])).collect();
    assert!(rights.len() > 20, "{rights:?}");
    // Each one that the login has is told, too.
    let fine = |found: &[Finding], right: &str| {
        let mut messages = of(found, Subject::Rights).into_iter().filter(|(severity, _)| *severity == Severity::Fine);
        messages.any(|(_, message)| message.split_whitespace().any(|word| word == right))
    };
    // The subscription is examined with the messages.
    for right in rights.iter().filter(|right| **right != "+subscribe") {
        assert!(fine(&found, right), "{right}: {found:#?}");
    }
    // The line has no right to list locks, which locks do not need.
    let notice = found.iter().find(|f| f.subject == Subject::Rights && f.severity == Severity::Notice).unwrap();
    assert!(notice.message.contains("scan") && notice.advice.as_ref().unwrap().contains("dlock watch"), "{notice:?}");
    server.run::<()>(&["ACL", "SETUSER", "dlock", "+scan"]);
    let listing = examine(&url);
    assert!(fine(&listing, "+scan") && of(&listing, Subject::Rights).iter().all(|(s, _)| *s == Severity::Fine));
    for right in rights {
        set(Some(right));
        let found = examine(&url);
        let named = found.iter().filter(|f| f.severity == Severity::Wrong).filter_map(|f| f.advice.as_deref());
        let named: Vec<_> = named.filter(|advice| advice.contains(right.as_str())).collect();
        assert!(!named.is_empty() && !fine(&found, right), "without {right}: {found:#?}");
        assert!(found.iter().all(|f| !f.message.contains("PASSWORD")), "{found:#?}");
    }
    set(None);
    assert_eq!(server.contents(), []);
}

#[test]
fn what_could_cost_a_lock_is_told() {
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]);
    let findings = examine(&server.url());
    is_wrong(&findings, Subject::Eviction, "volatile-lru");
    let notice = |subject, word: &str| {
        let found = of(&findings, subject);
        assert!(matches!(found[..], [(Severity::Notice, message)] if message.contains(word)), "{found:?}");
    };
    notice(Subject::Persistence, "append-only");
    notice(Subject::Replicas, "no replicas");
    server.run::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    is_wrong(&examine(&server.url()), Subject::Writes, "OOM");
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    let builder = RedisLockProcessor::builder(&server.url()).unwrap().replica_acks(2, Duration::from_millis(50));
    is_wrong(&builder.build().unwrap().examine(LONG), Subject::Replicas, "2 must acknowledge");
}

#[test]
fn a_proxy_that_hides_subscribers_is_told() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    proxy.hide_subscribers(true);
    is_wrong(&examine(&proxy.url()), Subject::Messages, "scripts see no subscriber");
}

#[test]
fn a_server_that_is_far_away_is_told_with_the_lease_that_it_wants() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::from_millis(110));
    let found = RedisLockProcessor::builder(&proxy.url()).unwrap().build().unwrap().examine(LONG * 3);
    let trip = found.iter().find(|finding| finding.subject == Subject::RoundTrip).unwrap();
    assert!(trip.severity == Severity::Notice && trip.advice.as_ref().unwrap().contains("lease"), "{found:#?}");
}

#[test]
fn nobody_is_reached_and_nobody_is_let_in() {
    let port = free_port();
    let findings = examine(&format!("redis://127.0.0.1:{port}"));
    is_wrong(&findings, Subject::Connection, "cannot connect");
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    let findings = examine(&server.url().replace("//", "//:WRONG@"));
    is_wrong(&findings, Subject::Connection, "access denied");
    assert!(findings.iter().all(|finding| !format!("{finding:?}").contains("WRONG@")), "{findings:?}");
}

/// Each master by itself; a right that one of them alone denies; slots of nobody.
#[test]
fn each_master_of_a_cluster_is_examined() {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let cluster = Cluster::start_as(&Plan { replicas: 0, args, ..Plan::default() });
    let findings = examine(&cluster.url_of_seeds(&[0]));
    assert_ne!(worst(&findings), Severity::Wrong, "{findings:#?}");
    let connected: Vec<_> = of(&findings, Subject::Connection);
    assert_eq!((connected.len(), of(&findings, Subject::Messages).len()), (3, 3), "{findings:#?}");
    assert_eq!(of(&findings, Subject::Slots).len(), 1);
    for right in ["ssubscribe", "spublish"] {
        cluster.run::<()>(1, &["ACL", "SETUSER", "default", &format!("-{right}")]);
        let findings = examine(&cluster.url_of_seeds(&[0]));
        let port = cluster.nodes[1].server().port().to_string();
        let wrong: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Wrong).collect();
        let is_it =
            |f: &&Finding| f.server.contains(&port) && f.advice.as_ref().unwrap().contains(&format!("+{right}"));
        assert!(!wrong.is_empty() && wrong.iter().all(is_it), "{findings:#?}");
        cluster.run::<()>(1, &["ACL", "SETUSER", "default", &format!("+{right}")]);
    }
    for node in 0..3 {
        assert_eq!(cluster.run::<usize>(node, &["DBSIZE"]), 0);
    }
    let slot = cluster.slots_of(2)[0].start().to_string();
    (0..3).for_each(|node| cluster.run::<()>(node, &["CLUSTER", "DELSLOTS", &slot]));
    is_wrong(&examine(&cluster.url_of_seeds(&[0])), Subject::Slots, "1 of 16384");
}
