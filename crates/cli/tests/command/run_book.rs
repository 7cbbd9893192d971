//! The manual's run book: each of its symptoms is played on a real server, and what its page quotes is what the command prints.
//!
//! A quote is a block of the page that begins with `$ dlock …`. Numbers, times, lockers, users and hosts may differ, and a line `…` stands for
//! any lines. A failure prints the quote that would be right.

use super::kit::{Kit, Start};
use super::support::RedisServer;
use super::support::crew::eventually;
use redis_dlock::DLockGenerator;
use rustix::process::Signal;
use std::fmt::Write;
use std::thread;

const PAGE: &str = include_str!("../../../../src/manual/run_book.md");

/// The name of the lock on the page, and of its key.
const LOCK: [&str; 2] = ["EXPORT", "nightly"];
const KEY: &str = "DLOCK_EXPORT_nightly";

/// A section of the page that is being played.
struct Scene {
    kit: Kit,
    /// What was asked, and what the command has printed.
    seen: Vec<(String, String)>,
}

impl Scene {
    /// `dlock`, with the words and with what the page shows of them.
    fn ask(&mut self, words: &[&str]) -> Option<i32> {
        let shown: Vec<_> = words
            .iter()
            .map(|word| if word.contains(' ') { format!("{word:?}") } else { (*word).to_owned() })
            .collect();
        self.ask_as(&shown.join(" "), words)
    }

    fn ask_as(&mut self, shown: &str, words: &[&str]) -> Option<i32> {
        let ended = self.kit.dlock(words).end();
        self.seen.push((format!("$ dlock {shown}"), format!("{}{}", ended.out, ended.err)));
        ended.status.code()
    }

    fn show(&mut self) {
        assert_eq!(self.ask(&["show", LOCK[0], LOCK[1]]), Some(0));
    }

    fn run(&self, options: &[&str], command: &[&str]) -> std::process::Command {
        self.kit.dlock(&[&["run"], options, &LOCK, &["--"], command].concat())
    }

    /// Starts `dlock run … sleep 100`, and waits until it has the lock and can be asked about it.
    fn holder(&self, options: &[&str]) -> super::kit::Running {
        let holder = self.run(options, &["sleep", "100"]).start();
        self.answers();
        holder
    }

    fn answers(&self) {
        let words = ["show", LOCK[0], LOCK[1]];
        eventually("it answers", || {
            let page = self.kit.dlock(&words).end().out;
            page.contains("has held it for") && page.contains("(pid ")
        });
    }

    fn locker(&self) -> String {
        self.kit.server.run(&["GET", KEY])
    }

    fn set(&self, name: &str, value: &str) {
        self.kit.server.run::<()>(&["CONFIG", "SET", name, value]);
    }
}

/// The quotes of a section.
fn quotes(title: &str) -> Vec<Vec<&str>> {
    let section = PAGE
        .lines()
        .skip_while(|line| *line != format!("# {title}"))
        .skip(1)
        .take_while(|line| !line.starts_with("# "));
    let (mut quotes, mut is_inside) = (Vec::new(), false);
    for line in section {
        if line.starts_with("```") {
            is_inside = line == "```text";
        } else if is_inside && line.starts_with("$ ") {
            quotes.push(vec![line]);
        } else if is_inside {
            quotes.last_mut().unwrap_or_else(|| panic!("{title}: a quote begins with a command")).push(line);
        }
    }
    quotes
}

/// A line without what differs from run to run.
fn masked(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    // `program (pid 7) of user on host, version 0.2.0, running for 3s`
    let line = match (line.find(" (pid "), line.find(", version ")) {
        (Some(from), Some(to)) if from < to => format!("PROGRAM{}", &line[to..]),
        _ => line.replace("ahead of this", "behind this"),
    };
    let line = match (line.find("thread "), line.find(" has held it for ")) {
        (Some(from), Some(to)) if from < to => format!("thread{}", &line[to..]),
        _ => line,
    };
    for word in line.split_whitespace() {
        let is_locker =
            word.split('-').any(|part| part.len() >= 24 && part.chars().take(24).all(|c| c.is_ascii_hexdigit()));
        // `program (pid 7) on host: …`
        let is_host = words.ends_with(&["(pid", "N", "on"].map(str::to_owned));
        let word = match word {
            _ if is_locker => "LOCKER".to_owned(),
            _ if is_host => "HOST".to_owned(),
            word => without_digits(word),
        };
        let is_time = |word: &str| {
            let unit = word.strip_prefix('N').map(|unit| unit.trim_end_matches([',', ')', '.', ':']));
            unit.is_some_and(|unit| ["", "d", "h", "m", "s", "ms", "µs", "us", "ns"].contains(&unit))
        };
        if is_time(&word) && words.last().is_some_and(|last| is_time(last)) {
            words.pop();
        }
        words.push(if is_time(&word) { "N".to_owned() } else { word });
    }
    words.join(" ")
}

