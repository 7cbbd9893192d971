//! Keys and executed commands, of all nodes together.

use super::{Cluster, Node};

impl Cluster {
    /// How often a command was executed by the nodes that are up, since each was started; in scripts, too. Its name is in small
    /// letters, such as `spublish` or `cluster|slots`. Replicas count what their master sends them.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.up().map(|node| node.calls(command)).sum()
    }

    /// How many messages of PUBLISH the nodes that are up have sent to each other. Those of SPUBLISH count elsewhere.
    pub(crate) fn published_on_the_bus(&self) -> u64 {
        let sent = |node: &Node| {
            let info: String = node.run(&["CLUSTER", "INFO"]);
            let line =
                info.lines().find_map(|line| line.strip_prefix("cluster_stats_messages_publish_sent:")?.parse().ok());
            line.unwrap_or(0)
        };
        self.up().map(sent).sum()
    }

    /// The keys of all masters whose names match a pattern, in the order of their names.
    pub(crate) fn keys(&self, pattern: &str) -> Vec<String> {
        let masters = self.masters().into_iter();
        let mut keys: Vec<_> = masters.flat_map(|master| self.run::<Vec<String>>(master, &["KEYS", pattern])).collect();
        keys.sort_unstable();
        keys
    }
}

impl Node {
    /// How often it has executed a command since it was started; see [`Cluster::calls`].
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let prefix = format!("cmdstat_{command}:calls=");
        let info: String = self.run(&["INFO", "commandstats"]);
        let count = info.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok());
        count.unwrap_or(0)
    }
}
