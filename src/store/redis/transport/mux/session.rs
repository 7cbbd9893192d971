//! One connection of a mux, and the calls whose replies are due on it.
//!
//! The server answers in the order of the commands, so the order of `due` is all that is known of which reply belongs to whom. Nothing is ever
//! taken out of it but at its front, not even a call whose caller has gone.
//!
//! A connection that nobody has used for a while may have been closed by the server, or by a proxy between. A command that is written to it
//! would fail with an unknown outcome, although nothing was wrong with it. So it is looked at first ([`check_idle`](Session::check_idle)), which
//! costs one system call, and a new one is opened if it has ended.

use super::super::timing::IDLE;
use super::connector::{Connector, OpenConnection, ReadHalf, Shutdown};
use super::epochs::Epochs;
use super::leaving::overdue_by;
use super::pending::{PendingCall, Taken};
use crate::store::redis::net::classify::{is_demotion, is_no_master};
use crate::store::redis::net::resp::Stamp;
use crate::sync::{guarded, now};
use ::redis::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Session<C: Connector> {
    /// The first epoch of the connection, which identifies it.
    pub(super) epoch: u64,
    pub(super) last_write: Instant,
    /// `None` while the writer uses it.
    pub(super) outbound: Option<C::Out>,
    /// `None` while the reader or a caller that polls uses it.
    pub(super) inbound: Option<C::In>,
    cut: C::Cut,
    /// Which server was the last one that had answered when this connection was checked.
    server: u64,
    /// Since when the server says that it is no master.
    demoted: Option<Instant>,
    pub(super) due: VecDeque<Due>,
    /// Whether the outbound half was given bytes that it could not write yet.
    pub(super) has_backlog: bool,
    pub(super) opened: Instant,
    pub(super) last_use: Instant,
    /// The number of callers that were answered, and of posters whose calls were sent, since the last write and that have not called again.
    /// Approximate: the next caller may be a new one.
    pub(super) away: usize,
    /// A buffer for the bytes to write, kept for reuse.
    pub(super) bytes: Vec<u8>,
    /// Posted calls whose bytes may not all be written yet.
    unsent: Vec<Arc<PendingCall>>,
    /// The texts that posted calls have sent in full.
    spelt: Vec<&'static str>,
    /// Whether a confirmation is due. The server executes nothing else on this connection before that.
    pub(super) is_confirming: bool,
}

