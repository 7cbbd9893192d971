//! What an operator is told of a server: each thing that could cost a lock, on a server that really has it.

use super::kit::{Killed, Start, bare};
use super::support::cluster::{Cluster, Plan};
use super::support::crew::eventually;
use super::support::{Proxy, RedisServer, free_port};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A finding, as `dlock doctor --json` prints it.
#[derive(Clone, Debug)]
struct Finding {
    server: String,
    subject: String,
    severity: String,
    message: String,
    advice: Option<String>,
}

fn examine(url: &str) -> Vec<Finding> {
    examine_with(url, &[])
}

fn examine_with(url: &str, options: &[&str]) -> Vec<Finding> {
    let home = tempfile::tempdir().unwrap();
    let words = [&["doctor", "--json", "--limit", "1m"], options].concat();
    let ended = bare(home.path(), &words).env("DLOCK_URL", url).end();
    let document: Value = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let read = |finding: &Value| {
        let text = |name: &str| finding[name].as_str().map(str::to_owned);
        Finding {
            server: text("server").unwrap(),
            subject: text("subject").unwrap(),
            severity: text("severity").unwrap(),
            message: text("message").unwrap(),
            advice: text("advice"),
        }
    };
    let findings: Vec<_> = document["findings"].as_array().unwrap().iter().map(read).collect();
    for finding in &findings {
        assert_eq!(finding.advice.is_some(), finding.severity != "fine", "{finding:?}");
        let words = [Some(&finding.message), finding.advice.as_ref()];
        assert!(words.into_iter().flatten().all(|text| !text.is_empty() && !text.contains('\n')), "{finding:?}");
    }
    assert_eq!(ended.status.code(), Some(i32::from(worst(&findings) == "wrong")));
    findings
}

/// What was found of one subject: severities and messages.
fn of<'a>(findings: &'a [Finding], subject: &str) -> Vec<(&'a str, &'a str)> {
    findings.iter().filter(|f| f.subject == subject).map(|f| (f.severity.as_str(), f.message.as_str())).collect()
}

fn worst(findings: &[Finding]) -> &'static str {
    let is_there = |severity: &&&str| findings.iter().any(|finding| finding.severity == **severity);
    ["wrong", "notice"].iter().find(is_there).copied().unwrap_or("fine")
}

#[track_caller]
fn is_wrong(findings: &[Finding], subject: &str, word: &str) {
    let is_it = |(severity, message): &(&str, &str)| *severity == "wrong" && message.contains(word);
    assert!(of(findings, subject).iter().any(is_it), "{word:?} is not in {findings:#?}");
}

fn replication(server: &RedisServer) -> String {
    server.run(&["INFO", "replication"])
}

/// A replica that has a copy of the data.
fn replica_of(server: &RedisServer, options: &[&str]) -> RedisServer {
    let port = server.port().to_string();
    let replica = RedisServer::start_with(&[&["--replicaof", "127.0.0.1", &port], options].concat());
    eventually("the replica follows", || replication(server).contains("state=online"));
    replica
}

#[test]
fn a_server_in_good_order_is_told_to_be_so_and_left_as_it_was() {
    let server = RedisServer::start_with(&["--appendonly", "yes"]);
    let replica = replica_of(&server, &["--appendonly", "yes"]);
    server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    eventually("it acknowledges", || replication(&server).contains("min_slaves_good_slaves:1"));
    let findings = examine(&server.url());
    assert_eq!(worst(&findings), "fine", "{findings:#?}");
    let subjects = |of: &RedisServer| {
        let address = format!("127.0.0.1:{}", of.port());
        let mut found: Vec<_> = findings.iter().filter(|f| f.server == address).map(|f| f.subject.clone()).collect();
        found.dedup();
        found
    };
    let of_master = [
        "connection",
        "version",
        "role",
        "eviction",
        "persistence",
        "replicas",
        "rights",
        "messages",
        "clock",
        "round trip",
    ];
    assert_eq!(subjects(&server), of_master);
    assert_eq!(subjects(&replica), ["connection", "version", "role", "eviction", "persistence", "rights"]);
    assert_eq!(of(&findings, "rights").len(), 2, "one line a server: {findings:#?}");
    assert_eq!(server.contents(), []);
    let findings = examine(&replica.url());
    is_wrong(&findings, "role", "is a replica");
    assert!(of(&findings, "writes").is_empty(), "{findings:#?}");
}

