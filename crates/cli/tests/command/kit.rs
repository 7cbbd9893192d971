//! A server, and `dlock` beside it.

use super::consensus::{ConsensusStore, Quorum};
use super::support::crew::{HANG, Member, eventually, spawn};
pub(crate) use super::support::process::Killed;
use super::support::{RedisServer, process};
use redis_dlock::RedisLockProcessor;
use redis_dlock::port::{Inspection, LockProcessor, Operations};
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A server for one test, and a home directory for who uses it.
pub(crate) struct KitOn<S> {
    pub(crate) server: S,
    pub(crate) home: TempDir,
}

pub(crate) type Kit = KitOn<RedisServer>;

/// A store of one server, and what an administrator does to it.
pub(crate) trait Site: Sized {
    /// Whether a server that was restarted still has its locks.
    const KEEPS_LOCKS: bool;

    /// Options with which a request waits for much longer for a server that does not answer, where there are any.
    const PATIENT: &'static [&'static str];

    fn start() -> Self;
    fn url(&self) -> String;
    fn processor(&self) -> Arc<dyn LockProcessor>;
    /// Gives a lock's key to a holder for some minutes, whoever has it.
    fn hold(&self, key: &str, holder: &str);
    fn delete(&self, key: &str);
    /// A short lease, and a short time for which a lock is kept after a command: where the store has a shortest one, that.
    fn shortest() -> Duration;
    /// What of locks is in the store. The record of a client that was killed stays for 90 s.
    fn leftovers(&self) -> Vec<String>;
    /// `STOP` lets it hang, and `CONT` go on.
    fn signal(&mut self, signal: Signal);
    fn kill(&mut self);
    fn restart(&mut self);
}

impl Site for RedisServer {
    const KEEPS_LOCKS: bool = false;
    const PATIENT: &'static [&'static str] = &["--io-timeout", "30s"];

    fn start() -> Self {
        Self::start()
    }

    fn url(&self) -> String {
        self.url()
    }

    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(RedisLockProcessor::connect(&self.url()).unwrap())
    }

    fn hold(&self, key: &str, holder: &str) {
        self.run::<()>(&["SET", key, holder, "PX", "600000"]);
    }

    fn delete(&self, key: &str) {
        self.run::<()>(&["DEL", key]);
    }

    fn shortest() -> Duration {
        Duration::from_secs(2)
    }

    fn leftovers(&self) -> Vec<String> {
        let stays = |key: &String| key == "DLOCK:1:fence" || key.starts_with("DLOCK:1:client:");
        self.run::<Vec<String>>(&["KEYS", "*"]).into_iter().filter(|key| !stays(key)).collect()
    }

    fn signal(&mut self, signal: Signal) {
        Self::signal(self, signal);
    }

    fn kill(&mut self) {
        self.kill();
    }

    fn restart(&mut self) {
        self.restart();
    }
}

impl<V: ConsensusStore> Site for V {
    const KEEPS_LOCKS: bool = true;
    const PATIENT: &'static [&'static str] = &[];

    fn start() -> Self {
        V::start(1)
    }

    fn url(&self) -> String {
        Quorum::url(self, "dlock")
    }

    fn processor(&self) -> Arc<dyn LockProcessor> {
        V::processor(&Site::url(self))
    }

    fn hold(&self, key: &str, holder: &str) {
        Quorum::hold(self, &format!("dlock/{key}/.lock"), holder, Some(Duration::from_secs(600)));
    }

    fn delete(&self, key: &str) {
        Quorum::delete(self, &format!("dlock/{key}/.lock"));
    }

    fn shortest() -> Duration {
        Duration::from_secs(if V::NAME == "etcd" { 2 } else { 10 })
    }

    fn leftovers(&self) -> Vec<String> {
        self.list("dlock/DLOCK_")
    }

    fn signal(&mut self, signal: Signal) {
        self.servers()[0].signal(signal);
    }

    fn kill(&mut self) {
        self.servers()[0].kill();
    }

    fn restart(&mut self) {
        self.servers()[0].restart();
    }
}

