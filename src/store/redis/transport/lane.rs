//! One connection shared by any number of callers: full duplex, without a thread of its own but while it connects (`connecting`).
//!
//! Two roles, each in at most one caller's hands. Who finds nobody writing writes what has gathered, for all; who waits
//! for an answer and finds nobody reading reads for all, until its own answer is there. Before it sleeps for that, it looks
//! a few times; and before it writes, it lets those call who were answered together with it: see `giving_way`.
//!
//! ```text
//!   caller ── queue ──▶ writer: [connect] ▶ write all that is queued ──▶ due ──▶ reader: read, deliver in order
//!                          │                                                        │
//!                          └── own answer there: the role goes to a caller that waits ◀──┘
//! ```
//!
//! Invariants
//! 1. Nobody blocks on I/O while the state is locked. Who writes owns the outbound half, who reads the inbound half.
//! 2. Replies belong to calls in the order of writing. A caller that leaves keeps its place; its replies are dropped.
//! 3. A connection with an error, or whose oldest reply is overdue by the I/O time-out, is cut, never used again; every
//!    call written to it fails once, `Unknown`. Calls not yet written go on the next one.
//! 4. While a call that somebody attends to is queued somebody writes, or is about to, or a thread connects and then writes, and while somebody waits for a reply somebody reads, looks and
//!    comes again, or has been woken to: who leaves a role for good, or leaves with a duty not done, appoints the next.
//! 5. The role of reading goes to the caller whose reply comes last, so that it changes once a round trip, unless somebody
//!    awake takes it first. Nobody keeps a role after its own answer has come, but for what was read or gathered by then.
//! 6. The writer that gives way, and the one that is appointed and not awake yet, have the role of writing only if nobody took it
//!    over meanwhile: `gathering` and `appointed` are there for one caller to take.
//! 7. A posted call is handed to the system before `post` returns, unless its limit ends, its connection breaks, or another caller
//!    is about to write and the budget of late writes allows to leave the call to it (`deferring`). A poster that finds the
//!    writer giving way, and may not go, gives way once itself, and then takes the role over if its call is still queued. Any
//!    caller, also of another connection, takes the role from a writer that does not write yet when a call was left for long. A poster
//!    that finds the writer in the middle of a write waits for its end. Whoever leaves the role writes
//!    posted calls first, once, where there is a connection; what is left after that goes with the next caller, or with `collect`.
//! 8. A panic leaves no role behind: the panic of a connection is an error of it, and any other one gives the role back
//!    (`role.rs`).

mod connecting;
mod posting;
mod reading;
mod role;
mod session;
mod state;
mod writing;

use super::deferring::Deferring;
use super::giving_way::GivingWay;
use super::line::Line;
use super::pending::{Answer, Pending, Phase, Wake};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::one_line::OneLine;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, mutant, now};
use connecting::Connector;
use session::Session;
use state::State;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// After so long a silence a connection is looked at before it is written to: the server may have closed it.
const IDLE: Duration = Duration::from_secs(1);

/// A connection that nothing was written to for so long begins a new epoch. As long as less time passes from one command to
/// the next, a server that stops being a master refuses one of them. After a longer pause it may have been no master for a
/// while, and nobody saw it.
const QUIET: Duration = Duration::from_millis(100);

/// What every lane of a transport has in common.
pub(crate) struct Settings<L> {
    pub(crate) line: L,
    /// How the server is called in errors.
    pub(crate) server: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) io_timeout: Duration,
    /// How long the last connect took, in nanoseconds; zero before the first, when the server has never answered.
    pub(crate) connect_took: AtomicU64,
    pub(super) giving_way: GivingWay,
    pub(super) deferring: Deferring,
}

/// See the module.
pub(crate) struct Lane<L: Line> {
    settings: Arc<Settings<L>>,
    /// For the thread that connects.
    this: Weak<Self>,
    state: Mutex<State<L>>,
    /// Notified when a connect on a thread of its own has ended, and at the closing.
    connected: Condvar,
    /// How many callers are between [`begin`](Self::begin) and the end of [`finish`](Self::finish).
    load: AtomicUsize,
    is_connected: AtomicBool,
    /// The present epoch; a connection has several of them, one after another.
    epoch: AtomicU64,
    /// When the connection was last written to, in nanoseconds after `since`.
    written: AtomicU64,
    since: Instant,
    /// When a posted call was left that is not written yet, in nanoseconds after `since`; zero if none is.
    left_since: AtomicU64,
    /// The last epoch in which a fence number was read.
    numbered: AtomicU64,
    /// The last epoch in which the server said that it is no master, also to a caller that had left.
    deposed: AtomicU64,
}

/// By what right a caller writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// Nobody else has the role. Others may call first.
    Free,
    /// Nobody else has it, or who has it gives way to others. It was waited for long enough.
    AtOnce,
    /// It was given the role.
    Appointed,
}

