//! Commands in, replies out: any number of threads on one connection, every call with a deadline.
//!
//! Group commit. The caller that finds nobody leading becomes the leader: it takes the link out of the state, connects
//! if there is none, writes everything that has gathered in one go, and reads replies for everybody until its own are
//! there. Then it hands the lead, and the link with all that is still due on it, to a caller that waits.
//!
//! ```text
//!   caller ── queue ──▶ leader: [drain what is due] ▶ write all queued ▶ read, deliver ▶ own reply? hand on
//!                          ▲                                                               │
//!                          └───────────── next leader: a caller that waits ◀───────────────┘
//! ```
//!
//! Invariants
//! 1. No I/O while the state is locked; the leader alone owns the link, and callers are woken after unlocking.
//! 2. Replies belong to calls in the order of writing. A caller that leaves keeps its place; its replies are dropped.
//! 3. A link with an error, or whose oldest reply is overdue by the I/O time-out, is aborted, never used again; every call
//!    written to it fails once, `Unknown`. Calls not yet written go on the next link.
//! 4. While somebody waits, somebody leads: who leaves as leader appoints a successor, or the state is marked free.

use super::call::{Answer, Phase, Slot, Wake};
use super::link::{Endpoint, Link};
use super::script::Packed;
use super::stream::Breaker;
use crate::error::{BackendFailure, Error};
use crate::one_line::OneLine;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct Transport {
    endpoint: Endpoint,
    io_timeout: Duration,
    state: Mutex<State>,
    /// The last link on which a fence number was read.
    numbered: AtomicU64,
    answered: AtomicBool,
    /// The process that opened it.
    pid: u32,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Slot>>,
    /// The link while nobody leads.
    link: Option<Session>,
    leading: bool,
    closed: bool,
    /// Counts the links.
    epoch: u64,
    /// Breaks the link with that epoch, whoever owns it.
    breaker: Option<(u64, Breaker)>,
}

/// A link, and the calls whose replies are due on it.
struct Session {
    link: Link,
    epoch: u64,
    due: VecDeque<Due>,
}

struct Due {
    slot: Arc<Slot>,
    /// Replies not yet read.
    left: usize,
    since: Instant,
}

impl Transport {
    /// A transport that connects with its first call.
    pub(crate) fn new(endpoint: Endpoint, io_timeout: Duration) -> Self {
        let state = Mutex::new(State::default());
        Self {
            endpoint,
            io_timeout,
            state,
            numbered: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            pid: std::process::id(),
        }
    }

