//! Counts the users of the store: threads in `lock`, tasks that wait, and holds. When a client is [closed](super::closing), waiting threads leave,
//! waiting tasks are sent away, and holds continue. The last to leave shuts the client down: see the table there.
//!
//! A thread is counted in before it uses the client, and counted out after its clean-up. If it gets a hold, the hold is counted before the
//! thread is counted out. After the closing, no thread can enter.

#[cfg(feature = "async")]
use crate::error::Error;
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, before_notifying};
use crossbeam_channel::{Receiver, Sender, bounded};

/// The stages of a client, in their order. A client may leave out the third one.
const OPEN: u8 = 0;
/// No thread may enter. The closing thread waits for those inside.
const CLOSED: u8 = 1;
/// Perhaps nobody waits for the threads inside.
const LEFT_ALONE: u8 = 2;
/// No thread is inside any more.
const DRAINED: u8 = 3;

pub(crate) struct Activity {
    stage: AtomicU8,
    inside: AtomicUsize,
    holds: AtomicUsize,
    gate: Mutex<()>,
    left: Condvar,
    /// Dropped by the closing, which disconnects `closing`.
    open: Mutex<Option<Sender<()>>>,
    closing: Receiver<()>,
    /// Whether the client is shut down. Only a shutdown takes the mutex, and holds it until the shutdown is over.
    pub(super) is_down: Mutex<bool>,
}

impl Default for Activity {
    fn default() -> Self {
        let (open, closing) = bounded(0);
        Self {
            stage: AtomicU8::new(OPEN),
            inside: AtomicUsize::new(0),
            holds: AtomicUsize::new(0),
            gate: Mutex::default(),
            left: Condvar::default(),
            open: Mutex::new(Some(open)),
            closing,
            is_down: Mutex::default(),
        }
    }
}

impl Activity {
    pub(crate) fn is_closed(&self) -> bool {
        self.stage.load(SeqCst) != OPEN
    }

    /// Lets no thread enter any more. Returns `false` if the client was already closed.
    pub(crate) fn close(&self) -> bool {
        let is_first = self.stage.fetch_max(CLOSED, SeqCst) == OPEN;
        drop(self.open.lock().take());
        is_first
    }

    /// Returns a channel that never receives a message, and is disconnected when the client is closed.
    pub(crate) fn closing(&self) -> Receiver<()> {
        self.closing.clone()
    }

    /// Counts a task in as a hold. The closing does not wait for tasks that wait, because the closing thread may be the one that polls them. Fails
    /// with [`Error::ShutDown`] after the closing. If it succeeds, the caller must count the task out.
    #[cfg(feature = "async")]
    pub(crate) fn begin_task(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::ShutDown);
        }
        self.begin_hold();
        Ok(())
    }

    /// Counts a hold in. For that of a thread, call it before the thread is counted out.
    pub(crate) fn begin_hold(&self) {
        self.holds.fetch_add(1, SeqCst);
    }

    /// Counts a hold out. Returns `true` if it was the last user of a closed client: the caller must then have the client shut down.
    pub(crate) fn end_hold(&self) -> bool {
        self.holds.fetch_sub(1, SeqCst);
        // The stage is read first: until all threads have left, one of them may still get a hold, even if this was the last hold.
        self.stage.load(SeqCst) == DRAINED && self.holds.load(SeqCst) == 0
    }

    /// Counts a thread in, unless the client is closed. Returns whether the thread was counted. It must then look once more whether the client is
    /// closed.
    pub(crate) fn enter(&self) -> bool {
        let is_open = self.stage.load(SeqCst) == OPEN;
        if is_open {
            self.inside.fetch_add(1, SeqCst);
        }
        is_open
    }

    /// Counts a release in that a task leaves to a thread of the client, as if that thread were inside already. Do this before the hold is counted
    /// out.
    pub(crate) fn begin_release(&self) {
        self.inside.fetch_add(1, SeqCst);
    }

    /// Counts a thread out. Returns `true` as [`end_hold`](Self::end_hold) does. Where a closing thread waits, it wakes that thread, which finds out
    /// for itself whether anybody is left.
    pub(crate) fn leave(&self) -> bool {
        if self.inside.fetch_sub(1, SeqCst) > 1 {
            return false;
        }
        let stage = self.stage.load(SeqCst);
        if stage == OPEN {
            return false;
        }
        before_notifying(&self.gate);
        self.left.notify_all();
        stage == LEFT_ALONE && self.drain_if_left()
    }

    /// After the closing, waits until no thread is inside. Returns whether there is no hold then either. (This call
    /// and the end of the last hold may both see that: each first writes its own change and then reads the other's.)
    pub(crate) fn wait_until_left(&self) -> bool {
        let mut gate = self.gate.lock();
        while self.inside.load(SeqCst) > 0 {
            self.left.wait(&mut gate);
        }
        drop(gate);
        self.drain()
    }

    /// After the closing, notes that nobody waits for the threads inside. Returns whether no thread is inside, and there is no hold either. (As
    /// above, this call and the last thread may both see that.)
    pub(crate) fn leave_alone(&self) -> bool {
        self.stage.fetch_max(LEFT_ALONE, SeqCst);
        self.drain_if_left()
    }

    fn drain_if_left(&self) -> bool {
        self.inside.load(SeqCst) == 0 && self.drain()
    }

    /// Notes that no thread is inside: since the closing, each that enters leaves at once. Returns whether there is no hold.
    fn drain(&self) -> bool {
        self.stage.store(DRAINED, SeqCst);
        self.holds.load(SeqCst) == 0
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/activity.rs"]
mod tests;
