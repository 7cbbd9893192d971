//! The role of a leader, which is given back even when its thread panics.

use super::connector::Connector;
use super::core::Mux;
use super::pending::PendingCall;
use crate::sync::atomic::Ordering;
use std::io;
use std::sync::Arc;

/// The role of writer or reader, held by the calling thread. Call [`end`](Self::end) where the role was given back or kept on purpose.
/// If the guard is dropped without that, by a panic, it gives the role back. The half that was in use is lost then, so its connection is
/// cut. It also ends the thread's attendance to its own call: nobody is there any more to take a role on.
#[must_use]
pub(super) struct Role<'a, C: Connector> {
    mux: &'a Mux<C>,
    own: Option<&'a Arc<PendingCall>>,
    /// The connection that is read; `None` for the role of writer.
    reads: Option<u64>,
}

impl<'a, C: Connector> Role<'a, C> {
    pub(super) fn writing(mux: &'a Mux<C>, own: Option<&'a Arc<PendingCall>>) -> Self {
        Self { mux, own, reads: None }
    }

    pub(super) fn reading(mux: &'a Mux<C>, own: Option<&'a Arc<PendingCall>>, epoch: u64) -> Self {
        Self { mux, own, reads: Some(epoch) }
    }

    pub(super) fn end(self) {
        std::mem::forget(self);
    }
}

impl<C: Connector> Drop for Role<'_, C> {
    fn drop(&mut self) {
        let mut state = self.mux.state.lock();
        let lost = match (self.reads, &state.session) {
            (Some(epoch), Some(session)) => (session.epoch == epoch && session.inbound.is_none()).then_some(epoch),
            (None, Some(session)) => session.outbound.is_none().then_some(session.epoch),
            (_, None) => None,
        };
        let is_writer = self.reads.is_none();
        let mut resigns = false;
        if let Some(own) = self.own.filter(|own| !own.is_posted) {
            resigns = own.leave().1.to_writer;
            state.queue.retain(|call| !Arc::ptr_eq(call, own));
        } else if let Some(posted) = self.own {
            resigns = posted.leave_sent();
        }
        if self.own.is_some() {
            self.mux.load.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        }
        if resigns {
            state.resign();
        }
        if is_writer {
            state.writing = false;
            state.gathering = None;
        }
        if let Some(epoch) = lost {
            let cause = io::Error::other("a thread that used the connection panicked");
            state = self.mux.fail(state, epoch, cause);
        }
        self.mux.hand_on(state, true);
    }
}

#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../../../tests/white_box/store/redis/transport/mux/role.rs"]
mod tests;
