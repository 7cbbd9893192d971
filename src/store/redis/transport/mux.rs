//! One connection shared by any number of callers: full duplex, without a thread of its own except while it connects (`connecting`).
//!
//! The callers do the I/O for one another. A *leader* does it for all, and the others, its *followers*, sleep until they have their
//! answers. There are two leaders, because the connection has two halves: the *writer* writes what all have queued, and the *reader*
//! reads and delivers the replies of all. At most one caller has each role. A caller gets a role when it finds the role free, or when it
//! is *promoted*: a leader that leaves wakes a follower, its successor, which takes the role on.
//!
//! ```text
//!   caller ── queue ──▶ writer: [connect] ▶ write all that is queued ──▶ due ──▶ reader: read, deliver in order
//!                          │                                                        │
//!                          └── own answer there: the role goes to a caller that waits ◀──┘
//! ```
//!
//! # The steps of a call
//!
//! 1. *Queue.* The caller queues its call. If there is no writer, the caller becomes the writer. Otherwise it is a follower: the writer or
//!    a successor writes its call.
//! 2. *Gather.* If callers that were answered together, or whose posted calls were sent together, have not all called again, the writer
//!    first yields once (`yielding`), so that one
//!    write carries the commands of all. The last of these callers takes the role over and writes in its place.
//! 3. *Write.* The writer opens a connection if there is none, moves the whole queue to `due`, and writes it. It repeats this until the
//!    queue is empty, until its time ends, or until its own answer is there and a waiting caller can succeed it.
//! 4. *Spin.* A caller that waits for its answer, and is not the only one, polls the connection a few times and yields in between.
//! 5. *Read.* Then it becomes the reader if there is none; otherwise it sleeps as a follower. The reader delivers all replies, in order,
//!    until its own answer is there. Then it promotes a successor.
//!
//! # Why it is right
//!
//! 1. *No caller waits for the I/O of another to get the mutex.* The writer owns the outbound half and the reader the inbound half, so
//!    neither needs the state's mutex for its I/O, and no thread holds the mutex while it blocks on I/O.
//! 2. *Each reply reaches its call.* The server answers in the order of writing, and `due` keeps that order. A caller that leaves keeps its
//!    place; its replies are dropped, so the next ones still reach their callers.
//! 3. *A connection out of step is not used.* A connection with an error, or whose oldest reply is overdue by the I/O time-out, is cut and
//!    never used again. Every call written to it fails once, as `Unknown`: the server may have executed it. Calls not yet written go on the
//!    next connection.
//! 4. *No follower sleeps forever.* While a call that somebody attends to is queued, there is a writer, a caller promoted to writer, or a
//!    thread that connects and then writes; or the call is held back, and its caller waits for a confirmation. While a caller waits for a
//!    reply or a confirmation, there is a reader, a caller promoted to reader, or one that spins and comes again. This holds because a leader that gives up its role for good, and a caller that leaves while it is promoted,
//!    promote a successor (`hand_on`).
//! 5. *The role of reader changes hands once a round trip.* The successor is the caller whose reply comes last, unless a caller that is
//!    awake takes the role first. No caller keeps a role after its own answer has come, except for what was read or gathered by then.
//! 6. *There is one writer.* A writer that yields, or is promoted and not awake yet, keeps the role only if nobody takes it over
//!    meanwhile. The marks `gathering` and `promoted` show such a writer. The caller that takes the mark away has the role, and the mutex
//!    lets only one caller take it. The mark of a writer that yields has a number, so that a writer that comes back late does not take its
//!    successor's. (A promoted caller that wakes late may take the mark of a later one, and writes in its place.)
//! 7. *A posted call is handed to the system before `post` returns*, unless its limit ends or its connection breaks. A poster that finds
//!    the writer yielding yields once itself, and then takes the role over if its call is still queued. If the writer is in the middle of
//!    a write, the poster waits for its end. A posted call that must be sent again, or whose poster's time was over, has nobody who waits
//!    for it: it goes with the reader that has met it if nobody writes, else with the writer, with the next caller, or with `collect`.
//! 8. *One confirmation is under way at a time.* Some calls are answered only when the server has confirmed their write. One command
//!    behind all others of a write does that for all of them; the server executes nothing behind it on this connection until it has
//!    answered it. Meanwhile calls that are to be confirmed are *held back*: they stay queued, and go out together afterwards. So a caller
//!    waits for two confirmations at most, and any other call for one. Held-back calls may be overtaken by others in the queue: none of
//!    them was sent or given up before those began, because one that is given up leaves the queue. Who is held back reads like one that
//!    waits for a reply, even if the callers that are confirmed have left. The reader that delivers a confirmation promotes a writer.
//! 9. *A panic leaves no role behind.* A panic in a connection's code becomes an error of that connection, and any other panic gives the
//!    role back (`role.rs`).

