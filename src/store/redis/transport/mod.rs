//! Commands in, replies out: any number of threads on a few connections, every call with a deadline.
//!
//! The transport knows what a command and a reply are, and what a reply says about the server: that it is no master, or that it does not
//! know the short form of a command, which the transport then sends in full. It does not know what a command does. A key is a text: calls
//! for the same key are kept in order. A *stamp* is a short run of bytes. A connection that is told to ([`stamp`](Transport::stamp)) writes
//! it over the places that its commands reserve for it. A store may want some of its commands *confirmed* by a command of its choice
//! ([`Confirming`]).
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | which connection a call takes; what the store sees |
//! | `routes.rs` | while a key has calls in flight, all calls for it use one connection; commands that are sent together |
//! | `mux/` | one connection, shared by its callers: the leaders that write and read, and their followers; one call in flight |
//!
//! # Which connection a call takes
//!
//! A call takes the first connection that no caller uses. If all are in use, it opens one more, up to [`CALLERS`] or to what the store
//! [allows](Transport::with_callers). So a thread that has a connection for itself never waits for another thread. A call opens a further
//! connection only if its limit leaves time for a connect, and if no connect of a further connection has failed within the last second
//! ([`NO_MORE`]). Otherwise the call shares the connection with the fewest callers, which certainly takes a single round trip.
//!
//! While a key has a call in flight, every call for that key takes the same connection, whatever is free (`routes.rs`). So a release does
//! not overtake an acquire, and an acquire does not overtake a release whose reply no thread waits for. When all calls for a key are
//! answered, their order is fixed, and the next call may take any connection.
//!
//! A call that is posted just before a batch need not go out alone ([`PostTime::WithNext`]): it waits in the queue of its connection, and the
//! batch takes it along, in the same write. If the batch takes other connections, it sends the waiting calls before it waits for its replies.
//!
//! Urgent calls have a connection of their own, [`URGENT`], which one thread uses. On a shared connection the operating system can keep the
//! writer or the reader off its core for longer than an urgent call has time. Urgent calls are renewals of leases. They need no order among
//! other commands for their keys: a renewal that arrives late finds another locker at the key, or no key, and changes nothing. While the
//! urgent connection is not open, because it was never opened, was cut or is refused, urgent calls take the callers' connections. So a
//! connect that hangs costs no lease.
//!
//! # What holds on every connection
//!
//! 1. *No command is sent twice once it may have been executed.* A command is repeated only after `NOSCRIPT`, which says that it was not
//!    executed (`mux/pending.rs`), or if it was never written.
//! 2. *A connection is never used again after an error, or when its oldest reply is overdue.* A reply that arrives later would be taken for
//!    the reply to another command. Each call that was written to the connection and has no answer yet fails once, with an unknown outcome.
//! 3. *A caller that leaves keeps its place in the order.* Its replies are read and dropped. Before a caller leaves, it reads once more
//!    without waiting. It does so even if its time was over before it began to wait here: it may have spent that time waiting for another
//!    server.
//! 4. *A batch of renewals whose time ends breaks its connection*, so that the next attempt uses a fresh one
//!    ([`AtLimit::BreakConnection`]). A connection that was opened within that time is fresh already, and is kept.
//!
//! Writing and reading go on at the same time (full duplex). A connection that writes a batch and reads its replies before it writes the
//! next one was measured, too: it reaches 0.85 of the throughput of one connection per thread with 4 threads, and 0.77 with 16.

#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../../tests/white_box/store/redis/transport/joint.rs"]
mod joint;
#[cfg(all(test, dlock_shuttle))]
#[path = "../../../../tests/white_box/store/redis/transport/model/mod.rs"]
mod model;
mod mux;
#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../../tests/white_box/store/redis/transport/replaced.rs"]
mod replaced;
mod routes;
mod timing;
#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../../tests/white_box/store/redis/transport/urgent.rs"]
mod urgent;

use super::net::connector::Connector;
use super::net::endpoint::Endpoint;
use super::net::resp::{Packed, Stamp};
use crate::backoff::{Backoff, Cooldown};
use crate::error::{BackendFailure, Error};
use crate::process::Process;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, now};
use crate::timing::end_of;
use mux::{Mux, MuxSettings, PendingCall, PollPolicy, Reader};
use routes::{BatchPart, Routes};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::{Duration, Instant};
use timing::NO_MORE;

