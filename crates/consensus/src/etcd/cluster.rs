//! Which cluster the answers come from.
//!
//! Two clusters know nothing of each other's locks. If a URL names servers of both, a client that takes the answers of both gets a lock that somebody
//! holds in the other one. Each success of etcd has the name of its cluster, so a client knows it without a request.
//!
//! | an answer | effect |
//! |---|---|
//! | the first with a name | the client uses this cluster |
//! | with the name of that cluster | it counts |
//! | with another name | an error: the server counts as one that has not answered, and the next one is asked |
//! | with another name, which every server of the URL has shown last | the client uses this cluster from now on |
//! | an error, which has no name | it counts if the server has shown none, or has last shown the cluster that the client uses |
//!
//! Servers have another name after they were set up anew or restored from a backup. A client goes on with them: a program that is started again would,
//! too, so an error for ever would protect nothing. Its holds are lost unless the restored servers have their entries. While one server of the URL has
//! not shown the new name, nobody knows whether the earlier cluster still runs, and the client does not go on.
//!
//! An error of a server that has shown no name may be one of another cluster. So "lease not found" ends a session only if a renewal, whose answer has a
//! name, does not find the lease either.
//!
//! The outcome of a request to another cluster is unknown: if the servers have been restored, that cluster is the client's own from a later answer on.

use super::encode;
use redis_dlock::{BackendFailure, Error};
use serde_json::Value;
use std::collections::BTreeMap;

/// The cluster that a client uses.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    name: Option<u64>,
    /// The highest term of its log in any answer: each election begins one.
    term: u64,
    /// A number that is higher than all terms of the clusters before it.
    before: u64,
    /// The name that each server has shown last.
    shown: BTreeMap<String, u64>,
}

impl Cluster {
    /// Takes in an answer of one of these servers. Fails if it does not count.
    pub(super) fn take_in(&mut self, answer: &Value, server: &str, servers: &[String]) -> Result<(), Error> {
        if let Some(name) = encode::cluster(answer) {
            match self.shown.get_mut(server) {
                Some(shown) => *shown = name,
                None => drop(self.shown.insert(server.to_owned(), name)),
            }
        }
        let Some(name) = self.shown.get(server).copied() else { return Ok(()) };
        let used = *self.name.get_or_insert(name);
        if name != used {
            if servers.iter().any(|other| self.shown.get(other) != Some(&name)) {
                let message = format!(
                    "{server} is of the cluster {name:x}, and this client uses the cluster {used:x}: name the servers of one cluster in the URL \
                     (servers that were restored from a backup are used once all in the URL have answered)"
                );
                return Err(Error::backend(BackendFailure::Unknown, message));
            }
            self.before += self.term + 1;
            (self.name, self.term) = (Some(name), 0);
        }
        self.term = self.term.max(encode::term(answer).unwrap_or_default());
        Ok(())
    }

    /// Returns whether another server has begun to lead since the one that answers in this term.
    pub(super) fn is_past(&self, term: u64) -> bool {
        term < self.term
    }

    /// Returns a number that rises with each term and each cluster. Terms of a restored cluster begin anew.
    pub(super) fn term(&self) -> u64 {
        self.before + self.term
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A change of the cluster is a new term, also if the terms of its log are lower or the same: a renewal in the one and a look in the other do not
    /// belong together.
    #[test]
    fn another_cluster_is_another_term() {
        let server = [String::from("a")];
        let mut cluster = Cluster::default();
        let mut before = 0;
        for (name, term) in [(1, 7), (2, 7), (1, 2), (1, 3), (3, 1)] {
            let header = json!({ "cluster_id": name.to_string(), "raft_term": term.to_string() });
            cluster.take_in(&json!({ "result": { "header": header } }), "a", &server).expect("it is the only server");
            assert!(cluster.term() > before && !cluster.is_past(term) && cluster.is_past(term - 1), "{name} {term}");
            before = cluster.term();
        }
    }
}