mod connecting;
mod leaving;
mod posting;
mod reading;
mod role;
mod session;
mod state;
mod writing;

use super::connector::Connector;
use super::pending::{Answer, Pending, Wake};
use super::yielding::Yielding;
use crate::error::Error;
use crate::store::redis::net::resp::Stamp;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, mutant, now};
use leaving::{closed_by_us, fail_all};
use state::State;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A connection that was silent for this long is checked before it is written to: the server may have closed it.
const IDLE: Duration = Duration::from_secs(1);

/// A write after a longer pause than this begins a new epoch. While the pauses are shorter, a server that stops being a master refuses one
/// of the commands. During a longer pause it may have been no master for a while without anybody noticing.
const QUIET: Duration = Duration::from_millis(100);

/// What all muxes of a transport share.
pub(crate) struct Settings<C> {
    pub(crate) connector: C,
    /// The name of the server in errors.
    pub(crate) server: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) io_timeout: Duration,
    /// How calls are confirmed, if they are.
    pub(crate) confirming: Option<Confirming>,
    /// What is written over the bytes of commands that are packed for it, in epochs that are stamped.
    pub(crate) stamp: Stamp,
    /// How long the last connect took, in nanoseconds; zero before the first, while the server has never answered.
    // ORDERING: Relaxed: an estimate; nothing is read through it. A caller that was answered has had a mux's mutex after the store.
    pub(crate) connect_took: AtomicU64,
    pub(super) yielding: Yielding,
}

/// How a connection confirms calls: by one more command behind all others of a write.
#[derive(Clone, Debug)]
pub(crate) struct Confirming {
    /// The command, which has one reply.
    pub(crate) command: Vec<u8>,
    /// How long its reply may take, in addition to what any reply may take.
    pub(crate) takes: Duration,
}

impl<C> Settings<C> {
    /// How long the oldest reply may be due before the connection is given up.
    fn patience(&self) -> Duration {
        self.io_timeout + self.confirming.as_ref().map_or(Duration::ZERO, |confirming| confirming.takes)
    }
}

/// See the module.
pub(crate) struct Mux<C: Connector> {
    settings: Arc<Settings<C>>,
    /// A handle for the thread that connects.
    this: Weak<Self>,
    state: Mutex<State<C>>,
    /// Notified when a connect on a separate thread has ended, and when the mux is closed.
    connected: Condvar,
    /// The number of callers between [`begin`](Self::begin) and the end of [`finish`](Self::finish), or in [`post`](Self::post).
    // ORDERING: Relaxed: a count by which `choose` and the writer estimate. It decides nothing else.
    load: AtomicUsize,
    // ORDERING: Relaxed: a hint. Whoever uses the connection finds it in `state`.
    is_connected: AtomicBool,
    /// The current epoch. A connection has one or more, one after another.
    // ORDERING: Relaxed, also for `written`: stored with the mutex of `state` held. `epoch_at` loads without it, and may guess wrong: the
    // answer says in which epoch the call was written, and whoever relies on the epoch compares it.
    epoch: AtomicU64,
    /// When the connection was last written to, in nanoseconds after `since`.
    written: AtomicU64,
    since: Instant,
    /// The last epoch that is stamped.
    // ORDERING: Relaxed: stored under the mutex of whoever sets stamps, loaded by `write_once` under that of `state`, under which every
    // call is queued. So the calls that a thread sends after it has ended the stamp are written after that is seen. A stamp that is seen
    // too late costs the server one write.
    stamped: AtomicU64,
    /// The last epoch in which the server said that it is no master, even if only to a caller that had left.
    // ORDERING: Relaxed: `take_in` stores it with the mutex of `state` held, before it delivers replies, each under the mutex of its call.
    // So whoever takes a reply sees what was read before that reply or together with it.
    deposed: AtomicU64,
}

