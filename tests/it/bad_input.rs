//! Bad input gets an error that names the value and says what to do, and never a password.

use crate::support::RedisServer;
use crate::support::crew::{HANG, spawn};
use redis_dlock::{
    BackendFailure, DLockConfig, DLockGenerator, Error, LockProcessor, MemoryLockProcessor, RedisLockProcessor,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const SECRET: &str = "s3cr3t-pa55";

/// The error of connecting to `url`, its text, and both free of the password.
fn refused(url: &str) -> (Error, String) {
    let to = url.to_owned();
    let error = spawn(move || DLockGenerator::connect(&to)).join().expect_err(url);
    let text = error.to_string();
    assert!(!text.contains(SECRET) && !format!("{error:?}").contains(SECRET), "{url}: {text}");
    (error, text)
}

#[test]
fn bad_urls_are_not_shown_and_the_error_says_what_is_wrong() {
    for url in [
        "",
        "localhost",
        "http://localhost",
        "redis://",
        "redis://host:port",
        "redis://host:99999/",
        "redis://host/not-a-number",
        "redis://0.0.0.0/",
        &format!("redis://user:{SECRET}@host/not-a-number"),
        &format!("redis://user:{SECRET}@host:port/"),
        &format!("redis//user:{SECRET}@host"),
    ] {
        let (error, text) = refused(url);
        let Error::InvalidConfig { what, value, hint, .. } = error else { panic!("{url:?}: {text}") };
        assert_eq!(what, "URL", "{url}");
        let scheme = if url.starts_with("redis://") { "redis://… " } else { "" };
        assert_eq!(value, format!("{scheme}(not shown: it may contain a password)"), "{url}");
        assert!(hint.contains("; write redis://"), "{url}: {hint}");
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_without_the_feature_says_which_feature() {
    let (error, text) = refused("rediss://127.0.0.1:1/");
    assert!(matches!(error, Error::InvalidConfig { .. }) && text.contains("feature") && text.contains("tls"), "{text}");
}

#[test]
fn an_unreachable_server_is_named_with_its_address() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (error, text) = refused(&format!("redis://user:{SECRET}@{closed}/"));
    assert!(matches!(error, Error::Backend { failure: BackendFailure::NotExecuted, .. }), "{text}");
    assert!(text.contains(&closed.to_string()), "{text}");

    let (error, text) = refused("unix:///no/such/redis.sock");
    assert!(matches!(error, Error::Backend { .. }) && text.contains("/no/such/redis.sock"), "{text}");

    let (error, text) = refused("redis://no-such-host.invalid/");
    assert!(matches!(error, Error::Backend { .. }) && text.contains("no-such-host.invalid"), "{text}");
}

#[test]
fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    // One who has more time than the default began before, and still waits afterwards.
    let builder = RedisLockProcessor::builder(&format!("redis://{address}/")).unwrap();
    let patient = spawn(move || builder.connect_timeout(Duration::from_secs(5)).connect().map(drop));
    let (error, text) = refused(&format!("redis://:{SECRET}@{address}/"));
    assert!(!patient.is_finished());
    // The end of the listener resets the connection.
    drop(silent);
    assert!(patient.join().is_err());
    assert!(matches!(error, Error::Backend { .. }) && text.contains(&address.to_string()), "{text}");
}

#[test]
fn something_that_is_no_redis_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let (error, text) = refused(&format!("redis://{address}/"));
    assert!(matches!(error, Error::Backend { .. } | Error::Unsupported { .. }), "{text}");
    server.join().unwrap();
}

#[test]
fn login_and_rights_are_denied_by_name() {
    let server = RedisServer::start_with(&["--requirepass", SECRET]);
    let at = |login: &str| server.url().replace("redis://", &format!("redis://{login}"));
    for url in [at(""), at(":wrong@"), at("nobody:wrong@")] {
        let (error, text) = refused(&url);
        assert!(matches!(error, Error::Denied { .. }), "{url}: {text}");
        let has_login = url != at("");
        let (words, hint) = if has_login {
            ("WRONGPASS", "correct the user name")
        } else {
            ("NOAUTH", "put the user name and the password into the URL")
        };
        assert!(text.contains(words) && text.contains(hint), "{url}: {text}");
        assert!(!text.contains("wrong@") && !text.contains(":wrong"), "{text}");
    }
    let url = at(&format!(":{SECRET}@"));
    let good = RedisLockProcessor::connect(&format!("{url}5")).unwrap();
    assert!(good.has_answered());
    assert!(!format!("{good:?} {:?}", RedisLockProcessor::builder(&url)).contains(SECRET), "{good:?}");
    let generator = DLockGenerator::new(good).unwrap();
    assert!(!format!("{generator:?}").contains(SECRET));
    let lock = generator.generate("T", "x").unwrap();
    drop(lock.lock().unwrap());
    assert!(!format!("{lock:?}").contains(SECRET));
    let (error, text) = refused(&format!("{url}99"));
    assert!(matches!(&error, Error::InvalidConfig { what: "database", value, .. } if value == "99"), "{error:?}");
    assert!(text.contains("give the number of"), "what to do: {text}");
}