/// Not even one whose name is the number of the examining process.
#[test]
fn no_lock_is_touched() {
    let server = RedisServer::start();
    let mut doctor = Command::new("sh");
    doctor.args(["-c", "read go; exec \"$0\" doctor", env!("CARGO_BIN_EXE_dlock")]).env("DLOCK_URL", server.url());
    let mut doctor = Killed(doctor.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let key = format!("DLOCK_doctor_{}", doctor.0.id());
    server.run::<()>(&["SET", &key, "holder"]);
    doctor.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(doctor.0.wait().unwrap().success());
    assert_eq!(server.run::<Option<String>>(&["GET", &key]).as_deref(), Some("holder"));
}

/// Each right of the line in the manual, and that no other one is needed.
#[test]
fn each_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let url = server.url().replace("//", "//dlock:PASSWORD@");
    let page = include_str!("../../../../src/manual/operations.md");
    let line = page[page.find("ACL SETUSER dlock").unwrap()..].lines().next().unwrap();
    let rules: Vec<_> = line.split_whitespace().collect();
    let set = |without: Option<&str>| {
        server.run::<()>(&rules.iter().copied().filter(|word| Some(*word) != without).collect::<Vec<_>>());
    };
    set(None);
    let found = examine(&url);
    assert_ne!(worst(&found), "wrong", "{found:#?}");
    let rights: Vec<_> = rules.iter().copied().filter(|word| word.starts_with(['+', '~', '&'])).collect();
    assert!(rights.len() > 20, "{rights:?}");
    // Each one that the login has is told, too, in one line.
    let fine = |found: &[Finding], right: &str| {
        let messages: Vec<_> = of(found, "rights").into_iter().filter(|(severity, _)| *severity == "fine").collect();
        assert_eq!(messages.len(), 1, "{found:#?}");
        messages[0].1.split_whitespace().any(|word| word == right)
    };
    // The subscription is examined with the messages.
    for right in rights.iter().filter(|right| **right != "+subscribe") {
        assert!(fine(&found, right), "{right}: {found:#?}");
    }
    // The line has no right to list locks, which locks do not need.
    let notice = found.iter().find(|f| f.subject == "rights" && f.severity == "notice").unwrap();
    assert!(notice.message.contains("scan") && notice.advice.as_ref().unwrap().contains("dlock watch"), "{notice:?}");
    server.run::<()>(&["ACL", "SETUSER", "dlock", "+scan"]);
    let listing = examine(&url);
    assert!(fine(&listing, "+scan") && of(&listing, "rights").iter().all(|(severity, _)| *severity == "fine"));
    for right in rights {
        set(Some(right));
        let found = examine(&url);
        // Locks work without it.
        let severity = if right == "+info" { "notice" } else { "wrong" };
        assert_eq!(worst(&found), severity, "without {right}: {found:#?}");
        let of_right =
            |f: &&Finding| f.severity == severity && f.advice.as_ref().is_some_and(|advice| advice.contains(right));
        assert!(found.iter().any(|f| of_right(&f)) && !fine(&found, right), "without {right}: {found:#?}");
        assert!(found.iter().all(|f| !f.message.contains("PASSWORD")), "{found:#?}");
    }
    // Without +del it lasts for a few seconds.
    eventually("its key has ended", || server.contents().is_empty());
}

#[test]
fn what_could_cost_a_lock_is_told() {
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]);
    let findings = examine(&server.url());
    is_wrong(&findings, "eviction", "volatile-lru");
    let notice = |subject, word: &str| {
        let found = of(&findings, subject);
        assert!(matches!(found[..], [("notice", message)] if message.contains(word)), "{found:?}");
    };
    notice("persistence", "append-only");
    notice("replicas", "0 replicas");
    server.run::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    is_wrong(&examine(&server.url()), "writes", "OOM");
}

/// Every command that writes is refused for the same reason, which is one finding.
#[test]
fn a_server_that_lacks_its_replicas_is_told_once() {
    let server = RedisServer::start_with(&["--min-replicas-to-write", "1"]);
    let findings = examine(&server.url());
    let told: Vec<_> = findings.iter().filter(|finding| finding.message.contains("NOREPLICAS")).collect();
    assert_eq!(told.len(), 1, "{findings:#?}");
}

