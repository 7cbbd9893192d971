//! One connection of a mux, and the calls whose replies are due on it.

use super::super::connector::{Connector, Open, ReadHalf, Shutdown};
use super::super::pending::{Pending, Taken};
use crate::store::redis::net::resp::Stamp;
use crate::sync::{guarded, now};
use ::redis::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection that was silent for this long is checked before it is written to: the server may have closed it.
const IDLE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Session<C: Connector> {
    /// The first epoch of the connection, which identifies it.
    pub(super) epoch: u64,
    pub(super) last_write: Instant,
    /// `None` while the writer uses it.
    pub(super) outbound: Option<C::Out>,
    /// `None` while the reader or a caller that spins uses it.
    pub(super) inbound: Option<C::In>,
    cut: C::Cut,
    pub(super) due: VecDeque<Due>,
    /// Whether the outbound half was given bytes that it could not write yet.
    pub(super) has_backlog: bool,
    pub(super) opened: Instant,
    pub(super) last_use: Instant,
    /// The number of callers that were answered, and of posters whose calls were sent, since the last write and that have not called again. Approximate: the next caller may be a new
    /// one.
    pub(super) away: usize,
    /// A buffer for the bytes to write, kept for reuse.
    pub(super) bytes: Vec<u8>,
    /// Posted calls whose bytes may not all be written yet.
    unsent: Vec<Arc<Pending>>,
}

/// A call that was written and whose replies are due.
pub(super) struct Due {
    pub(super) call: Arc<Pending>,
    /// The number of replies not yet read.
    left: usize,
    pub(super) since: Instant,
}

impl<C: Connector> Session<C> {
    pub(super) fn new(epoch: u64, open: Open<C>) -> Self {
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

    /// Appends calls to the order of writing, and their bytes to `bytes`.
    pub(super) fn queue_up(
        &mut self,
        calls: impl Iterator<Item = Arc<Pending>>,
        bytes: &mut Vec<u8>,
        epoch: u64,
        stamp: Option<&Stamp>,
        since: Instant,
    ) {
        for call in calls {
            call.write_to(bytes, epoch, stamp);
            if call.is_posted {
                self.unsent.push(Arc::clone(&call));
            } else {
                // This write ends the wait for callers answered before it.
                self.away = 0;
            }
            self.due.push_back(Due { left: call.replies, call, since });
        }
    }

    /// Notes that all bytes of the calls queued up so far are written.
    pub(super) fn all_sent(&mut self) {
        // The posters that are still here go on, and usually call again.
        self.away += self.unsent.drain(..).filter(|call| call.mark_sent()).count();
    }

    /// Gives replies to their calls, in order. Adds to `over` the finished calls that must be woken, except the reader's own. Adds to
    /// `again` the calls that must be sent once more; queue them before the state is unlocked, so that a call made after a later answer is
    /// also executed later.
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

    /// Checks, without waiting, that a connection is still usable if it was idle for long and no reply is due on it.
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

    /// Ends the connection and returns the calls that were written to it.
    pub(super) fn abort(self) -> Vec<Arc<Pending>> {
        let Self { outbound, inbound, cut, due, .. } = self;
        // Even if ending the connection panics, the calls must be told.
        let _ = guarded(|| {
            cut.cut();
            drop((outbound, inbound, cut));
            Ok(())
        });
        due.into_iter().map(|due| due.call).collect()
    }
}

fn unasked() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server sent a reply that no command asked for")
}
