//! What the mutex of a mux protects, and the epochs, which other threads may read without the mutex.
//!
//! # The roles
//!
//! The role of writer is a [`WriterRole`]. It changes only under the mutex, so that exactly one caller takes the role:
//!
//! | role | becomes | when |
//! |---|---|---|
//! | `Free` | `Writing` | a caller takes the role |
//! | | `Promoted` | a caller leaves work behind, and wakes a successor |
//! | `Promoted` | `Writing` | the successor is awake, or a caller that cannot wait for it takes the role over |
//! | | `Free` | the successor leaves without writing |
//! | `Writing` | `Gathering` | the writer expects calls of other callers, and yields before it writes |
//! | | `Free` | the writer has written, or its time is over |
//! | `Gathering` | `Writing` | the yield ends, or another caller takes the role over |
//!
//! A panic of the writer also makes the role `Free`. The reader is the thread that has taken the session's inbound half.
//!
//! # The session
//!
//! A [`Session`] is one connection, and the calls whose replies are due on it.
//!
//! The server answers in the order of the commands, and a reply does not name its command. So only the order of `due` tells which call a
//! reply belongs to. A call leaves `due` only at its front, even if its caller has left long before.
//!
//! A connection that was idle for a while may have been closed by the server, or by a proxy in between. A command that is written to such a
//! connection fails with an unknown outcome, although the server never saw it. So an idle connection is checked before a write
//! ([`check_idle`](Session::check_idle)), which costs one system call. If it has ended, a new one is opened.
//!
//! # Epochs
//!
//! An epoch is a period in which a connection was written to without a long pause. A connection has one or more epochs, one after another.
//! An answer says in which epoch its call was written. When the server says that it is no master, that counts for the current epoch and for
//! all earlier ones. A *stamp* is written into the commands of one epoch alone.

use super::super::MUXES;
use super::super::timing::{IDLE, QUIET};
use super::pending::{PendingCall, Taken};
use super::{MuxSettings, overdue_by};
use crate::error::Error;
use crate::store::redis::net::classify::{is_demotion, is_no_master};
use crate::store::redis::net::connector::{Connector, OpenConnection, ReadHalf, Shutdown};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{guarded, now, thread};
use ::redis::Value;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The calls whose callers must be woken once the state is unlocked.
pub(super) type Woken = Vec<Arc<PendingCall>>;

/// What the delivery of replies leaves to the reader.
pub(super) struct Delivery<'a> {
    /// The reader's own call, which is not woken.
    pub(super) own: Option<&'a Arc<PendingCall>>,
    pub(super) woken: Woken,
    /// The calls that must be sent once more. The reader queues them before it unlocks the state, so that a call that is made after a
    /// later answer is also executed later.
    pub(super) again: VecDeque<Arc<PendingCall>>,
}

/// What the mutex of a mux protects.
pub(super) struct MuxState<C: Connector> {
    /// Calls that are not written yet.
    pub(super) queue: VecDeque<Arc<PendingCall>>,
    pub(super) session: Option<Session<C>>,
    pub(super) connecting: Connecting,
    pub(super) writer: WriterRole,
    /// The number of times that a writer has yielded before it wrote.
    pub(super) gatherings: u64,
    pub(super) closed: bool,
}

/// How a caller may become the writer.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriterClaim {
    /// The caller takes the role if it is free, or from a writer that yields, once no more callers are expected. It may yield before it
    /// writes.
    Free,
    /// The caller takes the role if it is free, or from a writer that does not write yet. It writes at once, because it has waited long
    /// enough.
    AtOnce,
    /// The caller was promoted. It writes, unless another caller has taken the role over, or nothing is left to write.
    Promoted,
    /// The caller has yielded, as the writer, under this number. It writes, unless another caller has taken the role over.
    Gathered(u64),
}

/// Who has the role of writer, and what that caller does: see the table of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterRole {
    /// Nobody.
    Free,
    /// A caller that was promoted, and is not awake yet. Another caller may take the role over.
    Promoted,
    /// A caller that yields before it writes. Another caller may take the role over, and yield itself: so each yield has a number, by
    /// which the caller that comes back knows its own.
    Gathering(u64),
    /// A caller that connects or writes, and that nobody replaces.
    Writing,
}

