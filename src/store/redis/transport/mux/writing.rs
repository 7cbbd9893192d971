//! The leader that writes: it sends what has gathered in the queue.

use super::super::connector::{Connector, WriteHalf};
use super::super::pending::Pending;
use super::leaving::{fail_all, overdue_by};
use super::role::Role;
use super::{Guard, Mux, QUIET, State, WriterClaim};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::one_line::OneLine;
use crate::store::redis::net::link::KEPT;
use crate::sync::atomic::Ordering;
use crate::sync::{guarded, mutant, now};
use std::io;
use std::sync::Arc;
use std::time::Instant;

impl<C: Connector> Mux<C> {
    /// Takes the role of writer, if `claim` allows that, and writes what has gathered. Returns at once if the role is another caller's:
    /// then that caller writes `own`, or its successor does.
    pub(super) fn write<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        own: &Arc<Pending>,
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
            if mutant!(TakesOverAndLeaves) {
                return state;
            }
        }
        state.writing = true;
        let role = Role::writing(self, Some(own));
        let state = self.write_all(state, own, deadline, claim);
        role.end();
        state
    }

    /// Holds the role of writer:
    ///
    /// 1. Yields once, if callers that were answered together may be about to call. A caller that takes the role over meanwhile clears
    ///    `gathering`; then this one is not the writer any more.
    /// 2. Connects, or writes all that is queued, until nothing is left.
    /// 3. Leaves earlier when its time is over, or when it has what it came for and a follower can succeed it: no caller works for others
    ///    longer than that. What is left then has a successor, because `hand_on` follows; if nobody waits for it, it is written first, once.
    fn write_all<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        own: &Arc<Pending>,
        deadline: Instant,
        claim: WriterClaim,
    ) -> Guard<'a, C> {
        let has_waited = claim == WriterClaim::AtOnce || (own.is_posted && claim == WriterClaim::Promoted);
        if !has_waited && self.load() > 1 && state.lacks_callers() && state.has_work() {
            // One write for all callers that were answered together is cheaper for client and server.
            let at = now();
            let number = state.gather();
            drop(state);
            // Write now, whether the turn came back late or not.
            let _ = self.settings.yielding.yield_once(at, self.load());
            state = self.state.lock();
            if !state.has_gathered(number) {
                return state;
            }
        }
        let mut is_last = false;
        loop {
            if !state.has_work() {
                state.writing = false;
                return state;
            }
            let at = now();
            state = match &mut state.session {
                None => {
                    state = self.connect(state, own, deadline);
                    if state.connecting.is_busy {
                        state.writing = false;
                        return state;
                    }
                    state
                }
                Some(session) => match session.check_idle(at) {
                    Ok(()) => self.write_once(state, at, deadline),
                    Err(cause) => {
                        let epoch = session.epoch;
                        drop(state);
                        log::debug!(
                            TRANSPORT,
                            "{}: idle connection dropped: {}",
                            self.settings.server,
                            OneLine(&cause)
                        );
                        self.fail(self.state.lock(), epoch, cause)
                    }
                },
            };
            let has_other = state.has_other_writer();
            if state.has_work() && (now() >= deadline || (own.is_over() && has_other)) {
                // If nobody waits for what is left, it has no successor: posted calls whose posters are gone.
                if !has_other && !is_last && state.session.is_some() {
                    is_last = true;
                    continue;
                }
                state.writing = false;
                return state;
            }
        }
    }

    /// Writes the queue once, without waiting, for callers that are gone: posted calls that must be sent again, or whose posters' time was
    /// over. What is queued meanwhile goes with a caller that waits, or with the next one. If there is no connection, starts a connect, for which the calls wait; if no thread can be started for it, the posted calls fail.
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
                let message = format!("{}: not sent: there is no connection", self.settings.server);
                let error = Error::backend(BackendFailure::NotExecuted, message);
                fail_all(&posted, &error, false);
                self.state.lock()
            }
        };
        state.writing = false;
        role.end();
        self.hand_on(state, true);
        self.state.lock()
    }

    /// Begins an epoch, which is not stamped.
    pub(super) fn begin_epoch(&self, next: &mut u64, step: u64) -> u64 {
        let epoch = *next;
        *next += step;
        self.epoch.store(epoch, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux is held: see `Mux::epoch`.
        epoch
    }

    /// Writes everything that is queued, once. `since` is the current time.
    ///
    /// 1. Under the mutex, moves the queue to `due`, in the order of the bytes, but for calls that are held back. So whatever is read next finds the call that it belongs to.
    /// 2. Without the mutex, hands the bytes to the connection. The writer has taken the outbound half, so nobody else writes in between.
    /// 3. Under the mutex again, gives the half back. If the connection has failed meanwhile, its calls have been told, and nothing is
    ///    left to do.
    fn write_once<'a>(&'a self, mut state: Guard<'a, C>, since: Instant, deadline: Instant) -> Guard<'a, C> {
        let State { queue, session: Some(session), next_epoch, epoch_step, .. } = &mut *state else { return state };
        let Some(mut outbound) = session.outbound.take() else { return state };
        // ORDERING: Relaxed, here and below: the mutex of the mux is held. Only `stamped` is stored without it: see there.
        let mut epoch = self.epoch.load(Ordering::Relaxed);
        let quiet = since.saturating_duration_since(session.last_write);
        if quiet > QUIET || self.is_deposed(epoch) {
            epoch = self.begin_epoch(next_epoch, *epoch_step);
        }
        session.last_write = since;
        self.written.store(self.nanos(since), Ordering::Relaxed);
        let stamped = self.stamped.load(Ordering::Relaxed) == epoch;
        let mut bytes = std::mem::take(&mut session.bytes);
        session.queue_up(queue, &mut bytes, epoch, &self.settings, stamped, since);
        let epoch = session.epoch;
        drop(state);
        let until = deadline.min(since + self.settings.io_timeout);
        let written = guarded(|| if bytes.is_empty() { outbound.flush(until) } else { outbound.send(&bytes, until) });
        if mutant!(KeepsRoleInPanic) && written.as_ref().is_err_and(|cause| cause.kind() == io::ErrorKind::Other) {
            return self.state.lock();
        }
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
                session.has_backlog = !all && !mutant!(ForgetsBacklog);
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
