//! One connection shared by any number of callers: full duplex, without a thread of its own except while it connects.
//!
//! The callers do the I/O for one another, by the leader/follower pattern. A *leader* does the I/O for all, and the others, its
//! *followers*, sleep until they have their answers. There are two leaders, because the connection has two halves. The *writer* writes what
//! all callers have queued. The *reader* reads the replies of all, and delivers them. At most one caller has each role. A caller gets a
//! role when it finds the role free, or when it is *promoted*: a leader that leaves wakes a follower, its successor, which takes the role
//! on.
//!
//! ```text
//!   caller ── queue ──▶ writer: [connect] ▶ write all that is queued ──▶ due ──▶ reader: read, deliver in order
//!                          │                                                        │
//!                          └── own answer there: the role goes to a caller that waits ◀──┘
//! ```
//!
//! # The steps of a call
//!
//! 1. *Queue.* The caller queues its call. If there is no writer, the caller becomes the writer. Otherwise it is a follower, and the writer
//!    or a successor writes its call.
//! 2. *Gather.* Callers that were answered together, or whose posted calls were sent together, usually call again at the same time. While
//!    some of them have not called again, the writer first yields once (`polling`), so that one write carries the commands of all. The last
//!    of these callers takes the role over, and writes in place of the writer that yields.
//! 3. *Write.* The writer opens a connection if there is none, moves the whole queue to `due`, and writes it. It repeats this until the
//!    queue is empty, until its time ends, or until its own answer is there and a waiting caller can succeed it.
//! 4. *Poll.* A caller that waits for its answer polls the connection for a while and yields in between (`polling`).
//! 5. *Read.* Then it becomes the reader if there is none; otherwise it sleeps as a follower. The reader delivers all replies, in order,
//!    until its own answer is there. Then it promotes a successor.
//!
//! # Why it is right
//!
//! 1. *No caller waits for the mutex until another caller's I/O is done.* The writer owns the outbound half and the reader the inbound
//!    half, so neither needs the state's mutex for its I/O, and no thread holds the mutex while it blocks on I/O.
//! 2. *Each reply reaches its call.* The server answers in the order of writing, and `due` keeps that order. The call of a caller that
//!    leaves keeps its place in `due`. Its replies are read and dropped, so the replies behind them still reach their callers.
//! 3. *A connection out of step is not used.* A connection that has an error is cut and never used again. So is one whose oldest reply has
//!    been due for the I/O time-out, plus the time that a confirmation may take. Every call written to it fails once, as `Unknown`: the
//!    server may have executed it. Calls that are not written yet go on the next connection.
//! 4. *No follower sleeps forever.* Two invariants hold. While a call is queued whose caller attends to it, there is a writer, a caller
//!    promoted to writer, or a thread that connects and then writes; or the call is held back (rule 8), and its caller waits for a
//!    confirmation. While a caller waits for a reply or a confirmation, there is a reader, a caller promoted to reader, or a caller that
//!    polls and comes again. They hold because a leader that gives up its role for good promotes a successor (`hand_on`), and so does a
//!    caller that leaves while it is promoted.
//! 5. *The role of reader changes hands once a round trip.* The successor is the caller whose reply comes last, so that it reads the
//!    replies of all others. A caller that is awake may take the role before it. A leader whose own answer has come finishes the read or
//!    the write that it has begun, and then gives up its role.
//! 6. *There is one writer.* A writer that yields, or that is promoted and not awake yet, keeps the role only if no other caller takes it
//!    over meanwhile. The roles `Gathering` and `Promoted` show such a writer (`state.rs` has the table). The caller that makes them
//!    `Writing` has the role, and only one caller can do that, because it needs the mutex. The role of a writer that yields has a number,
//!    so that a writer that comes back late does not take its successor's role. (A promoted caller that wakes late may take the role of a
//!    caller that was promoted after it, and then writes in its place.)
//! 7. *A posted call is handed to the system before `post` returns*, unless its limit ends or its connection breaks. A poster that finds
//!    another writer yields once if other callers share the connection, and then takes the role over if its call is still queued and the
//!    writer does not write yet. If the writer is in the middle of a write, the poster waits for the end of that write. No caller waits for
//!    a posted call that must be sent again, or whose poster's time was over, or that is posted to go out with the next batch. Such a call is
//!    written by the reader that has read its refusal if there is no writer, else by the writer, by the next caller, or by `send_left`.
//! 8. *One confirmation is under way at a time.* Some calls are answered only when the server has confirmed their write. The last command
//!    of a write confirms all calls of that write. The server executes nothing behind that command on this connection until it has answered
//!    it. Meanwhile, calls that are to be confirmed are *held back*: they stay queued, and the next write after the confirmation takes them
//!    all. So such a call waits for two confirmations at most, and any other call for one. Calls that need no confirmation are not held
//!    back, and may overtake those that are. That breaks no order: the callers of held-back calls still wait, so both calls are under way
//!    at the same time. A caller whose call is held back reads like a caller that waits for a reply, even if the callers of the calls under
//!    confirmation have left. The reader that delivers a confirmation promotes a writer.
//! 9. *A caller reads once more before it gives up.* A caller whose time is over takes in, without waiting, the replies that have come: it
//!    may have spent its time waiting for another server. For the same reason a call whose time was over before it was queued breaks no
//!    connection. A caller that begins several batches does not wait for a connection that is full. It writes the rest when it waits for
//!    that batch.
//! 10. *A panic leaves no role behind.* A panic in a connection's code becomes an error of that connection. Any other panic of a leader
//!     drops its `Role` (`leaders.rs`), which gives the role back.
//!
//! # Posted calls
//!
//! When a poster goes on, the operating system has the bytes of its call, unless the limit of the call ends or the connection breaks. A
//! poster does not rely on a thread that is about to write: if the program ended before that write, its lock would stay locked. So the
//! poster writes the call itself, or waits until another thread has written it. One write carries the calls of many posters. Only a poster
//! that is about to begin a batch, or to collect, may leave the write to that ([`PostTime::WithNext`]).
//!
//! The next reader takes the answer in, or the store does when it [collects](super::Transport::collect). No caller waits for the refusal of a short
//! form. So the first posted call of a script on a connection carries the whole text (`PendingCall::write_to`). If the server has forgotten
//! the script since then, the thread that reads the refusal queues the call again before it delivers any later answer. So a request that a
//! caller sends after such an answer is written behind the release.
//!
//! # How a connection is opened
//!
//! The thread `dlock-connect` opens it. This thread exists only while it connects. A connect has the whole `connect_timeout`, whichever
//! caller needs it. A caller's deadline limits only how long that caller waits: a caller whose time ends leaves, and the connect goes on
//! for the others. That is why a caller does not connect itself. Its time may be too short for a connect, and if that is so for every
//! caller, no connection would ever be opened.
//!
//! The thread installs the connection in the mux. If no caller is the writer by then, it also writes the queue, so that a posted call whose
//! poster has left is sent. If the connect has failed, all queued calls fail at once. Otherwise each of them would wait for one more
//! connect, one after another.
//!
//! If the operating system refuses the thread, a caller that waits for the connect connects itself, within its own time. If that time is
//! too short, the calls of other callers fail with its own. Without this attempt they would have no connection at all.
//!
//! The thread holds a weak reference to its mux. If the mux is gone when the connect ends, the thread closes the new connection at once.
//!
//! # How a connection fails, and how a caller leaves
//!
//! When a connection fails, each call that was written to it fails once, with an unknown outcome: the server may have executed it. A call that
//! is only queued does not fail: it goes on the next connection. The error of a caller that leaves depends on the phase of its call. A call
//! that was never written was not executed, and may be repeated at once. The outcome of any other call is unknown.
//!
//! A thread that fails calls does not hold the mutex while it wakes their callers and runs callbacks: woken callers take the mutex at once,
//! and the callbacks of posted calls are code of the store.
//!
//! # The files
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the mux, and a call from its queueing to its answer: what a caller does, and how it leaves; how the connection is opened |
//! | `leaders.rs` | steps 2 to 5: the writer, the reader, and their roles, which are given back even in a panic |
//! | `polling.rs` | when a caller polls for its answer before it sleeps, and yields before it writes |
//! | `pending.rs` | one call: its phases, its caller and its replies; what happens when the server does not know a short form |
//! | `state.rs` | what the mutex protects: the queue, the roles, the connection and the calls that are due on it; also the epochs, which the mutex does not protect |

