//! The cells of README's table about `flock`, `consul lock` and `etcdctl lock`, by running the versions that it names. A comment `Row:` says
//! which rows a test shows. Where a program, or that version of it, is absent, its tests say so and show nothing; in a run of everything, they
//! fail.

mod consul;
mod etcd;
mod flock;
mod same_store;

use super::kit::{Ended, Killed, Start, state, with_default_signals};
use super::support::crew::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::any::Any;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A program that runs a command under a lock, and a directory for the command.
struct Locker {
    words: Vec<String>,
    /// The last one has the address of its server.
    variables: Vec<(&'static str, String)>,
    home: TempDir,
    _server: Option<Box<dyn Any>>,
}

/// Returns `true` if the program is there in this version. Says so if it is not.
fn is_there(program: &str, question: &str, version: &str) -> bool {
    let told = Command::new(program).arg(question).env("ETCDCTL_API", "3").output();
    let told = told.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let is_there = told.contains(version);
    if !is_there {
        let instead = told.lines().next().unwrap_or("nothing");
        let must_be = std::env::var_os("DLOCK_TEST_EVERY_PROGRAM").is_some();
        assert!(!must_be, "{program} {version} is not there, but {instead:?}");
        // Not by `eprintln!`: what a test that passes has printed is not shown.
        let _ = writeln!(io::stderr(), "SKIPPED: {program} {version} is not there, but {instead:?}");
    }
    is_there
}

impl Locker {
    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The program with other words before the command.
    fn with(&self, words: &[&str], command: &[&str]) -> Command {
        let mut locker = with_default_signals(&self.words[0]);
        locker.args(&self.words[1..]).args(words).args(command).current_dir(self.home.path()).process_group(0);
        locker.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        locker
    }

    /// The program with a shell command.
    fn shell(&self, script: &str) -> Command {
        self.with(&[], &["sh", "-c", script])
    }

    fn pid_of(&self, name: &str) -> Pid {
        let mut pid = None;
        eventually(name, || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            pid = text.strip_suffix('\n').and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            pid.is_some()
        });
        pid.unwrap()
    }

    /// The group of the command, and the locker's.
    fn groups(&self) -> (String, String) {
        let running = self.shell("cut -d' ' -f5 /proc/$$/stat; exec true").start();
        let own = running.pid().as_raw_nonzero().to_string();
        (running.end().out.trim().to_owned(), own)
    }

    /// What becomes of a signal to the locker alone.
    fn signalled(&self, signal: Signal) -> Signalled {
        ["pid", "got", "go"].iter().for_each(|name| drop(fs::remove_file(self.path(name))));
        let number = signal.as_raw();
        let script = format!(
            "trap 'echo {number} >> got; exit' {number}; trap 'echo 15 >> got; exit' 15; echo $$ > pid; until [ -e go ]; do sleep 0.02; done"
        );
        let running = self.shell(&script).start();
        let (command, locker) = (self.pid_of("pid"), running.pid());
        running.signal(signal);
        let ended = |pid| matches!(state(pid), None | Some('Z'));
        // A signal that does nothing shows nothing: then the command is told to end, and has got none until then.
        let begun = std::time::Instant::now();
        while !ended(locker) && !self.path("got").exists() && begun.elapsed() < std::time::Duration::from_secs(1) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let is_forwarded = self.path("got").exists();
        let outlives = !is_forwarded && ended(locker) && !ended(command);
        fs::write(self.path("go"), "").unwrap();
        eventually("the command has ended", || ended(command));
        running.end();
        match (is_forwarded, outlives) {
            (true, _) => Signalled::Forwarded,
            (false, true) => Signalled::EndsTheLockerAlone,
            (false, false) => Signalled::DoesNothing,
        }
    }

    /// Whether a process that the command leaves behind, or the command itself if its locker is killed, runs on.
    fn runs_on(&self, script: &str, end: impl FnOnce(super::kit::Running)) -> bool {
        let _ = fs::remove_file(self.path("pid"));
        let mut command = self.shell(&format!("exec >/dev/null 2>&1; {script}"));
        let running = command.start();
        let pid = self.pid_of("pid");
        end(running);
        let runs = !matches!(state(pid), None | Some('Z'));
        let _ = kill_process(pid, Signal::KILL);
        runs
    }

    fn leaves_behind(&self) -> bool {
        self.runs_on("sh -c 'echo $$ > pid; exec sleep 100' & until [ -s pid ]; do sleep 0.01; done", |running| {
            running.end();
        })
    }

    fn outlives_a_kill(&self) -> bool {
        self.runs_on("echo $$ > pid; exec sleep 100", |running| {
            running.signal(Signal::KILL);
            running.end();
        })
    }

    fn read_by(&self, words: &[&str]) -> String {
        let mut command = self.with(words, &["cat"]);
        let mut running = Killed(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        // Who does not read may have ended.
        let _ = running.0.stdin.take().unwrap().write_all(b"a line");
        let mut out = String::new();
        io::Read::read_to_string(&mut running.0.stdout.take().unwrap(), &mut out).unwrap();
        running.0.wait().unwrap();
        out
    }

    fn arguments(&self, words: &[&str]) -> String {
        self.with(words, &["printf", "[%s]", "a b", "$HOME"]).end().out
    }

    /// Whether the command's environment has something that differs from lock to lock.
    fn environments(&self) -> [String; 2] {
        [(); 2].map(|()| self.shell("env | grep -v '^_=' | sort").end().out)
    }

    /// Runs something while another command holds the lock.
    fn while_held(&self, then: impl FnOnce() -> Ended) -> Ended {
        ["pid", "go"].iter().for_each(|name| drop(fs::remove_file(self.path(name))));
        let holder = self.shell("echo $$ > pid; until [ -e go ]; do sleep 0.02; done").start();
        self.pid_of("pid");
        let ended = then();
        fs::write(self.path("go"), "").unwrap();
        holder.end();
        ended
    }
}

#[derive(Debug, PartialEq)]
enum Signalled {
    Forwarded,
    EndsTheLockerAlone,
    DoesNothing,
}
