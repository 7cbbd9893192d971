//! `dlock doctor` on etcd and Consul: each finding on a server that has it. And what is asked without a login.

use super::consensus::configured::{self, MANAGER, denying};
use super::consensus::{ConsensusStore, Server};
use super::kit::{Ended, Start, bare};
use super::support::crew::eventually;
use super::support::free_port;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// `dlock doctor`, and what it found. It fails if something is wrong.
fn examined(url: &str, is_sound: bool) -> Value {
    examined_within("5s", url, is_sound)
}

fn examined_within(limit: &str, url: &str, is_sound: bool) -> Value {
    let home = tempfile::tempdir().unwrap();
    let ended = bare(home.path(), &["doctor", "--json", "--limit", limit, "--url", url]).end();
    let Ended { out, .. } = ended.expect(if is_sound { 0 } else { 1 });
    assert!(!out.contains("sesame"), "{out}");
    serde_json::from_str(&out).unwrap()
}

/// Whether there is such a finding.
fn has(found: &Value, subject: &str, severity: &str, words: &str) -> bool {
    found["findings"].as_array().unwrap().iter().any(|finding| {
        let text = format!("{} → {}", finding["message"], finding["advice"]);
        finding["subject"] == subject && finding["severity"] == severity && text.replace('\\', "").contains(words)
    })
}

#[track_caller]
fn expect(found: &Value, subject: &str, severity: &str, words: &str) {
    assert!(has(found, subject, severity, words), "{subject} {severity} {words:?}: {found:#}");
}

on_each_store!(
    a_sound_server_is_one_of_too_few,
    servers_that_have_lost_their_majority_are_told_so,
    servers_of_two_clusters_are_told_so,
    servers_whose_writes_are_slow_are_told_so,
    a_server_that_is_not_there_is_told_so,
    a_server_that_does_not_answer_is_asked_by_the_examination_alone,
    a_url_without_a_host_leads_where_the_environment_says,
);

/// As `etcdctl` and `consul` do.
fn a_url_without_a_host_leads_where_the_environment_says<V: ConsensusStore>() {
    let servers = V::start(1);
    let (scheme, variable) =
        if V::NAME == "etcd" { ("etcd", "ETCDCTL_ENDPOINTS") } else { ("consul", "CONSUL_HTTP_ADDR") };
    let home = tempfile::tempdir().unwrap();
    let listed =
        |address: &str| bare(home.path(), &["ls", "--url", &format!("{scheme}:///team")]).env(variable, address).end();
    assert_eq!(listed(&format!("http://{}", servers.address())).expect(0).out, "LOCK  HOLDER  LEASE LEFT  WAITING\n");
    listed("https://a,http://b").expect(64).says([variable]);
    assert!(listed("127.0.0.1:1").expect(67).err.contains("127.0.0.1:1"));
}

fn a_sound_server_is_one_of_too_few<V: ConsensusStore>() {
    let servers = V::start(1);
    let found = examined(&servers.url("team"), true);
    for (subject, words) in [
        ("connection", "it answers"),
        ("version", V::NAME),
        ("role", "lead"),
        ("rights", "may read and write team/"),
        ("round trip", "until a majority has it"),
    ] {
        assert!(has(&found, subject, "fine", words) || has(&found, subject, "notice", words), "{subject}: {found:#}");
    }
    expect(&found, "majority", "notice", "1 server votes, and may not be away");
    assert_eq!(found["worst"], "notice");
    assert_eq!(servers.list("team/"), [""; 0], "nothing is left");
}

fn servers_that_have_lost_their_majority_are_told_so<V: ConsensusStore>() {
    let mut servers = V::start(3);
    let url = servers.url("dlock");
    let found = examined(&url, true);
    expect(&found, "majority", "fine", "3 servers vote, of which 1 may be away");
    if V::NAME == "Consul" {
        // Autopilot might remove the dead server before anybody has seen that it counts it as failed.
        let settings = json!({ "CleanupDeadServers": false, "LastContactThreshold": "10s", "MaxTrailingLogs": 250 });
        let url = format!("http://{}/v1/operator/autopilot/configuration", servers.address());
        ureq::put(url).send(&settings.to_string()).unwrap();
    }
    let leader = servers.leader();
    servers.servers()[(leader + 1) % 3].kill();
    eventually("the one that is away is told", || {
        let found = examined(&url, false);
        has(&found, "connection", "wrong", "check the address")
            && (V::NAME == "etcd" || has(&found, "majority", "notice", "autopilot counts server"))
    });
    servers.servers()[(leader + 2) % 3].kill();
    eventually("there is no majority", || has(&examined(&url, false), "majority", "wrong", "bring back a majority"));
}

fn servers_of_two_clusters_are_told_so<V: ConsensusStore>() {
    let [one, other] = [(); 2].map(|()| V::start(1));
    let found = examined(&one.url_by(&[one.ports(), other.ports()].concat(), "dlock"), false);
    expect(&found, "majority", "wrong", "another cluster");
}

