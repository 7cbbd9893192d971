//! What the guarantees depend on, as arguments and as lines of the configuration file. Each is shown by what it does.

use super::kit::{Ended, KEY, Kit, Start, bare};
use super::support::certificates::{authority, certificate, write};
use super::support::cluster::{Cluster, Plan};
use super::support::crew::eventually;
use super::support::{RedisServer, free_port};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::TcpListener;

/// Runs `dlock run … -- true` with settings, once as arguments and once from the file.
fn both_ways(kit: &Kit, settings: &[(&str, &str)], check: impl Fn(Ended)) {
    let arguments: Vec<String> = settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    check(kit.run(&[&["--no-wait"], &arguments[..]].concat(), "echo ran").end());
    write_file(kit, settings);
    check(kit.run(&["--no-wait"], "echo ran").end());
    fs::remove_file(kit.path(".config/dlock/config")).unwrap();
}

fn write_file(kit: &Kit, settings: &[(&str, &str)]) {
    fs::create_dir_all(kit.path(".config/dlock")).unwrap();
    let lines: String = settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    fs::write(kit.path(".config/dlock/config"), lines).unwrap();
}

#[test]
fn a_lock_counts_only_when_replicas_have_acknowledged_it() {
    let kit = Kit::new();
    both_ways(&kit, &[("replica-acks", "1"), ("replica-acks-within", "10ms")], |ended| {
        ended.expect(67).says(["not acknowledged by replicas"]).prints("");
    });
    both_ways(&kit, &[("replica-acks", "0")], |ended| drop(ended.expect(0)));
    kit.dlock(&["doctor", "--replica-acks", "2"]).end().expect(1).shows(["2 must acknowledge"]);
    kit.expect_free();
}

#[test]
fn a_lock_is_lost_when_it_was_held_for_too_long() {
    let kit = Kit::new();
    // Most of the time is the command's, also of a time that is shorter than what the command has to end at other losses.
    let work = "echo in > in; sleep 1; echo on > on; exec sleep 100";
    let check = |ended: Ended| {
        ended.expect(66).says(["the time that --max-hold allows is over in "]);
        assert_eq!(kit.line_of("on"), "on");
        fs::remove_file(kit.path("on")).unwrap();
    };
    check(kit.run(&["--max-hold", "3s"], work).end());
    check(kit.run(&["--max-hold", "3s", "--lease", "10m"], work).end());
    write_file(&kit, &[("max-hold", "3s")]);
    check(kit.run(&[], work).end());
}

#[test]
fn a_lock_delay_keeps_others_out_after_a_death() {
    let kit = Kit::new();
    for from_file in [false, true] {
        write_file(&kit, if from_file { &[("lock-delay", "60")] } else { &[] });
        let options = if from_file { &["--lease", "1s"][..] } else { &["--lease", "1s", "--lock-delay", "60"] };
        let holder = kit.holder(options);
        holder.signal(Signal::KILL);
        drop(holder);
        let listed = || kit.dlock(&["ls", "--json"]).end().expect(0).out;
        eventually("the lock-delay", || {
            let lock: Value = serde_json::from_str(&listed()).unwrap();
            lock["lock_delay_ms"].is_u64()
        });
        kit.server.run::<()>(&["DEL", KEY]);
    }
}

/// The library refuses what is beyond a day, so it has been told.
#[test]
fn time_outs_reach_the_connection_and_nonsense_is_named() {
    let kit = Kit::new();
    for (name, known) in
        [("connect-timeout", "connect_timeout"), ("io-timeout", "io_timeout"), ("failover-within", "failover_within")]
    {
        both_ways(&kit, &[(name, "50h")], |ended| {
            ended.expect(64).says([known, "180000s"]);
        });
        both_ways(&kit, &[(name, "soon")], |ended| {
            let ended = ended.expect(64);
            let is_named = ended.err.contains("'soon'") && ended.err.contains(name) && ended.err.contains("30s");
            assert!(is_named && ended.out.is_empty(), "{ended:?}");
        });
        both_ways(&kit, &[(name, "5")], |ended| drop(ended.expect(0)));
    }
    // The same for a gap that is shorter than the lease.
    both_ways(&kit, &[("poller-gap", "29s")], |ended| {
        ended.expect(64).says(["invalid poller_gap \"29s\""]);
    });
    both_ways(&kit, &[("poller-gap", "30")], |ended| drop(ended.expect(0)));
    for (settings, said) in [
        (&[("replica-acks", "many")][..], "'many'"),
        (&[("replica-acks-within", "1s")], "--replica-acks"),
        (&[("replica-acks", "1"), ("replica-acks-within", "9s")], "half of io_timeout"),
        (&[("address-map", "here")], "172.17.0.2:6379=127.0.0.1:7001"),
        (&[("max-hold", "never")], "'never'"),
        (&[("lock-delay", "-1s")], "'-1s'"),
        (&[("poller-gap", "x")], "'x'"),
        (&[("ca", "/no/such")], "No such file"),
        (&[("cert", "/dev/null")], "--key"),
        (&[("key", "/dev/null")], "--cert"),
    ] {
        both_ways(&kit, settings, |ended| {
            ended.expect(64).says([said]);
        });
    }
    kit.expect_free();
}

