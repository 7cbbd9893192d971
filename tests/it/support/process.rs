//! Tests that count what belongs to the whole process, such as threads: each runs in a process of its own.

use std::process::Command;
use std::{env, fs};

/// The name of the one test that a child process is to run.
const ALONE: &str = "DLOCK_TEST_ALONE";

/// Runs `body`, the body of the test at `path` (`it::module::name`), in a process that runs nothing else.
pub(crate) fn alone(path: &str, body: impl FnOnce()) {
    let name = path.split_once("::").expect("the crate's name comes first").1;
    if env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return body();
    }
    let child = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, name)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && out.contains("1 passed"), "{name}, alone:\n{out}{err}");
}

/// How many threads of this process have a name that begins so.
pub(crate) fn threads_named(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end between the listing and the look.
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
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
