//! The leader that writes: it sends what has gathered in the queue.
//!
//! One write for many callers is what makes a shared connection as fast as one for each: the cost of a system call, and of waking the server,
//! is paid once. So a writer gives callers that were answered together a chance to queue their next calls first, by yielding once. It does so
//! only while such callers are missing, because a yield costs a caller that is alone a system call for nothing.
//!
//! The mutex is not held while bytes go out ([`write_once`](Mux::write_once)). What may happen meanwhile, and why it does no harm:
//!
//! * *Replies come in* to commands of this very write. Their calls are in `due` already, in the order of the bytes.
//! * *Another caller queues a call.* It finds a writer, and this one writes once more, or has a successor.
//! * *The connection fails.* Its calls are told by whoever has failed it. The writer finds no session of its epoch, and puts nothing back.
//! * *The connection is full.* The rest stays with the outbound half (`has_backlog`), and counts as work for the next writer.
//!
//! A writer works for others, so its time must not be theirs: it leaves when its own answer is there and somebody can succeed it, or when its
//! own time is over.

use super::connector::{Connector, WriteHalf};
use super::core::{Guard, Mux};
use super::leaving::{fail_all, overdue_by};
use super::pending::PendingCall;
use super::role::Role;
use super::state::MuxState;
use crate::log;
use crate::one_line::OneLine;
use crate::store::redis::net::link::KEPT;
use crate::sync::{guarded, now};
use std::sync::Arc;
use std::time::Instant;

/// How a caller may become the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterClaim {
    /// Takes the role if it is free, or from a writer that yields, when no more callers are expected. Yields before it writes.
    Free,
    /// Takes the role if it is free, or from a writer that does not write yet, and writes at once: it has waited long enough.
    AtOnce,
    /// The caller was promoted. It writes unless another caller has the role by now, or has left nothing to write.
    Promoted,
}

impl<C: Connector> Mux<C> {
    /// Takes the role of writer, if `claim` allows that, and writes what has gathered. Returns at once if the role is another caller's:
    /// then that caller writes `own`, or its successor does.
    pub(super) fn write<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        own: &Arc<PendingCall>,
        deadline: Instant,
        claim: WriterClaim,
    ) -> Guard<'a, C> {
        let was_promoted = claim == WriterClaim::Promoted && std::mem::take(&mut state.promoted);
        if claim == WriterClaim::Promoted && !was_promoted && (state.writing || !state.has_work()) {
            return state;
        }
        if state.writing && !was_promoted {
            let takes_over = match claim {
                WriterClaim::AtOnce => state.take_idle_role(),
                // All the callers that the writer yields to are here by now.
                _ => !state.lacks_callers() && state.gathering.take().is_some(),
            };
            if !takes_over {
                return state;
            }
        }
        state.writing = true;
        let role = Role::writing(self, Some(own));
        let has_waited = claim == WriterClaim::AtOnce || (own.is_posted && claim == WriterClaim::Promoted);
        let state = Writer { mux: self, own, deadline }.write_all(state, has_waited);
        role.end();
        state
    }

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

    /// Writes the queue once, without waiting, for callers that are gone: posted calls that must be sent again, or whose posters' time was
    /// over. What is queued meanwhile goes with a caller that waits, or with the next one. If there is no connection, starts a connect, for
    /// which the calls wait; if no thread can be started for it, the posted calls fail.
    pub(super) fn write_left_over<'a>(&'a self, mut state: Guard<'a, C>) -> Guard<'a, C> {
        state.writing = true;
        let role = Role::writing(self, None);
        let at = now();
        let idle = state.session.as_mut().map(|session| (session.epoch, guarded(|| session.check_idle(at))));
        let mut state = match idle {
            Some((_, Ok(()))) => self.write_once(state, at, at),
            Some((epoch, Err(cause))) => self.fail(state, epoch, cause),
            None if self.begin_connect(&mut state).is_ok() => state,
            None => {
                let queue = std::mem::take(&mut state.queue);
                let (posted, others): (Vec<_>, Vec<_>) = queue.into_iter().partition(|call| call.is_posted);
                state.queue.extend(others);
                drop(state);
                fail_all(&posted, &self.settings.unconnected(), false);
                self.state.lock()
            }
        };
        state.writing = false;
        role.end();
        self.hand_on(state, true);
        self.state.lock()
    }
}

/// The caller that writes, for all callers.
struct Writer<'a, 'c, C: Connector> {
    mux: &'a Mux<C>,
    own: &'c Arc<PendingCall>,
    deadline: Instant,
}

impl<'a, C: Connector> Writer<'a, '_, C> {
    /// Holds the role of writer:
    ///
    /// 1. Unless it `has_waited`, yields once, if callers that were answered together may be about to call. A caller that takes the role
    ///    over meanwhile clears `gathering`; then this one is not the writer any more.
    /// 2. Connects, or writes all that is queued, until nothing is left.
    /// 3. Leaves earlier when its time is over, or when it has what it came for and a follower can succeed it: no caller works for others
    ///    longer than that. What is left then has a successor, because `hand_on` follows; if nobody waits for it, it is written first, once.
    fn write_all(&self, mut state: Guard<'a, C>, has_waited: bool) -> Guard<'a, C> {
        let Self { mux, own, deadline } = *self;
        if !has_waited && mux.load() > 1 && state.lacks_callers() && state.has_work() {
            // One write for all callers that were answered together is cheaper for client and server.
            let at = now();
            let number = state.gather();
            drop(state);
            // Write now, whether the turn came back late or not.
            let _ = mux.settings.polling.yield_once(at, mux.load());
            state = mux.state.lock();
            if !state.has_gathered(number) {
                return state;
            }
        }
        let mut is_last = false;
        while state.has_work() {
            if state.session.is_some() {
                state = self.write_on(state);
            } else {
                state = self.connect(state);
                if state.connecting.is_busy {
                    break;
                }
            }
            let has_other = state.has_other_writer();
            let is_full = || state.session.as_ref().is_some_and(|session| session.has_backlog);
            let may_leave =
                || now() >= deadline || (own.is_over() && has_other) || (own.has_others_first() && is_full());
            if state.has_work() && may_leave() {
                // If nobody waits for what is left, it has no successor: posted calls whose posters are gone. It is written once more.
                if has_other || is_last || state.session.is_none() {
                    break;
                }
                is_last = true;
            }
        }
        state.writing = false;
        state
    }

    /// Has a connection opened. Waits until the deadline at most, and not at all if the caller does not attend to its call, or has what it
    /// came for.
    fn connect(&self, state: Guard<'a, C>) -> Guard<'a, C> {
        let own = self.own;
        self.mux.connect_while(state, self.deadline, || !own.is_over() && (own.waits() || own.is_posted))
    }

    /// Writes once on the connection that there is, unless it turns out to be dead.
    fn write_on(&self, mut state: Guard<'a, C>) -> Guard<'a, C> {
        let (mux, at) = (self.mux, now());
        let Some(session) = &mut state.session else { return state };
        let epoch = session.epoch;
        let Err(cause) = session.check_idle(at) else {
            // A caller with others to begin first does not wait for a full connection. It writes the rest when it attends to the call.
            return mux.write_once(state, at, if self.own.has_others_first() { at } else { self.deadline });
        };
        drop(state);
        log::debug!(TRANSPORT, "{}: idle connection dropped: {}", mux.settings.server, OneLine(&cause));
        mux.fail(mux.state.lock(), epoch, cause)
    }
}