/// Without a password the client would not log in at all, and work as `default`, who may have other rights.
#[test]
fn a_user_is_not_left_out_for_want_of_a_password() {
    let server = RedisServer::start();
    server.run::<()>(&["ACL", "SETUSER", "ann", "reset", "on", "nopass", "~*", "&*", "+@all"]);
    let at = |login: &str| server.url().replace("redis://", &format!("redis://{login}"));
    for url in [at("ann@"), at("ann:@"), "unix:///tmp/socket?user=ann".to_owned()] {
        let (error, text) = refused(&url);
        assert!(matches!(error, Error::InvalidConfig { what: "URL", .. }), "{url}: {text}");
        assert!(text.contains("user without a password") && !text.contains("ann"), "{text}");
    }
    let _store = RedisLockProcessor::connect(&at("ann:any@")).unwrap();
    let clients = server.run::<String>(&["CLIENT", "LIST"]);
    let ours: Vec<_> = clients.lines().filter(|line| line.contains("name=redis-dlock")).collect();
    assert!(!ours.is_empty() && ours.iter().all(|line| line.contains(" user=ann ")), "{ours:?}");
}

#[test]
fn a_user_without_rights_is_denied_by_name_and_nothing_is_left() {
    let server = RedisServer::start();
    let password = format!(">{SECRET}");
    for rules in [
        "+@all -incr ~* &*",
        "+@all -set ~* &*",
        "+@all -evalsha -eval ~* &*",
        "+@all ~other:* &*",
        "-@all +hello ~* &*",
    ] {
        let mut words = vec!["ACL", "SETUSER", "limited", "reset", "on", &password];
        words.extend(rules.split(' '));
        server.run::<()>(&words);
        let url = server.url().replace("redis://", &format!("redis://limited:{SECRET}@"));
        let error = DLockGenerator::connect(&url)
            .and_then(|generator| generator.generate("T", "x")?.lock().map(drop))
            .expect_err(rules);
        assert!(matches!(error, Error::Denied { .. }), "{rules}: {error}");
        assert!(!error.to_string().contains(SECRET), "{error}");
        assert_eq!(server.run::<u64>(&["EXISTS", "DLOCK_T_x"]), 0, "{rules}");
    }
}

#[test]
fn a_server_before_seven_is_refused() {
    // A server that does not know HELLO, as all before 6.0 …
    let old = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let (error, text) = refused(&old.url());
    assert!(matches!(error, Error::Unsupported { .. }) && text.contains("7.0"), "{text}");
    // … and a real one whose answer to HELLO says 6.2.
    let server = RedisServer::start();
    let proxy = rewriting_proxy(&server, b"$6\r\n7.0.15\r\n", b"$6\r\n6.2.14\r\n");
    let Some(proxy) = proxy else { return };
    let (error, text) = refused(&proxy);
    assert!(matches!(error, Error::Unsupported { .. }), "{text}");
    assert!(text.contains("6.2.14") && text.contains("7.0"), "{text}");
}

/// A proxy for one connection that replaces bytes in the server's answers; `None` when the server never says `from`
/// (another version of Redis).
fn rewriting_proxy(server: &RedisServer, from: &'static [u8], to: &'static [u8]) -> Option<String> {
    let target = server.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let mut look = TcpStream::connect(&target).unwrap();
    look.write_all(b"HELLO 2\r\n").unwrap();
    let mut answer = [0; 4096];
    let n = look.read(&mut answer).unwrap();
    answer[..n].windows(from.len()).find(|window| *window == from)?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let upstream = TcpStream::connect(target).unwrap();
        let (mut requests, mut forward) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut requests, &mut forward));
        let (mut answers, mut back) = (upstream, client);
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = answers.read(&mut buffer) {
            let mut bytes = buffer[..n].to_vec();
            if let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
                bytes.splice(at..at + from.len(), to.iter().copied());
            }
            if back.write_all(&bytes).is_err() {
                break;
            }
        }
    });
    Some(url)
}

/// One that owns nothing, and knows no other node.
#[test]
fn a_cluster_without_slots_is_named() {
    let node = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let (error, text) = refused(&node.url());
    assert!(matches!(error, Error::Backend { .. }) && text.contains("CLUSTER SLOTS"), "{text}");
    // `build` does not ask what the server is.
    let store = RedisLockProcessor::builder(&node.url()).unwrap().build().unwrap();
    let error = DLockGenerator::new(store).unwrap().generate("T", "x").unwrap().try_lock().unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, Error::Unsupported { .. }) && text.contains("redis+cluster://"), "{text}");
    assert!(text.contains("Cluster"), "{text}");
    for url in [format!("{}1", node.url()), format!("{}1", node.url().replace("redis://", "redis+cluster://"))] {
        assert!(matches!(refused(&url).0, Error::InvalidConfig { .. }), "{url}");
    }
    let server = RedisServer::start();
    let (error, text) = refused(&server.url().replace("redis://", "redis+cluster://"));
    assert!(matches!(error, Error::Unsupported { .. }) && text.contains("redis://"), "{text}");
}