/// Each run of digits, with the points and colons inside, is one `N`.
fn without_digits(word: &str) -> String {
    let (mut masked, mut chars) = (String::new(), word.chars().peekable());
    while let Some(c) = chars.next() {
        let is_inside = |next: Option<&char>| next.is_some_and(char::is_ascii_digit);
        if c.is_ascii_digit() || matches!(c, '.' | ':') && masked.ends_with('N') && is_inside(chars.peek()) {
            if !masked.ends_with('N') {
                masked.push('N');
            }
        } else {
            masked.push(c);
        }
    }
    masked
}

fn is_quoted(quote: &[&str], text: &str) -> bool {
    let mut lines = text.lines().map(masked).peekable();
    let mut may_skip = false;
    for line in quote {
        if line.trim() == "…" {
            may_skip = true;
            continue;
        }
        let line = masked(line);
        while may_skip && lines.peek().is_some_and(|next| *next != line) {
            lines.next();
        }
        if lines.next().as_ref() != Some(&line) {
            return false;
        }
        may_skip = false;
    }
    may_skip || lines.next().is_none()
}

/// Plays a section of the page, and compares its quotes with what was seen, in order.
#[track_caller]
fn play(title: &str, scene: impl FnOnce(&mut Scene)) {
    let mut played = Scene { kit: Kit::new(), seen: Vec::new() };
    scene(&mut played);
    let quotes = quotes(title);
    let is_same = quotes.len() == played.seen.len()
        && quotes
            .iter()
            .zip(&played.seen)
            .all(|(quote, (command, text))| quote[0] == command && is_quoted(&quote[1..], text));
    let mut right = String::new();
    for (command, text) in &played.seen {
        let _ = write!(right, "```text\n{command}\n{text}```\n\n");
    }
    assert!(is_same, "the page quotes {quotes:#?}\n\nand this was seen:\n\n{right}");
}

#[test]
fn a_dead_holder() {
    play("The holder is dead", |scene| {
        let holder = scene.holder(&["--reason", "nightly export"]);
        holder.signal(Signal::KILL);
        holder.end();
        scene.show();
        assert_eq!(scene.ask(&["run", "--no-wait", LOCK[0], LOCK[1], "--", "./export"]), Some(65));
    });
}

#[test]
fn a_holder_that_hangs() {
    play("The holder hangs", |scene| {
        let holder = scene.holder(&["--reason", "nightly export"]);
        let waiter = scene.run(&["--reason", "nightly export"], &["sleep", "100"]).start();
        let words = ["show", LOCK[0], LOCK[1]];
        eventually("the waiter answers, and has its record", || {
            let page = scene.kit.dlock(&words).end().out;
            page.contains("waiting threads: 1") && page.matches("(pid ").count() == 2
        });
        scene.show();
        let locker = scene.locker();
        let words = ["break", LOCK[0], LOCK[1], "--locker", &locker, "--reason", "hangs, ticket 12"];
        let shown = "break EXPORT nightly --locker web-1-4711-682d410b3d213b41c208d26d-1 --reason \"hangs, ticket 12\"";
        assert_eq!(scene.ask_as(shown, &words), Some(0));
        let ended = holder.end().expect(66);
        scene.seen.push(("$ dlock run --reason \"nightly export\" EXPORT nightly -- ./export".into(), ended.err));
        drop(waiter);
    });
}

#[test]
fn a_holder_that_stood_still() {
    play("The holder stood still", |scene| {
        let holder = scene.holder(&["--lease", "1s"]);
        holder.signal(Signal::STOP);
        eventually("its lease is over", || scene.kit.server.run::<i64>(&["EXISTS", KEY]) == 0);
        let next = scene.holder(&["--reason", "nightly export"]);
        holder.signal(Signal::CONT);
        let ended = holder.end().expect(66);
        // An answer that came while it stood still may be too late for it, and it says so.
        let said = ended.err.lines().filter(|line| !line.contains("connection dropped: "));
        let said = said.map(|line| format!("{line}\n")).collect();
        scene.seen.push(("$ dlock run --lease 1s EXPORT nightly -- ./export".into(), said));
        scene.show();
        drop(next);
    });
}

#[test]
fn a_full_memory() {
    play("The server's memory is full", |scene| {
        scene.set("maxmemory-policy", "allkeys-lru");
        scene.set("maxmemory", "104857600");
        assert_eq!(scene.ask(&["doctor"]), Some(1));
        scene.set("maxmemory-policy", "noeviction");
        scene.set("maxmemory", "1");
        assert_eq!(scene.ask(&["doctor"]), Some(1));
        assert_eq!(scene.ask(&["run", "--no-wait", LOCK[0], LOCK[1], "--", "./export"]), Some(67));
    });
}

#[test]
fn a_key_that_is_no_lock() {
    play("The key is something else", |scene| {
        scene.kit.server.run::<()>(&["LPUSH", KEY, "x"]);
        assert_eq!(scene.ask(&["run", LOCK[0], LOCK[1], "--", "./export"]), Some(69));
        scene.kit.server.run::<()>(&["SET", KEY, "x"]);
        assert_eq!(scene.ask(&["ls"]), Some(0));
    });
}

