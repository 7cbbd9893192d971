//! A slow resolver, by a small library that is put before the C library (`resolver_shim.c`).

use super::clock_shim::compile;
use std::time::Duration;
use std::{env, fs};
use tempfile::TempDir;

/// The variable that names the file with the delay.
const FILE: &str = "RESOLVER_SHIM";

/// A slow resolver: see the module. It is not delayed at first.
pub(crate) struct ResolverShim(TempDir);

impl ResolverShim {
    pub(crate) fn build() -> Self {
        let dir = tempfile::Builder::new().prefix("redis-dlock-").tempdir().unwrap();
        compile("resolver_shim.c", &dir.path().join("shim.so"));
        fs::write(dir.path().join("millis"), "0").unwrap();
        Self(dir)
    }

    /// The environment of a process whose resolver this delays.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.0.path().join(name).to_str().unwrap().to_owned();
        vec![("LD_PRELOAD".to_owned(), path("shim.so")), (FILE.to_owned(), path("millis"))]
    }
}

/// Delays the resolver of this process, which must run in the environment of a [`ResolverShim`].
pub(crate) fn delay(delay: Duration) {
    fs::write(env::var_os(FILE).unwrap(), delay.as_millis().to_string()).unwrap();
}
