//! The wall clock of one process, moved while it runs, by a small library that is put before the C library (`clock_shim.c`).
//!
//! The test itself builds it with `cc`, which exists wherever Rust links.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A movable wall clock: see the module. It is right at first.
pub(crate) struct ClockShim {
    dir: TempDir,
}

impl ClockShim {
    pub(crate) fn build() -> Self {
        let dir = tempfile::Builder::new().prefix("redis-dlock-").tempdir().unwrap();
        compile("clock_shim.c", &dir.path().join("shim.so"));
        fs::write(dir.path().join("offset"), 0_i64.to_ne_bytes()).unwrap();
        Self { dir }
    }

    /// The environment of a process whose wall clock this moves.
    pub(crate) fn variables(&self) -> [(String, String); 2] {
        let path = |name: &str| OsStr::to_str(self.dir.path().join(name).as_os_str()).unwrap().to_owned();
        [("LD_PRELOAD".to_owned(), path("shim.so")), ("CLOCK_SHIM".to_owned(), path("offset"))]
    }

    /// Steps the clock: so many seconds off from now on.
    pub(crate) fn set(&self, seconds: i64) {
        // The file is written in place by one write, because the process has it mapped.
        let file = OpenOptions::new().write(true).open(self.dir.path().join("offset")).unwrap();
        file.write_all_at(&(seconds * 1_000_000_000).to_ne_bytes(), 0).unwrap();
    }
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