/// One file serves all URLs of a machine.
#[test]
fn a_setting_of_redis_is_refused_as_an_argument_and_ignored_as_a_line_for_other_stores() {
    let kit = Kit::new();
    for url in ["etcd", "consul"].map(|store| format!("{store}://127.0.0.1:{}", free_port())) {
        let ask = |options: &[&str]| kit.dlock(&[&["ls", "--url", &url], options].concat()).end();
        ask(&[]).expect(67);
        for (name, value) in [("io-timeout", "2s"), ("replica-acks", "1"), ("address-map", "a=b")] {
            write_file(&kit, &[(name, value)]);
            ask(&[]).expect(67);
            ask(&[&format!("--{name}={value}")]).expect(64).says(["for Redis alone"]);
        }
    }
}

#[test]
fn a_url_in_the_wrong_place_is_shown_without_its_login() {
    const URL: &str = "redis://u:secret@host";
    let kit = Kit::new();
    for words in [
        &[URL, "ls"][..],
        &["ls", "a", URL],
        &["ls", "--replica-acks", URL],
        &["ls", "--address-map", URL],
        &["run", "JOB", "x", "--lease", URL, "--", "true"],
        &["exporter", "--listen", URL],
        &["man", URL],
        &["--log-format", "json", "ls", "a", URL],
    ] {
        kit.dlock(words).end().expect(64).says(["://…@host"]).hides(["secret"]);
    }
    write_file(&kit, &[("address-map", URL)]);
    kit.dlock(&["ls"]).end().expect(64).says(["://…@host"]).hides(["secret"]);
}

#[test]
fn addresses_are_mapped() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let kit = Kit::new();
    let (told, here) = (cluster.nodes[1].port(), free_port());
    let map = format!("127.0.0.1:{told}=127.0.0.1:{here}");
    let url = cluster.url_of_seeds(&[0]);
    let check = |ended: Ended| {
        let ended = ended.expect(67);
        assert!(
            ended.err.contains(&format!("127.0.0.1:{here}")) && !ended.err.contains(&told.to_string()),
            "{ended:?}"
        );
    };
    check(kit.dlock(&["ls", "--url", &url, "--address-map", &map]).end());
    write_file(&kit, &[("address-map", &map)]);
    check(kit.dlock(&["ls", "--url", &url]).end());
}

#[test]
fn a_server_with_tls_wants_to_see_certificates() {
    let issuer = authority("authority");
    let (server_certificate, server_key) = certificate(&issuer, "localhost");
    let (client_certificate, client_key) = certificate(&issuer, "client");
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| write(home.path(), name, text);
    let (ca, cert, key) =
        (file("ca.pem", &issuer.pem()), file("client.pem", &client_certificate), file("client.key", &client_key));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let _server = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &file("server.pem", &server_certificate),
        "--tls-key-file",
        &file("server.key", &server_key),
        "--tls-ca-cert-file",
        &ca,
    ]);
    let url = format!("rediss://localhost:{port}");
    let run = |options: &[&str]| {
        let words = [options, &["run", "--no-wait", "JOB", "x", "--", "true"]].concat();
        bare(home.path(), &words).env("DLOCK_URL", &url).end()
    };
    run(&["--ca", &ca, "--cert", &cert, "--key", &key]).expect(0);
    run(&["--ca", &ca]).expect(67);
    run(&["--cert", &cert, "--key", &key]).expect(67);
    fs::create_dir_all(home.path().join(".config/dlock")).unwrap();
    let lines = format!("ca = {ca}\ncert = {cert}\nkey = {key}\n");
    fs::write(home.path().join(".config/dlock/config"), lines).unwrap();
    run(&[]).expect(0);
}

#[test]
fn a_number_of_seconds_is_a_time() {
    let kit = Kit::new();
    let holder = kit.holder(&[]);
    for options in [&["--wait", "0.2"][..], &["--wait", "1", "--lease", "30", "--grace", "0"]] {
        // On a busy machine the server may not answer in so brief a time.
        eventually("the lock is held", || kit.run(options, "true").end().status.code() == Some(65));
    }
    holder.stop();
}