#[test]
fn bad_settings_are_named_before_anything_is_sent() {
    let generator = DLockGenerator::new(MemoryLockProcessor::new()).unwrap();
    let refuse = |config: DLockConfig| match generator.generate_with(config).expect_err("must be refused") {
        Error::InvalidConfig { what, value, hint, .. } => (what, value, hint),
        other => panic!("{other}"),
    };
    assert_eq!(refuse(DLockConfig::new("", "x")).0, "lock type");
    for lease in [Duration::ZERO, Duration::from_millis(19), Duration::from_millis(1 << 31), Duration::MAX] {
        let (what, value, hint) = refuse(DLockConfig::new("T", "x").with_lease(lease));
        assert_eq!((what, value), ("lease", format!("{lease:?}")));
        assert!(hint.contains("20 ms"));
    }
    assert!(generator.generate_with(DLockConfig::new("T", "x").with_lease(Duration::from_millis(20))).is_ok());
    assert_eq!(refuse(DLockConfig::new("T", "x").with_renew_at(1.0)).0, "renew_at");
}

#[test]
fn properties_give_leases_and_wrong_lines_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config-dlock.properties");
    std::fs::write(&path, "# leases\nORDER=1000\nUSER: 2000\n").unwrap();
    let generator = DLockGenerator::from_properties(&path, MemoryLockProcessor::new()).unwrap();
    let lock = generator.generate("ORDER", "1").unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.remaining() <= Duration::from_millis(1000) && guard.remaining() > Duration::from_millis(500));
    let error = generator.generate("BATCH", "1").unwrap_err().to_string();
    assert!(error.contains("BATCH") && error.contains("config-dlock.properties"), "{error}");
    for line in ["ORDER=soon", "ORDER=-1", "ORDER=0", "ORDER=19", "ORDER", "=5000", "ORDER=2147483648"] {
        std::fs::write(&path, format!("# leases\n{line}\n")).unwrap();
        let error = DLockGenerator::from_properties(&path, MemoryLockProcessor::new()).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::InvalidConfig { .. }) && text.contains("line 2") && text.contains(line),
            "{text}"
        );
    }
    let missing = dir.path().join("missing.properties");
    let error = DLockGenerator::from_properties(&missing, MemoryLockProcessor::new()).unwrap_err().to_string();
    assert!(error.contains("missing.properties"), "{error}");
}

#[test]
fn a_lazy_processor_fails_the_first_lock_with_the_cause() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let processor = RedisLockProcessor::builder(&format!("redis://{closed}/")).unwrap().build().unwrap();
    let generator = DLockGenerator::new(processor).unwrap();
    let lock = generator.generate("T", "x").unwrap();
    // The limit is longer than a test may hang.
    let calls = move || {
        [lock.lock().map(drop), lock.try_lock().map(drop), lock.try_lock_for(4 * HANG).map(drop)]
            .map(Result::unwrap_err)
    };
    for error in spawn(calls).join() {
        assert!(matches!(error, Error::Backend { .. }) && error.to_string().contains(&closed.to_string()), "{error}");
    }
}

/// Redis ends the connection of a client that sends an argument longer than `proto-max-bulk-len`.
#[test]
fn a_name_that_a_server_may_refuse_is_refused_first() {
    let server = RedisServer::start_with(&["--proto-max-bulk-len", "1mb"]);
    let generators =
        [DLockGenerator::connect(&server.url()).unwrap(), DLockGenerator::new(MemoryLockProcessor::new()).unwrap()];
    let name = |length| "é".repeat(length / 2) + &"x".repeat(length % 2);
    let longest = 16 * 1024 - "DLOCK_long_".len();
    for generator in generators {
        let lock = |length| generator.generate("long", name(length));
        lock(longest).unwrap().lock().unwrap().unlock().unwrap();
        for length in [longest + 1, 2 << 20] {
            for error in [
                lock(length).unwrap_err(),
                generator.describe("long", name(length)).unwrap_err(),
                generator.break_lock("long", name(length), "somebody", "no reason").unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(matches!(error, Error::InvalidConfig { what: "lock name", .. }), "{text}");
                assert!(text.contains("DLOCK_long_é") && text.contains(&format!("({} bytes)", length + 11)), "{text}");
                assert!(text.len() < 400, "{text}");
            }
        }
    }
}
