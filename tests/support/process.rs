//! What the operating system knows of a process and its threads. Tests that count what belongs to the whole process run in
//! a process of their own.

use super::crew::eventually;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::{env, fs};

/// The name of the one test that a child process is to run.
const ALONE: &str = "DLOCK_TEST_ALONE";

/// Runs `body`, the body of the test at `path` (`it::module::name`), in a process that runs nothing else.
pub(crate) fn alone(path: &str, body: impl FnOnce()) {
    alone_in(path, Vec::new, body);
}

/// As [`alone`], with environment variables that are made in the parent process.
pub(crate) fn alone_in(path: &str, variables: impl FnOnce() -> Vec<(String, String)>, body: impl FnOnce()) {
    let name = path.split_once("::").expect("the crate's name comes first").1;
    if env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return body();
    }
    let child = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, name)
        .envs(variables())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && out.contains("1 passed"), "{name}, alone:\n{out}{err}");
    // What it has to report.
    err.lines().filter(|line| line.starts_with("endurance")).for_each(|line| eprintln!("{line}"));
}

/// An example program, which `cargo test` builds beside the tests; built here when only some targets were.
pub(crate) fn example(name: &str) -> PathBuf {
    let built = env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples").join(name);
    if !built.exists() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        // `tests/run.sh` sets it for the tests. With it, cargo would build most crates once more, and again without it.
        build.args(["build", "--all-features", "--example", name]).env_remove("RUSTC_BOOTSTRAP");
        assert!(build.status().unwrap().success());
    }
    built
}

/// Sends a child process a signal. After STOP, all its threads stand still when this returns: `kill` alone returns before that,
/// and whatever the child does until then looks as if a stopped process had done it.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).unwrap();
    if signal == Signal::STOP {
        // The state is looked at and left: nobody else asks for it, and it ends with CONT.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        eventually("the process stands still", || waitid(WaitId::Pid(pid), options).unwrap().is_some());
    }
}

/// How many threads of this process have a name that begins so.
pub(crate) fn threads_named(prefix: &str) -> usize {
    tasks(std::process::id()).into_iter().filter(|task| task.name.starts_with(prefix)).count()
}

/// One thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    path: PathBuf,
    /// Its first 15 characters.
    pub(crate) name: String,
}

/// The threads of a process.
pub(crate) fn tasks(pid: u32) -> Vec<Task> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let named = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        // A thread may end between the listing and the look.
        let name = fs::read_to_string(path.join("comm")).ok()?.trim_end().to_owned();
        Some(Task { path, name })
    });
    named.collect()
}

impl Task {
    /// How often it has gone to sleep of itself: once more after each wake-up.
    pub(crate) fn sleeps(&self) -> u64 {
        let status = fs::read_to_string(self.path.join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }
}

/// How many threads this process has.
pub(crate) fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// What the open file descriptors of this process lead to, in order.
pub(crate) fn descriptors() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    // The descriptor of this very listing is gone when it is looked at.
    let mut targets: Vec<_> = entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| !target.ends_with("/fd"))
        .collect();
    targets.sort();
    targets
}

/// A process that is killed when this is dropped.
#[allow(dead_code, reason = "not all that include this file use it")]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_told_to_stop_stands_still() {
    use std::process::Stdio;

    let endless = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    let endless = Killed(endless);
    for _ in 0..20 {
        signal(&endless.0, Signal::STOP);
        let stat = fs::read_to_string(format!("/proc/{}/stat", endless.0.id())).unwrap();
        assert!(stat.contains(") T "), "{stat}");
        signal(&endless.0, Signal::STOP);
        signal(&endless.0, Signal::CONT);
    }
}
