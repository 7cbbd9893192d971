//! The way of a call from its first node to the node that executes it. The rules are in `redirect.rs`.
//!
//! A [`RoutedCall`] is a call on its way. It knows where it goes next, and its last reply. A single call is a batch of one routed call.
//! Each round sends the routed calls that are not over, takes their replies, decides for each where it goes next, and pauses once for all.
//! A routed call is over with a reply that is no redirection, when it was redirected too often, or when its pause does not fit into what is
//! left of the limit.
//!
//! A node to which a connect failed less than [`COOLDOWN`] ago is not tried. The call fails at once as not executed, and the next map may
//! name another owner. Otherwise thousands of waiting threads would each wait for a connect to the same node.
//!
//! # Batches
//!
//! 1. Calls that are sent together are first sent to all nodes, and then awaited. The replies of each node are looked at, even if the time
//!    is over.
//! 2. A batch waits at most [`BATCH_PATIENCE`] for a node. A node that does not answer by then is *silent* until it answers anything. The
//!    sender of a batch asks [`keeps_waiting`](Cluster::keeps_waiting) first. It sends the calls for such nodes in batches of their own,
//!    which wait as long as they may. So a node that hangs delays the calls to other nodes by [`BATCH_PATIENCE`] at most, and only once. A
//!    node whose replicas must acknowledge, and have not done so yet, keeps calls waiting, too. So does a node that was not called yet: a
//!    new master has no replica at first, and keeps each call for the whole time that it may wait for one. If such a call were in a common
//!    batch, a waiter of a key on another node would learn of its grant only after that time.
//! 3. A batch to several nodes keeps a quarter of its time for calls that must be sent once more: to another node, or with the whole text
//!    of a script.
//! 4. All pauses of a batch together last [`BATCH_PAUSES`] at most, because its sender asks again by itself.

use super::core::Cluster;
use super::map::MapView;
use super::redirect::{RedirectBudget, RedirectReply, redirect_reply, words};
use super::timing::{BATCH_PATIENCE, BATCH_PAUSES, COOLDOWN, EACH_CALL, MAP_WAIT, PUBLISH_LIMIT};
use crate::error::{BackendFailure, Error};
use crate::store::redis::net::classify::is_redirection;
use crate::store::redis::node::{CallOptions, Node};
use crate::store::redis::script::keys::{Slot, slot_of};
use crate::store::redis::script::reply::mismatch;
use crate::store::redis::script::scripts::Call;
use crate::store::redis::transport::{AtLimit, Replies, Reply, WaitOrder};
use crate::timing::end_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A call on its way.
struct RoutedCall<'a> {
    call: Call<'a>,
    slot: Slot,
    budget: RedirectBudget,
    /// Where it is sent next; `None` while its slot has no owner.
    node: Option<Arc<Node>>,
    /// The last reply. Missing before the first one.
    reply: Option<Reply>,
    is_over: bool,
}

/// Calls that are under way together.
pub(crate) struct RoutedBatch<'c> {
    cluster: &'c Cluster,
    begun: Instant,
    limit: Duration,
    at_limit: AtLimit,
    urgent: bool,
    /// How long the calls may pause in all.
    pauses: Duration,
    /// Whether the calls are a batch. Other batches wait behind a batch, so its calls do not wait for a new map.
    is_batch: bool,
}

