//! The leaders: the caller that writes for all, the caller that reads for all, and their roles.
//!
//! # The writer
//!
//! The writer sends what has gathered in the queue.
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
//!
//! # The reader
//!
//! The reader reads replies, delivers them to their calls, and promotes the next reader.
//!
//! A caller reads in three ways. It *polls*: looks without waiting, between which other threads run. It *reads*: it waits for bytes, for
//! all callers, until its own answer is there. It *looks*: once, without waiting, before it gives up. In all three a [`Reader`] takes the
//! inbound half out of the session, so no two threads read at once, and ends in [`take_in`](Reader::take_in), which is the only place where
//! replies are delivered.

use super::super::timing::ROLE_CHECK;
use super::pending::PendingCall;
use super::state::{MuxState, Woken};
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

/// How a caller may become the writer.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriterClaim {
    /// Takes the role if it is free, or from a writer that yields, when no more callers are expected. Yields before it writes.
    Free,
    /// Takes the role if it is free, or from a writer that does not write yet, and writes at once: it has waited long enough.
    AtOnce,
    /// The caller was promoted. It writes unless another caller has the role by now, or has left nothing to write.
    Promoted,
}

/// The outcome of one read: the complete replies, and whether anything came at all.
struct Arrived {
    replies: SmallVec<[Value; 4]>,
    result: io::Result<bool>,
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
        // The caller that takes the mark `promoted` away has the role (rule 6). If another caller was quicker, this one writes only if that
        // caller has given the role up and has left something to write.
        let is_promoted = matches!(claim, WriterClaim::Promoted);
        let was_promoted = is_promoted && std::mem::take(&mut state.promoted);
        if is_promoted && !was_promoted && (state.writing || !state.has_work()) {
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
        let has_waited = matches!(claim, WriterClaim::AtOnce) || (own.is_posted && is_promoted);
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
                // For the whole I/O time-out the connection has not taken all bytes: the server does not read, or is gone.
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
        // Nobody waits for these calls, but the role is taken all the same. A caller that queues a call meanwhile leaves it to this write, or
        // to the successor that `hand_on` promotes.
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

    /// Polls for the answer, if that is likely to come soon.
    pub(super) fn poll(&self, call: &Arc<PendingCall>, deadline: Instant) {
        let (polling, callers) = (&self.settings.polling, self.load());
        if polling.may_poll(callers) && call.may_read_on() && now() < deadline {
            let find = || !call.may_read_on() || self.read(call, deadline, false);
            polling.poll(callers, deadline, find, || call.is_over());
        }
    }

    /// Reads for all callers until the caller's own answer is there or its time is over. Returns `false` if there is nothing to read for
    /// it, or another caller reads. Without `waits` it takes only what has come already, and on `false` the caller must come again; the
    /// role is free meanwhile.
    pub(super) fn read(&self, own: &Arc<PendingCall>, deadline: Instant, waits: bool) -> bool {
        let mut at = now();
        if at >= deadline {
            return false;
        }
        let Some(mut reader) = Reader::begin(self, Some(own), Some(own)) else { return false };
        loop {
            // The reader waits for the socket, so nobody can wake it. Each `ROLE_CHECK` it looks whether it was promoted to writer.
            let overdue = reader.oldest + self.settings.patience();
            let arrived = reader.fill(waits.then_some(deadline.min(overdue).min(at + ROLE_CHECK)));
            match reader.take_in(arrived, Some((own, deadline))) {
                Some(back) if waits => (reader, at) = (back, now()),
                Some(back) => {
                    back.put_down(own);
                    return false;
                }
                None => return true,
            }
        }
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
        let mux = self.mux;
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
        let (mut has_begun, mut is_last) = (false, false);
        while state.has_work() {
            if has_begun {
                let has_other = state.has_other_writer();
                if self.may_leave(&state, has_other) {
                    // If nobody waits for what is left, it has no successor: posted calls whose posters are gone. It is written once more.
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
        state.writing = false;
        state
    }

    /// Returns `true` if the caller's time is over, if it has what it came for and another caller can write, or if the connection is full
    /// and the caller has other calls to begin.
    fn may_leave(&self, state: &MuxState<C>, has_other: bool) -> bool {
        let is_full = || state.session.as_ref().is_some_and(|session| session.has_backlog);
        now() >= self.deadline || (self.own.is_over() && has_other) || (self.own.has_others_first() && is_full())
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

/// The caller that reads, with the inbound half.
pub(super) struct Reader<'a, C: Connector> {
    mux: &'a Mux<C>,
    role: Role<'a, C>,
    /// The connection.
    epoch: u64,
    inbound: C::In,
    /// The time since which the oldest reply is due.
    oldest: Instant,
}

impl<'a, C: Connector> Reader<'a, C> {
    /// Takes the role, if a reply is due on the connection, and nobody reads. With `wanted`, only if this call waits for a reply there.
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
        Some(Self { mux, role: Role::reading(mux, own, epoch), epoch, inbound, oldest })
    }

    /// Takes in, without waiting, what has come, as long as nobody reads. With `wanted`, as long as this call waits for a reply.
    pub(super) fn look(mux: &Mux<C>, wanted: Option<&PendingCall>) {
        while let Some(mut reader) = Reader::begin(mux, None, wanted) {
            let arrived = reader.fill(None);
            let more = matches!(arrived.result, Ok(true));
            reader.take_in(arrived, None);
            if !more {
                break;
            }
        }
    }

    /// Reads once: waits for bytes until then, or takes only what is there. A panic in the connection's code becomes an error.
    fn fill(&mut self, until: Option<Instant>) -> Arrived {
        let (inbound, mut replies) = (&mut self.inbound, SmallVec::new());
        let result = guarded(|| {
            let more = match until {
                Some(until) => inbound.fill(until)?,
                None => inbound.fill_now()?,
            };
            while more && let Some(value) = inbound.take_reply()? {
                replies.push(value);
            }
            Ok(more)
        });
        Arrived { replies, result }
    }

    /// Delivers what was read. Returns the reader if it must go on; otherwise hands the role on. `own` is the call of a caller that reads
    /// until its answer is there, with the caller's deadline.
    ///
    /// 1. Under the mutex, gives the replies to their calls, and queues the calls that must be sent again. No caller of a later reply is
    ///    awake yet, so nothing that it calls next comes before them.
    /// 2. Fails the connection if it is out of step or overdue. The replies before that stay delivered, and what is queued goes on the next
    ///    connection.
    /// 3. Writes the calls that must be sent again if nobody writes: their callers may be gone, or may be this reader.
    /// 4. Keeps the role, or gives it back and promotes a successor under the same mutex: no reply can come between the two without a
    ///    reader.
    /// 5. Without the mutex, wakes the callers whose replies have come, and the successor.
    fn take_in(self, arrived: Arrived, own: Option<(&Arc<PendingCall>, Instant)>) -> Option<Self> {
        let Self { mux, role, epoch, inbound, .. } = self;
        let at = now();
        let (mut woken, mut again) = (Woken::new(), VecDeque::new());
        let mut state = mux.state.lock();
        let Some(session) = state.session_of(epoch) else {
            // The connection was cut meanwhile, and `fail` has told all its calls.
            role.end();
            return None;
        };
        session.last_use = at;
        // Before the replies are delivered: a caller that has its reply asks at once whether the server was deposed.
        session.note_demotions(&arrived.replies, at, &mux.epochs);
        let result = session.deliver(arrived.replies, own.unzip().0, &mut woken, &mut again).and(arrived.result);
        let result = match result {
            // Something has come, so the server is there.
            Ok(true) => Ok(()),
            Ok(false) => session.check_overdue(at, mux.settings.patience()),
            Err(cause) => Err(cause),
        };
        let repeats = !again.is_empty();
        state.queue.append(&mut again);
        if let Err(cause) = result {
            state = mux.fail(state, epoch, cause);
        }
        if repeats && !state.writing {
            state = mux.write_left_over(state);
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

    /// Gives back the role and promotes nobody: the caller comes again, or departs, and `depart` promotes a reader. Only if the caller is not
    /// held back any more, and so has no reply to come again for, promotes a reader. (Nor has one whose call is queued once more because
    /// somebody else writes. But every writer sees to a reader when it leaves.)
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
#[path = "../../../../../tests/white_box/store/redis/transport/mux/leaders.rs"]
mod tests;
