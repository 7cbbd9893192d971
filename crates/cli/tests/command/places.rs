//! The questions of an operator to the master of a Sentinel service, to a Cluster, and to consensus stores, also while a master fails.

use super::consensus::ConsensusStore;
use super::kit::{Ended, Killed, Start, bare};
use super::support::cluster::{Cluster, Plan};
use super::support::crew::{HANG, eventually};
use super::support::sentinels::Service;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Somebody with a home directory, who asks a store.
struct Operator {
    url: String,
    home: TempDir,
}

impl Operator {
    fn new(url: String) -> Self {
        Self { url, home: tempfile::tempdir().unwrap() }
    }

    fn dlock(&self, words: &[&str]) -> Command {
        let mut command = bare(self.home.path(), words);
        command.env("DLOCK_URL", &self.url);
        command
    }

    fn end(&self, words: &[&str]) -> Ended {
        self.dlock(words).end()
    }
}

/// `dlock watch --json`, and the lines that it prints. It is killed when this is dropped.
pub(crate) struct Watching {
    _running: Killed,
    lines: Receiver<Value>,
}

impl Watching {
    pub(crate) fn start(dlock: &mut Command) -> Self {
        let mut running = dlock.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(running.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { _running: Killed(running), lines }
    }

    /// Waits for a line. Whatever was printed before it is forgotten.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + HANG;
        let mut last = Value::Null;
        while !is_it(&last) {
            let left = until.saturating_duration_since(Instant::now());
            last = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("waited in vain: {what}; last: {last:#}"));
        }
        last
    }
}

/// Whether a line of `watch` has exactly these locks.
fn has(line: &Value, targets: &[&str]) -> bool {
    let keys = line["locks"].as_array().map(|locks| locks.iter().map(|lock| lock["key"].as_str().unwrap().to_owned()));
    keys.is_some_and(|keys| keys.eq(targets.iter().map(|target| format!("DLOCK_JOB_{target}"))))
}

/// Asks all questions about a lock that a `dlock run` holds, and breaks it in the end.
fn ask_all(operator: &Operator) {
    let words = ["run", "JOB", "x", "--lease", "60s", "--", "sh", "-c", "echo in > in; exec sleep 100"];
    let holder = operator.dlock(&words).start();
    let is_in = |home: &Path| std::fs::read_to_string(home.join("in")).is_ok_and(|text| text.ends_with('\n'));
    eventually("the command runs", || is_in(operator.home.path()));
    let listed: Value = serde_json::from_str(&operator.end(&["ls", "JOB_*", "--json"]).expect(0).out).unwrap();
    assert_eq!(listed["key"], "DLOCK_JOB_x");
    let mut shown = Value::Null;
    eventually("the holder has answered", || {
        shown = serde_json::from_str(&operator.end(&["show", "JOB", "x", "--json"]).expect(0).out).unwrap();
        !shown["holder"]["told"].is_null() && !shown["holder"]["client"].is_null()
    });
    assert_eq!((&shown["holder"]["locker"], &shown["holder"]["told"]["thread"]), (&listed["locker"], &"main".into()));
    let watched = operator.end(&["watch", "JOB_*", "--json", "--count", "1"]).expect(0);
    assert!(has(&serde_json::from_str(&watched.out).unwrap(), &["x"]), "{watched:?}");
    let locker = listed["locker"].as_str().unwrap();
    operator.end(&["break", "JOB", "x", "--locker", "nobody-1"]).expect(1);
    operator.end(&["break", "JOB", "x", "--locker", locker, "--reason", "hangs"]).expect(0).shows(["it is free"]);
    holder.end().expect(66).says(["hangs"]);
    assert_eq!(operator.end(&["ls"]).expect(0).out.lines().count(), 1);
}

#[test]
fn a_sentinel_service_is_asked_and_watched_through_a_failover() {
    let mut service = Service::start();
    let operator = Operator::new(service.url());
    ask_all(&operator);
    let old = service.named_by(0);
    let lock = ["SET", "DLOCK_JOB_a", "host-1-ff-1", "PX", "600000"];
    service.on(old).run::<()>(&lock);
    let watching = Watching::start(&mut operator.dlock(&["watch", "JOB_*", "--json", "--interval", "20ms"]));
    watching.wait_for("the lock", |line| has(line, &["a"]));
    service.wait_for_replicas(old);
    service.on(old).kill();
    watching.wait_for("an outage", |line| line["error"].is_string());
    let new = service.wait_for_another_master(old);
    watching.wait_for("the lock on the new master", |line| has(line, &["a"]));
    service.on(new).run::<()>(&["SET", "DLOCK_JOB_b", "host-1-ff-2", "PX", "600000"]);
    watching.wait_for("another one", |line| has(line, &["a", "b"]));
}