/// Makes of each function a test on each store of one server.
macro_rules! on_each_site {
    ($($name:ident),+ $(,)?) => {
        mod redis {
            $(#[test] fn $name() { super::$name::<crate::support::RedisServer>(&mut crate::kit::KitOn::begin()); })+
        }
        mod etcd {
            $(#[test] fn $name() { super::$name::<crate::consensus::Etcd>(&mut crate::kit::KitOn::begin()); })+
        }
        mod consul {
            $(#[test] fn $name() { super::$name::<crate::consensus::Consul>(&mut crate::kit::KitOn::begin()); })+
        }
    };
}

pub(crate) use on_each_site;

/// What a `dlock` was asked, what it has printed, and how it has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    #[expect(dead_code, reason = "a failure prints it")]
    words: Vec<OsString>,
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }

    /// Expects each of these texts on standard error.
    #[track_caller]
    pub(crate) fn says<const N: usize>(self, texts: [&str; N]) -> Self {
        texts.iter().for_each(|text| assert!(self.err.contains(text), "{text:?} is not said: {self:?}"));
        self
    }

    /// Expects none of these texts on standard error.
    #[track_caller]
    pub(crate) fn hides<const N: usize>(self, texts: [&str; N]) -> Self {
        texts.iter().for_each(|text| assert!(!self.err.contains(text), "{text:?} is said: {self:?}"));
        self
    }

    /// Expects each of these texts on standard output.
    #[track_caller]
    pub(crate) fn shows<const N: usize>(self, texts: [&str; N]) -> Self {
        texts.iter().for_each(|text| assert!(self.out.contains(text), "{text:?} is not shown: {self:?}"));
        self
    }

    /// Expects this on standard output, and nothing else.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert_eq!(self.out, text, "{self:?}");
        self
    }
}

pub(crate) const KEY: &str = "DLOCK_JOB_x";

impl Kit {
    pub(crate) fn new() -> Self {
        Self::begin()
    }
}

impl<S: Site> KitOn<S> {
    pub(crate) fn begin() -> Self {
        Self { server: S::start(), home: tempfile::tempdir().unwrap() }
    }

    /// `dlock` with these arguments, the server's URL in its environment, and the test's home directory.
    pub(crate) fn dlock(&self, words: &[&str]) -> Command {
        let mut command = bare(self.home.path(), words);
        command.env("DLOCK_URL", self.server.url());
        command
    }

    /// `dlock run JOB x …`: the options, and a shell command.
    pub(crate) fn run(&self, options: &[&str], shell: &str) -> Command {
        let words = [&["run"], options, &["JOB", "x", "--", "sh", "-c", shell]].concat();
        self.dlock(&words)
    }

    /// A running `dlock run` with the lock, whose command sleeps. Its number is in the file `pid`.
    #[track_caller]
    pub(crate) fn holder(&self, options: &[&str]) -> Running {
        let _ = fs::remove_file(self.path("pid"));
        let holder = self.run(options, "echo $$ > pid; exec sleep 100").start();
        self.pid_of("pid");
        holder
    }

    /// As [`run`](Self::run), and it waits for the lock as the only one.
    #[track_caller]
    pub(crate) fn queued(&self, options: &[&str], shell: &str) -> Running {
        let waiter = self.run(options, shell).start();
        eventually("it waits", || self.waiting() == 1);
        waiter
    }

    /// What the store says of the lock.
    pub(crate) fn inspection(&self) -> Inspection {
        let processor = self.server.processor();
        let found = processor.inspect(KEY, HANG).unwrap();
        processor.close();
        found
    }

    /// Nobody holds the lock, and nobody waits for it.
    #[track_caller]
    pub(crate) fn expect_free(&self) {
        let left = self.server.leftovers();
        assert!(left.is_empty(), "{left:?}");
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.inspection().holder.is_some()
    }

    /// How many processes wait for the lock.
    pub(crate) fn waiting(&self) -> u64 {
        self.inspection().waiting
    }

    /// The path of a file in the home directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Waits until a file has a whole line, and returns it.
    #[track_caller]
    pub(crate) fn line_of(&self, name: &str) -> String {
        let mut line = String::new();
        eventually(&format!("a line in {name}"), || {
            line = fs::read_to_string(self.path(name)).unwrap_or_default();
            line.ends_with('\n')
        });
        line.trim_end().to_owned()
    }

