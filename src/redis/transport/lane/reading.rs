//! The role of reading: what comes, for whom, and who reads next.

use super::super::line::{Hears, Line};
use super::super::pending::Pending;
use super::{Lane, Woken, overdue_by};
use crate::sync::{mutant, now};
use ::redis::Value;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often who reads looks whether it has to write: it is appointed when nobody else is there to do so.
const LOOK_UP: Duration = Duration::from_millis(100);

/// What one look at the connection brought: the replies that are complete, and whether anything came at all.
struct Look {
    replies: Vec<Value>,
    result: io::Result<bool>,
}

impl Look {
    fn at<H: Hears>(inbound: &mut H, fill: impl FnOnce(&mut H) -> io::Result<bool>) -> Self {
        let mut replies = Vec::new();
        let mut result = fill(inbound);
        if matches!(result, Ok(true)) {
            loop {
                match inbound.take_reply() {
                    Ok(Some(value)) => replies.push(value),
                    Ok(None) => break,
                    Err(cause) => {
                        result = Err(cause);
                        break;
                    }
                }
            }
        }
        Self { replies, result }
    }
}

impl<L: Line> Lane<L> {
    /// Reads for all, until the caller's own answer is there or its time is over; `false` when there is nothing to read for it, or
    /// somebody else reads.
    pub(super) fn read(&self, own: &Arc<Pending>, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        let Some(session) = &mut state.session else { return false };
        let epoch = session.epoch;
        if session.inbound.is_none() || !own.is_due_on(epoch) || now() >= deadline {
            return false;
        }
        let (Some(mut inbound), Some(mut oldest)) = (session.inbound.take(), session.due.front().map(|due| due.since))
        else {
            return false;
        };
        drop(state);
        loop {
            let overdue = oldest + self.settings.io_timeout;
            let look = Look::at(&mut inbound, |inbound| inbound.fill(deadline.min(overdue).min(now() + LOOK_UP)));
            match self.take_in(epoch, inbound, look, Some((own, deadline))) {
                Some((back, since)) => (inbound, oldest) = (back, since),
                None => return true,
            }
        }
    }

    /// Takes in, without waiting, what has come while nobody reads.
    pub(super) fn read_now(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(session) = &mut state.session else { return };
            if session.due.is_empty() {
                return;
            }
            let (epoch, Some(mut inbound)) = (session.epoch, session.inbound.take()) else { return };
            drop(state);
            let look = Look::at(&mut inbound, Hears::fill_now);
            let more = matches!(look.result, Ok(true));
            self.take_in(epoch, inbound, look, None);
            if !more {
                return;
            }
        }
    }

    /// Delivers what was read. Returns the half, and since when the oldest reply is due, to a caller that has to read on;
    /// else the role is handed on.
    fn take_in(
        &self,
        epoch: u64,
        inbound: L::In,
        look: Look,
        reader: Option<(&Arc<Pending>, Instant)>,
    ) -> Option<(L::In, Instant)> {
        let at = now();
        let mut woken = Woken::new();
        let mut state = self.state.lock();
        // Without it, the connection was cut meanwhile, and all is said.
        let session = state.session_of(epoch)?;
        session.last_use = at;
        let mut result = session.deliver(look.replies, reader.map(|(own, _)| own), &mut woken).and(look.result);
        let oldest = session.due.front().map(|due| due.since);
        if let (Ok(false), Some(since)) = (&result, oldest)
            && at >= since + self.settings.io_timeout
        {
            result = Err(overdue_by(self.settings.io_timeout));
        }
        if let Err(cause) = result {
            drop(self.fail(state, epoch, &cause));
            woken.iter().for_each(|call| call.wake());
            return None;
        }
        let read_on = reader.is_some_and(|(own, deadline)| own.may_read_on() && at < deadline);
        if let (true, Some(since)) = (read_on, oldest) {
            drop(state);
            woken.iter().for_each(|call| call.wake());
            return Some((inbound, since));
        }
        session.inbound = Some(inbound);
        if !mutant!(ReaderLeavesAlone) {
            state.appoint_reader(&mut woken);
        }
        drop(state);
        woken.iter().for_each(|call| call.wake());
        None
    }
}
