//! The leader that reads: it reads replies, delivers them to their calls, and promotes the next reader.
//!
//! A caller reads in three ways. It *spins*: a few looks without waiting, between which other threads run. It *reads*: it waits for bytes, for
//! all callers, until its own answer is there. It *looks*: once, without waiting, before it gives up. All three take the inbound half out of
//! the session, so no two threads read at once, and end in [`take_in`](Mux::take_in), which is the only place where replies are delivered.

use super::super::connector::{Connector, ReadHalf};
use super::super::pending::Pending;
use super::super::timing::ROLE_CHECK;
use super::super::yielding::SPINS;
use super::core::Mux;
use super::role::Role;
use super::session::Session;
use super::state::Woken;
use crate::store::redis::net::classify::{is_demotion, is_no_master};
use crate::sync::atomic::Ordering;
use crate::sync::{guarded, now};
use ::redis::Value;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// The outcome of one read: the complete replies, and whether anything came at all.
struct Arrived {
    replies: SmallVec<[Value; 4]>,
    result: io::Result<bool>,
}

impl Arrived {
    fn by<H: ReadHalf>(inbound: &mut H, fill: impl FnOnce(&mut H) -> io::Result<bool>) -> Self {
        let mut replies = SmallVec::new();
        let result = guarded(|| {
            let more = fill(inbound)?;
            while more && let Some(value) = inbound.take_reply()? {
                replies.push(value);
            }
            Ok(more)
        });
        Self { replies, result }
    }
}

impl<C: Connector> Mux<C> {
    /// Polls a few times for the answer, and lets other threads run in between.
    pub(super) fn spin(&self, call: &Arc<Pending>, deadline: Instant) {
        let yielding = &self.settings.yielding;
        if self.load() < 2 || !call.may_read_on() {
            return;
        }
        let mut at = now();
        if at >= deadline || !yielding.may_spin() {
            return;
        }
        for _ in 0..SPINS {
            let Some(back) = yielding.yield_once(at, self.load()) else { return };
            at = back;
            if !call.may_read_on() || self.read(call, deadline, false) {
                break;
            }
        }
        yielding.note_spin(call.is_done());
    }

    /// Reads for all callers until the caller's own answer is there or its time is over. Returns `false` if there is nothing to read for
    /// it, or another caller reads. Without `waits` it takes only what has come already, and on `false` the caller must come again; the
    /// role is free meanwhile.
    pub(super) fn read(&self, own: &Arc<Pending>, deadline: Instant, waits: bool) -> bool {
        let mut state = self.state.lock();
        let Some(session) = &mut state.session else { return false };
        let epoch = session.epoch;
        if session.inbound.is_none() || !session.has_reply_for(own) {
            return false;
        }
        let mut at = now();
        if at >= deadline {
            return false;
        }
        let (Some(mut inbound), Some(mut oldest)) = (session.inbound.take(), session.due.front().map(|due| due.since))
        else {
            return false;
        };
        drop(state);
        let role = Role::reading(self, Some(own), epoch);
        loop {
            let overdue = oldest + self.settings.patience();
            let arrived = Arrived::by(&mut inbound, |inbound| {
                if waits { inbound.fill(deadline.min(overdue).min(at + ROLE_CHECK)) } else { inbound.fill_now() }
            });
            match self.take_in(epoch, inbound, arrived, Some((own, deadline))) {
                Some((back, since)) if waits => (inbound, oldest, at) = (back, since, now()),
                Some((back, _)) => {
                    self.put_down(own, epoch, back);
                    role.end();
                    return false;
                }
                None => {
                    role.end();
                    return true;
                }
            }
        }
    }

    /// Gives back the role of reader and promotes nobody: the caller comes again, or departs, and `depart` promotes a reader. Only if the
    /// caller is not held back any more, and so has no reply to come again for, promotes a reader. (Nor has one whose call is queued once more
    /// because somebody else writes. But every writer sees to a reader when it leaves.)
    fn put_down(&self, own: &Arc<Pending>, epoch: u64, inbound: C::In) {
        let mut state = self.state.lock();
        if let Some(session) = state.session_of(epoch) {
            session.inbound = Some(inbound);
            if own.is_confirmed && !session.has_reply_for(own) {
                self.hand_on(state, true);
            }
        }
    }