mod leaders;
mod pending;
mod polling;
mod state;

use super::routes::{AnswerLimit, AtLimit, PostTime, WaitOrder};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::one_line::OneLine;
use crate::store::redis::net::connector::{Connector, OpenConnection};
use crate::store::redis::net::resp::Stamp;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, catch_panic, now, on_own_thread, thread};
use leaders::Writer;
use pending::{CallPhase, Wake};
use state::{Epochs, MuxState, Session, Woken, WriterClaim, WriterRole};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub(super) use leaders::Reader;
pub(super) use pending::PendingCall;
pub(crate) use pending::{CallReplies, Callback, Replied};
pub(super) use polling::PollPolicy;
pub use polling::Polling;
pub(crate) use state::Confirming;

/// What all muxes of a transport share.
pub(crate) struct MuxSettings<C> {
    pub(crate) connector: C,
    /// The name of the server in errors.
    pub(crate) server: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) io_timeout: Duration,
    /// How calls are confirmed. `None` if the store confirms none.
    pub(crate) confirming: Option<Confirming>,
    /// The bytes that commands carry in the places that they reserve for a stamp, in epochs that are stamped.
    pub(crate) stamp: Stamp,
    /// How long the last successful connect took, in nanoseconds. Zero while no connect has succeeded, so that the server has never
    /// answered.
    // ORDERING: Relaxed: an estimate; nothing is read through it. A caller that was answered has taken a mux's mutex after the value was
    // stored.
    pub(crate) connect_took: AtomicU64,
}