/// How a connection confirms calls: by one more command behind all others of a write.
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
    /// To a call that was written, with the number of its replies not yet read.
    Call(Arc<PendingCall>, usize),
    /// To the command that confirms these calls, of the same write.
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

    /// Appends calls to the order of writing, and their bytes to `bytes`. If some of them are to be confirmed, appends one command that
    /// confirms them all. It is the last one, because the server executes nothing that comes behind it before it is answered. So calls
    /// that are to be confirmed stay in the queue while an earlier confirmation is due.
    pub(super) fn queue_up(
        &mut self,
        queue: &mut VecDeque<Arc<PendingCall>>,
        bytes: &mut Vec<u8>,
        epoch: u64,
        stamp: Option<&Stamp>,
        confirming: Option<&Confirming>,
        since: Instant,
    ) {
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
            let left = call.write_to(bytes, epoch, stamp, &mut self.spelt);
            if call.is_posted {
                self.unsent.push(Arc::clone(&call));
            } else {
                // This write ends the wait for callers answered before it.
                self.away = 0;
            }
            self.due.push_back(Due { what: Awaited::Call(call, left), since });
        }
        queue.append(&mut held_back);
        if let Some(confirming) = confirming
            && !confirmed.is_empty()
        {
            bytes.extend_from_slice(&confirming.command);
            self.due.push_back(Due { what: Awaited::Confirmation(confirmed), since });
            self.is_confirming = true;
        }
    }

    /// Notes that all bytes of the calls queued up so far are written.
    pub(super) fn all_sent(&mut self) {
        // The posters that are still here go on, and usually call again.
        self.away += self.unsent.drain(..).filter(|call| call.mark_sent()).count();
    }

    /// Gives replies to their calls, in order. Adds to `over` the finished calls that must be woken, except the reader's own. Adds to
    /// `again` the calls that must be sent once more; queue them before the state is unlocked, so that a call made after a later answer is
    /// also executed later.
    pub(super) fn deliver(
        &mut self,
        replies: impl IntoIterator<Item = Value>,
        own: Option<&Arc<PendingCall>>,
        over: &mut Vec<Arc<PendingCall>>,
        again: &mut VecDeque<Arc<PendingCall>>,
    ) -> io::Result<()> {
        for value in replies {
            match self.due.front_mut().map(|due| &mut due.what) {
                None => return Err(unasked()),
                Some(Awaited::Call(call, left)) => {
                    *left -= 1;
                    let taken = call.push(value);
                    if *left > 0 {
                        continue;
                    }
                    let Some(Due { what: Awaited::Call(call, _), .. }) = self.due.pop_front() else { continue };
                    match taken {
                        Taken::Kept => {}
                        Taken::Last => self.end(call, own, over),
                        Taken::Again => again.push_back(call),
                    }
                }
                Some(Awaited::Confirmation(calls)) => {
                    let calls = std::mem::take(calls);
                    self.due.pop_front();
                    self.is_confirming = false;
                    for call in calls {
                        match call.confirm(&value) {
                            Taken::Kept => {}
                            Taken::Last => self.end(call, own, over),
                            Taken::Again => again.push_back(call),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns an error if nothing has come, and the oldest reply has been due for longer than `patience`: the server hangs, or the connection
    /// leads nowhere.
    pub(super) fn check_overdue(&self, has_come: bool, at: Instant, patience: Duration) -> io::Result<()> {
        match self.due.front() {
            Some(oldest) if !has_come && at >= oldest.since + patience => Err(overdue_by(patience)),
            _ => Ok(()),
        }
    }

    /// Notes that a call has its answer.
    fn end(&mut self, call: Arc<PendingCall>, own: Option<&Arc<PendingCall>>, over: &mut Vec<Arc<PendingCall>>) {
        self.away += usize::from(!call.is_posted);
        if own.is_none_or(|own| !Arc::ptr_eq(own, &call)) {
            over.push(call);
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

    /// Notes whether the server says that it is no master. Must be done before the replies are delivered: whoever relies on an epoch asks
    /// after its own reply.
    pub(super) fn note_demotions(&mut self, replies: &[Value], at: Instant, epochs: &Epochs) {
        if replies.iter().any(is_demotion) {
            self.demoted.get_or_insert(at);
        }
        if replies.iter().any(is_no_master) {
            epochs.depose();
        }
    }

    /// Returns `true` if the connection is to be replaced, because its server is no master any more: the address may lead to another server
    /// by now, and `REPLICAOF` closes no connection. What is due is waited for, but not for long. A connection that was just opened stays, so
    /// that connects are rare, wherever they lead.
    fn is_outdated(&self, at: Instant) -> bool {
        let is_older = |than: Instant| at.saturating_duration_since(than) >= IDLE;
        self.demoted.is_some_and(|since| is_older(self.opened) && (self.due.is_empty() || is_older(since)))
    }

    /// Checks, without waiting, that a connection is still usable: if its server was demoted, or if it was idle for long or may have been
    /// cut, and no reply is due on it.
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
        while inbound.fill_now()? {
            if inbound.take_reply()?.is_some() {
                return Err(unasked());
            }
        }
        (self.last_use, self.server) = (at, server);
        Ok(())
    }

    /// Returns `true` if nobody uses the connection, and nobody has for so long.
    pub(super) fn is_idle(&self, at: Instant, idle: Duration) -> bool {
        let is_free = self.inbound.is_some() && self.outbound.is_some() && self.due.is_empty() && !self.has_backlog;
        is_free && at.saturating_duration_since(self.last_use) >= idle
    }

    /// Ends the connection and returns the calls that were written to it.
    pub(super) fn abort(self) -> Vec<Arc<PendingCall>> {
        let Self { outbound, inbound, cut, due, .. } = self;
        // Even if ending the connection panics, the calls must be told.
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