    /// Sends commands and waits for all their replies, at most `limit`. With `or_break`, a limit that ends before the
    /// answer breaks the connection, so that the next attempt gets a fresh one.
    pub(crate) fn call(&self, packed: Packed, limit: Duration, or_break: bool) -> Answer {
        let now = Instant::now();
        // A limit beyond what the clock can say is no limit; a year does.
        let deadline = now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 86_400));
        let slot = Arc::new(Slot::new(packed));
        let mut state = self.state.lock();
        if state.closed {
            return Answer { values: Vec::new(), epoch: 0, failure: Some(Error::ShutDown) };
        }
        state.queue.push_back(Arc::clone(&slot));
        if state.leading {
            drop(state);
            match slot.wait(deadline) {
                Wake::Done => return slot.answer(),
                Wake::TimedOut => return self.give_up(&slot, limit, or_break),
                Wake::Lead => state = self.state.lock(),
            }
            slot.take_lead();
        }
        state.leading = true;
        let session = state.link.take();
        drop(state);
        let session = self.lead(&slot, session, deadline);
        self.step_down(&slot, session, limit, or_break)
    }

    /// Remembers that the connection has had its first fence number: from now on the fence may lag a little.
    pub(crate) fn mark_numbered(&self, epoch: u64) {
        self.numbered.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Forgets that the connection had a fence number: the server says that it is, or was, no master, so others may have
    /// issued numbers since.
    pub(crate) fn mark_unnumbered(&self) {
        self.numbered.store(0, Ordering::Relaxed);
    }

    /// Whether the server has ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Where and as whom the server is reached.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Closes the connection; calls that wait fail, and so does every later one.
    pub(crate) fn close(&self) {
        if self.pid != std::process::id() {
            // In a child the socket is the parent's, too, and ending the connection would end the parent's.
            return;
        }
        let mut state = self.state.lock();
        state.closed = true;
        let (queue, session) = (std::mem::take(&mut state.queue), state.link.take());
        if let Some((_, breaker)) = state.breaker.take() {
            breaker.cut();
        }
        drop(state);
        for slot in queue {
            if slot.fail(&Error::ShutDown) {
                slot.wake();
            }
        }
        if let Some(session) = session {
            self.abandon(session, &closed_by_us());
        }
    }

    /// Leads until the own call is over or its time is; returns the link, if there is a usable one.
    fn lead(&self, own: &Arc<Slot>, mut session: Option<Session>, deadline: Instant) -> Option<Session> {
        while !own.is_done() && Instant::now() < deadline {
            session = match session {
                None => self.reconnect(own, deadline),
                Some(session) => self.serve(own, session, deadline),
            };
        }
        session
    }

    /// Opens a link. When it cannot be had, every call that waits gets to know, instead of trying one after another; a
    /// leader whose own time was too short fails alone.
    fn reconnect(&self, own: &Arc<Slot>, deadline: Instant) -> Option<Session> {
        let patience = Instant::now() + self.endpoint.connect_timeout;
        let opened = Link::open(&self.endpoint, patience.min(deadline)).and_then(|link| {
            let breaker = link.breaker().map_err(|e| super::handshake::failed(&self.endpoint.address, &e))?;
            Ok((link, breaker))
        });
        match opened {
            Ok((link, breaker)) => {
                self.answered.store(true, Ordering::Relaxed);
                let mut state = self.state.lock();
                state.epoch += 1;
                let epoch = state.epoch;
                state.breaker = Some((epoch, breaker));
                Some(Session { link, epoch, due: VecDeque::new() })
            }
            Err(error) => {
                let alone = deadline < patience && Instant::now() >= deadline;
                let mut state = self.state.lock();
                let failed = if alone {
                    state.queue.retain(|slot| !Arc::ptr_eq(slot, own));
                    VecDeque::from([Arc::clone(own)])
                } else {
                    std::mem::take(&mut state.queue)
                };
                drop(state);
                for slot in failed {
                    if slot.fail(&error) {
                        slot.wake();
                    }
                }
                None
            }
        }
    }

    /// One round on a link: read what is due, or write what has gathered.
    fn serve(&self, own: &Arc<Slot>, mut session: Session, deadline: Instant) -> Option<Session> {
        let round = match session.due.front() {
            Some(oldest) => {
                let overdue = oldest.since + self.io_timeout;
                session.read(own, deadline.min(overdue)).and_then(|came| {
                    if came || Instant::now() < overdue { Ok(()) } else { Err(overdue_by(self.io_timeout)) }
                })
            }
            None => match session.link.check_idle() {
                Ok(()) => self.write_queued(&mut session, deadline),
                Err(cause) => {
                    log::debug!("{}: idle connection dropped: {}", self.endpoint.address, OneLine(&cause));
                    self.abandon(session, &cause);
                    return None;
                }
            },
        };
        match round {
            Ok(()) => Some(session),
            Err(cause) => {
                let level = if self.is_closed() { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "{}: connection dropped: {}", self.endpoint.address, OneLine(&cause));
                self.abandon(session, &cause);
                None
            }
        }
    }

    /// Writes everything that has gathered.
    fn write_queued(&self, session: &mut Session, deadline: Instant) -> io::Result<()> {
        let slack = if self.numbered.load(Ordering::Relaxed) == session.epoch { b"10000" } else { b"00000" };
        let mut bytes = Vec::new();
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed_by_us());
        }
        let since = Instant::now();
        for slot in state.queue.drain(..) {
            slot.write_to(&mut bytes, session.epoch, slack);
            session.due.push_back(Due { left: slot.replies, slot, since });
        }
        drop(state);
        session.link.send(&bytes, deadline.min(since + self.io_timeout))
    }

    /// Drops a link; every call written to it fails once.
    fn abandon(&self, session: Session, cause: &io::Error) {
        let mut state = self.state.lock();
        if state.breaker.as_ref().is_some_and(|(epoch, _)| *epoch == session.epoch) {
            state.breaker = None;
        }
        drop(state);
        let Session { link, due, .. } = session;
        link.abort();
        let message = format!("no answer from {}: {cause}", self.endpoint.address);
        let error = Error::backend(BackendFailure::Unknown, message);
        for Due { slot, .. } in due {
            if slot.fail(&error) {
                slot.wake();
            }
        }
    }

    /// Ends the lead: gives it, and the link, to a caller that waits.
    fn step_down(&self, own: &Arc<Slot>, session: Option<Session>, limit: Duration, or_break: bool) -> Answer {
        let mut state = self.state.lock();
        let answer = self.depart(&mut state, own, limit);
        let late = matches!(&answer.failure, Some(Error::Backend { failure: BackendFailure::Unknown, .. }));
        let session = match session {
            Some(session) if state.closed || (or_break && late && answer.epoch == session.epoch) => {
                drop(state);
                let cause = if late { ended(limit) } else { closed_by_us() };
                self.abandon(session, &cause);
                state = self.state.lock();
                None
            }
            other => other,
        };
        self.hand_on(state, session);
        answer
    }

    /// Appoints the next leader, if anybody waits.
    fn hand_on(&self, mut state: MutexGuard<'_, State>, session: Option<Session>) {
        let heir = {
            let due = session.iter().flat_map(|s| s.due.iter().map(|d| &d.slot));
            due.chain(state.queue.iter()).find(|slot| slot.appoint()).cloned()
        };
        // `close` came while we led, after our last look.
        let (keep, drop_now) = if state.closed { (None, session) } else { (session, None) };
        state.link = keep;
        state.leading = heir.is_some();
        drop(state);
        if let Some(heir) = heir {
            heir.wake();
        }
        if let Some(session) = drop_now {
            self.abandon(session, &closed_by_us());
        }
    }

    /// A caller that does not lead goes at the end of its time.
    fn give_up(&self, slot: &Arc<Slot>, limit: Duration, or_break: bool) -> Answer {
        let mut state = self.state.lock();
        let appointed = slot.take_lead();
        let answer = self.depart(&mut state, slot, limit);
        let late = matches!(&answer.failure, Some(Error::Backend { failure: BackendFailure::Unknown, .. }));
        let unsent = matches!(&answer.failure, Some(Error::Backend { failure: BackendFailure::NotExecuted, .. }));
        if or_break
            && (late || unsent)
            && let Some((epoch, breaker)) = &state.breaker
            && (unsent || *epoch == answer.epoch)
        {
            // The leader sees the end of the stream and does the rest. Also for a call that was not even sent: who leads has
            // waited for an answer all this time.
            breaker.cut();
        }
        if appointed {
            // The lead came in the same moment: pass it on.
            let session = state.link.take();
            self.hand_on(state, session);
        }
        answer
    }

    /// Takes the caller out, with what it has got.
    fn depart(&self, state: &mut State, slot: &Arc<Slot>, limit: Duration) -> Answer {
        let phase = slot.leave();
        let mut answer = slot.answer();
        match phase {
            Phase::Queued => {
                state.queue.retain(|other| !Arc::ptr_eq(other, slot));
                let message = format!("{}: not sent within {limit:?}", self.endpoint.address);
                answer.failure = Some(Error::backend(BackendFailure::NotExecuted, message));
            }
            Phase::Written => {
                let message = format!("no answer from {} within {limit:?}", self.endpoint.address);
                answer.failure = Some(Error::backend(BackendFailure::Unknown, message));
            }
            Phase::Left | Phase::Done => {}
        }
        answer
    }
}

impl Session {
    /// Reads once, and delivers all replies that are complete; `false` when nothing came until `deadline`.
    fn read(&mut self, own: &Arc<Slot>, deadline: Instant) -> io::Result<bool> {
        self.link.flush(deadline)?;
        let came = self.link.fill(deadline)?;
        while let Some(value) = self.link.take_reply()? {
            let Some(oldest) = self.due.front_mut() else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent a reply to nothing"));
            };
            oldest.left -= 1;
            let complete = oldest.left == 0;
            if oldest.slot.push(value) && !Arc::ptr_eq(&oldest.slot, own) {
                oldest.slot.wake();
            }
            if complete {
                self.due.pop_front();
            }
        }
        Ok(came)
    }
}

fn overdue_by(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no reply for {timeout:?}"))
}

fn ended(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("a renewal had no reply within {limit:?}"))
}

fn closed_by_us() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection was closed on this side")
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("address", &self.endpoint.address)
            .field("io_timeout", &self.io_timeout)
            .finish_non_exhaustive()
    }
}