impl<'c> RoutedBatch<'c> {
    /// Runs calls together. Returns a reply for each.
    pub(crate) fn run<'a>(
        cluster: &'c Cluster,
        calls: impl ExactSizeIterator<Item = Call<'a>>,
        options: &CallOptions,
    ) -> Replies {
        let batch = Self::of(cluster, calls.len(), options);
        let Self { begun, limit, .. } = batch;
        // The map is read once for all calls. A call that succeeds takes no other lock of the Cluster.
        let mut view = cluster.refresher.fresh_view(begun);
        if !view.is_known() {
            if let Err(error) = cluster.refresher.wait_for_first(end_of(limit, begun)) {
                return calls.map(|_| Err(error.clone())).collect();
            }
            view = cluster.map.view();
        }
        let mut routed_calls: Vec<_> = calls.map(|call| RoutedCall::by(&view, call)).collect();
        // A node that leaves the map meanwhile lives on only for the calls that are sent to it.
        drop(view);
        batch.send(&mut routed_calls);
        batch.follow(&mut routed_calls);
        routed_calls.into_iter().map(|routed| routed.reply.unwrap_or_else(|| Err(mismatch()))).collect()
    }

    /// Makes a call on which nothing depends. Once the map is known, it takes [`PUBLISH_LIMIT`] at most, because the caller's next call needs the
    /// rest of the limit.
    pub(crate) fn publish(cluster: &'c Cluster, call: Call<'_>, limit: Duration) -> Reply {
        let begun = Instant::now();
        // The caller's own request needs the map as well, so the wait for it has the caller's limit.
        cluster.refresher.wait_for_first(end_of(limit, begun))?;
        let options = CallOptions::within(limit.saturating_sub(begun.elapsed()).min(PUBLISH_LIMIT));
        Self::run(cluster, std::iter::once(call), &options).pop().unwrap_or_else(|| Err(mismatch()))
    }

    /// A single call may pause for as long as its caller waits.
    fn of(cluster: &'c Cluster, calls: usize, options: &CallOptions) -> Self {
        let CallOptions { limit, at_limit, urgent, .. } = *options;
        // A single renewal is a batch, too: other renewals may fall due behind it, so it must not wait for a node that hangs.
        let is_batch = matches!(at_limit, AtLimit::BreakConnection) || calls > 1;
        let pauses = if is_batch { BATCH_PAUSES } else { limit };
        Self { cluster, begun: Instant::now(), limit, at_limit, urgent, pauses, is_batch }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    /// Sends the calls that are not over, and waits for their replies.
    fn send(&self, routed_calls: &mut [RoutedCall<'_>]) {
        let mut groups: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
        for (at, routed) in routed_calls.iter_mut().enumerate().filter(|(_, routed)| !routed.is_over) {
            match &routed.node {
                // The calls are grouped by their nodes, and not by the places of the nodes: a node that was made again has other connections, and
                // calls to the earlier node may still be under way.
                Some(node) if !node.transport.is_cooling_down(COOLDOWN) => {
                    match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, node)) {
                        Some((_, members)) => members.push(at),
                        None => groups.push((Arc::clone(node), vec![at])),
                    }
                }
                _ => routed.reply = Some(Err(self.unavailable(routed))),
            }
        }
        // Replies are awaited in this order, so a node that keeps calls waiting comes last, and delays no other node.
        groups.sort_by_key(|(node, _)| node.keeps_waiting());
        let left = self.left();
        // A single call waits for its node as long as its caller does, because it delays no other call.
        let wait = if self.is_batch { self.patience(&groups, left) } else { left };
        // A connection is given up only if it had most of the batch's time.
        let is_most = wait.saturating_mul(2) >= self.limit;
        let at_limit = if is_most { self.at_limit } else { AtLimit::KeepConnection };
        // With one group the caller may read by itself at once. With several it must write to all before it reads from any.
        let waits = if groups.len() == 1 { WaitOrder::AtOnce } else { WaitOrder::AfterOthers };
        let mut sent = Vec::with_capacity(groups.len());
        // All are sent before the first reply is awaited, so a batch takes as long as its slowest node, and not as all of them together.
        for (node, members) in &groups {
            let calls = members.iter().map(|at| routed_calls[*at].call);
            let options = CallOptions { limit: wait, spare: left - wait, at_limit, urgent: self.urgent };
            sent.push(node.begin(calls, options, waits));
        }
        // All groups have the same deadline. The replies of each group are looked at, even if a node that hangs has used the time up (rule 1).
        for ((node, members), sent) in groups.iter().zip(sent) {
            let replies = node.end(sent);
            if self.is_batch
                // In less time, even a healthy node may not answer.
                && wait >= BATCH_PATIENCE / 2
                && replies.iter().all(|reply| matches!(reply, Err(Error::Backend { .. })))
            {
                node.note_silence();
            }
            for (at, reply) in members.iter().zip(replies) {
                routed_calls[*at].reply = Some(reply);
            }
        }
    }

    fn patience(&self, groups: &[(Arc<Node>, Vec<usize>)], left: Duration) -> Duration {
        let spoken = groups.iter().filter(|(node, _)| !node.is_silent());
        let took = spoken.map(|(node, _)| node.transport.connect_took()).max();
        // A healthy master may wait so long for its replicas. If it counted as silent, its keys would lose their place in the common batch.
        let confirmation = self.cluster.map.nodes.reach.acks.map_or(Duration::ZERO, |acks| acks.timeout);
        let calls = groups.iter().map(|(_, members)| members.len()).sum();
        patience(left, groups.len() > 1, took, confirmation, calls)
    }

    /// Sends the calls again that were not executed, until each has its reply or the time is over.
    fn follow(&self, routed_calls: &mut [RoutedCall<'_>]) {
        let mut paused = Duration::ZERO;
        loop {
            let mut pause = Duration::ZERO;
            for routed in routed_calls.iter_mut().filter(|routed| !routed.is_over) {
                match self.next(routed) {
                    // A pause that leaves no time for an answer is not begun. The call ends with its last reply, which says why.
                    Some(wanted) if paused + wanted <= self.pauses && wanted < self.left() => {
                        pause = pause.max(wanted);
                    }
                    // The call was answered, or redirected too often.
                    Some(_) | None => routed.end(),
                }
            }
            // Calls that are over keep their replies while the others go on. The batch ends with the last of them, or with its time.
            if routed_calls.iter().all(|routed| routed.is_over) {
                return;
            }
            // All calls have one pause, the longest that a call needs. Separate pauses would add up, and leases of other keys wait behind this batch.
            if !pause.is_zero() {
                std::thread::sleep(pause);
                paused += pause;
            }
            self.send(routed_calls);
        }
    }

    /// Decides where a call goes after its reply. Returns the pause before that, or `None` if the reply is the last one.
    fn next(&self, routed: &mut RoutedCall<'_>) -> Option<Duration> {
        let reply = routed.reply.as_ref()?;
        let Ok(replied) = reply else {
            // Only "not executed" is certain. After any other failure the command may be on its way, and a second one could run after the release
            // that the caller sends next.
            let is_unsent = matches!(reply, Err(Error::Backend { failure: BackendFailure::NotExecuted, .. }));
            return self.after_no_connection(routed, is_unsent);
        };
        match redirect_reply(&replied.value) {
            RedirectReply::Answer => {
                if routed.call.asking
                    && routed.call.has_many_keys()
                    && let Some(node) = &routed.node
                {
                    // The whole script ran behind an `ASKING`, so all its keys are at this node. The move may be over, and the node that sent the
                    // `ASK` may not know it yet.
                    self.cluster.refresher.ask_first(&node.transport.endpoint().address.place);
                    self.cluster.refresher.want();
                }
                None
            }
            RedirectReply::Moved { host, port } => {
                let old = routed.node.take()?;
                // The map learns of it first: the calls of other threads then go there directly, and only one of them pays for the
                // redirection.
                let Some(next) = self.cluster.redirect(routed.slot, &old, host, port) else {
                    return self.again(routed);
                };
                routed.node = Some(next);
                routed.call.asking = false;
                routed.budget.redirect()
            }
            RedirectReply::Ask { host, port } => {
                let map = &self.cluster.map;
                // The map is left as it is: until the slot has moved, the earlier node owns it, and has the keys that were not moved yet.
                let Some(place) = map.place(routed.node.as_ref()?, host, port) else { return self.again(routed) };
                routed.node = Some(map.nodes.at(&place));
                routed.call.asking = true;
                // The other node may have the lock's key, and not the queue. If the call can do with the lock's key alone, it runs there in that
                // form. Any other call is answered `TRYAGAIN` until the move is over.
                routed.call = routed.call.alone().unwrap_or(routed.call);
                routed.budget.redirect()
            }
            RedirectReply::TryAgain => {
                // A lease must not wait until a slot with many keys has moved. This form needs one key, which is at one of the two nodes.
                if let Some(alone) = routed.call.alone() {
                    routed.call = alone;
                    return Some(Duration::ZERO);
                }
                self.again(routed)
            }
            // The node is no master now, or the Cluster is down. The owner by the next map may be another one, and `again` looks for it
            // after the pause.
            RedirectReply::Later => {
                self.cluster.refresher.want();
                self.again(routed)
            }
        }
    }

    /// Sends a call to the owner of its slot once more, after a pause.
    fn again(&self, routed: &mut RoutedCall<'_>) -> Option<Duration> {
        // The slot may have arrived at another node meanwhile.
        routed.node = self.cluster.map.owner(routed.slot);
        routed.call.asking = false;
        Some(routed.budget.pause())
    }

    /// Looks for another owner of a slot whose owner could not be reached.
    fn after_no_connection(&self, routed: &mut RoutedCall<'_>, is_unsent: bool) -> Option<Duration> {
        // Other calls for the slot will fail in the same way, whatever this call was.
        let ended = self.cluster.refresher.want();
        if !is_unsent {
            return None;
        }
        // One call waits for the map that it has asked for. A batch does not, since other renewals wait behind it; its caller asks again by
        // itself.
        if !self.is_batch {
            self.cluster.refresher.wait(ended, Instant::now() + self.left().min(MAP_WAIT));
        }
        let owner = self.cluster.map.owner(routed.slot)?;
        // The same node would fail in the same way, so it is not tried again.
        if routed.node.as_ref().is_some_and(|node| Arc::ptr_eq(node, &owner)) || self.left().is_zero() {
            return None;
        }
        routed.node = Some(owner);
        routed.call.asking = false;
        routed.budget.redirect()
    }

    /// The error of a call whose node is not tried.
    fn unavailable(&self, routed: &RoutedCall<'_>) -> Error {
        match &routed.node {
            Some(node) => {
                // The connect that has failed has told its own caller why. This message says that no connect was tried.
                let address = &node.transport.endpoint().address;
                let message = format!("{address}: not tried: a connect has failed less than {COOLDOWN:?} ago");
                Error::backend(BackendFailure::NotExecuted, message)
            }
            None => self.cluster.unowned(routed.slot),
        }
    }
}