/// The thread that connects for a mux, and the outcome of its last connect.
#[derive(Default)]
pub(super) struct Connecting {
    /// Whether a connect is under way on that thread.
    pub(super) is_busy: bool,
    /// The last thread. It ends when it has reported the outcome of its connect.
    pub(super) thread: Option<thread::JoinHandle<()>>,
    /// The threads whose connect has ended, but which may still be about to run the callbacks of posted calls.
    pub(super) tellers: Vec<thread::ThreadId>,
    /// When and why the last failed connect failed.
    pub(super) failed: Option<(Instant, Error)>,
}

impl Connecting {
    /// Returns `true` if the last connect failed less than `pause` ago.
    pub(super) fn failed_within(&self, pause: Duration) -> bool {
        self.failed.as_ref().is_some_and(|(at, _)| now().saturating_duration_since(*at) < pause)
    }

    /// Returns `true` if another thread whose connect has ended may still be about to run callbacks.
    pub(super) fn is_telling(&self) -> bool {
        let me = thread::current().id();
        self.tellers.iter().any(|teller| *teller != me)
    }
}

impl<C: Connector> MuxState<C> {
    /// The state of a mux without a connection.
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            session: None,
            connecting: Connecting::default(),
            writer: WriterRole::Free,
            gatherings: 0,
            closed: false,
        }
    }

    pub(super) fn session_of(&mut self, epoch: u64) -> Option<&mut Session<C>> {
        match &mut self.session {
            Some(session) if session.epoch == epoch => Some(session),
            _ => None,
        }
    }

    /// Returns the calls whose replies are due, in order.
    pub(super) fn due_calls(&self) -> impl DoubleEndedIterator<Item = &Arc<PendingCall>> {
        self.session.iter().flat_map(|session| session.due.iter().flat_map(Due::calls))
    }

    /// Returns `true` if the caller will read when it waits for its answer, or will make sure that another caller reads.
    pub(super) fn will_read(&self, call: &PendingCall) -> bool {
        match &self.session {
            Some(session) => session.has_reply_for(call),
            None => false,
        }
    }

    /// Returns `true` if a caller can be promoted to writer, to write what is left. While calls are queued, only their callers count: they
    /// have no other role, whereas a caller whose reply is due may be the reader.
    pub(super) fn has_other_writer(&self) -> bool {
        if self.queue.is_empty() {
            self.due_calls().any(|call| call.waits())
        } else {
            self.queue.iter().any(|call| call.waits())
        }
    }

    /// Returns `true` if something is to be written now: a call that is not held back, or the rest of a write.
    pub(super) fn has_work(&self) -> bool {
        match &self.session {
            Some(session) if session.has_backlog => true,
            Some(session) if session.is_confirming => self.queue.iter().any(|call| !call.is_confirmed),
            _ => !self.queue.is_empty(),
        }
    }

    /// Takes the role of writer if the claim allows that. Returns `true` if the caller has the role now.
    pub(super) fn take_role(&mut self, claim: WriterClaim) -> bool {
        let takes = match (claim, self.writer) {
            (WriterClaim::Free, WriterRole::Free) => true,
            // All the callers for which the writer yields have called by now.
            (WriterClaim::Free, WriterRole::Gathering(_)) => !self.lacks_callers(),
            (WriterClaim::AtOnce, role) => !matches!(role, WriterRole::Writing),
            (WriterClaim::Promoted, WriterRole::Promoted) => true,
            // Another caller has taken the role over from this one, and has given it up again.
            (WriterClaim::Promoted, WriterRole::Free) => self.has_work(),
            (WriterClaim::Gathered(own), WriterRole::Gathering(number)) => own == number,
            _ => false,
        };
        if takes {
            self.writer = WriterRole::Writing;
        }
        takes
    }

    /// Gives back the role of writer for a promoted caller that leaves, unless another caller has taken the role over.
    pub(super) fn resign(&mut self) {
        if matches!(self.writer, WriterRole::Promoted) {
            self.writer = WriterRole::Free;
        }
    }

    /// Notes that a caller has called that may be one of those that `away` counts.
    pub(super) fn note_return(&mut self) {
        if let Some(session) = &mut self.session {
            session.away = session.away.saturating_sub(1);
        }
    }

    /// Returns `true` if callers that were answered, or whose posted calls were sent, may be about to call again.
    pub(super) fn lacks_callers(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.away > 0)
    }

    /// Promotes a follower to writer if there is work and no writer.
    pub(super) fn promote_writer(&mut self, successors: &mut Woken) {
        if matches!(self.writer, WriterRole::Free) && self.has_work() {
            // The callers of queued calls come first: no replies are due to them. A caller that has left, or that attends to another call,
            // is passed over.
            let successor = self.queue.iter().chain(self.due_calls()).find(|call| call.promote_to_writer()).cloned();
            if let Some(successor) = successor {
                successors.push(successor);
                self.writer = WriterRole::Promoted;
            }
        }
    }

    /// Promotes a follower to reader if replies are due and no caller reads. It takes the caller whose reply comes last, so that this one
    /// reads for all others. If no caller waits for a reply of its own, a caller whose call is held back reads the confirmation.
    pub(super) fn promote_reader(&mut self, successors: &mut Woken) {
        let Some(session) = &self.session else { return };
        if session.inbound.is_none() || session.due.is_empty() {
            return;
        }
        let held_back = self.queue.iter().filter(|call| session.holds_back(call));
        if let Some(successor) = held_back.chain(self.due_calls()).rev().find(|call| call.promote_to_reader()) {
            successors.push(Arc::clone(successor));
        }
    }
}

