//! One connection of a lane, and the calls whose replies are due on it.

use super::super::deferring::{Deferring, time_since};
use super::super::line::{Cuts, Hears, Line, Open};
use super::super::pending::{Pending, Taken};
use super::IDLE;
use crate::sync::{guarded, now};
use ::redis::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
pub(super) struct Session<L: Line> {
    /// Its first epoch, by which it is known.
    pub(super) epoch: u64,
    pub(super) last_write: Instant,
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
    /// Posted calls of which bytes may be left to write.
    unsent: Vec<Arc<Pending>>,
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
            last_write: now(),
            outbound: Some(outbound),
            inbound: Some(inbound),
            cut,
            due: VecDeque::new(),
            has_backlog: false,
            opened,
            last_use: opened,
            away: 0,
            bytes: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Takes calls into the order of writing.
    pub(super) fn queue_up(
        &mut self,
        calls: impl Iterator<Item = Arc<Pending>>,
        bytes: &mut Vec<u8>,
        epoch: u64,
        slack: &[u8; 5],
        since: Instant,
    ) {
        for call in calls {
            call.write_to(bytes, epoch, slack);
            if call.is_posted {
                self.unsent.push(Arc::clone(&call));
            } else {
                // Those who wait for posts are no callers that come back.
                self.away = 0;
            }
            self.due.push_back(Due { left: call.replies, call, since });
        }
    }

    /// All bytes of the calls that were taken into the order are written, by a write that began at this moment.
    pub(super) fn all_sent(&mut self, deferring: &Deferring, at: Instant) {
        for call in self.unsent.drain(..) {
            deferring.note_written(time_since(call.mark_sent(), at));
        }
    }

    /// Gives replies to the calls that they belong to, in order; those that are over are to be woken, but for the reader's own, and
    /// those that are to be sent once more are to be queued before the state is unlocked: what is called after an answer that came
    /// later is executed later, too.
    pub(super) fn deliver(
        &mut self,
        replies: Vec<Value>,
        own: Option<&Arc<Pending>>,
        over: &mut Vec<Arc<Pending>>,
        again: &mut VecDeque<Arc<Pending>>,
    ) -> io::Result<()> {
        for value in replies {
            let Some(oldest) = self.due.front_mut() else {
                return Err(unasked());
            };
            oldest.left -= 1;
            let taken = oldest.call.push(value);
            if oldest.left > 0 {
                continue;
            }
            let Some(due) = self.due.pop_front() else { continue };
            match taken {
                Taken::Kept => {}
                Taken::Last => {
                    self.away += usize::from(!due.call.is_posted);
                    if own.is_none_or(|own| !Arc::ptr_eq(own, &due.call)) {
                        over.push(due.call);
                    }
                }
                Taken::Again => again.push_back(due.call),
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
        let Self { outbound, inbound, cut, due, .. } = self;
        // Whatever becomes of the connection, the calls are told.
        let _ = guarded(|| {
            cut.cut();
            drop((outbound, inbound, cut));
            Ok(())
        });
        due.into_iter().map(|due| due.call).collect()
    }
}

fn unasked() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server sent a reply to nothing")
}
