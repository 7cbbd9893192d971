//! For the properties: who was passed over because nobody heard it, and for how long.
//!
//! It follows the rule by its own clock, and does not look at the mark of the queue.

use crate::rules::Rules;
use crate::server::{Done, Locker, Lockers, Server};

/// What the properties remember of those who were passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// For how many ticks places have been kept, at most as many as they are kept for; and for how many of the first waiters.
    since: Option<(u8, usize)>,
    /// Whether a waiter lost its place to others too early.
    pub(crate) lost: bool,
    /// Whether a waiter kept its place for too long.
    pub(crate) outstayed: bool,
}

impl Places {
    /// Looks at what a script has done to those who waited before.
    pub(crate) fn look(&mut self, rules: &Rules, before: &[Locker], server: &Server, done: &Done) {
        if rules.refusals || rules.raises {
            // A refused script may have begun the time, and may change the order.
            return;
        }
        let stayed: Lockers = before.iter().copied().filter(|locker| server.is_queued(*locker)).collect();
        let there: Lockers = server.queue().filter(|locker| before.contains(locker)).collect();
        self.lost |= stayed != there;
        let had_their_time = match self.since {
            Some((since, count)) if since >= rules.keep => count.min(done.unheard.len()),
            _ => 0,
        };
        let (due, others) = done.unheard.split_at(had_their_time);
        self.outstayed |= due.iter().any(|locker| server.is_queued(*locker));
        self.lost |= others.iter().any(|locker| !server.is_queued(*locker));
        let is_served = server.holder().is_some_and(|holder| before.contains(&holder));
        if others.is_empty() && (is_served || !due.is_empty()) {
            self.since = None;
        } else if !others.is_empty() && (self.since.is_none() || self.is_over(rules)) {
            self.since = Some((0, others.len()));
        }
        self.forget_if_nobody_waits(server);
    }

    /// The first waiter, which is heard, asks while another holds the key: nobody is passed over any more.
    pub(crate) fn first_is_heard(&mut self) {
        self.since = None;
    }

    pub(crate) fn tick(&mut self, rules: &Rules, server: &Server) {
        self.since = self.since.map(|(since, count)| (rules.keep.min(since + 1), count));
        self.forget_if_nobody_waits(server);
    }

    /// The server's clock is stepped back: whoever was passed over has had its time.
    pub(crate) fn step_back(&mut self, rules: &Rules) {
        self.since = self.since.map(|(_, count)| (rules.keep, count));
    }

    pub(crate) fn forget_if_nobody_waits(&mut self, server: &Server) {
        self.since = self.since.filter(|_| server.queue().next().is_some());
    }

    fn is_over(&self, rules: &Rules) -> bool {
        self.since.is_some_and(|(since, _)| since >= rules.keep)
    }
}
