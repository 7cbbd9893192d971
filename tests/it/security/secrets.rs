//! Nothing that is shown, by errors, by `Debug` or in the log at any level, has a login in it, or more lines than it should.

use super::is_plain;
use crate::acl::rules;
use crate::support::crew::{HANG, answered, eventually};
use crate::support::lab::patient;
use crate::support::process::alone;
use crate::support::{Asking, RedisServer, claim};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use redis_dlock::{DLockConfig, DLockGenerator, Error, RedisLockProcessor};
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What must never be seen; letters and digits, so that no encoding hides them.
const USER: &str = "Us3rQ8v";
const PASSWORD: &str = "Zq7Kx9w2";
/// What lines of a forger have in them.
const FORGED: &str = "FORGED";

static LOG: Everything = Everything(Mutex::new(Vec::new()));

/// Keeps every line, of this and of all other crates.
struct Everything(Mutex<Vec<(Level, String)>>);

impl Log for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.0.lock().push((record.level(), format!("{} {}", record.target(), record.args())));
    }

    fn flush(&self) {}
}

fn logged(level: Level, part: &str) -> bool {
    LOG.0.lock().iter().any(|(l, line)| *l == level && line.contains(part))
}

/// The login as a program may have it, with everything in it that has a meaning somewhere.
fn password() -> String {
    format!("p {PASSWORD}%41\"'\\\n\t@:/?#&=+é")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

fn tcp(scheme: &str, address: impl std::fmt::Display) -> String {
    format!("{scheme}://{USER}:{}@{address}/", encoded(&password()))
}

fn assert_secret(shown: &str) {
    assert!(!shown.contains(PASSWORD) && !shown.contains(USER), "{shown}");
}

fn assert_clean(shown: &str) {
    assert_secret(shown);
    assert!(is_plain(shown), "{shown:?}");
}

fn seen(thing: &impl Debug) {
    assert_clean(&format!("{thing:?}"));
}

fn refused<T: Debug>(result: Result<T, Error>) -> String {
    let error = result.expect_err("must fail");
    seen(&error);
    let shown = error.to_string();
    assert_clean(&shown);
    shown
}

/// A server that answers what it is sent by this, given what that was.
fn fake(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&answer(&buffer[..n])).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn connections_that_fail() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = refused(DLockGenerator::connect(&tcp("redis", closed)));
    assert!(text.contains(&closed.to_string()), "{text}");
    let socket = format!("unix:///no/such.sock?user={USER}&pass={}", encoded(&password()));
    assert!(refused(DLockGenerator::connect(&socket)).contains("/no/such.sock"));
    refused(DLockGenerator::connect("unix:///no/such%0aFORGED%1b.sock"));

    // One that says what it was told, and one that does not know the command.
    let echo = fake(|told| [b"-ERR what is ", told.escape_ascii().to_string().as_bytes(), b"\r\n"].concat());
    refused(DLockGenerator::connect(&tcp("redis", echo)));
    let quoting = fake(|told| {
        [
            b"-ERR what\nFORGED is ".to_vec(),
            String::from_utf8_lossy(told).replace('\r', " ").into_bytes(),
            b"\r\n".to_vec(),
        ]
        .concat()
    });
    refused(DLockGenerator::connect(&tcp("redis", quoting)));
    let old = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let text = refused(DLockGenerator::connect(&tcp("redis", format!("127.0.0.1:{}", old.port()))));
    assert!(text.contains("older than 7.0"), "{text}");

    let strict = RedisServer::start_with(&["--requirepass", "another"]);
    let text = refused(DLockGenerator::connect(&tcp("redis", format!("127.0.0.1:{}", strict.port()))));
    assert!(text.contains("WRONGPASS"), "{text}");
    if cfg!(feature = "tls") {
        refused(DLockGenerator::connect(&tcp("rediss", format!("127.0.0.1:{}", strict.port()))));
    }

    let (user, password) = (USER, PASSWORD);
    for url in [
        format!("redis://{user}:{password}"),
        format!("redis://{user}:{password}/0"),
        format!("redis://{user}:{password}@host:port"),
        format!("redis://{user}:1?{password}@host/x"),
        format!("redis://{user}%3A{password}%40host"),
        format!("http://{user}:{password}@host"),
        format!("{user}:{password}@host"),
        format!("unix:///run/r.sock?db=x&user={user}&pass=a&pass={password}"),
        format!("unix:///run/r.sock%3Fpass={password}"),
        // In a place of each kind: nothing of a URL that cannot be used is shown.
        format!("{password}://{user}"),
        format!("{password}:{user}"),
        format!("redis://{password}:port"),
        format!("redis://{user}.host/{password}"),
        format!("redis://host:{password}/0"),
        format!("redis://{user}/?{password}=1"),
        format!("redis://{user}/0#{password}"),
        format!("redis://host/?protocol={password}"),
        format!("unix://{user}/{password}"),
        format!("unix:///{user}/{password}%00"),
    ] {
        refused(DLockGenerator::connect(&url));
        refused(RedisLockProcessor::builder(&url));
    }
}