/// One connection: see the module.
pub(super) struct Session<C: Connector> {
    /// The first epoch of the connection, which identifies it.
    pub(super) epoch: u64,
    last_write: Instant,
    /// The half to write with. `None` while the writer uses it.
    pub(super) outbound: Option<C::Out>,
    /// The half to read from. `None` while the reader or a caller that polls uses it.
    pub(super) inbound: Option<C::In>,
    cut: C::Cut,
    /// The number of the server that had answered last, on any connection, when this connection was checked.
    server: u64,
    /// When the server first said that it is no master.
    demoted: Option<Instant>,
    pub(super) due: VecDeque<Due>,
    /// Whether the outbound half still has bytes that it could not write yet.
    pub(super) has_backlog: bool,
    pub(super) opened: Instant,
    pub(super) last_use: Instant,
    /// The number of callers that were answered since the last write, and of posters whose calls were sent since then, that have not called
    /// again. Approximate: the next caller may be a new one.
    pub(super) away: usize,
    /// A buffer for the bytes to write, kept for reuse.
    pub(super) bytes: Vec<u8>,
    /// The posted calls whose bytes may not all be written yet.
    unsent: Vec<Arc<PendingCall>>,
    /// The scripts whose text posted calls have sent in full on this connection.
    spelt: Vec<&'static str>,
    /// Whether a confirmation is due. The server executes nothing else on this connection before it has sent it.
    pub(super) is_confirming: bool,
}

/// How a connection confirms calls: by one more command behind all other commands of a write.
#[derive(Clone, Debug)]
pub(crate) struct Confirming {
    /// The command, which has one reply.
    pub(crate) command: Vec<u8>,
    /// How long its reply may take, in addition to what any reply may take.
    pub(crate) takes: Duration,
}

/// Replies that are due.
pub(super) struct Due {
    what: Awaited,
    pub(super) since: Instant,
}

/// What replies belong to.
enum Awaited {
    /// To a call that was written. The number counts its replies that are not read yet.
    Call(Arc<PendingCall>, usize),
    /// To the command that confirms these calls, which were written with it.
    Confirmation(Vec<Arc<PendingCall>>),
}

impl Due {
    /// Returns the calls that wait for these replies. A call that is to be confirmed waits for its own and for the confirmation.
    pub(super) fn calls(&self) -> &[Arc<PendingCall>] {
        match &self.what {
            Awaited::Call(call, _) => std::slice::from_ref(call),
            Awaited::Confirmation(calls) => calls,
        }
    }
}