    /// Reads a process id from a file, as `echo $$ > file` wrote it.
    #[track_caller]
    pub(crate) fn pid_of(&self, name: &str) -> Pid {
        Pid::from_raw(self.line_of(name).parse().unwrap()).unwrap()
    }
}

/// A program that ignores no signal from its start. Whoever runs the tests in the background, or by `nohup`, has some ignored.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// `dlock`, in a process group of its own, with no URL.
pub(crate) fn bare(home: &Path, words: &[&str]) -> Command {
    let mut command = with_default_signals(env!("CARGO_BIN_EXE_dlock"));
    command
        .args(words)
        .env_remove("DLOCK_URL")
        .env_remove("CONSUL_HTTP_TOKEN")
        .env_remove("CONSUL_HTTP_TOKEN_FILE")
        .env_remove("CONSUL_CACERT")
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", home)
        .current_dir(home)
        .process_group(0)
        .stdin(Stdio::null());
    command
}

/// A running `dlock`. It is killed when this is dropped, and its command by its guard.
pub(crate) struct Running {
    words: Vec<OsString>,
    child: Killed,
    out: Member<String>,
    err: Member<String>,
}

pub(crate) trait Start {
    fn start(&mut self) -> Running;
    /// As [`start`](Self::start), with what it says on standard error where the caller has sent it.
    fn start_quietly(&mut self) -> Running;
    fn end(&mut self) -> Ended;
}

impl Start for Command {
    #[track_caller]
    fn start(&mut self) -> Running {
        self.stderr(Stdio::piped()).start_quietly()
    }

    #[track_caller]
    fn start_quietly(&mut self) -> Running {
        let mut child = self.stdout(Stdio::piped()).spawn().unwrap();
        let out = text_of(child.stdout.take().unwrap());
        let err = child.stderr.take().map_or_else(|| spawn(String::new), text_of);
        Running { words: self.get_args().map(OsStr::to_owned).collect(), child: Killed(child), out, err }
    }

    #[track_caller]
    fn end(&mut self) -> Ended {
        self.start().end()
    }
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child.0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::STOP {
            return process::signal(&self.child.0, signal);
        }
        kill_process(self.pid(), signal).unwrap();
    }

    /// Ends it by a signal, and its command with it.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        self.end().expect(143);
    }

    /// Waits for its end, and for the end of its output: of all processes that have inherited it.
    #[track_caller]
    pub(crate) fn end(self) -> Ended {
        let Self { words, child: mut running, out, err } = self;
        let mut status = None;
        eventually("the end of dlock", || {
            status = running.0.try_wait().unwrap();
            status.is_some()
        });
        Ended { words, status: status.unwrap(), out: out.join(), err: err.join() }
    }
}

/// Reads to the end.
fn text_of(mut from: impl Read + Send + 'static) -> Member<String> {
    spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether a process group has members. Dead ones that nobody has looked at do not count.
pub(crate) fn lives(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    fs::read_dir("/proc").unwrap().any(|entry| {
        let stat = fs::read_to_string(entry.unwrap().path().join("stat")).unwrap_or_default();
        let words: Vec<_> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').take(3).collect();
        matches!(words[..], [state, _, of] if state != "Z" && of == group.as_raw_nonzero().to_string())
    })
}

/// The state of a process: `S`, `T`, `Z`; `None` if there is none.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The children of the main thread of a process.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero())).unwrap();
    children.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// A launcher of this `dlock`, which waits at its gate.
pub(crate) fn launcher(dlock: Pid) -> Pid {
    let name = |pid: Pid| fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap();
    children(dlock).into_iter().find(|pid| name(*pid) == "dlock-launcher\n").unwrap()
}

/// Whether a tool is there. Says so if it is not.
pub(crate) fn is_there(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success());
    if !is_there {
        // Not by `eprintln!`: what a test that passes has printed is not shown.
        let _ = writeln!(io::stderr(), "SKIPPED: {tool} is not there");
    }
    is_there
}