/// Gives the user these rules, and its password.
fn set_user(server: &RedisServer, rules: &[&str]) {
    let password = format!(">{}", password());
    server.run::<()>(&[&["ACL", "SETUSER", USER], rules, &[&password]].concat());
}

/// A lock on a real server, with a login, from its first connection to the loss of its lease, when the server comes back without the user.
fn a_whole_life() {
    let mut server = RedisServer::start_with(&["--unixsocket", "socket"]);
    let socket = server.file("socket");
    let rules = ["reset", "on", "~*", "&*", "+@all"];
    set_user(&server, &rules);
    let place = format!("127.0.0.1:{}", server.port());
    let by_socket = format!("unix://{}?user={USER}&pass={}", socket.display(), encoded(&password()));
    for url in [tcp("redis", &place), by_socket] {
        let builder = RedisLockProcessor::builder(&url).unwrap().io_timeout(Duration::from_millis(300));
        seen(&builder);
        let processor = builder.connect().expect("the login is right");
        seen(&processor);
        let generator = DLockGenerator::builder();
        seen(&generator);
        let generator = generator.build(processor).unwrap();
        seen(&generator);
        let config = DLockConfig::new("SECRET", format!("x\n{FORGED}")).with_lease(Duration::from_millis(600));
        let config = config.with_reason(format!("\r\n{FORGED}\u{1b}[2J\u{202e}"));
        seen(&config);
        let lock = generator.generate_with(config).unwrap();
        seen(&lock);
        seen(&lock.unguarded());
        let guard = lock.lock().unwrap();
        seen(&guard);

        let waiter =
            DLockGenerator::connect(&url).unwrap().generate("SECRET", format!("x\n{FORGED}").as_str()).unwrap();
        assert!(answered(|| waiter.try_lock_for(Duration::from_millis(300))).is_none());
        let value = format!("a\n{FORGED}\u{1b}-1");
        redis::cmd("SET").arg(lock.key()).arg(&value).exec(&mut server.connection()).unwrap();
        eventually("the loss is noticed", || !guard.is_valid());
        refused(guard.unlock());
        server.run::<()>(&["DEL", lock.key()]);

        // Its server is stopped, and comes back without the user.
        let guard = lock.lock().unwrap();
        server.kill();
        eventually("the loss is noticed", || !guard.is_valid());
        refused(guard.unlock());
        server.restart();
        let denied = lock.try_lock_for(HANG).map(drop);
        assert!(refused(denied).contains("WRONGPASS"));
        set_user(&server, &rules);
    }
    assert!(logged(Level::Warn, &place), "what is shown of a connection is shown");
    assert!(logged(Level::Warn, "held for: \\r\\nFORGED"), "the reason is shown");
    assert!(logged(Level::Trace, "held, token"));
}

/// A server that knows `HELLO`, and answers all else by words that a terminal would take for lines of their own.
fn a_forger() {
    let forger = fake(|told| {
        if told.windows(5).any(|word| word == b"HELLO") {
            b"*4\r\n+version\r\n+7.0.15\r\n+mode\r\n+standalone\r\n-NOPERM no INFO\r\n".to_vec()
        } else {
            format!("-ERR no\n2026-01-01 WARN {FORGED}\u{1b}[31m\u{202e}\r\n").into_bytes()
        }
    });
    // A connection each: it counts no commands, and so is out of step after two that came at once.
    let generator = || DLockGenerator::connect(&format!("redis://{forger}")).unwrap();
    let lock = || generator().generate("SECRET", "y").unwrap();
    assert!(refused(lock().try_lock().map(drop)).contains(FORGED));
    // The last of its questions may have had too little time for any words.
    let timed = || refused(lock().try_lock_for(Duration::from_millis(300)).map(drop));
    assert!((0..10).any(|_| timed().contains(FORGED)));
}