impl<C> MuxSettings<C> {
    /// How long the oldest reply may be due before the connection is given up.
    fn patience(&self) -> Duration {
        self.io_timeout + self.confirming.as_ref().map_or(Duration::ZERO, |confirming| confirming.takes)
    }

    /// The error of a call for which there is no connection.
    fn unconnected(&self) -> Error {
        let message = format!("{}: not sent: there is no connection", self.server);
        Error::backend(BackendFailure::NotExecuted, message)
    }
}

/// One connection and its callers: see the module.
pub(crate) struct Mux<C: Connector> {
    settings: Arc<MuxSettings<C>>,
    /// Shared by the connections that callers share.
    polling: Arc<PollPolicy>,
    /// A handle for the thread that connects.
    this: Weak<Self>,
    state: Mutex<MuxState<C>>,
    /// Notified when a connect on a separate thread has ended, and when the mux is closed.
    connected: Condvar,
    /// The number of callers between [`begin`](Self::begin) and the end of [`finish`](Self::finish), or in [`post`](Self::post).
    // ORDERING: Relaxed: a count by which `choose` and the writer estimate. It decides nothing else.
    load: AtomicUsize,
    // ORDERING: Relaxed: a hint. A thread that uses the connection finds it in `state`.
    is_connected: AtomicBool,
    pub(super) epochs: Epochs,
}

type Guard<'a, C> = MutexGuard<'a, MuxState<C>>;

/// How a caller's wait has ended.
enum Waited {
    Answered(CallReplies),
    TimedOut,
    /// The time ended while the caller had a role. It must `depart` or `hand_on`, either of which promotes a successor.
    TimedOutInRole,
}

