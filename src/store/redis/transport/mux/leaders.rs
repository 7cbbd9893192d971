//! The leaders of a connection: the caller that writes for all callers, the caller that reads for all, and their roles.
//!
//! # The writer
//!
//! The writer sends all calls that are queued.
//!
//! One write for many callers makes a shared connection as fast as one connection for each caller: the system call, and waking the server,
//! are paid for once. So a writer yields once before it writes, and callers that were answered together can queue their next calls first.
//! It yields only while such callers have not called again: for a caller that is alone, a yield is a system call without a gain.
//!
//! The mutex is not held while bytes go out ([`Writer::once`]). Four things may happen meanwhile, and none does harm:
//!
//! * *Replies come in* to commands of this very write. Their calls are in `due` already, in the order of their bytes.
//! * *Another caller queues a call.* It finds that there is a writer, and becomes a follower. This writer writes once more, or promotes a
//!   successor.
//! * *The connection fails.* The thread that notices it fails all its calls. The writer then finds no session of its epoch, and puts
//!   nothing back.
//! * *The connection takes no more bytes.* The outbound half keeps the rest (`has_backlog`), which counts as work for the next writer.
//!
//! A writer must not spend more time on the calls of others than its own call takes. So it gives up the role when its own answer is there
//! and another caller can succeed it, or when its own time is over.
//!
//! # The reader
//!
//! The reader reads replies, delivers them to their calls, and promotes the next reader.
//!
//! A caller reads in three ways. A caller that *polls* reads several times without waiting, and lets other threads run in between. A caller
//! that *reads* waits for bytes, for all callers, until its own answer is there. A caller that *looks* takes in what has come, without
//! waiting, before it gives up. In all three ways a [`Reader`] takes the inbound half out of the session, so no two threads read at once.
//! All three end in [`take_in`](Reader::take_in), which is the only place where replies are delivered.

use super::super::timing::ROLE_CHECK;
use super::pending::PendingCall;
use super::state::{Delivery, MuxState, Woken, WriterClaim, WriterRole};
use super::{Guard, Mux, fail_all, overdue_by};
use crate::log;
use crate::one_line::OneLine;
use crate::store::redis::net::connector::{Connector, ReadHalf, WriteHalf};
use crate::store::redis::net::link::KEPT;
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

/// The caller that writes for all callers.
pub(super) struct Writer<'a, 'c, C: Connector> {
    mux: &'a Mux<C>,
    own: &'c Arc<PendingCall>,
    deadline: Instant,
}