/// Whatever right is missing, the server's words about it do not name the user: from 7.2 on they begin with that name.
fn rights_that_are_missing() {
    let server = RedisServer::start();
    let holder = DLockGenerator::connect(&server.url()).unwrap();
    for missing in
        ["+publish", "+subscribe", "+evalsha", "+set", "+incr", "+llen", "+pexpire", "~DLOCK_*", "&DLOCK:1:*"]
    {
        // Without `+eval`, for that is asked for when the script is not known.
        let missing = |word: &String| word != missing && !(missing == "+evalsha" && word == "+eval");
        let rules: Vec<_> = rules().into_iter().skip(3).filter(missing).filter(|word| !word.starts_with('>')).collect();
        set_user(&server, &rules.iter().map(String::as_str).collect::<Vec<_>>());
        let url = tcp("redis", format!("127.0.0.1:{}", server.port()));
        // It has no right to another database.
        assert!(refused(patient(&format!("{url}1")).connect()).contains("denied"));
        let processor = || patient(&url).connect().unwrap();
        let held = holder.generate("RIGHTS", "held").unwrap();
        let guard = held.lock().unwrap();
        let mut denials = 0;
        for listener in [true, false] {
            let generator = DLockGenerator::builder().listener(listener).build(processor()).unwrap();
            for target in ["held", "free"] {
                let lock = generator.generate("RIGHTS", target).unwrap();
                let tried = lock.try_lock_for(Duration::from_millis(60));
                let unlocked = tried.and_then(|guard| guard.map_or(Ok(()), |guard| guard.unlock()));
                for outcome in [unlocked, lock.try_lock().map(drop), lock.is_locked().map(drop)] {
                    denials += usize::from(outcome.is_err_and(|error| refused::<()>(Err(error)).contains("denied")));
                }
            }
        }
        // Asked for a place in the queue, each of a script's commands is missed, however slow the machine is.
        let claim = claim(held.key(), "waiter-1", Duration::from_secs(30));
        let waits = processor().ask(&claim, true, HANG);
        denials += usize::from(waits.is_err_and(|error| refused::<()>(Err(error)).contains("denied")));
        guard.unlock().unwrap();
        let subscribed = processor().open("c", HANG);
        denials += usize::from(subscribed.is_err_and(|error| refused::<()>(Err(error)).contains("denied")));
        assert!(denials > 0, "{rules:?}");
    }

    // The words of other versions than the one that is here.
    for words in [
        "NOPERM User USER has no permissions to run the 'evalsha' command",
        "NOPERM User USER has no permissions to access the 'DLOCK_a_b' key",
        "ERR ACL failure in script: User USER has no permissions to run the 'set' command script: 7d2f, on @user_script:2.",
        "NOPERM: USER has no ACL permissions",
        "ERR the rights of `USER` do not suffice",
    ] {
        let words = format!("-{}\r\n", words.replace("USER", USER));
        let denying = fake(move |told| {
            if told.windows(5).any(|word| word == b"HELLO") {
                b"*4\r\n+version\r\n+7.2.0\r\n+mode\r\n+standalone\r\n-NOPERM no INFO\r\n".to_vec()
            } else {
                words.clone().into_bytes()
            }
        });
        for listener in [true, false] {
            let processor = || patient(&tcp("redis", denying)).build().unwrap();
            let names = |shown: String| assert!(shown.contains("***"), "{shown}");
            names(refused(processor().open("c", HANG).map(drop)));
            let generator = DLockGenerator::builder().listener(listener).build(processor()).unwrap();
            let lock = generator.generate("RIGHTS", "x").unwrap();
            names(refused(lock.try_lock().map(drop)));
            names(refused(lock.holder()));
        }
    }
}

#[test]
fn logins_are_never_shown_and_log_lines_are_never_forged() {
    alone("it::security::secrets::logins_are_never_shown_and_log_lines_are_never_forged", || {
        log::set_logger(&LOG).expect("no other logger in this process");
        log::set_max_level(LevelFilter::Trace);
        connections_that_fail();
        a_whole_life();
        a_forger();
        rights_that_are_missing();
        assert!(logged(Level::Warn, FORGED), "the forger's words were shown");
        for (level, line) in LOG.0.lock().iter() {
            assert_secret(line);
            // The crate for TLS describes its own messages in several lines. What others have said is in none of them.
            let is_of_tls = line.starts_with("rustls::") && !line.contains(FORGED);
            assert!(is_of_tls || is_plain(line), "{level} {line:?}");
        }
    });
}
