//! The masters of a Cluster, one after another, for questions that all of them must answer.

use super::core::Cluster;
use crate::error::Error;
use crate::store::redis::node::Node;
use crate::timing::end_of;
use ::redis::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A master, and its address.
type Master = (Arc<Node>, String);

impl Cluster {
    /// Returns the first of the masters whose address is not before this one, and the address of the master behind it. Masters are in the
    /// order of their addresses, so that a change of the map meanwhile repeats none and leaves out none that stays.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if no node tells a map in time.
    pub(crate) fn master_from(
        &self,
        address: &str,
        limit: Duration,
    ) -> Result<(Option<Master>, Option<String>), Error> {
        self.refresher.wait_for_first(end_of(limit, Instant::now()))?;
        let view = self.map.view();
        let of = |node: &Arc<Node>| (node.transport.endpoint().address.to_string(), Arc::clone(node));
        let mut masters: Vec<_> = view.nodes.iter().map(of).filter(|(known, _)| known.as_str() >= address).collect();
        masters.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Two places can have one address by the program's map of addresses. The caller goes on behind an address, and would meet the
        // second one for ever.
        masters.dedup_by(|(a, _), (b, _)| a == b);
        let mut masters = masters.into_iter();
        let first = masters.next().map(|(address, node)| (node, address));
        Ok((first, masters.next().map(|(address, _)| address)))
    }

    /// Asks a master for what is asked of all. If it gives no answer, the map is asked for: another node may have its place by now.
    pub(crate) fn ask_master(&self, master: &Node, words: &[&str], limit: Duration) -> Result<Value, Error> {
        // Only to have an old map renewed: the masters were chosen by the caller, who may list for minutes.
        drop(self.refresher.fresh_view(Instant::now()));
        let reply = master.say(words, limit);
        if reply.is_err() {
            self.refresher.want();
        }
        reply
    }
}