/// The server stands still for most of the time, as one whose disk does.
fn servers_whose_writes_are_slow_are_told_so<V: ConsensusStore>() {
    let mut servers = V::start(1);
    let url = servers.url("dlock");
    let is_over = AtomicBool::new(false);
    let server = &mut servers.servers()[0];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                server.signal(Signal::STOP);
                thread::sleep(Duration::from_millis(300));
                server.signal(Signal::CONT);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let found = examined_within("30s", &url, true);
        is_over.store(true, Ordering::SeqCst);
        expect(&found, "round trip", "notice", "look at the disks");
    });
}

fn a_server_that_is_not_there_is_told_so<V: ConsensusStore>() {
    let url = format!("{}://x:sesame@127.0.0.1:{}", V::NAME.to_lowercase(), free_port());
    let url = if V::NAME == "etcd" { url } else { url.replace("x:", "") };
    expect(&examined(&url, false), "connection", "wrong", "check the address");
}

/// Each attempt to connect takes its time, which `--limit` does not count.
fn a_server_that_does_not_answer_is_asked_by_the_examination_alone<V: ConsensusStore>() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{}://{}", V::NAME.to_lowercase(), silent.local_addr().unwrap());
    expect(&examined_within("100ms", &url, false), "connection", "wrong", "check the address");
    silent.set_nonblocking(true).unwrap();
    assert_eq!(silent.incoming().map_while(Result::ok).count(), 1);
}

/// etcd with these options.
fn etcd(home: &TempDir, options: &[&str]) -> (Server, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let server = configured::etcd(home.path(), &format!("http://{address}"), options);
    eventually("it listens", || std::net::TcpStream::connect(&address).is_ok());
    (server, address)
}

mod alone_etcd {
    use super::*;

    fn ask(address: &str, path: &str, body: &Value) -> Option<Value> {
        let answer = ureq::post(format!("http://{address}/v3/{path}")).send(&body.to_string()).ok()?;
        serde_json::from_str(&answer.into_body().read_to_string().ok()?).ok()
    }

    #[test]
    fn a_gateway_that_is_off_is_told_by_its_option() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = etcd(&home, &["--enable-grpc-gateway=false"]);
        expect(&examined(&format!("etcd://{address}"), false), "connection", "wrong", "--enable-grpc-gateway=false");
    }

    #[test]
    fn a_server_without_space_is_told_so() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = etcd(&home, &["--quota-backend-bytes=1000000"]);
        let big = json!({ "key": "YQ==", "value": STANDARD.encode("x".repeat(200_000)) });
        eventually("its space is used up", || ask(&address, "kv/put", &big).is_none());
        let found = examined(&format!("etcd://{address}"), false);
        expect(&found, "writes", "wrong", "alarm NOSPACE");
        expect(&found, "writes", "wrong", "space exceeded");
    }

    #[test]
    fn each_right_that_is_missing_is_named() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = etcd(&home, &[]);
        let ask = |path: &str, body: Value| {
            eventually(path, || ask(&address, path, &body).is_some());
        };
        let range = |begin: &str| [STANDARD.encode(begin), STANDARD.encode(format!("{}0", &begin[..begin.len() - 1]))];
        ask("auth/role/add", json!({ "name": "root" }));
        for (user, permits) in [
            ("root", vec![]),
            ("all", vec![("READWRITE", "team/")]),
            ("reader", vec![("READ", "team/")]),
            ("writer", vec![("WRITE", "team/")]),
            (
                "deaf",
                vec![("READWRITE", "team/.session/"), ("READWRITE", "team/.client/"), ("READWRITE", "team/.broken/")],
            ),
            ("none", vec![]),
        ] {
            ask("auth/user/add", json!({ "name": user, "password": "sesame" }));
            if user != "root" {
                ask("auth/role/add", json!({ "name": user }));
            }
            for (kind, begin) in permits {
                let [key, end] = range(begin);
                let right = json!({ "permType": kind, "key": key, "range_end": end });
                ask("auth/role/grant", json!({ "name": user, "perm": right }));
            }
            ask("auth/user/grant", json!({ "user": user, "role": user }));
        }
        ask("auth/enable", json!({}));
        let by = |login: &str, is_sound| examined(&format!("etcd://{login}{address}/team"), is_sound);
        expect(&by("all:sesame@", true), "rights", "fine", "may read and write team/");
        expect(&by("reader:sesame@", false), "rights", "wrong", "write of team/DLOCK_");
        expect(&by("writer:sesame@", false), "rights", "wrong", "read of team/DLOCK_");
        let deaf = by("deaf:sesame@", false);
        expect(&deaf, "rights", "wrong", "write of team/.inbox/");
        assert!(!has(&deaf, "rights", "wrong", "team/.client/"), "{deaf:#}");
        expect(
            &by("none:sesame@", false),
            "rights",
            "wrong",
            "role grant-permission ROLE readwrite team/ --prefix=true",
        );
        expect(&by("all:wrong-sesame@", false), "connection", "wrong", "correct the user and the password");
        let nobody = by("", false);
        expect(&nobody, "connection", "wrong", "user:password@");
        assert!(!nobody.to_string().contains("accepts the login"), "{nobody:#}");
    }
}