/// How a caller may become the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterClaim {
    /// Takes the role if it is free, or from a writer that yields, when no more callers are expected. Yields before it writes.
    Free,
    /// Takes the role if it is free, or from a writer that does not write yet, and writes at once: it has waited long enough.
    AtOnce,
    /// The caller was promoted. It writes unless another caller has the role by now, or has left nothing to write.
    Promoted,
}

type Guard<'a, C> = MutexGuard<'a, State<C>>;

/// The calls whose callers must be woken once the state is unlocked.
type Woken = Vec<Arc<Pending>>;

impl<C: Connector> Mux<C> {
    /// Creates a mux that connects with its first call. Its epochs are `first`, `first + step`, …
    pub(crate) fn new(settings: &Arc<Settings<C>>, first: u64, step: u64) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            settings: Arc::clone(settings),
            this: Weak::clone(this),
            state: Mutex::new(State::new(first, step)),
            connected: Condvar::new(),
            load: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            written: AtomicU64::new(0),
            since: now(),
            stamped: AtomicU64::new(0),
            deposed: AtomicU64::new(0),
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

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the epoch in which a command sent at this moment is written, or `None` if it begins a new epoch. Approximate: it does not
    /// take the mutex, which the users of the connection need.
    pub(crate) fn epoch_at(&self, at: Instant) -> Option<u64> {
        // ORDERING: Relaxed: a guess, which the epoch of the answer corrects.
        let written = self.since + Duration::from_nanos(self.written.load(Ordering::Relaxed));
        let epoch = self.epoch.load(Ordering::Relaxed);
        (at.saturating_duration_since(written) <= QUIET && !self.is_deposed(epoch)).then_some(epoch)
    }

    /// Returns `true` if the server has said in that epoch, or later, that it is no master.
    pub(crate) fn is_deposed(&self, epoch: u64) -> bool {
        // ORDERING: Relaxed: the mutex of the call whose reply was taken comes after `take_in`.
        self.deposed.load(Ordering::Relaxed) >= epoch
    }

    /// Stamps the commands that are written in that epoch.
    pub(crate) fn stamp(&self, epoch: u64) {
        self.stamped.fetch_max(epoch, Ordering::Relaxed); // ORDERING: Relaxed: seen too late, it costs one write.
    }

