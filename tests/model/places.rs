//! For the properties: who was passed over because nobody heard it, and for how long.
//!
//! It follows the rule by its own clock, and does not look at the mark of the queue.

use crate::rules::Rules;
use crate::server::{Done, Locker, Server};

/// What the properties remember of those who were passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// For how many ticks there has been somebody who was passed over, at most as many as places are kept for.
    since: Option<u8>,
    /// Whether a waiter lost its place to others too early.
    pub(crate) lost: bool,
    /// Whether a waiter kept its place for too long.
    pub(crate) outstayed: bool,
}

impl Places {
    /// Looks at what a script has done to those who waited before.
    pub(crate) fn look(&mut self, rules: &Rules, before: &[Locker], server: &Server, done: &Done) {
        if rules.refusals {
            // A refused script may have begun the time, and may change the order.
            return;
        }
        let stayed: Vec<_> = before.iter().copied().filter(|locker| server.is_queued(*locker)).collect();
        let there: Vec<_> = server.queue().filter(|locker| before.contains(locker)).collect();
        self.lost |= stayed != there;
        let is_over = self.since.is_some_and(|since| since >= rules.keep);
        let (kept, dropped): (Vec<Locker>, Vec<Locker>) =
            done.unheard.iter().partition(|locker| server.is_queued(**locker));
        self.outstayed |= is_over && !kept.is_empty();
        self.lost |= !is_over && !dropped.is_empty();
        let served = server.holder().is_some_and(|holder| before.contains(&holder));
        if !kept.is_empty() {
            self.since.get_or_insert(0);
        } else if served || !dropped.is_empty() {
            self.since = None;
        }
        self.forget_if_nobody_waits(server);
    }

    pub(crate) fn tick(&mut self, rules: &Rules, server: &Server) {
        self.since = self.since.map(|since| rules.keep.min(since + 1));
        self.forget_if_nobody_waits(server);
    }

    /// The server's clock is stepped back: whoever was passed over has had its time.
    pub(crate) fn step_back(&mut self, rules: &Rules) {
        self.since = self.since.map(|_| rules.keep);
    }

    pub(crate) fn forget_if_nobody_waits(&mut self, server: &Server) {
        self.since = self.since.filter(|_| server.queue().next().is_some());
    }
}