impl<C: Connector> Session<C> {
    pub(super) fn new(epoch: u64, open: OpenConnection<C>) -> Self {
        let OpenConnection { outbound, inbound, cut } = open;
        let (opened, server) = (now(), cut.server());
        Self {
            epoch,
            last_write: now(),
            outbound: Some(outbound),
            inbound: Some(inbound),
            cut,
            server,
            demoted: None,
            due: VecDeque::new(),
            has_backlog: false,
            opened,
            last_use: opened,
            away: 0,
            bytes: Vec::new(),
            unsent: Vec::new(),
            spelt: Vec::new(),
            is_confirming: false,
        }
    }

    /// Appends calls to the order of writing, and their bytes to those that are to be written. If some of them are to be confirmed, appends
    /// one command that confirms them all. That command comes last, because the server executes nothing behind it until it has answered it.
    /// While an earlier confirmation is due, calls that are to be confirmed stay in the queue.
    pub(super) fn queue_up(
        &mut self,
        queue: &mut VecDeque<Arc<PendingCall>>,
        epochs: &Epochs,
        settings: &MuxSettings<C>,
        since: Instant,
    ) {
        let quiet = since.saturating_duration_since(std::mem::replace(&mut self.last_write, since));
        let (epoch, is_stamped) = epochs.write(since, quiet);
        let stamp = is_stamped.then_some(&settings.stamp);
        let (mut confirmed, mut held_back) = (Vec::new(), VecDeque::new());
        let holds_back = self.is_confirming;
        for call in queue.drain(..) {
            if call.is_confirmed {
                if holds_back {
                    held_back.push_back(call);
                    continue;
                }
                confirmed.push(Arc::clone(&call));
            }
            let left = call.write_to(&mut self.bytes, epoch, stamp, &mut self.spelt);
            if call.is_posted {
                self.unsent.push(Arc::clone(&call));
            } else {
                // Callers that were answered before this write and have not called by now are not waited for any longer.
                self.away = 0;
            }
            self.due.push_back(Due { what: Awaited::Call(call, left), since });
        }
        // The calls that are held back keep the order in which they were queued.
        queue.append(&mut held_back);
        if let Some(confirming) = &settings.confirming
            && !confirmed.is_empty()
        {
            self.bytes.extend_from_slice(&confirming.command);
            self.due.push_back(Due { what: Awaited::Confirmation(confirmed), since });
            self.is_confirming = true;
        }
    }

    /// Notes that all bytes of the calls queued up so far are written.
    pub(super) fn all_sent(&mut self) {
        // The posters that still wait go on now, and usually call again.
        for call in self.unsent.drain(..) {
            self.away += usize::from(call.mark_sent());
        }
    }