pub use mux::Polling;
pub(crate) use mux::{CallReplies, Callback, Confirming, Replied};
pub(crate) use routes::{AnswerLimit, AtLimit, Batch, KeyHash, PostTime, Route, WaitOrder};

/// The most connections that callers share.
const CALLERS: usize = 4;

/// The mux for urgent calls. No other caller uses it.
const URGENT: usize = CALLERS;

/// The number of muxes. An epoch of mux `n` leaves the remainder `n` when it is divided by this number, so an epoch names its mux.
pub(crate) const MUXES: usize = CALLERS + 1;

/// A caller opens a further connection only if its limit allows this many connects. Otherwise it shares one, which takes a single round
/// trip.
const CONNECTS: u32 = 4;

/// The outcome of one command.
pub(crate) type Reply = Result<Replied, Error>;

/// The replies to the calls of a batch, in their order. The reply to one call needs no heap.
pub(crate) type Replies = SmallVec<[Reply; 1]>;

pub(crate) struct Transport<C: Connector = Endpoint> {
    settings: Arc<MuxSettings<C>>,
    muxes: [Arc<Mux<C>>; MUXES],
    routes: Arc<Routes>,
    /// The number of muxes that callers share.
    callers: usize,
    /// The muxes that may have posted calls which wait for the next batch, a bit for each.
    // ORDERING: Relaxed: the calls are in the queues of their muxes, under the mutexes. A poster sets the bit after it has queued the call. A thread
    // that takes the bit locks that mux afterwards, and finds the call: had it locked the mux before the poster did, it would have looked for the bit
    // before it was set. If nobody has taken the bit, the poster sees it in the batch that it begins next.
    kept: AtomicU64,
    /// While this cooldown lasts, no further connection is opened if one is open.
    only_one: Mutex<Cooldown<Instant>>,
    /// Whether callers poll for their answers.
    polling: Arc<PollPolicy>,
    /// The process that created the transport.
    process: Process,
}

/// A batch that was sent, and whose replies are to be waited for.
pub(crate) struct Begun {
    calls: SmallVec<[(usize, Arc<PendingCall>); 1]>,
    /// The index of each command's call.
    order: SmallVec<[u8; 16]>,
    waits: WaitOrder,
    /// How long its caller waits. A connection is kept at the limit, and there is no spare time, unless the caller sets that.
    pub(crate) until: AnswerLimit,
}

impl Transport {
    /// Creates a transport that connects with its first call. For `stamp` see [`stamp`](Self::stamp).
    pub(crate) fn new(
        endpoint: Endpoint,
        io_timeout: Duration,
        polling: Polling,
        stamp: Stamp,
        confirming: Option<Confirming>,
    ) -> Self {
        let (server, connect_timeout) = (endpoint.address.to_string(), endpoint.connect_timeout);
        Self::over(endpoint, server, connect_timeout, io_timeout, polling, stamp, confirming)
    }
}

impl<C: Connector> Transport<C> {
    fn over(
        connector: C,
        server: String,
        connect_timeout: Duration,
        io_timeout: Duration,
        polling: Polling,
        stamp: Stamp,
        confirming: Option<Confirming>,
    ) -> Self {
        let settings = Arc::new(MuxSettings {
            connector,
            server,
            connect_timeout,
            io_timeout,
            confirming,
            stamp,
            connect_took: AtomicU64::new(0),
        });
        let of_callers = Arc::new(PollPolicy::new(polling));
        // Urgent calls do not poll, and share no policy: a caller of low priority may have its mutex while other threads keep the cores.
        let of_urgent = Arc::new(PollPolicy::new(Polling::Off));
        let mux = |n: usize| {
            let polling = if n == URGENT { &of_urgent } else { &of_callers };
            Mux::new(&settings, Arc::clone(polling), n)
        };
        Self {
            muxes: std::array::from_fn(mux),
            settings,
            routes: Arc::new(Routes::new()),
            callers: CALLERS,
            kept: AtomicU64::new(0),
            only_one: Mutex::default(),
            polling: of_callers,
            process: Process::this(),
        }
    }

    /// Lets callers share at most this many connections, from one to [`CALLERS`].
    pub(crate) fn with_callers(mut self, callers: usize) -> Self {
        self.callers = callers.clamp(1, CALLERS);
        self
    }