    /// Stamps no more commands.
    pub(crate) fn unstamp(&self) {
        self.stamped.store(0, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux orders it before later calls.
    }

    /// Sends a call, unless its time is already over at the moment `at`. [`finish`](Self::finish) must follow: immediately if `at_once`,
    /// otherwise after [`attend`](Self::attend).
    pub(crate) fn begin(&self, call: &Arc<Pending>, at: Instant, deadline: Instant, at_once: bool) {
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
        state.is_back();
        let state = self.write(state, call, deadline, WriterClaim::Free);
        let reads = !at_once || !state.will_read(call);
        self.hand_on(state, reads && !mutant!(WritesUnread));
    }

    /// Begins to wait for this call, after the caller had other calls to wait for; [`finish`](Self::finish) must follow at once.
    pub(crate) fn attend(&self, call: &Arc<Pending>, deadline: Instant) {
        let state = self.state.lock();
        call.attend();
        let state = if state.has_work() { self.write(state, call, deadline, WriterClaim::Free) } else { state };
        let reads = !state.will_read(call);
        self.hand_on(state, reads);
    }

    /// Waits for the answer to a call, until the deadline at most. With `or_break`, a deadline that comes before the answer breaks the
    /// connection, so that the next attempt gets a fresh one. `limit` is the caller's time limit, for the error message.
    pub(crate) fn finish(&self, call: &Arc<Pending>, deadline: Instant, limit: Duration, or_break: bool) -> Answer {
        let is_free = self.wait(call, deadline);
        self.load.fetch_sub(1, Ordering::Relaxed); // ORDERING: Relaxed: a count for `choose`.
        let answer = if is_free { call.finished() } else { None };
        answer.unwrap_or_else(|| self.depart(call, limit, or_break))
    }

    /// Takes in the replies that have come for calls that nobody waits for. Returns `true` if some of these calls still have no answer.
    /// Does not block.
    pub(crate) fn collect(&self) -> bool {
        self.read_now();
        let mut state = self.state.lock();
        // Takes the role from a promoted caller too: that caller may read instead, and sleep for a while.
        let takes_over = |state: &mut State<C>| !state.writing || std::mem::take(&mut state.promoted);
        if state.has_work() && !mutant!(LeavesPostedBehind) && takes_over(&mut state) {
            state = self.write_left_over(state);
        }
        state.connecting.is_telling() || state.queue.iter().chain(state.due_calls()).any(|call| call.is_posted)
    }

    /// Closes the connection. Calls that wait fail, and so does every later one. Does not wait for a connect that is under way: its thread
    /// closes the connection that it gets.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.connected.notify_all();
        let queue = std::mem::take(&mut state.queue);
        if let Some(epoch) = state.session.as_ref().map(|session| session.epoch) {
            state = self.fail(state, epoch, closed_by_us());
        }
        drop(state);
        let told = queue.iter().filter(|call| !(call.is_posted && mutant!(ForgetsPostedAtClose)));
        fail_all(told, &Error::ShutDown, false);
        self.end_connecting();
    }

    /// Waits for the answer, and takes on the roles to which the caller is promoted meanwhile. Returns `false` if the time ended in such a
    /// role; the caller must then `depart`, which promotes a successor.
    fn wait(&self, call: &Arc<Pending>, deadline: Instant) -> bool {
        self.spin(call, deadline);
        loop {
            if call.may_read_on() {
                self.read(call, deadline, true);
            }
            // Even if the answer is there: a role must be taken on.
            match call.wait(deadline) {
                Wake::Done | Wake::TimedOut => return true,
                Wake::Promoted => {
                    let promotion = call.take_promotion();
                    let state = self.state.lock();
                    let state = if promotion.to_writer {
                        self.write(state, call, deadline, WriterClaim::Promoted)
                    } else {
                        state
                    };
                    if now() >= deadline && !mutant!(AppointsItself) {
                        // Hand nothing on here: while this caller still counts as waiting it could be promoted again and again.
                        return false;
                    }
                    // A caller whose answer has come promotes a reader; one that still waits for it reads itself.
                    let reads = !state.will_read(call);
                    self.hand_on(state, reads && !mutant!(WritesUnread));
                }
            }
        }
    }

    /// Unlocks the state. Promotes a writer, and a reader if `reads`, when there is work for one and nobody does it.
    fn hand_on(&self, mut state: Guard<'_, C>, reads: bool) {
        let mut successors = Woken::new();
        if !mutant!(WriterLeavesAlone) {
            state.promote_writer(&mut successors);
        }
        if reads {
            state.promote_reader(&mut successors);
        }
        drop(state);
        successors.iter().for_each(|successor| successor.wake());
    }
}
