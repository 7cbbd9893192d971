//! The wall clock of one process, moved while it runs, by a small library that is put before the C library (`clock_shim.c`).
//!
//! The test itself builds it with `cc`, which exists wherever Rust links.

use super::RedisServer;
use parking_lot::Mutex;
use redis_dlock::{Clock, ManualClock};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, LazyLock};
use std::time::UNIX_EPOCH;
use tempfile::TempDir;

/// The library, which each process of the tests builds once. It is renamed into its place, so running servers keep an earlier one.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let [built, library] = [format!("clock_shim.{}", process::id()), "clock_shim.so".to_owned()]
        .map(|name| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    compile("clock_shim.c", &built);
    fs::rename(built, &library).unwrap();
    library
});

/// A movable wall clock: see the module. It is right at first.
pub(crate) struct ClockShim {
    dir: TempDir,
    stepped: Arc<Mutex<Stepped>>,
    /// Sets this clock to the time of the clock that it follows.
    follow: Option<Arc<dyn Fn() + Send + Sync>>,
}

struct Stepped {
    file: File,
    /// How far the clock was stepped, in nanoseconds.
    by: i64,
}

impl ClockShim {
    /// Makes a clock that can be stepped.
    pub(crate) fn build() -> Self {
        let dir = tempfile::Builder::new().prefix("redis-dlock-").tempdir().unwrap();
        let file = OpenOptions::new().write(true).create_new(true).open(dir.path().join("clock")).unwrap();
        write(&file, 0);
        Self { dir, stepped: Arc::new(Mutex::new(Stepped { file, by: 0 })), follow: None }
    }

    /// Makes a clock that follows one that is moved by hand, and can be stepped beside that.
    pub(crate) fn following(clock: &Arc<ManualClock>) -> Self {
        let shim = Self::build();
        let origin = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap();
        let (stepped, leader) = (Arc::clone(&shim.stepped), Arc::clone(clock));
        let follow: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            // The clock is read under the mutex, so that a thread never writes an earlier time over a later one.
            let stepped = stepped.lock();
            write(&stepped.file, origin + i64::try_from(leader.now().as_nanos()).unwrap() + stepped.by);
        });
        follow();
        clock.wake_on_move(Arc::downgrade(&follow));
        Self { follow: Some(follow), ..shim }
    }

    /// The environment of a process whose wall clock this moves.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| OsStr::to_str(path.as_os_str()).unwrap().to_owned();
        let mut variables = vec![("LD_PRELOAD", text(&LIBRARY)), ("CLOCK_SHIM", text(&self.dir.path().join("clock")))];
        if self.follow.is_some() {
            variables.push(("CLOCK_STANDS", String::new()));
        }
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Steps the clock: so many seconds off from now on.
    pub(crate) fn set(&self, seconds: i64) {
        let mut stepped = self.stepped.lock();
        stepped.by = seconds * 1_000_000_000;
        let Some(follow) = &self.follow else { return write(&stepped.file, stepped.by) };
        drop(stepped);
        follow();
    }
}

/// A server whose clock follows one that is moved by hand, and can be stepped.
pub(crate) struct ServerByHand {
    server: RedisServer,
    pub(crate) shim: ClockShim,
}

impl ServerByHand {
    pub(crate) fn start(clock: &Arc<ManualClock>) -> Self {
        let shim = ClockShim::following(clock);
        Self { server: RedisServer::start_in(&shim.variables(), &[]), shim }
    }
}

impl Deref for ServerByHand {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}

/// Writes the file in place, by one write, because the process has it mapped.
fn write(file: &File, nanos: i64) {
    file.write_all_at(&nanos.to_ne_bytes(), 0).unwrap();
}

/// Builds the library that stands in a file beside this one.
pub(super) fn compile(name: &str, library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support").join(name);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(library)
        .arg(source)
        .args(["-ldl"])
        .status()
        .unwrap();
    assert!(built.success(), "cc: {built}");
}
