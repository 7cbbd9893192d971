//! One write of everything that is queued.
//!
//! The mutex is not held while bytes go out. What may happen meanwhile, and why it does no harm:
//!
//! * *Replies come in* to commands of this very write. Their calls are in `due` already, in the order of the bytes.
//! * *Another caller queues a call.* It finds a writer, and this one writes once more, or has a successor.
//! * *The connection fails.* Its calls are told by whoever has failed it. The writer finds no session of its epoch, and puts nothing back.
//! * *The connection is full.* The rest stays with the outbound half (`has_backlog`), and counts as work for the next writer.

use super::super::connector::{Connector, WriteHalf};
use super::core::{Guard, Mux};
use super::leaving::overdue_by;
use super::state::MuxState;
use crate::store::redis::net::link::KEPT;
use crate::sync::{guarded, now};
use std::time::Instant;

impl<C: Connector> Mux<C> {
    /// Writes everything that is queued, once. `since` is the current time.
    ///
    /// 1. Under the mutex, moves the queue to `due`, in the order of the bytes, but for calls that are held back. So whatever is read next
    ///    finds the call that it belongs to.
    /// 2. Without the mutex, hands the bytes to the connection. The writer has taken the outbound half, so nobody else writes in between.
    /// 3. Under the mutex again, gives the half back. If the connection has failed meanwhile, its calls have been told, and nothing is
    ///    left to do.
    pub(super) fn write_once<'a>(&'a self, mut state: Guard<'a, C>, since: Instant, deadline: Instant) -> Guard<'a, C> {
        let MuxState { queue, session: Some(session), next_epoch, epoch_step, .. } = &mut *state else { return state };
        let Some(mut outbound) = session.outbound.take() else { return state };
        let quiet = since.saturating_duration_since(session.last_write);
        session.last_write = since;
        let (epoch, is_stamped) = self.epochs.write(since, quiet, next_epoch, *epoch_step);
        let stamp = is_stamped.then_some(&self.settings.stamp);
        let confirming = self.settings.confirming.as_ref();
        let mut bytes = std::mem::take(&mut session.bytes);
        session.queue_up(queue, &mut bytes, epoch, stamp, confirming, since);
        let epoch = session.epoch;
        drop(state);
        let until = deadline.min(since + self.settings.io_timeout);
        let written = guarded(|| if bytes.is_empty() { outbound.flush(until) } else { outbound.send(&bytes, until) });
        bytes.clear();
        let mut state = self.state.lock();
        let Some(session) = state.session_of(epoch) else { return state };
        session.outbound = Some(outbound);
        if bytes.capacity() <= KEPT {
            session.bytes = bytes;
        }
        session.last_use = since;
        match written {
            Ok(all) => {
                session.has_backlog = !all;
                if all {
                    session.all_sent();
                }
                if !all && now() >= since + self.settings.io_timeout {
                    return self.fail(state, epoch, overdue_by(self.settings.io_timeout));
                }
                state
            }
            Err(cause) => self.fail(state, epoch, cause),
        }
    }
}