type Guard<'a, L> = MutexGuard<'a, State<L>>;

/// Callers to be woken once the state is unlocked.
type Woken = Vec<Arc<Pending>>;

impl<L: Line> Lane<L> {
    /// A lane that connects with its first call, with epochs of its own: `first`, `first + step`, …
    pub(crate) fn new(settings: &Arc<Settings<L>>, first: u64, step: u64) -> Arc<Self> {
        let state = State {
            queue: VecDeque::new(),
            session: None,
            connector: Connector::default(),
            writing: false,
            gathering: false,
            appointed: false,
            writes_once: false,
            next_epoch: first,
            epoch_step: step,
            closed: false,
        };
        Arc::new_cyclic(|this| Self {
            settings: Arc::clone(settings),
            this: Weak::clone(this),
            state: Mutex::new(state),
            connected: Condvar::new(),
            load: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            written: AtomicU64::new(0),
            since: now(),
            left_since: AtomicU64::new(0),
            numbered: AtomicU64::new(0),
            deposed: AtomicU64::new(0),
        })
    }

    /// How many callers write to it or wait for it.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Whether it has a connection, about: without the mutex, which those who use it need.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The epoch in which a command is written that is sent at this moment; `None` when it begins a new one, about: without the
    /// mutex, which those who use the connection need.
    pub(crate) fn epoch_at(&self, at: Instant) -> Option<u64> {
        let written = self.since + Duration::from_nanos(self.written.load(Ordering::Relaxed));
        let epoch = self.epoch.load(Ordering::Relaxed);
        (at.saturating_duration_since(written) <= QUIET && !self.is_deposed(epoch)).then_some(epoch)
    }

    /// Whether the server has said in that epoch, or later, that it is no master.
    pub(crate) fn is_deposed(&self, epoch: u64) -> bool {
        self.deposed.load(Ordering::Relaxed) >= epoch
    }

    /// Remembers that a fence number was read in that epoch.
    pub(crate) fn mark_numbered(&self, epoch: u64) {
        self.numbered.fetch_max(epoch, Ordering::Relaxed);
    }

    pub(crate) fn mark_unnumbered(&self) {
        self.numbered.store(0, Ordering::Relaxed);
    }

