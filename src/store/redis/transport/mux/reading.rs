//! The leader that reads: it reads replies, delivers them to their calls, and promotes the next reader.
//!
//! A caller reads in three ways. It *polls*: looks without waiting, between which other threads run. It *reads*: it waits for bytes, for
//! all callers, until its own answer is there. It *looks*: once, without waiting, before it gives up. In all three a [`Reader`] takes the
//! inbound half out of the session, so no two threads read at once, and ends in [`take_in`](Reader::take_in), which is the only place where
//! replies are delivered.

use super::super::timing::ROLE_CHECK;
use super::connector::{Connector, ReadHalf};
use super::core::Mux;
use super::pending::PendingCall;
use super::role::Role;
use super::session::Session;
use super::state::Woken;
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
    /// Polls for the answer, if that is likely to come soon.
    pub(super) fn poll(&self, call: &Arc<PendingCall>, deadline: Instant) {
        if call.may_read_on() && now() < deadline {
            let find = || !call.may_read_on() || self.read(call, deadline, false);
            self.settings.polling.poll(self.load(), deadline, find, || call.is_done());
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
        let Some(mut reader) = Reader::begin(self, Some(own), |session| session.has_reply_for(own)) else {
            return false;
        };
        loop {
            let overdue = reader.oldest + self.settings.patience();
            let arrived = Arrived::by(&mut reader.inbound, |inbound| {
                if waits { inbound.fill(deadline.min(overdue).min(at + ROLE_CHECK)) } else { inbound.fill_now() }
            });
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
    /// Takes the role, if the connection `is_wanted`, a reply is due on it, and nobody reads.
    fn begin(
        mux: &'a Mux<C>,
        own: Option<&'a Arc<PendingCall>>,
        is_wanted: impl FnOnce(&Session<C>) -> bool,
    ) -> Option<Self> {
        let mut state = mux.state.lock();
        let session = state.session.as_mut().filter(|session| is_wanted(session))?;
        let (oldest, epoch) = (session.due.front()?.since, session.epoch);
        let inbound = session.inbound.take()?;
        drop(state);
        Some(Self { mux, role: Role::reading(mux, own, epoch), epoch, inbound, oldest })
    }

    /// Takes in, without waiting, what has come, as long as the connection `is_wanted` and nobody reads.
    pub(super) fn look(mux: &Mux<C>, is_wanted: impl Fn(&Session<C>) -> bool) {
        while let Some(mut reader) = Reader::begin(mux, None, &is_wanted) {
            let arrived = Arrived::by(&mut reader.inbound, ReadHalf::fill_now);
            let more = matches!(arrived.result, Ok(true));
            reader.take_in(arrived, None);
            if !more {
                break;
            }
        }
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
        session.note_demotions(&arrived.replies, at, &mux.epochs);
        let call = own.map(|(call, _)| call);
        let result = session.deliver(arrived.replies, call, &mut woken, &mut again).and(arrived.result);
        let result = result.and_then(|more| session.check_overdue(more, at, mux.settings.patience()));
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
        let reads_on = own.is_some_and(|(call, deadline)| call.may_read_on() && at < deadline);
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
