//! What a server has executed, by its own count (`INFO commandstats`); what runs inside scripts is counted too.

use super::RedisServer;
use std::collections::HashMap;

/// Calls by command.
#[derive(Debug)]
pub(crate) struct Commands(HashMap<String, u64>);

/// Commands of the tests themselves.
const OWN: [&str; 4] = ["config|resetstat", "info", "hello", "client|setinfo"];

impl Commands {
    /// Begins to count anew.
    pub(crate) fn forget(server: &RedisServer) {
        Self::forget_by(&mut server.connection());
    }

    /// Begins to count anew, by a connection that is open already.
    pub(crate) fn forget_by(admin: &mut redis::Connection) {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(admin).unwrap();
    }

    /// What was executed since the last [`forget`](Self::forget).
    pub(crate) fn of(server: &RedisServer) -> Self {
        let stats: String = server.run(&["INFO", "commandstats"]);
        let calls = stats.lines().filter_map(|line| {
            let (command, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), figures.split(',').next()?.parse().unwrap()))
        });
        Self(calls.filter(|(command, _)| !OWN.contains(&command.as_str())).collect())
    }

    /// How often one was executed.
    pub(crate) fn count(&self, command: &str) -> u64 {
        self.0.get(command).copied().unwrap_or(0)
    }

    /// How many were executed in all.
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}