impl<C: Connector> Mux<C> {
    /// Creates the mux of this number, which connects with its first call.
    pub(super) fn new(settings: &Arc<MuxSettings<C>>, polling: Arc<PollPolicy>, number: usize) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            settings: Arc::clone(settings),
            polling,
            this: Weak::clone(this),
            state: Mutex::new(MuxState::new()),
            connected: Condvar::new(),
            load: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            epochs: Epochs::of(number),
        })
    }

    /// Returns the number of callers that write to this mux or wait for it.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed) // ORDERING: Relaxed: an estimate.
    }

    /// Returns `true` if the mux has a connection. Approximate: it does not take the mutex, which the users of the connection need.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed) // ORDERING: Relaxed: a hint.
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Unlocks the state. First promotes a writer if there is something to write and no writer. With `reads`, does the same for a reader.
    fn hand_on(&self, mut state: Guard<'_, C>, reads: bool) {
        let mut successors = Woken::new();
        state.promote_writer(&mut successors);
        if reads {
            state.promote_reader(&mut successors);
        }
        // Unlock before waking: a caller that wakes up takes the mutex first, and would sleep once more while this thread still holds it.
        drop(state);
        for successor in &successors {
            successor.wake();
        }
    }

    /// Sends a call, unless its deadline has come by the moment `at`. [`finish`](Self::finish) must follow: at once, or after the caller's
    /// other calls and [`attend`](Self::attend).
    pub(crate) fn begin(&self, call: &Arc<PendingCall>, at: Instant, deadline: Instant, waits: WaitOrder) {
        self.load.fetch_add(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        if at >= deadline {
            // The call stays `Queued` and is never written; `finish` reports that.
            return;
        }
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            call.fail(&Error::ShutDown, false);
            return;
        }
        state.queue.push_back(Arc::clone(call));
        state.note_return();
        let state = Writer::write(self, state, call, deadline, WriterClaim::Free);
        // No reader is promoted if this caller is about to read: a reply to it is due, and `finish` follows at once. Otherwise the write that
        // was made here may have replies for callers that all sleep.
        let reads = matches!(waits, WaitOrder::AfterOthers) || !state.will_read(call);
        self.hand_on(state, reads);
    }

    /// Begins to wait for this call, after the caller had other calls to wait for; [`finish`](Self::finish) must follow at once.
    pub(crate) fn attend(&self, call: &Arc<PendingCall>, deadline: Instant) {
        let state = self.state.lock();
        call.attend();
        let state =
            if state.has_work() { Writer::write(self, state, call, deadline, WriterClaim::Free) } else { state };
        let reads = !state.will_read(call);
        self.hand_on(state, reads);
    }

    /// Waits for the answer to a call, until the deadline at most, or until the end of its spare time if it was sent again.
    pub(crate) fn finish(&self, call: &Arc<PendingCall>, until: &AnswerLimit) -> CallReplies {
        let AnswerLimit { deadline, spare, .. } = *until;
        let mut waited = self.wait(call, deadline);
        if !matches!(waited, Waited::Answered(_)) {
            Reader::look(self, Some(call));
            if !spare.is_zero() && call.is_under_way_again() {
                if matches!(waited, Waited::TimedOutInRole) {
                    // It hands the role on only now, because it goes on waiting and may be promoted again.
                    self.hand_on(self.state.lock(), true);
                }
                waited = self.wait(call, crate::timing::end_of(spare, deadline));
            }
        }
        self.load.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        if let Waited::Answered(answer) = waited {
            return answer;
        }
        Reader::look(self, Some(call));
        self.depart(call, until)
    }

    /// Writes, without waiting, what is queued and has no writer. Returns `true` if a posted call may still have no answer.
    pub(crate) fn send_left(&self) -> bool {
        let mut state = self.state.lock();
        // Takes the role from a promoted caller too: that caller may read instead, and sleep for a while.
        let is_idle = matches!(state.writer, WriterRole::Free | WriterRole::Promoted);
        if is_idle && state.has_work() {
            state = Writer::left_over(self, state);
        }
        state.connecting.is_telling() || state.queue.iter().chain(state.due_calls()).any(|call| call.is_posted)
    }

    /// Closes the connection. Calls that wait fail, and so does every later one. Does not wait for a connect that is under way: its thread
    /// closes the connection that it gets.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        // The flag comes first. Every later caller is refused under this mutex, so no call is queued behind those that are taken here.
        state.closed = true;
        self.connected.notify_all();
        let queue = std::mem::take(&mut state.queue);
        if let Some(epoch) = state.session.as_ref().map(|session| session.epoch) {
            state = self.fail(state, epoch, closed_by_us());
        }
        drop(state);
        let told = queue.iter();
        fail_all(told, &Error::ShutDown, false);
        self.end_connecting();
    }

    /// Waits for the answer, and takes on the roles to which the caller is promoted meanwhile. A caller that was promoted takes its role on
    /// even if its answer is there, or its followers would sleep on.
    fn wait(&self, call: &Arc<PendingCall>, deadline: Instant) -> Waited {
        Reader::poll(self, call, deadline);
        loop {
            if let Some(answer) = call.finished() {
                return Waited::Answered(answer);
            }
            // After a read, the answer is usually there. Otherwise nothing is left to read for this caller, or its time is over.
            if call.may_read_on() && Reader::read(self, call, now(), deadline, true) {
                continue;
            }
            match call.wait(deadline) {
                Wake::Done => {}
                Wake::TimedOut => return Waited::TimedOut,
                Wake::Promoted => {
                    let promotion = call.take_promotion();
                    let state = self.state.lock();
                    let state = if promotion.to_writer {
                        Writer::write(self, state, call, deadline, WriterClaim::Promoted)
                    } else {
                        state
                    };
                    if now() >= deadline {
                        // Hand nothing on here: while this caller still counts as waiting it could be promoted again and again.
                        return Waited::TimedOutInRole;
                    }
                    // A caller whose answer has come promotes a reader; one that still waits for it reads itself.
                    let reads = !state.will_read(call);
                    self.hand_on(state, reads);
                }
            }
        }
    }

    /// Sends a call without waiting for its answer, which its callback receives. With [`PostTime::Now`], blocks until the call is written. That
    /// includes the time while a connection is being opened, while the connection takes no more bytes, and while another caller writes.
    ///
    /// 1. The poster queues its call, and writes the queue if it can become the writer.
    /// 2. Otherwise it takes the role over from a writer that does not write yet, or waits until the writer has written the call.
    ///
    /// So the call is written when this returns, unless the deadline has come or the connection broke.
    ///
    /// With [`PostTime::WithNext`] the call is only queued, and nothing blocks. The next call on this mux writes it, or
    /// [`send_left`](Self::send_left).
    pub(crate) fn post(&self, call: &Arc<PendingCall>, deadline: Instant, time: PostTime) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return fail_all([call], &Error::ShutDown, false);
        }
        if matches!(time, PostTime::WithNext) {
            // The poster does not wait here, so it must not be promoted.
            call.leave_sent();
            return state.queue.push_back(Arc::clone(call));
        }
        self.load.fetch_add(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        state.queue.push_back(Arc::clone(call));
        state.note_return();
        // The poster does not read for this call, so `hand_on` must promote a reader for the calls that were written with it.
        let state = Writer::write(self, state, call, deadline, WriterClaim::Free);
        self.hand_on(state, true);
        if !call.is_over() {
            self.see_sent(call, deadline);
        }
        self.load.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        if call.leave_sent() {
            let mut state = self.state.lock();
            state.resign();
            self.hand_on(state, true);
        }
    }

    /// Waits until another caller has written a posted call, or writes it.
    fn see_sent(&self, call: &Arc<PendingCall>, deadline: Instant) {
        let at = now();
        if at < deadline && self.load() > 1 {
            // Callers that are already answered may call or post during the yield. One write then carries the commands of all.
            let _ = self.polling.yield_once(at, self.load());
        }
        let mut claim = WriterClaim::AtOnce;
        // A promoted poster goes on even if its call is already sent: it must take the role on.
        while matches!(claim, WriterClaim::Promoted) || !call.is_over() {
            let state = self.state.lock();
            // The rest of a call that is written in part goes out with the next write. No other caller may need that write, so the poster
            // makes it.
            let has_backlog = state.session.as_ref().is_some_and(|session| session.has_backlog);
            let writes = matches!(claim, WriterClaim::Promoted) || call.is_queued() || has_backlog;
            let mut state = if writes { Writer::write(self, state, call, deadline, claim) } else { state };
            if now() >= deadline {
                // Leave first: while this poster still counts as waiting it could be promoted again and again.
                if call.leave_sent() {
                    state.resign();
                }
                return self.hand_on(state, true);
            }
            self.hand_on(state, true);
            claim = match call.wait(deadline) {
                Wake::Done | Wake::TimedOut => return,
                Wake::Promoted => {
                    call.take_promotion();
                    WriterClaim::Promoted
                }
            };
        }
    }

    /// Drops a connection. Every call written to it fails once.
    fn fail<'a>(&'a self, mut state: Guard<'a, C>, epoch: u64, cause: io::Error) -> Guard<'a, C> {
        if state.session_of(epoch).is_none() {
            return state;
        }
        let level = if state.closed { log::Level::Debug } else { log::Level::Warn };
        // The thread that takes the session out of the state fails its calls. No other thread can find the session any more, so each call
        // fails once.
        let Some(session) = state.session.take() else { return state };
        self.is_connected.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
        drop(state);
        log::log!(level, TRANSPORT, "{}: connection dropped: {}", self.settings.server, OneLine(&cause));
        let message = format!("no answer from {}: {cause}", self.settings.server);
        let error = Error::backend_caused_by(BackendFailure::Unknown, message, cause);
        let due = session.abort();
        fail_all(&due, &error, false);
        self.state.lock()
    }

    /// Closes the connection if it has not been used for `idle` and nothing is due on it. The next call opens another one.
    pub(crate) fn end_idle(&self, idle: Duration) {
        let mut state = self.state.lock();
        if !matches!(state.writer, WriterRole::Free) || !state.queue.is_empty() {
            return;
        }
        let Some(session) = state.session.take_if(|session| session.is_idle(now(), idle)) else { return };
        self.is_connected.store(false, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
        drop(state);
        log::debug!(TRANSPORT, "{}: a connection ends that was idle for {idle:?}", self.settings.server);
        // No call is due on it.
        session.abort();
    }

    /// Removes a caller whose time is over, or that leaves while it is promoted. Returns what came, with the failure that its phase
    /// implies.
    fn depart(&self, call: &Arc<PendingCall>, until: &AnswerLimit) -> CallReplies {
        let AnswerLimit { limit, at_limit, .. } = *until;
        let mut state = self.state.lock();
        let (phase, mut answer) = call.leave();
        let server = &self.settings.server;
        let mut was_queued = false;
        match phase {
            CallPhase::Queued => {
                let before = state.queue.len();
                state.queue.retain(|other| !Arc::ptr_eq(other, call));
                was_queued = state.queue.len() < before;
                let is_confirming = state.session.as_ref().is_some_and(|session| session.is_confirming);
                let why = match () {
                    () if state.connecting.is_busy => "; the connect goes on",
                    () if is_confirming && call.is_confirmed => "; earlier commands were still being confirmed",
                    () => "",
                };
                let message = format!("{server}: not sent within {limit:?}{why}");
                answer.failure = Some(Error::backend(BackendFailure::NotExecuted, message));
            }
            CallPhase::Written(_) => {
                let message = format!("no answer from {server} within {limit:?}");
                answer.failure = Some(Error::backend(BackendFailure::Unknown, message));
            }
            CallPhase::Left | CallPhase::Done => {}
        }
        if call.take_promotion().to_writer {
            state.resign();
        }
        // A connection that was opened within the caller's time is fresh and is not broken.
        let is_old = |session: &&Session<C>| now().saturating_duration_since(session.opened) >= limit;
        let epoch = state.session.as_ref().filter(is_old).map(|session| session.epoch);
        let is_due =
            epoch.is_some_and(|first_epoch| matches!(phase, CallPhase::Written(epoch) if epoch >= first_epoch));
        // A call that was queued and never written counts as late, too: a writer that has made no progress for the whole limit shows that
        // the connection is stuck. A call whose time was over before it was queued says nothing about the connection.
        let is_late = was_queued || is_due;
        if matches!(at_limit, AtLimit::BreakConnection)
            && is_late
            && let Some(epoch) = epoch
        {
            state = self.fail(state, epoch, ended(limit));
        }
        self.hand_on(state, true);
        answer
    }

    /// Opens the connection before the first call, until the deadline at most.
    pub(super) fn connect_first(&self, deadline: Instant) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.session.is_none() && !state.closed {
            state = self.connect_while(state, deadline, || true);
        }
        if state.closed {
            return Err(Error::ShutDown);
        }
        if state.session.is_some() {
            return Ok(());
        }
        let failed = state.connecting.failed.as_ref().filter(|_| !state.connecting.is_busy);
        Err(failed.map_or_else(|| self.settings.unconnected(), |(_, error)| error.clone()))
    }

    /// Starts a connect for later calls, unless there is a connection, one is being opened, or the last connect failed less than `pause`
    /// ago. Does not block.
    pub(super) fn connect_ahead(&self, pause: Duration) {
        let mut state = self.state.lock();
        if state.closed || state.session.is_some() || state.connecting.failed_within(pause) {
            return;
        }
        // If the thread cannot be started, the next caller connects.
        let begun = self.begin_connect(&mut state);
        drop(state);
        let _ = begun.inspect_err(note_refusal);
    }

    /// Returns `true` if the last connect failed less than `pause` ago.
    pub(super) fn failed_within(&self, pause: Duration) -> bool {
        self.state.lock().connecting.failed_within(pause)
    }

    /// Starts a connect, and waits for its end while `waits` returns `true`, until the deadline at most.
    fn connect_while<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        deadline: Instant,
        waits: impl Fn() -> bool,
    ) -> Guard<'a, C> {
        if let Err(refusal) = self.begin_connect(&mut state) {
            state.connecting.is_busy = true;
            drop(state);
            note_refusal(&refusal);
            let start = now();
            self.end_connect(
                open(&self.settings.connector, deadline.min(start + self.settings.connect_timeout)),
                start,
            );
            return self.state.lock();
        }
        while waits() {
            let left = deadline.saturating_duration_since(now());
            if !state.connecting.is_busy || state.closed || left.is_zero() {
                break;
            }
            self.connected.wait_for(&mut state, left);
        }
        state
    }

    /// Starts a connect on a separate thread, unless one is under way. Does not block.
    ///
    /// # Errors
    ///
    /// If the operating system refuses the thread.
    fn begin_connect(&self, state: &mut MuxState<C>) -> io::Result<()> {
        if state.connecting.is_busy {
            return Ok(());
        }
        let (mux, settings, start) = (Weak::clone(&self.this), Arc::clone(&self.settings), now());
        let connect = move || {
            let opened = open(&settings.connector, start + settings.connect_timeout);
            if let Some(mux) = mux.upgrade() {
                mux.end_connect(opened, start);
            }
        };
        let may_spawn = self.settings.connector.may_spawn();
        let spawn = || thread::Builder::new().name("dlock-connect".to_owned()).spawn(|| on_own_thread(connect));
        let thread = if may_spawn { spawn()? } else { return Err(io::ErrorKind::WouldBlock.into()) };
        // The thread cannot report its end before this mark is set, because it needs the mutex for that.
        state.connecting.thread = Some(thread);
        state.connecting.is_busy = true;
        Ok(())
    }

    /// Takes the outcome of a connect.
    fn end_connect(&self, opened: Result<OpenConnection<C>, Error>, start: Instant) {
        let mut state = self.state.lock();
        let me = thread::current().id();
        // In one step: `close` must find this thread either as one that connects, or as one that may still run callbacks.
        state.connecting.is_busy = false;
        state.connecting.tellers.push(me);
        self.connected.notify_all();
        // Callbacks and the log may panic.
        let told = catch_panic(|| {
            let state = self.take_up(state, opened, start);
            if matches!(state.writer, WriterRole::Free) && state.has_work() {
                drop(Writer::left_over(self, state));
            }
        });
        let mut state = self.state.lock();
        state.connecting.tellers.retain(|teller| *teller != me);
        self.connected.notify_all();
        drop(state);
        if told.is_none() {
            log::error!(TRANSPORT, "the thread dlock-connect has caught a panic; please report it");
        }
    }

    /// Installs a connection, or fails every queued call.
    fn take_up<'a>(
        &'a self,
        mut state: Guard<'a, C>,
        opened: Result<OpenConnection<C>, Error>,
        start: Instant,
    ) -> Guard<'a, C> {
        match opened {
            Ok(open) => {
                let took = u64::try_from(now().duration_since(start).as_nanos()).unwrap_or(u64::MAX).max(1);
                // ORDERING: Relaxed: the readers load the value alone.
                self.settings.connect_took.store(took, Ordering::Relaxed);
                // A mux that was closed meanwhile keeps no connection: this one ends when `open` is dropped.
                if !state.closed {
                    state.session = Some(Session::new(self.epochs.begin(), open));
                    self.is_connected.store(true, Ordering::Relaxed); // ORDERING: Relaxed: a hint.
                }
                state
            }
            Err(error) => {
                state.connecting.failed = Some((now(), error.clone()));
                let failed: VecDeque<_> = std::mem::take(&mut state.queue);
                drop(state);
                fail_all(&failed, &error, true);
                self.state.lock()
            }
        }
    }

    /// Called when the mux is closed. Waits until every thread whose connect has ended has run its callbacks, and until the last of these
    /// threads has ended. Returns at once on such a thread, and does not wait for a connect that is still under way.
    fn end_connecting(&self) {
        let me = thread::current().id();
        let mut state = self.state.lock();
        if state.connecting.tellers.contains(&me) {
            return;
        }
        while state.connecting.is_telling() {
            self.connected.wait(&mut state);
        }
        let thread = if state.connecting.is_busy { None } else { state.connecting.thread.take() };
        drop(state);
        if let Some(thread) = thread {
            // The thread has caught any panic itself.
            let _ = thread.join();
        }
    }

    /// Returns `true` if a thread connects, is about to, or has not yet written what waited for its connection.
    #[cfg(all(test, dlock_shuttle))]
    pub(super) fn is_connecting(&self) -> bool {
        let state = self.state.lock();
        state.connecting.is_busy || state.connecting.is_telling()
    }
}

/// Ends calls with a failure. Call it without holding the mux's state, because callbacks run.
fn fail_all<'a>(calls: impl IntoIterator<Item = &'a Arc<PendingCall>>, error: &Error, unconnected: bool) {
    for call in calls {
        if call.fail(error, unconnected) {
            call.wake();
        }
    }
}

/// Says in the log that there is no thread for a connect. Call it without holding the mux's state: a logger may block.
fn note_refusal(refusal: &io::Error) {
    log::debug!(TRANSPORT, "the operating system refused the thread dlock-connect: {refusal}");
}

/// Opens a connection, until the deadline at most. A panic becomes an error, because the mux must learn that this connect has ended: code
/// of the program that runs during a connect, such as its logger, may panic.
fn open<C: Connector>(connector: &C, deadline: Instant) -> Result<OpenConnection<C>, Error> {
    let panicked = || Error::backend(BackendFailure::NotExecuted, "opening a connection panicked; please report it");
    catch_panic(|| connector.open(deadline)).unwrap_or_else(|| Err(panicked()))
}

fn overdue_by(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no reply for {timeout:?}"))
}

fn ended(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no reply within the limit of {limit:?}"))
}

fn closed_by_us() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this client closed the connection")
}
