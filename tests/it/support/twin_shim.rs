//! Processes that look like copies of one running process, by a small library that is put before the C library (`twin_shim.c`).

use super::clock_shim::compile;
use tempfile::TempDir;

/// The library that makes processes look like copies: see the module.
pub(crate) struct TwinShim(TempDir);

impl TwinShim {
    pub(crate) fn build() -> Self {
        let dir = tempfile::Builder::new().prefix("redis-dlock-").tempdir().unwrap();
        compile("twin_shim.c", &dir.path().join("shim.so"));
        Self(dir)
    }

    /// The environment of such a process.
    pub(crate) fn variables(&self) -> [(String, String); 2] {
        let shim = self.0.path().join("shim.so").to_str().unwrap().to_owned();
        [("LD_PRELOAD".to_owned(), shim), ("TWIN_SHIM".to_owned(), "4711".to_owned())]
    }
}