#[test]
fn a_cluster_is_asked_and_watched_through_a_failover() {
    let mut cluster = Cluster::start();
    let operator = Operator::new(cluster.url_of_seeds(&[0, 1, 2]));
    ask_all(&operator);
    // One lock on each master; names without a tag are spread by chance.
    let targets: Vec<String> = (0..3).map(|master| target_on(&cluster, master)).collect();
    for (master, target) in targets.iter().enumerate() {
        let key = format!("DLOCK_JOB_{target}");
        cluster.run::<()>(master, &["SET", &key, "host-1-ff-1", "PX", "600000"]);
    }
    let mut all: Vec<_> = targets.iter().map(String::as_str).collect();
    all.sort_unstable();
    let watching = Watching::start(&mut operator.dlock(&["watch", "JOB_*", "--json", "--interval", "20ms"]));
    watching.wait_for("the locks of all masters", |line| has(line, &all));
    cluster.wait_for_replicas(1);
    cluster.nodes[1].kill();
    watching.wait_for("an outage", |line| line["error"].is_string());
    let new = cluster.wait_for_promotion(1);
    watching.wait_for("all locks again", |line| has(line, &all));
    cluster.run::<()>(new, &["DEL", &format!("DLOCK_JOB_{}", targets[1])]);
    all.retain(|target| *target != targets[1]);
    watching.wait_for("the locks that are left", |line| has(line, &all));
}

/// A lock's target whose key belongs to that master.
fn target_on(cluster: &Cluster, master: usize) -> String {
    let slots = cluster.slots_of(master);
    let is_there = |target: &String| {
        let slot: u16 = cluster.run(master, &["CLUSTER", "KEYSLOT", &format!("DLOCK_JOB_{target}")]);
        slots.iter().any(|range| range.contains(&slot))
    };
    (0..).map(|n| format!("t{n}")).find(is_there).unwrap()
}

/// The others know of their locks while a master is away, and nothing takes over.
#[test]
fn a_dead_master_is_named_and_the_others_tell_their_locks() {
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start_as(&Plan { replicas: 0, args, ..Plan::default() });
    let operator = Operator::new(cluster.url_of_seeds(&[0, 1, 2]));
    let targets: Vec<String> = (0..3).map(|master| target_on(&cluster, master)).collect();
    for (master, target) in targets.iter().enumerate() {
        let key = format!("DLOCK_JOB_{target}");
        cluster.run::<()>(master, &["SET", &key, "host-1-ff-1", "PX", "600000"]);
    }
    assert_eq!(operator.end(&["ls"]).expect(0).out.lines().count(), 4);
    let dead = format!("127.0.0.1:{}", cluster.nodes[1].port());
    cluster.nodes[1].kill();
    let listed = operator.end(&["ls"]).expect(67);
    let has = |target: &String| listed.out.contains(&format!("DLOCK_JOB_{target} "));
    assert_eq!(targets.iter().map(has).collect::<Vec<_>>(), [true, false, true], "{listed:?}");
    assert_eq!(listed.err.lines().count(), 1, "{listed:?}");
    assert!(listed.err.contains(&dead) && listed.err.contains("not listed"), "{listed:?}");
    let watched = operator.end(&["watch", "--json", "--count", "1"]).expect(0);
    let line: Value = serde_json::from_str(&watched.out).unwrap();
    assert_eq!(line["locks"].as_array().unwrap().len(), 2, "{line}");
    assert!(line["error"].as_str().unwrap().contains(&dead), "{line}");
}

on_each_store!(a_store_is_asked_and_watched_through_the_death_of_its_leader);

/// The locks outlive the leader.
fn a_store_is_asked_and_watched_through_the_death_of_its_leader<V: ConsensusStore>() {
    let mut servers = V::start(3);
    let operator = Operator::new(servers.url("dlock"));
    ask_all(&operator);
    let hold = |servers: &V, target: &str| {
        let path = format!("dlock/DLOCK_JOB_{target}/.lock");
        servers.hold(&path, "host-1-ff-1", Some(Duration::from_secs(600)));
    };
    hold(&servers, "a");
    let watching = Watching::start(&mut operator.dlock(&["watch", "JOB_*", "--json", "--interval", "20ms"]));
    watching.wait_for("the lock", |line| has(line, &["a"]));
    let leader = servers.leader();
    servers.servers()[leader].kill();
    hold(&servers, "b");
    watching.wait_for("both locks", |line| has(line, &["a", "b"]));
}