#[test]
fn a_right_that_is_missing() {
    play("A right is missing", |scene| {
        let words = "ACL SETUSER default -publish";
        scene.kit.server.run::<()>(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(scene.ask(&["doctor"]), Some(1));
        assert_eq!(scene.ask(&["run", "--no-wait", LOCK[0], LOCK[1], "--", "./export"]), Some(68));
        // What the page says of the rights to channels.
        for (without, status) in [("-subscribe", 0), ("resetchannels", 68)] {
            let words = format!("ACL SETUSER default +@all allchannels {without}");
            scene.kit.server.run::<()>(&words.split(' ').collect::<Vec<_>>());
            scene.kit.dlock(&["run", "--no-wait", LOCK[0], LOCK[1], "--", "true"]).end().expect(status);
        }
        assert!(
            PAGE.contains("If only `+subscribe` is missing, locks work")
                && PAGE.contains("Without `&DLOCK:1:*` there are no locks")
        );
    });
}

#[test]
fn a_replica() {
    play("The server is a replica", |scene| {
        let master = RedisServer::start();
        let port = master.port().to_string();
        scene.kit.server.run::<()>(&["REPLICAOF", "127.0.0.1", &port]);
        eventually("it follows", || {
            scene.kit.server.run::<String>(&["INFO", "replication"]).contains("master_link_status:up")
        });
        assert_eq!(scene.ask(&["doctor"]), Some(1));
        assert_eq!(scene.ask(&["run", "--no-wait", LOCK[0], LOCK[1], "--", "./export"]), Some(67));
    });
}

#[test]
fn missing_replicas() {
    play("Replicas do not acknowledge", |scene| {
        assert_eq!(scene.ask(&["doctor", "--replica-acks", "1"]), Some(1));
        let words = ["run", "--replica-acks", "1", "--no-wait", LOCK[0], LOCK[1], "--", "./export"];
        assert_eq!(scene.ask(&words), Some(67));
    });
}

#[test]
fn a_lock_delay() {
    play("The lock-delay is not over", |scene| {
        let holder = scene.holder(&["--lease", "1s", "--lock-delay", "15s"]);
        holder.signal(Signal::KILL);
        holder.end();
        let words = ["show", LOCK[0], LOCK[1]];
        eventually("its lease is over", || scene.kit.dlock(&words).end().out.contains("nobody holds it"));
        scene.show();
        assert_eq!(scene.ask(&["ls"]), Some(0));
    });
}

#[test]
fn a_job_that_ran_twice() {
    play("The job ran twice, one run after the other", |scene| {
        assert_eq!(scene.run(&[], &["true"]).end().status.code(), Some(0));
        scene.show();
        assert_eq!(scene.ask(&["doctor"]), Some(0));
    });
}

#[test]
fn two_tasks_of_one_thread() {
    play("Two tasks of one thread are inside", |scene| {
        let generator = DLockGenerator::connect(&scene.kit.server.url()).unwrap();
        let config = redis_dlock::DLockConfig::new(LOCK[0], LOCK[1]).with_reason("nightly export");
        let lock = generator.generate_with(config).unwrap();
        let (one, other) = (lock.lock().unwrap(), lock.lock().unwrap());
        scene.answers();
        scene.show();
        drop((one, other));
    });
}

#[test]
fn a_process_that_polls() {
    play("A process is overtaken again and again", |scene| {
        let holder = scene.holder(&["--reason", "nightly export"]);
        let generator = DLockGenerator::builder().listener(false);
        let generator =
            generator.build(redis_dlock::RedisLockProcessor::new(&scene.kit.server.url()).unwrap()).unwrap();
        let lock = generator.generate(LOCK[0], LOCK[1]).unwrap();
        let token = redis_dlock::CancelToken::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock_cancellable(&token).unwrap().is_none());
            eventually("it waits", || lock.queue_length() == 1);
            scene.show();
            assert_eq!(scene.ask(&["ls"]), Some(0));
            token.cancel();
            assert!(waiter.join().unwrap());
        });
        drop(holder);
    });
}

/// Each section that quotes something is played, and the table at the top leads to each.
#[test]
fn the_table_at_the_top_has_each_section() {
    let source = include_str!("run_book.rs");
    let titles: Vec<_> =
        PAGE.lines().filter_map(|line| line.strip_prefix("# ")).filter(|title| !quotes(title).is_empty()).collect();
    assert_eq!(titles.len(), 12);
    for title in titles {
        assert!(source.contains(&format!("play({title:?}, ")), "{title} is not played");
        let anchor: String =
            title.to_lowercase().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-')).collect();
        let link = format!("](#{})", anchor.replace(' ', "-"));
        let top = PAGE.split("\n# ").next().unwrap();
        assert!(top.contains(&link), "the table does not lead to {title}: {link}");
    }
}
