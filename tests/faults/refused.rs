//! Scenes in which the server refuses, and what the threads were told.

use crate::checker::waits::Kept;
use crate::history::{Nanos, Op, What};
use crate::scene::Scene;
use crate::setup::Setup;
use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::worker::now;
use std::time::Duration;

/// How long a refusal lasts, in leases, and how long the hold does in which it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// Over before the lease is, but an extension falls into it.
    Short,
    /// Longer than a lease.
    Long,
}

impl Length {
    pub(crate) const fn leases(self) -> f64 {
        match self {
            Self::Short => 0.4,
            Self::Long => 1.5,
        }
    }
}

impl Scene {
    /// Lets the server refuse for a while, beginning when the first process has held the lock for a part of its lease.
    pub(crate) fn refuse(&mut self, length: Length, begin: impl FnOnce(&mut Self), end: impl FnOnce(&mut Self)) {
        self.wait_inside(0);
        self.sleep(0.4);
        self.fault();
        let at = now();
        begin(self);
        self.sleep(length.leases());
        end(self);
        // Nobody could get the lock until now.
        self.kept.push(Kept { at, until: now() });
    }

    /// How many calls of a kind ended with words like these since the fault began.
    pub(crate) fn failures(&mut self, words: &str, of: impl Fn(Op) -> bool) -> usize {
        self.refresh();
        let (from, mut ops, mut count) = (self.fault_at, std::collections::HashMap::new(), 0);
        for event in self.events.iter().filter(|event| event.at >= from) {
            match &event.what {
                What::Begin(op) => drop(ops.insert(event.actor, *op)),
                What::Fail { why, .. } | What::Unknown { why, .. } if why.contains(words) => {
                    count += usize::from(ops.get(&event.actor).is_some_and(|op| of(*op)));
                }
                _ => {}
            }
        }
        count
    }

    /// How long after a moment the next hold of another process than the first began.
    pub(crate) fn next_hold_after(&mut self, at: Nanos) -> Duration {
        let mut next = None;
        eventually("the next hold", || {
            self.refresh();
            let holds = self.events.iter().filter(|event| {
                event.at > at && event.actor.process != 0 && matches!(event.what, What::Got { count: 1, .. })
            });
            next = holds.map(|event| event.at).min();
            next.is_some()
        });
        Duration::from_nanos(next.unwrap() - at)
    }

    /// Goes over to another server; the one before is returned, and still runs.
    pub(crate) fn go_over_to(&mut self, server: RedisServer) -> RedisServer {
        self.processes().for_each(|process| self.proxy(process).lead_to(server.port()));
        std::mem::replace(&mut self.server, server)
    }
}

impl Setup {
    /// A server that does not see what ends keys, or that changes.
    pub(crate) fn unmonitored(mut self) -> Self {
        self.monitored = false;
        self
    }
}