impl<'a, 'c, C: Connector> Writer<'a, 'c, C> {
    /// Takes the role of writer, if `claim` allows that, and writes all that is queued. Returns at once if another caller has the role:
    /// that caller or a successor then writes `own`.
    pub(super) fn write(
        mux: &'a Mux<C>,
        mut state: Guard<'a, C>,
        own: &'c Arc<PendingCall>,
        deadline: Instant,
        claim: WriterClaim,
    ) -> Guard<'a, C> {
        if !state.take_role(claim) {
            return state;
        }
        let role = Role { mux, own: Some(own), reads: None };
        let has_waited =
            matches!(claim, WriterClaim::AtOnce) || (own.is_posted && matches!(claim, WriterClaim::Promoted));
        let state = Writer { mux, own, deadline }.write_all(state, has_waited);
        role.end();
        state
    }

    /// Writes everything that is queued, once, and waits until `deadline` at most for the connection to take it. `since` is the current
    /// time.
    ///
    /// 1. Under the mutex, moves the queue to `due`, in the order of the bytes, except for calls that are held back. So every reply that is
    ///    read from now on finds its call in `due`.
    /// 2. Without the mutex, hands the bytes to the connection. The writer has taken the outbound half, so no other thread writes in
    ///    between.
    /// 3. Under the mutex again, gives the half back. If the connection has failed meanwhile, its calls have failed with it, and nothing is
    ///    left to do.
    fn once(mux: &'a Mux<C>, mut state: Guard<'a, C>, since: Instant, deadline: Instant) -> Guard<'a, C> {
        let MuxState { queue, session: Some(session), .. } = &mut *state else { return state };
        let Some(mut outbound) = session.outbound.take() else { return state };
        session.queue_up(queue, &mux.epochs, &mux.settings, since);
        let (mut bytes, epoch) = (std::mem::take(&mut session.bytes), session.epoch);
        drop(state);
        let until = deadline.min(since + mux.settings.io_timeout);
        let written = guarded(|| if bytes.is_empty() { outbound.flush(until) } else { outbound.send(&bytes, until) });
        bytes.clear();
        let mut state = mux.state.lock();
        let Some(session) = state.session_of(epoch) else { return state };
        session.outbound = Some(outbound);
        // The buffer serves the next write, unless a large batch has made it grow.
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
                // The connection has not taken all bytes within the I/O time-out: the server does not read, or is gone.
                if !all && now() >= since + mux.settings.io_timeout {
                    return mux.fail(state, epoch, overdue_by(mux.settings.io_timeout));
                }
                state
            }
            Err(cause) => mux.fail(state, epoch, cause),
        }
    }

    /// Writes the queue once, without waiting, for callers that are gone: posted calls that must be sent again, or whose posters' time was
    /// over. A call that is queued meanwhile is written by a caller that waits, or by the next caller. If there is no connection, this
    /// starts a connect, and the calls wait for it. If no thread can be started for the connect, the posted calls fail.
    pub(super) fn left_over(mux: &'a Mux<C>, mut state: Guard<'a, C>) -> Guard<'a, C> {
        // No caller waits for these calls, but this thread takes the role for them. So a caller that queues a call meanwhile becomes a
        // follower, and `hand_on` below promotes a successor for its call.
        state.writer = WriterRole::Writing;
        let role = Role { mux, own: None, reads: None };
        let at = now();
        let idle = state.session.as_mut().map(|session| (session.epoch, guarded(|| session.check_idle(at))));
        let mut state = match idle {
            Some((_, Ok(()))) => Self::once(mux, state, at, at),
            Some((epoch, Err(cause))) => mux.fail(state, epoch, cause),
            None if mux.begin_connect(&mut state).is_ok() => state,
            None => {
                let queue = std::mem::take(&mut state.queue);
                let (posted, others): (Vec<_>, Vec<_>) = queue.into_iter().partition(|call| call.is_posted);
                state.queue.extend(others);
                drop(state);
                fail_all(&posted, &mux.settings.unconnected(), false);
                mux.state.lock()
            }
        };
        state.writer = WriterRole::Free;
        role.end();
        mux.hand_on(state, true);
        mux.state.lock()
    }

    /// Holds the role of writer:
    ///
    /// 1. Unless it `has_waited`, yields once if callers that were answered together may be about to call. Another caller may take the
    ///    role over during the yield, and this caller is then no longer the writer.
    /// 2. Connects, or writes all that is queued, until nothing is left.
    /// 3. Leaves earlier when its time is over, or when it has what it came for and a follower can succeed it: no caller works for others
    ///    longer than that. `hand_on` follows, and promotes a successor for what is left. If no caller waits that could be the successor,
    ///    this writer writes what is left once more before it leaves.
    fn write_all(&self, mut state: Guard<'a, C>, has_waited: bool) -> Guard<'a, C> {
        let mux = self.mux;
        if !has_waited && mux.load() > 1 && state.lacks_callers() && state.has_work() {
            // One write for all callers that were answered together is cheaper for the client and for the server.
            let at = now();
            state.gatherings += 1;
            let number = state.gatherings;
            state.writer = WriterRole::Gathering(number);
            drop(state);
            // The result says whether the yield returned late. The writer writes now in both cases.
            let _ = mux.polling.yield_once(at, mux.load());
            state = mux.state.lock();
            if !state.take_role(WriterClaim::Gathered(number)) {
                return state;
            }
        }
        let (mut has_begun, mut is_last) = (false, false);
        while state.has_work() {
            if has_begun {
                let has_other = state.has_other_writer();
                if self.may_leave(&state, has_other) {
                    // Without another writer, what is left are calls to which no caller attends, such as posted calls whose posters are
                    // gone. So this writer writes once more, and then leaves.
                    if has_other || is_last || state.session.is_none() {
                        break;
                    }
                    is_last = true;
                }
            }
            has_begun = true;
            if state.session.is_some() {
                state = self.write_on(state);
            } else {
                state = self.connect(state);
                if state.connecting.is_busy {
                    break;
                }
            }
        }
        state.writer = WriterRole::Free;
        state
    }

    /// Returns `true` in three cases: the caller's time is over; it has what it came for and another caller can write; the connection takes
    /// no more bytes and the caller has other calls to begin.
    fn may_leave(&self, state: &MuxState<C>, has_other: bool) -> bool {
        let is_full = || state.session.as_ref().is_some_and(|session| session.has_backlog);
        now() >= self.deadline || (self.own.is_over() && has_other) || (self.own.has_others_first() && is_full())
    }

    /// Opens a connection. Waits for it until the deadline at most, and does not wait if the caller does not attend to its call, or has
    /// what it came for.
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
            // A caller with other calls to begin does not wait for a connection that takes no more bytes. It writes the rest when it
            // attends to this call.
            return Self::once(mux, state, at, if self.own.has_others_first() { at } else { self.deadline });
        };
        drop(state);
        log::debug!(TRANSPORT, "{}: idle connection dropped: {}", mux.settings.server, OneLine(&cause));
        mux.fail(mux.state.lock(), epoch, cause)
    }
}