/// A replica that still waits for the data (`wait_bgsave`) takes nothing over.
#[test]
fn a_replica_without_the_data_is_none() {
    let server = RedisServer::start_with(&["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "3600"]);
    let port = server.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    eventually("it waits for the data", || replication(&server).contains("state=wait_bgsave"));
    let findings = examine(&server.url());
    let found = of(&findings, "replicas");
    assert!(matches!(found[..], [("notice", message)] if message.starts_with("0 replicas; 1 more")), "{found:?}");
}

/// What a replica lacks is found out in a failover, unless somebody looks before.
#[test]
fn a_replica_is_looked_at_too() {
    let server = RedisServer::start_with(&["--appendonly", "yes"]);
    let replica = replica_of(&server, &[]);
    let rules = ["ACL", "SETUSER", "dlock", "on", ">secret", "~*", "&*", "+@all"];
    server.run::<()>(&rules);
    let url = server.url().replace("//", "//dlock:secret@");
    let on_replica = |findings: &[Finding]| {
        let address = format!("127.0.0.1:{}", replica.port());
        findings.iter().filter(|finding| finding.server == address).cloned().collect::<Vec<_>>()
    };
    // Users are not replicated.
    let found = on_replica(&examine(&url));
    assert!(matches!(&found[..], [one] if one.severity == "wrong" && one.message.contains("WRONGPASS")), "{found:#?}");
    assert!(found[0].advice.as_ref().unwrap().contains("not replicated"), "{found:#?}");
    replica.run::<()>(&[&rules[..], &["-lpos"]].concat());
    let found = on_replica(&examine(&url));
    is_wrong(&found, "rights", "lpos");
    assert_eq!(of(&found, "persistence")[0].0, "notice", "{found:#?}");
    replica.run::<()>(&rules);
    assert_eq!(worst(&on_replica(&examine(&url))), "notice");
}

#[test]
fn a_proxy_that_hides_subscribers_is_told() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    proxy.hide_subscribers(true);
    is_wrong(&examine(&proxy.url()), "messages", "scripts see no subscriber");
}

#[test]
fn a_server_that_is_far_away_is_told_with_the_lease_that_it_wants() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port(), Duration::from_millis(110));
    let found = examine(&proxy.url());
    let trip = found.iter().find(|finding| finding.subject == "round trip").unwrap();
    assert!(trip.severity == "notice" && trip.advice.as_ref().unwrap().contains("lease"), "{found:#?}");
}

#[test]
fn nobody_is_reached_and_nobody_is_let_in() {
    let port = free_port();
    let findings = examine(&format!("redis://127.0.0.1:{port}"));
    is_wrong(&findings, "connection", "cannot connect");
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    let findings = examine(&server.url().replace("//", "//:WRONG@"));
    is_wrong(&findings, "connection", "WRONGPASS");
    assert!(findings.iter().all(|finding| !format!("{finding:?}").contains("WRONG@")), "{findings:?}");
}

/// Each master by itself; a right that one of them alone denies; slots of nobody.
#[test]
fn each_master_of_a_cluster_is_examined() {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let cluster = Cluster::start_as(&Plan { replicas: 0, args, ..Plan::default() });
    let findings = examine(&cluster.url_of_seeds(&[0]));
    assert_ne!(worst(&findings), "wrong", "{findings:#?}");
    assert_eq!((of(&findings, "connection").len(), of(&findings, "messages").len()), (3, 3), "{findings:#?}");
    assert_eq!(of(&findings, "slots").len(), 1);
    for right in ["ssubscribe", "spublish"] {
        cluster.run::<()>(1, &["ACL", "SETUSER", "default", &format!("-{right}")]);
        let findings = examine(&cluster.url_of_seeds(&[0]));
        let port = cluster.nodes[1].server().port().to_string();
        let wrong: Vec<_> = findings.iter().filter(|f| f.severity == "wrong").collect();
        let is_it =
            |f: &&Finding| f.server.contains(&port) && f.advice.as_ref().unwrap().contains(&format!("+{right}"));
        assert!(!wrong.is_empty() && wrong.iter().all(is_it), "{findings:#?}");
        cluster.run::<()>(1, &["ACL", "SETUSER", "default", &format!("+{right}")]);
    }
    for node in 0..3 {
        assert_eq!(cluster.run::<usize>(node, &["DBSIZE"]), 0);
    }
    let slot = cluster.slots_of(2)[0].start().to_string();
    // A node that hears of the owner again before that has forgotten the slot, too, knows it again.
    let knows = |node: &usize| {
        let told: String = cluster.run(*node, &["CLUSTER", "INFO"]);
        told.contains("cluster_slots_assigned:16384")
    };
    eventually("nobody owns the slot", || {
        let knowing: Vec<_> = (0..3).filter(knows).collect();
        knowing.iter().for_each(|node| cluster.run::<()>(*node, &["CLUSTER", "DELSLOTS", &slot]));
        knowing.is_empty()
    });
    is_wrong(&examine(&cluster.url_of_seeds(&[0])), "slots", "1 of 16384");
}