mod alone_consul {
    use super::*;

    /// A server with further settings.
    fn consul(home: &TempDir, mut further: Value) -> (Server, String) {
        let address = format!("127.0.0.1:{}", free_port());
        further["ports"]["http"] = address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap().into();
        let server = configured::consul(home.path(), &further);
        eventually("it has a leader", || {
            let leader = ureq::get(format!("http://{address}/v1/status/leader")).call();
            leader.is_ok_and(|answer| answer.into_body().read_to_string().is_ok_and(|text| text.len() > 4))
        });
        (server, address)
    }

    #[test]
    fn a_place_and_a_slow_election_are_told_by_their_settings() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = consul(&home, json!({}));
        let url = format!("consul://{address}");
        let found = examined(&url, true);
        assert!(!found.to_string().contains("raft_multiplier"), "{found:#}");
        let wrong = examined(&format!("{url}?dc=nowhere"), false);
        expect(&wrong, "connection", "wrong", "nowhere");
        expect(&wrong, "connection", "wrong", "consul catalog datacenters");
        let home = tempfile::tempdir().unwrap();
        // Consul's default.
        let (_server, address) = consul(&home, json!({ "performance": { "raft_multiplier": 5 } }));
        expect(&examined(&format!("consul://{address}"), true), "majority", "notice", "raft_multiplier = 1");
    }

    #[test]
    fn sessions_that_must_be_longer_are_told_by_the_setting() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = consul(&home, json!({ "session_ttl_min": "20s" }));
        expect(&examined(&format!("consul://{address}"), false), "sessions", "wrong", "session_ttl_min");
    }

    #[test]
    fn each_right_that_is_missing_is_named() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = consul(&home, json!({ "acl": denying() }));
        let ask = |path: &str, body: Value| {
            let mut answer = Value::Null;
            eventually(path, || {
                let request = ureq::put(format!("http://{address}/v1/{path}")).header("x-consul-token", MANAGER);
                let text =
                    request.send(&body.to_string()).ok().and_then(|answer| answer.into_body().read_to_string().ok());
                answer = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
                !answer.is_null()
            });
            answer
        };
        let by = |name: &str, rules: &str, is_sound| {
            ask("acl/policy", json!({ "Name": name, "Rules": rules }));
            let token = ask("acl/token", json!({ "Policies": [{ "Name": name }] }));
            examined(&format!("consul://{}@{address}/team", token["SecretID"].as_str().unwrap()), is_sound)
        };
        let key = r#"key_prefix "team/" { policy = "write" }"#;
        let (session, node) = (r#"session "dlock" { policy = "write" }"#, r#"node "dlock" { policy = "write" }"#);
        let any = r#"session_prefix "" { policy = "write" }"#;
        expect(&by("unregistered", &format!("{key} {any}"), true), "sessions", "notice", node);
        expect(&by("no-session", &format!("{key} {node}"), false), "rights", "wrong", session);
        let all = by("all", &format!("{key} {session} {node}"), true);
        expect(&all, "rights", "fine", "may read and write team/");
        expect(&all, "sessions", "fine", "by their time alone");
        expect(&by("no-key", &format!("{session} {node}"), false), "rights", "wrong", key);
        let locks = r#"key_prefix "team/DLOCK_" { policy = "write" }"#;
        let deaf = by("only-locks", &format!("{locks} {session}"), false);
        expect(&deaf, "rights", "wrong", "team/.inbox/");
        assert!(!has(&deaf, "rights", "wrong", "team/DLOCK_"), "{deaf:#}");
        let reads = r#"key_prefix "team/" { policy = "read" }"#;
        expect(&by("no-write", &format!("{reads} {session}"), false), "rights", "wrong", key);
        let wrong = examined(&format!("consul://sesame@{address}/team"), false);
        expect(&wrong, "rights", "wrong", "correct the token: token@host");
    }

    /// Consul shows an empty store to whoever has no token.
    #[test]
    fn a_question_without_a_token_is_denied_and_not_answered_with_nobody() {
        let home = tempfile::tempdir().unwrap();
        let (_server, address) = consul(&home, json!({ "acl": denying() }));
        let (known, url) = (format!("consul://{MANAGER}@{address}"), format!("consul://{address}"));
        let words = ["run", "JOB", "x", "--", "sh", "-c", "echo in > in; exec sleep 100"];
        let _holder = bare(home.path(), &words).env("DLOCK_URL", &known).start();
        eventually("it holds", || home.path().join("in").exists());
        let questions =
            ["wait JOB x", "show JOB x", "show -q JOB x", "ls", "watch --json", "watch", "break JOB x --current --yes"];
        for words in questions.map(|words| words.split(' ').collect::<Vec<_>>()) {
            bare(home.path(), &words).env("DLOCK_URL", &url).end().expect(68).says(["denied"]).prints("");
        }
        let ended = bare(home.path(), &["show", "-q", "JOB", "x"]).env("DLOCK_URL", &known).end();
        ended.expect(0);
    }
}