/// The caller that reads, with the inbound half.
pub(crate) struct Reader<'a, C: Connector> {
    mux: &'a Mux<C>,
    role: Role<'a, C>,
    /// The first epoch of the connection, which identifies it.
    epoch: u64,
    inbound: C::In,
    /// The time since which the oldest reply is due.
    oldest: Instant,
}

impl<'a, C: Connector> Reader<'a, C> {
    /// Polls for the answer, if the policy expects it soon.
    pub(super) fn poll(mux: &Mux<C>, call: &Arc<PendingCall>, deadline: Instant) {
        if call.may_read_on() {
            let find = |at| !call.may_read_on() || Reader::read(mux, call, at, deadline, false);
            mux.polling.poll(|| mux.load(), now(), deadline, find, || call.is_over());
        }
    }

    /// Reads for all callers, from the moment `at` on, until the caller's own answer is there or its time is over. Returns `false` if there
    /// is nothing to read for it, or if another caller reads. Without `waits` it takes only what has come already. The caller must then come
    /// again after `false`, and the role is free until it does.
    pub(super) fn read(mux: &Mux<C>, own: &Arc<PendingCall>, mut at: Instant, deadline: Instant, waits: bool) -> bool {
        if at >= deadline {
            return false;
        }
        let Some(mut reader) = Reader::begin(mux, Some(own), Some(own)) else { return false };
        loop {
            // The reader waits for the socket, so no other thread can wake it. Every `ROLE_CHECK` it checks whether it was promoted to
            // writer.
            let until = waits.then(|| deadline.min(reader.oldest + mux.settings.patience()).min(at + ROLE_CHECK));
            let arrived = reader.fill(until);
            if waits {
                at = now();
            }
            match reader.take_in(arrived, at, Some((own, deadline))) {
                Some(back) if waits => reader = back,
                Some(back) => {
                    back.put_down(own);
                    return false;
                }
                None => return true,
            }
        }
    }

    /// Takes the role if a reply is due on the connection and no other thread reads. With `wanted`, takes it only if this call waits for a
    /// reply there.
    fn begin(mux: &'a Mux<C>, own: Option<&'a Arc<PendingCall>>, wanted: Option<&PendingCall>) -> Option<Self> {
        let mut state = mux.state.lock();
        let session = state.session.as_mut()?;
        if let Some(call) = wanted
            && !session.has_reply_for(call)
        {
            return None;
        }
        let (oldest, epoch) = (session.due.front()?.since, session.epoch);
        let inbound = session.inbound.take()?;
        drop(state);
        Some(Self { mux, role: Role { mux, own, reads: Some(epoch) }, epoch, inbound, oldest })
    }

    /// Takes in, without waiting, what has come, unless another thread reads. With `wanted`, stops when this call no longer waits for a
    /// reply.
    pub(crate) fn look(mux: &Mux<C>, wanted: Option<&PendingCall>) {
        while let Some(mut reader) = Reader::begin(mux, None, wanted) {
            let arrived = reader.fill(None);
            let more = matches!(arrived.result, Ok(true));
            reader.take_in(arrived, now(), None);
            if !more {
                break;
            }
        }
    }

    /// Reads once. Waits for bytes until the moment `until`; without one, takes only what is there. A panic in the connection's code
    /// becomes an error.
    fn fill(&mut self, until: Option<Instant>) -> Arrived {
        let (inbound, mut replies) = (&mut self.inbound, SmallVec::new());
        let result = guarded(|| {
            let more = inbound.fill(until)?;
            while more && let Some(value) = inbound.take_reply()? {
                replies.push(value);
            }
            Ok(more)
        });
        Arrived { replies, result }
    }