    /// Gives replies to their calls, in order, and notes in `delivery` what follows from that.
    pub(super) fn deliver(&mut self, replies: SmallVec<[Value; 4]>, delivery: &mut Delivery<'_>) -> io::Result<()> {
        for value in replies {
            match self.due.front_mut() {
                None => return Err(unasked()),
                Some(Due { what: Awaited::Call(call, left), .. }) => {
                    // The replies are counted here and not in the call, because replies also come to a call whose caller has left.
                    *left -= 1;
                    let taken = call.push(value);
                    if *left > 0 {
                        continue;
                    }
                    let Some(Due { what: Awaited::Call(call, _), .. }) = self.due.pop_front() else { continue };
                    self.end(call, taken, delivery);
                }
                Some(Due { what: Awaited::Confirmation(calls), .. }) => {
                    let calls = std::mem::take(calls);
                    self.due.pop_front();
                    self.is_confirming = false;
                    for call in calls {
                        let taken = call.confirm(&value);
                        self.end(call, taken, delivery);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns an error if the oldest reply has been due for `patience` or longer: the server hangs, or the connection is dead.
    pub(super) fn check_overdue(&self, at: Instant, patience: Duration) -> io::Result<()> {
        match self.due.front() {
            Some(oldest) if at >= oldest.since + patience => Err(overdue_by(patience)),
            _ => Ok(()),
        }
    }

    /// Notes what the last reply to a write meant to one of its calls: see [`deliver`](Self::deliver).
    fn end(&mut self, call: Arc<PendingCall>, taken: Taken, delivery: &mut Delivery<'_>) {
        match taken {
            Taken::Kept => {}
            Taken::Again => delivery.again.push_back(call),
            Taken::Last => {
                self.away += usize::from(!call.is_posted);
                match delivery.own {
                    Some(own) if Arc::ptr_eq(own, &call) => {}
                    _ => delivery.woken.push(call),
                }
            }
        }
    }

    /// Returns `true` if the caller of this call waits for a reply that is due here: its own, or the confirmation that holds its call back.
    pub(super) fn has_reply_for(&self, call: &PendingCall) -> bool {
        call.is_due_since(self.epoch) || self.holds_back(call)
    }

    /// Returns `true` if this call stays in the queue until a confirmation has come.
    pub(super) fn holds_back(&self, call: &PendingCall) -> bool {
        self.is_confirming && call.is_confirmed && call.is_queued()
    }

    /// Notes whether the server says that it is no master. Call it before the replies are delivered: a caller that relies on an epoch asks
    /// whether it is deposed after it has received its own reply.
    pub(super) fn note_demotions(&mut self, replies: &[Value], at: Instant, epochs: &Epochs) {
        for reply in replies {
            if is_no_master(reply) {
                epochs.depose();
                if is_demotion(reply) {
                    self.demoted.get_or_insert(at);
                }
            }
        }
    }

    /// Returns `true` if the connection is to be replaced, because its server is no master any more. The address may lead to another server
    /// by now, and `REPLICAOF` closes no connection. Replies that are due may come for [`IDLE`] after the demotion was noted. A connection
    /// that was opened less than [`IDLE`] ago is kept: if the address leads to no master at all, connects stay rare.
    fn is_outdated(&self, at: Instant) -> bool {
        let is_older = |than: Instant| at.saturating_duration_since(than) >= IDLE;
        self.demoted.is_some_and(|since| is_older(self.opened) && (self.due.is_empty() || is_older(since)))
    }

    /// Checks, without waiting, that a connection is still usable. It fails if the server was demoted. It reads from the socket only if no
    /// reply is due, and if the connection was idle for [`IDLE`] or another server has answered since the last check: the connection may
    /// have been closed then.
    pub(super) fn check_idle(&mut self, at: Instant) -> io::Result<()> {
        if self.is_outdated(at) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "its server is no master any more"));
        }
        let server = self.cut.server();
        let is_recent = server == self.server && at.saturating_duration_since(self.last_use) < IDLE;
        if !self.due.is_empty() || is_recent {
            return Ok(());
        }
        let Some(inbound) = &mut self.inbound else { return Ok(()) };
        while inbound.fill(None)? {
            if inbound.take_reply()?.is_some() {
                return Err(unasked());
            }
        }
        (self.last_use, self.server) = (at, server);
        Ok(())
    }

    /// Returns `true` if the connection is not in use, and has not been used for `idle`.
    pub(super) fn is_idle(&self, at: Instant, idle: Duration) -> bool {
        let is_free = self.inbound.is_some() && self.outbound.is_some() && self.due.is_empty() && !self.has_backlog;
        is_free && at.saturating_duration_since(self.last_use) >= idle
    }

    /// Ends the connection and returns the calls that were written to it.
    pub(super) fn abort(self) -> Vec<Arc<PendingCall>> {
        let Self { outbound, inbound, cut, due, .. } = self;
        // The calls must fail even if closing the connection panics.
        let _ = guarded(|| {
            cut.cut();
            drop((outbound, inbound, cut));
            Ok(())
        });
        due.iter().flat_map(Due::calls).cloned().collect()
    }
}

fn unasked() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server sent a reply that no command asked for")
}

/// The epochs of a mux: see the module.
pub(in super::super) struct Epochs {
    /// The current epoch. No two epochs of a transport are equal: each is [`MUXES`] above the one before it. Before the first connection, it is
    /// the number of the mux.
    // ORDERING: Relaxed, also for `written`: stored with the mutex of the mux's `state` held. `at` loads without it, and may guess wrong.
    // The answer says in which epoch the call was written, and a caller that relies on the epoch compares the two.
    current: AtomicU64,
    /// When the connection was last written to, in nanoseconds after `since`.
    written: AtomicU64,
    since: Instant,
    /// The epoch whose commands are stamped; zero for none.
    // ORDERING: Relaxed: `write` loads it with the mutex of `state` held, and every call is queued under that mutex. So the write of a call
    // that a thread queues after it has ended the stamp sees that end. A stamp that is seen too late costs the server one write.
    stamped: AtomicU64,
    /// The last epoch in which the server said that it is no master. A reply to a caller that had left counts, too.
    // ORDERING: Relaxed: `depose` stores it with the mutex of `state` held, before the reader delivers replies, each under the mutex of its
    // call. So a caller that takes a reply sees what was read before that reply or together with it.
    deposed: AtomicU64,
}

impl Epochs {
    /// The epochs of the mux of this number. No command is written in the first of them.
    pub(super) fn of(mux: usize) -> Self {
        Self {
            current: AtomicU64::new(mux as u64),
            written: AtomicU64::new(0),
            since: now(),
            stamped: AtomicU64::new(0),
            deposed: AtomicU64::new(mux as u64),
        }
    }