    /// Yields for a task that has waited for an answer since this moment. Returns whether it should be polled again at once.
    pub(crate) fn yield_for_task(&self, since: Instant) -> bool {
        self.polling.yield_for_task(since)
    }

    /// Opens the first connection, before any call.
    pub(crate) fn connect(&self, limit: Duration) -> Result<(), Error> {
        self.muxes[0].connect_first(end_of(limit, now()))
    }

    /// Returns an empty batch for commands that are sent together, and answered within `limit`.
    pub(crate) fn batch(&self, limit: Duration) -> Batch<'_> {
        Batch::new(&self.routes, self.choose(limit))
    }

    /// Returns an empty batch for urgent commands, which must need no order among other commands for their keys. They take the urgent
    /// connection once it is open. Until then they take a connection of the callers, and this call starts to open the urgent one on another
    /// thread. So a connect that hangs or is refused delays no urgent command.
    pub(crate) fn urgent_batch(&self, limit: Duration) -> Batch<'_> {
        if self.muxes[URGENT].is_connected() {
            // This path takes no mutex that callers also take.
            return Batch::new(&self.routes, URGENT);
        }
        if self.has_answered() {
            self.muxes[URGENT].connect_ahead(NO_MORE);
        }
        self.batch(limit)
    }

    /// Returns the epoch in which a command on this route would be written at the moment `at`, unless a new epoch begins before it is
    /// written. `None` if the connection was not written to recently, so that the next command begins a new epoch.
    pub(crate) fn warm_epoch(&self, route: &Route, at: Instant) -> Option<u64> {
        self.muxes[route.mux].epochs.at(at)
    }

    /// Sends commands and waits for all their replies, at most `limit`. Returns one reply for each command, in their order.
    pub(crate) fn round_trip(&self, batch: Batch<'_>, limit: Duration, at_limit: AtLimit) -> Replies {
        let mut begun = self.begin(batch, now(), limit, WaitOrder::AtOnce);
        begun.until.at_limit = at_limit;
        self.end(begun)
    }

    /// Sends commands. Their limit counts from the moment `at`, when the batch was begun. [`end`](Self::end) must follow, and `waits` says
    /// when. If it does not follow at once, or if the batch has several parts, this call does not wait for a connect that the batch needs,
    /// and the caller can begin the rest.
    pub(crate) fn begin(&self, batch: Batch<'_>, mut at: Instant, limit: Duration, waits: WaitOrder) -> Begun {
        let waits = if batch.parts.len() == 1 { waits } else { WaitOrder::AfterOthers };
        // Urgent calls do nothing for others.
        let is_kept = !batch.is_urgent() && self.kept.load(Ordering::Relaxed) != 0; // ORDERING: see `kept`.
        let kept = if is_kept { self.kept.swap(0, Ordering::Relaxed) } else { 0 }; // ORDERING: see `kept`.
        let send_kept = |kept: u64| {
            let muxes = self.muxes.iter().enumerate().filter(|(n, _)| kept & 1 << n != 0);
            muxes.for_each(|(_, mux)| _ = mux.send_left());
        };
        let Batch { parts, order, .. } = batch;
        let mut carried = 0;
        if kept != 0 {
            carried = parts.iter().fold(0, |carried, part| carried | 1_u64 << part.route.mux);
            send_kept(kept & !carried);
        }
        let mut calls = SmallVec::with_capacity(parts.len());
        let deadline = end_of(limit, at);
        for BatchPart { mut packed, route } in parts {
            let mux = route.mux;
            packed.is_confirmed &= self.settings.confirming.is_some();
            let call = Arc::new(PendingCall::new(packed, route, waits, None));
            if order.len() > 1 {
                // Packing the commands, or sending the parts before this one, may have used up the time.
                at = now();
            }
            self.muxes[mux].begin(&call, at, deadline, waits);
            calls.push((mux, call));
        }
        if kept != 0 && at >= deadline {
            // Some of the calls may not have been written, and what was kept for them neither.
            send_kept(kept & carried);
        }
        let until = AnswerLimit { deadline, limit, spare: Duration::ZERO, at_limit: AtLimit::KeepConnection };
        Begun { calls, order, waits, until }
    }

    /// Waits for the replies to a batch that was begun, until its deadline at most. Returns what [`round_trip`](Self::round_trip) returns.
    pub(crate) fn end(&self, begun: Begun) -> Replies {
        let Begun { calls, order, waits, until } = begun;
        let mut answers = SmallVec::<[_; 1]>::with_capacity(calls.len());
        for (mux, call) in calls {
            if matches!(waits, WaitOrder::AfterOthers) {
                self.muxes[mux].attend(&call, until.deadline);
            }
            let CallReplies { replies, failure } = self.finish(mux, &call, &until);
            answers.push((replies.into_iter(), failure));
        }
        let mut all = Replies::with_capacity(order.len());
        for part in order {
            let (replies, failure) = &mut answers[usize::from(part)];
            all.push(replies.next().flatten().ok_or_else(|| failure.clone().unwrap_or_else(lost)));
        }
        all
    }

    /// Waits for the answer to a call that was begun. If its mux could not connect, sends the call on the first mux instead.
    fn finish(&self, mux: usize, call: &Arc<PendingCall>, until: &AnswerLimit) -> CallReplies {
        let answer = self.muxes[mux].finish(call, until);
        if matches!(answer.failure, Some(Error::Backend { failure: BackendFailure::NotExecuted, .. })) {
            self.note_unsent(mux);
        }
        if mux > 0
            && answer.failure.is_some()
            && let Some((packed, mut route)) = call.unconnected()
        {
            // Without time left there is nothing to gain on the first mux, whose callers may be stuck as well.
            if now() < until.deadline && route.turn(0) {
                let again = Arc::new(PendingCall::new(packed, route, WaitOrder::AtOnce, None));
                self.muxes[0].begin(&again, now(), until.deadline, WaitOrder::AtOnce);
                return self.muxes[0].finish(&again, until);
            }
        }
        answer
    }

    /// Sends one command about a key with this hash, and returns without its answer. The callback receives the answer later: when the next reader of the
    /// connection reads it, when [`collect`](Self::collect) is called, or as a failure when the connection breaks.
    pub(crate) fn post(&self, hash: KeyHash, packed: Packed, limit: Duration, callback: Callback) {
        let route = Route::enter(&self.routes, hash, self.choose(limit));
        let mux = route.mux;
        let call = Arc::new(PendingCall::new(packed, route, WaitOrder::AtOnce, Some(callback)));
        self.muxes[mux].post(&call, end_of(limit, now()), PostTime::Now);
        self.note_unsent(mux);
    }

    /// Sends the commands of a batch, and returns without their answers, as [`post`](Self::post) does for one. Each command has a callback, in their
    /// order. The commands for one connection go out in one write. With [`PostTime::WithNext`] they are only queued.
    pub(crate) fn post_all(&self, batch: Batch<'_>, limit: Duration, callbacks: Vec<Callback>, time: PostTime) {
        let Batch { parts, order, .. } = batch;
        let deadline = end_of(limit, now());
        let mut of_parts: SmallVec<[SmallVec<[Callback; 1]>; 1]> = parts.iter().map(|_| SmallVec::new()).collect();
        for (part, callback) in order.into_iter().zip(callbacks) {
            of_parts[usize::from(part)].push(callback);
        }
        for (BatchPart { packed, route }, callbacks) in parts.into_iter().zip(of_parts) {
            let mux = route.mux;
            let callback = for_each_command(callbacks);
            let call = Arc::new(PendingCall::new(packed, route, WaitOrder::AtOnce, Some(callback)));
            self.muxes[mux].post(&call, deadline, time);
            match time {
                PostTime::Now => self.note_unsent(mux),
                // ORDERING: see `kept`.
                PostTime::WithNext => _ = self.kept.fetch_or(1 << mux, Ordering::Relaxed),
            }
        }
    }

    /// Notes that a call on this mux may not have been sent. If the mux has no connection and another mux has one, calls use only open
    /// connections for a while. So a connect that hangs or is refused costs one call, and not every call.
    fn note_unsent(&self, mux: usize) {
        if mux != URGENT
            && !self.muxes[mux].is_connected()
            && self.muxes[..CALLERS].iter().any(|mux| mux.is_connected())
        {
            self.only_one.lock().fail(now(), Backoff::constant(NO_MORE));
        }
    }

    /// Sends the posted calls that are kept for the next batch, and takes in the answers that have come for posted calls. Returns `true` if some
    /// are still missing. Does not block.
    pub(crate) fn collect(&self) -> bool {
        self.kept.store(0, Ordering::Relaxed); // ORDERING: see `kept`; all muxes are visited after this.
        let mut is_missing = false;
        for mux in &self.muxes {
            Reader::look(mux, None);
            is_missing |= mux.send_left();
        }
        is_missing
    }

    /// From now on, commands of that epoch carry the stamp in the places that they reserve for it. Commands of a later epoch are written as
    /// they are packed.
    pub(crate) fn stamp(&self, epoch: u64) {
        self.mux_of(epoch).epochs.stamp(epoch);
    }

    /// From now on, commands are written as they are packed, on all connections.
    pub(crate) fn unstamp(&self) {
        self.muxes.iter().for_each(|mux| mux.epochs.unstamp());
    }

    /// Returns `true` if the server has said, in that epoch or later on the same mux, that it is no master.
    pub(crate) fn is_deposed(&self, epoch: u64) -> bool {
        self.mux_of(epoch).epochs.is_deposed(epoch)
    }

    fn mux_of(&self, epoch: u64) -> &Mux<C> {
        &self.muxes[epoch as usize % MUXES]
    }

    /// Returns the endpoint: where the server is reached, and as which user.
    pub(crate) fn endpoint(&self) -> &C {
        &self.settings.connector
    }

    /// Returns `true` if [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.muxes[0].is_closed()
    }

    /// Closes the connections. Calls that wait fail, and so does every later one.
    pub(crate) fn close(&self) {
        if self.process.is_forked() {
            // A child process shares its parent's sockets; ending the connections would end the parent's.
            return;
        }
        self.muxes.iter().for_each(|mux| mux.close());
        self.settings.connector.close();
    }

    /// Closes the connections that have not been used for `idle`.
    pub(crate) fn end_idle(&self, idle: Duration) {
        self.muxes.iter().for_each(|mux| mux.end_idle(idle));
    }

    /// Returns `true` if there is no connection, and the last attempt to open one failed less than `pause` ago.
    pub(crate) fn is_cooling_down(&self, pause: Duration) -> bool {
        !self.muxes.iter().any(|mux| mux.is_connected()) && self.muxes.iter().any(|mux| mux.failed_within(pause))
    }

    /// Returns `true` if the first of the callers' connections is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.muxes[0].is_connected()
    }

    /// Returns `true` if the server has ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.settings.connect_took.load(Ordering::Relaxed) != 0 // ORDERING: Relaxed: see `MuxSettings::connect_took`.
    }

    /// Returns how long the last connect took; zero before the first one.
    pub(crate) fn connect_took(&self) -> Duration {
        Duration::from_nanos(self.settings.connect_took.load(Ordering::Relaxed)) // ORDERING: Relaxed: an estimate.
    }

    /// Chooses the mux for a call whose key has no call in flight: the first mux that no caller uses, else the one with the fewest callers.
    /// A mux without a connection is chosen only for a caller that has time for a connect. If no mux has a connection, the first mux is
    /// chosen in any case.
    fn choose(&self, limit: Duration) -> usize {
        let (mut best, mut least) = (0, usize::MAX);
        // The choice cannot be corrected later: once the call has entered a mux, its key is tied to that mux.
        let may_open = || {
            let took = self.connect_took();
            !took.is_zero() && limit >= took * CONNECTS && !self.only_one.lock().lasts(now())
        };
        for (n, mux) in self.muxes[..self.callers].iter().enumerate() {
            let load = mux.load();
            if load < least && (mux.is_connected() || may_open()) {
                (best, least) = (n, load);
            }
            if least == 0 {
                break;
            }
        }
        best
    }
}

/// Returns the callback of a call with several commands, each of which has a callback of its own.
fn for_each_command(mut callbacks: SmallVec<[Callback; 1]>) -> Callback {
    if callbacks.len() == 1
        && let Some(callback) = callbacks.pop()
    {
        return callback;
    }
    Box::new(move |CallReplies { replies, failure }| {
        let mut replies = replies.into_iter();
        for callback in callbacks {
            let reply = replies.next().flatten();
            let failure = if reply.is_some() { None } else { failure.clone() };
            callback(CallReplies { replies: smallvec![reply], failure });
        }
    })
}

fn lost() -> Error {
    Error::backend(BackendFailure::Unknown, "the connection lost a reply: bug in redis-dlock, please report")
}