    /// Delivers what was read at the moment `at`. Returns the reader if it must go on, and hands the role on otherwise. `own` is the call of a
    /// caller that reads until its answer is there, with the caller's deadline.
    ///
    /// 1. Under the mutex, gives the replies to their calls, and queues the calls that must be sent again. The callers of later replies are
    ///    woken after that, so their next calls are queued behind these.
    /// 2. Fails the connection if it is out of step or overdue. The replies before the error stay delivered, and queued calls go on the
    ///    next connection.
    /// 3. Writes the calls that must be sent again if there is no writer: their callers may be gone, or may be this reader.
    /// 4. Keeps the role, or gives it back and promotes a successor while it still holds the mutex. So while a caller waits for a reply,
    ///    there is no moment with neither a reader nor a successor.
    /// 5. Without the mutex, wakes the callers whose replies have come, and the successor.
    fn take_in(self, arrived: Arrived, at: Instant, own: Option<(&Arc<PendingCall>, Instant)>) -> Option<Self> {
        let Self { mux, role, epoch, inbound, .. } = self;
        let mut delivery = Delivery { own: own.unzip().0, woken: Woken::new(), again: VecDeque::new() };
        let mut state = mux.state.lock();
        let Some(session) = state.session_of(epoch) else {
            // The connection was cut meanwhile, and `fail` has failed all its calls.
            role.end();
            return None;
        };
        session.last_use = at;
        // Note this before the replies are delivered: a caller that has its reply asks at once whether the server was deposed.
        session.note_demotions(&arrived.replies, at, &mux.epochs);
        let result = session.deliver(arrived.replies, &mut delivery).and(arrived.result);
        let Delivery { mut woken, mut again, .. } = delivery;
        let result = match result {
            // Bytes have come, so the server is alive.
            Ok(true) => Ok(()),
            Ok(false) => session.check_overdue(at, mux.settings.patience()),
            Err(cause) => Err(cause),
        };
        let repeats = !again.is_empty();
        state.queue.append(&mut again);
        if let Err(cause) = result {
            state = mux.fail(state, epoch, cause);
        }
        if repeats && matches!(state.writer, WriterRole::Free) {
            state = Writer::left_over(mux, state);
        }
        // Calls that waited for the end of a confirmation, or of this connection, may be written now.
        state.promote_writer(&mut woken);
        let reads_on = match own {
            Some((call, deadline)) => at < deadline && call.may_read_on(),
            None => false,
        };
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
        for call in &woken {
            call.wake();
        }
        let Some((inbound, oldest)) = back else {
            role.end();
            return None;
        };
        Some(Self { mux, role, epoch, inbound, oldest })
    }

    /// Gives back the role of a caller that polls. Usually it promotes no reader: the caller comes again, or departs, and `depart` promotes
    /// one. It promotes a reader if the caller's call was held back and is not any more, because then no reply is due for which the caller
    /// would come again. (A call that is queued again while another caller writes has no reply due either. But every writer promotes a
    /// reader when it leaves.)
    fn put_down(self, own: &Arc<PendingCall>) {
        let Self { mux, role, epoch, inbound, .. } = self;
        let mut state = mux.state.lock();
        if let Some(session) = state.session_of(epoch) {
            session.inbound = Some(inbound);
            if own.is_confirmed && !session.has_reply_for(own) {
                mux.hand_on(state, true);
            }
        }
        role.end();
    }
}

/// The role of writer or reader, held by the calling thread. Call [`end`](Self::end) where the role was given back or kept on purpose. If a
/// panic drops the guard without that, it gives the role back. The half that was in use is lost then, so its connection is cut. The guard
/// also marks the thread's own call as left: the thread can no longer take a role on.
#[must_use]
pub(super) struct Role<'a, C: Connector> {
    mux: &'a Mux<C>,
    own: Option<&'a Arc<PendingCall>>,
    /// The connection that is read; `None` for the role of writer.
    reads: Option<u64>,
}

impl<C: Connector> Role<'_, C> {
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
            own.leave();
            resigns = own.take_promotion().to_writer;
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
            state.writer = WriterRole::Free;
        }
        if let Some(epoch) = lost {
            let cause = io::Error::other("a thread that used the connection panicked");
            state = self.mux.fail(state, epoch, cause);
        }
        self.mux.hand_on(state, true);
    }
}

#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../../../tests/white_box/store/redis/transport/mux/leaders.rs"]
mod tests;