    /// Sends a call, unless its time is over `at` this moment; [`finish`](Self::finish) must follow, at once or after
    /// [`attend`](Self::attend).
    pub(crate) fn begin(&self, call: &Arc<Pending>, at: Instant, deadline: Instant, at_once: bool) {
        self.load.fetch_add(1, Ordering::Relaxed);
        if at >= deadline {
            // It is still `Queued`, and never will be written: `finish` says the rest.
            return;
        }
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            call.fail(&Error::ShutDown, false);
            return;
        }
        state.queue.push_back(Arc::clone(call));
        state.is_back();
        let state = self.write(state, call, deadline, Claim::Free);
        let reads = !at_once || !state.will_read(call);
        self.hand_on(state, reads && !mutant!(WritesUnread));
    }

    /// The caller, which had other calls to wait for, begins to wait for this one; [`finish`](Self::finish) must follow at once.
    pub(crate) fn attend(&self, call: &Arc<Pending>, deadline: Instant) {
        let state = self.state.lock();
        call.attend();
        let state = if state.has_work() { self.write(state, call, deadline, Claim::Free) } else { state };
        let reads = !state.will_read(call);
        self.hand_on(state, reads);
    }

    /// Waits for the answer to a call, at most until the deadline. With `or_break`, a deadline that comes before the answer
    /// breaks the connection, so that the next attempt gets a fresh one. `limit` is what the caller calls its time.
    pub(crate) fn finish(&self, call: &Arc<Pending>, deadline: Instant, limit: Duration, or_break: bool) -> Answer {
        let is_free = self.wait(call, deadline);
        self.load.fetch_sub(1, Ordering::Relaxed);
        let answer = if is_free { call.finished() } else { None };
        answer.unwrap_or_else(|| self.depart(call, limit, or_break))
    }

    /// Takes in what has come for calls that nobody waits for; whether some of them are still without an answer. Does not
    /// block.
    pub(crate) fn collect(&self) -> bool {
        self.read_now();
        let mut state = self.state.lock();
        // From who is appointed the role is taken, for that caller may read, and sleep for a while.
        let takes_over = |state: &mut State<L>| !state.writing || std::mem::take(&mut state.appointed);
        if state.has_work() && !mutant!(LeavesPostedBehind) && takes_over(&mut state) {
            state = self.write_left_over(state);
        }
        state.connector.is_telling() || state.queue.iter().chain(state.due_calls()).any(|call| call.is_posted)
    }

    /// Closes the connection; calls that wait fail, and so does every later one. Does not wait for a connect that is under way: its
    /// thread closes what it gets.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.left_since.store(0, Ordering::Relaxed);
        self.connected.notify_all();
        let queue = std::mem::take(&mut state.queue);
        if let Some(epoch) = state.session.as_ref().map(|session| session.epoch) {
            state = self.fail(state, epoch, closed_by_us());
        }
        drop(state);
        let told = queue.iter().filter(|call| !(call.is_posted && mutant!(ForgetsPostedAtClose)));
        fail_all(told, &Error::ShutDown, false);
        self.end_connector();
    }

    /// Waits, and does what duties come; `false` when the time ended in a duty, which is to be handed on.
    fn wait(&self, call: &Arc<Pending>, deadline: Instant) -> bool {
        self.look(call, deadline);
        loop {
            if call.may_read_on() {
                self.read(call, deadline, true);
            }
            // Also when the answer is there: a duty has to be done.
            match call.wait(deadline) {
                Wake::Done | Wake::TimedOut => return true,
                Wake::Duty => {
                    let duties = call.take_duties();
                    let state = self.state.lock();
                    let state = if duties.write { self.write(state, call, deadline, Claim::Appointed) } else { state };
                    if now() >= deadline && !mutant!(AppointsItself) {
                        // Not now: as long as it is here it might be appointed again, and again.
                        return false;
                    }
                    // Whoever goes leaves no role behind; whoever stays reads.
                    let reads = !state.will_read(call);
                    self.hand_on(state, reads && !mutant!(WritesUnread));
                }
            }
        }
    }

    /// Drops a connection; every call written to it fails once.
    fn fail<'a>(&'a self, mut state: Guard<'a, L>, epoch: u64, cause: io::Error) -> Guard<'a, L> {
        if state.session_of(epoch).is_none() {
            return state;
        }
        let level = if state.closed { log::Level::Debug } else { log::Level::Warn };
        let Some(session) = state.session.take() else { return state };
        self.is_connected.store(false, Ordering::Relaxed);
        drop(state);
        log::log!(level, TRANSPORT, "{}: connection dropped: {}", self.settings.server, OneLine(&cause));
        let message = format!("no answer from {}: {cause}", self.settings.server);
        let error = Error::backend_caused_by(BackendFailure::Unknown, message, cause);
        let due = session.abort();
        if !mutant!(FailsNobody) {
            fail_all(&due, &error, false);
        }
        self.state.lock()
    }

    /// A caller goes at the end of its time, or with a duty that it has not done.
    fn depart(&self, call: &Arc<Pending>, limit: Duration, or_break: bool) -> Answer {
        let mut state = self.state.lock();
        let (phase, duties, mut answer) = call.leave();
        let server = &self.settings.server;
        match phase {
            Phase::Queued => {
                state.queue.retain(|other| !Arc::ptr_eq(other, call));
                let why = if state.connector.is_busy { ": the connect goes on" } else { "" };
                let message = format!("{server}: not sent within {limit:?}{why}");
                answer.failure = Some(Error::backend(BackendFailure::NotExecuted, message));
            }
            Phase::Written => {
                let message = format!("no answer from {server} within {limit:?}");
                answer.failure = Some(Error::backend(BackendFailure::Unknown, message));
            }
            Phase::Left | Phase::Done => {}
        }
        if duties.write && !mutant!(DepartsWithDuty) {
            state.resign();
        }
        if mutant!(LeavesTheOrder)
            && let Some(session) = &mut state.session
        {
            session.due.retain(|due| !Arc::ptr_eq(&due.call, call));
        }
        // One that was opened within the caller's time is a fresh one.
        let is_old = |session: &&Session<L>| now().saturating_duration_since(session.opened) >= limit;
        let epoch = state.session.as_ref().filter(is_old).map(|session| session.epoch);
        let is_due = phase == Phase::Written && epoch.is_some_and(|first_epoch| answer.epoch >= first_epoch);
        let is_late = phase == Phase::Queued || is_due;
        // Also for a call that was not even sent: whoever writes has not got on all this time, if there was any.
        if or_break
            && is_late
            && (!limit.is_zero() || mutant!(BreaksWithoutTime))
            && let Some(epoch) = epoch
        {
            state = self.fail(state, epoch, ended(limit));
        }
        self.hand_on(state, true);
        answer
    }

    /// Appoints who writes next, and who `reads`, if there is anything to do and nobody does it.
    fn hand_on(&self, mut state: Guard<'_, L>, reads: bool) {
        let mut heirs = Woken::new();
        if !mutant!(WriterLeavesAlone) {
            state.appoint_writer(&mut heirs);
        }
        if reads {
            state.appoint_reader(&mut heirs);
        }
        drop(state);
        heirs.iter().for_each(|heir| heir.wake());
    }
}

/// Ends calls with a failure. Without the lane's state: callbacks run.
fn fail_all<'a>(calls: impl IntoIterator<Item = &'a Arc<Pending>>, error: &Error, unconnected: bool) {
    for call in calls {
        if call.fail(error, unconnected) {
            call.wake();
        }
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