/// Returns how long a batch waits for the replies of its nodes. `left` is what is left of its limit. `took` is how long a connect to a node has taken
/// that is not known to be silent; `None` if all nodes are silent. A call may wait for two confirmations, which may take `confirmation` each.
fn patience(
    left: Duration,
    is_several: bool,
    took: Option<Duration>,
    confirmation: Duration,
    calls: usize,
) -> Duration {
    let most = if is_several { left - left / 4 } else { left };
    took.map_or(most, |took| {
        (BATCH_PATIENCE.max(took * 2) + confirmation * 2 + EACH_CALL * u32::try_from(calls).unwrap_or(u32::MAX))
            .min(most)
    })
}

impl<'a> RoutedCall<'a> {
    /// A call that goes to the owner of its slot by this map.
    fn by(view: &MapView, call: Call<'a>) -> Self {
        let slot = slot_of(call.key.as_bytes());
        let (node, budget) = (view.owner(slot).cloned(), RedirectBudget::default());
        Self { call, slot, budget, node, reply: None, is_over: false }
    }

    /// Takes the last reply as the reply. A redirection that was not followed to its end is an error: the call was not executed.
    fn end(&mut self) {
        self.is_over = true;
        if let Some(Ok(replied)) = &self.reply
            && is_redirection(&replied.value)
        {
            let words = words(&replied.value);
            let message = format!("the nodes redirect the command, and it did not reach its slot in time: {words}");
            // A redirection says that the node has done nothing. So the caller may ask again, and needs no clean-up.
            self.reply = Some(Err(Error::backend(BackendFailure::NotExecuted, message)));
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/cluster/follow.rs"]
mod tests;