    /// Returns the epoch in which a command that is sent at this moment is written, or `None` if the command begins a new epoch.
    /// Approximate: it does not take the mutex, because the threads that use the connection need it.
    pub(in super::super) fn at(&self, at: Instant) -> Option<u64> {
        // ORDERING: Relaxed: a guess, which the epoch of the answer corrects.
        let written = self.since + Duration::from_nanos(self.written.load(Ordering::Relaxed));
        let epoch = self.current.load(Ordering::Relaxed);
        (at.saturating_duration_since(written) <= QUIET && !self.is_deposed(epoch)).then_some(epoch)
    }

    /// Returns `true` if the server has said in that epoch, or later, that it is no master.
    pub(in super::super) fn is_deposed(&self, epoch: u64) -> bool {
        // ORDERING: Relaxed: the mutex of the call whose reply was taken comes after `depose`.
        self.deposed.load(Ordering::Relaxed) >= epoch
    }

    /// Notes that the server has said that it is no master. Call it before the reply that says so is delivered, and with the mutex of the
    /// mux held.
    pub(super) fn depose(&self) {
        self.deposed.fetch_max(self.current.load(Ordering::Relaxed), Ordering::Relaxed); // ORDERING: Relaxed: see the fields.
    }

    /// Stamps the commands that are written in that epoch.
    pub(in super::super) fn stamp(&self, epoch: u64) {
        self.stamped.fetch_max(epoch, Ordering::Relaxed); // ORDERING: Relaxed: seen too late, it costs one write.
    }

    /// Stamps no more commands.
    pub(in super::super) fn unstamp(&self) {
        self.stamped.store(0, Ordering::Relaxed); // ORDERING: Relaxed: the mutex of the mux orders it before later calls.
    }

    /// Begins an epoch. It is not stamped, because only the epoch in `stamped` is. The mutex of the mux must be held.
    pub(super) fn begin(&self) -> u64 {
        // ORDERING: Relaxed: see the field.
        let epoch = self.current.load(Ordering::Relaxed) + MUXES as u64;
        self.current.store(epoch, Ordering::Relaxed);
        epoch
    }

    /// Notes a write that comes `quiet` after the one before it. A write after a long pause begins an epoch. Returns the epoch of the
    /// write, and whether that epoch is stamped. The mutex of the mux must be held.
    pub(super) fn write(&self, at: Instant, quiet: Duration) -> (u64, bool) {
        // ORDERING: Relaxed: the mutex of the mux is held. Only `stamped` is stored without it: see there.
        let mut epoch = self.current.load(Ordering::Relaxed);
        // The server's word that it is no master ends the epoch, as a long pause does: in both cases another server may have been the
        // master since.
        if quiet > QUIET || self.is_deposed(epoch) {
            epoch = self.begin();
        }
        let nanos = u64::try_from(at.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX);
        self.written.store(nanos, Ordering::Relaxed);
        // ORDERING: Relaxed: `stamped` is one value, and says all by itself: see there.
        (epoch, self.stamped.load(Ordering::Relaxed) == epoch)
    }
}

#[cfg(all(test, not(dlock_shuttle)))]
#[path = "../../../../../tests/white_box/store/redis/transport/mux/state.rs"]
mod tests;