    /// Takes in, without waiting, the replies that have come while nobody reads.
    pub(super) fn read_now(&self) {
        while self.read_once_now(|session| !session.due.is_empty()) {}
    }

    /// Looks, without waiting, whether the answer has come to a call whose time is over: its caller may have waited for something else all
    /// the time. What comes behind the answer is left to others.
    pub(super) fn look(&self, call: &Arc<Pending>) {
        while self.read_once_now(|session| session.has_reply_for(call)) {}
    }

    /// Takes in what has come, if the connection `is_wanted` and nobody reads. Returns `true` if anything had.
    fn read_once_now(&self, is_wanted: impl FnOnce(&Session<C>) -> bool) -> bool {
        let mut state = self.state.lock();
        let Some(session) = state.session.as_mut().filter(|session| is_wanted(session)) else { return false };
        let (epoch, Some(mut inbound)) = (session.epoch, session.inbound.take()) else { return false };
        drop(state);
        let role = Role::reading(self, None, epoch);
        let arrived = Arrived::by(&mut inbound, ReadHalf::fill_now);
        let more = matches!(arrived.result, Ok(true));
        self.take_in(epoch, inbound, arrived, None);
        role.end();
        more
    }

    /// Delivers what was read. Returns the inbound half, and the time since which the oldest reply is due, to a reader that must go on;
    /// otherwise hands the role on.
    ///
    /// 1. Under the mutex, gives the replies to their calls, and queues the calls that must be sent again. No caller of a later reply is
    ///    awake yet, so nothing that it calls next comes before them.
    /// 2. Fails the connection if it is out of step or overdue. The replies before that stay delivered, and what is queued goes on the next
    ///    connection.
    /// 3. Writes the calls that must be sent again if nobody writes: their callers may be gone, or may be this reader.
    /// 4. Keeps the role, or gives it back and promotes a successor under the same mutex: no reply can come between the two without a
    ///    reader.
    /// 5. Without the mutex, wakes the callers whose replies have come, and the successor.
    fn take_in(
        &self,
        epoch: u64,
        inbound: C::In,
        arrived: Arrived,
        reader: Option<(&Arc<Pending>, Instant)>,
    ) -> Option<(C::In, Instant)> {
        let at = now();
        let (mut woken, mut again) = (Woken::new(), VecDeque::new());
        let mut state = self.state.lock();
        // If the session is gone, the connection was cut meanwhile, and `fail` has told all its calls.
        let session = state.session_of(epoch)?;
        session.last_use = at;
        self.note_demotions(session, &arrived.replies, at);
        let own = reader.map(|(own, _)| own);
        let result = session.deliver(arrived.replies, own, &mut woken, &mut again).and(arrived.result);
        let result = result.and_then(|more| session.check_overdue(more, at, self.settings.patience()));
        let repeats = !again.is_empty();
        state.queue.append(&mut again);
        if let Err(cause) = result {
            state = self.fail(state, epoch, cause);
        }
        if repeats && !state.writing {
            state = self.write_left_over(state);
        }
        // Calls that waited for the end of a confirmation, or of this connection, may be written now.
        state.promote_writer(&mut woken);
        let reads_on = reader.is_some_and(|(own, deadline)| own.may_read_on() && at < deadline);
        let back = match state.session_of(epoch) {
            Some(session) if reads_on && !session.due.is_empty() => {
                session.due.front().map(|oldest| (inbound, oldest.since))
            }
            session => {
                if let Some(session) = session {
                    session.inbound = Some(inbound);
                }
                state.promote_reader(&mut woken);
                None
            }
        };
        drop(state);
        woken.iter().for_each(|call| call.wake());
        back
    }

    /// Notes that the server has said that it is no master. Must be done before the replies are delivered: whoever relies on this epoch asks
    /// after its own reply.
    fn note_demotions(&self, session: &mut Session<C>, replies: &[Value], at: Instant) {
        if replies.iter().any(is_demotion) {
            session.note_demotion(at);
        }
        if replies.iter().any(is_no_master) {
            // ORDERING: Relaxed: `deliver` passes each reply on under the mutex of its call, so whoever takes one sees this in `is_deposed`.
            self.deposed.fetch_max(self.epoch.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
