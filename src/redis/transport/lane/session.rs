//! One connection of a lane, and the calls whose replies are due on it.

use super::super::line::{Cuts, Hears, Line, Open};
use super::super::pending::Pending;
use super::IDLE;
use crate::sync::now;
use ::redis::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
pub(super) struct Session<L: Line> {
    pub(super) epoch: u64,
    /// `None` while somebody writes.
    pub(super) outbound: Option<L::Out>,
    /// `None` while somebody reads or looks.
    pub(super) inbound: Option<L::In>,
    cut: L::Cut,
    pub(super) due: VecDeque<Due>,
    /// Whether bytes were handed to the outbound half that it could not write.
    pub(super) has_backlog: bool,
    pub(super) opened: Instant,
    pub(super) last_use: Instant,
    /// How many callers were answered since the last write and have not called again, about: whoever calls may be another one.
    pub(super) away: usize,
    /// Room for what is to be written.
    pub(super) bytes: Vec<u8>,
}

/// A call that was written.
pub(super) struct Due {
    pub(super) call: Arc<Pending>,
    /// Replies not yet read.
    left: usize,
    pub(super) since: Instant,
}

impl<L: Line> Session<L> {
    pub(super) fn new(epoch: u64, open: Open<L>) -> Self {
        let Open { outbound, inbound, cut } = open;
        let opened = now();
        Self {
            epoch,
            outbound: Some(outbound),
            inbound: Some(inbound),
            cut,
            due: VecDeque::new(),
            has_backlog: false,
            opened,
            last_use: opened,
            away: 0,
            bytes: Vec::new(),
        }
    }

    /// Takes calls into the order of writing.
    pub(super) fn queue_up(
        &mut self,
        calls: impl Iterator<Item = Arc<Pending>>,
        bytes: &mut Vec<u8>,
        slack: &[u8; 5],
        since: Instant,
    ) {
        for call in calls {
            call.write_to(bytes, self.epoch, slack);
            self.due.push_back(Due { left: call.replies, call, since });
        }
    }

    /// Gives replies to the calls that they belong to, in order; those that are over are to be woken, but for the reader's own.
    pub(super) fn deliver(
        &mut self,
        replies: Vec<Value>,
        own: Option<&Arc<Pending>>,
        over: &mut Vec<Arc<Pending>>,
    ) -> io::Result<()> {
        for value in replies {
            let Some(oldest) = self.due.front_mut() else {
                return Err(unasked());
            };
            oldest.left -= 1;
            let is_over = oldest.call.push(value);
            if oldest.left == 0
                && let Some(due) = self.due.pop_front()
                && is_over
            {
                self.away += usize::from(!due.call.is_posted);
                if own.is_none_or(|own| !Arc::ptr_eq(own, &due.call)) {
                    over.push(due.call);
                }
            }
        }
        Ok(())
    }

    /// Makes sure, without waiting, that a connection on which nothing is due and that was idle for long is still usable.
    pub(super) fn check_idle(&mut self, at: Instant) -> io::Result<()> {
        if !self.due.is_empty() || at.saturating_duration_since(self.last_use) < IDLE {
            return Ok(());
        }
        let Some(inbound) = &mut self.inbound else { return Ok(()) };
        while inbound.fill_now()? {
            if inbound.take_reply()?.is_some() {
                return Err(unasked());
            }
        }
        self.last_use = at;
        Ok(())
    }

    /// Ends the connection; the calls that were written to it.
    pub(super) fn abort(self) -> Vec<Arc<Pending>> {
        self.cut.cut();
        self.due.into_iter().map(|due| due.call).collect()
    }
}

fn unasked() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server sent a reply to nothing")
}
