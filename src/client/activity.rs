//! Counts the users of the store: threads in `lock`, tasks that wait, and holds. When a client is [closed](super::closing), waiting threads leave,
//! waiting tasks are sent away, and holds continue. The end of the last hold shuts the client down.
//!
//! A thread is counted in before it uses the client, and counted out after its clean-up. If it gets a hold, the hold is counted in its
//! place. After the closing, no thread can enter. The closing thread waits until all threads have left. If no hold is left then, it runs
//! the shutdown itself; otherwise the end of the last hold runs it. A thread that gives up waiting never has to run the shutdown.

use crate::error::Error;
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, before_notifying};
use crossbeam_channel::{Receiver, Sender, bounded};

/// The stages of a client. From `CLOSED` on, no thread may enter. From `DRAINED` on, no thread is inside any more.
const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const DRAINED: u8 = 2;

pub(crate) struct Activity {
    stage: AtomicU8,
    inside: AtomicUsize,
    holds: AtomicUsize,
    gate: Mutex<()>,
    left: Condvar,
    /// Dropped by the closing, which disconnects `closing`.
    open: Mutex<Option<Sender<()>>>,
    closing: Receiver<()>,
    /// Whether the client is shut down. Held during the shutdown, so that it runs only once.
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

    /// Lets no thread enter any more. Returns `false` if that was so before.
    pub(crate) fn close(&self) -> bool {
        let is_first = self.stage.fetch_max(CLOSED, SeqCst) == OPEN;
        drop(self.open.lock().take());
        is_first
    }

    /// Returns a channel that never receives a message, and is disconnected when the client is closed.
    pub(crate) fn closing(&self) -> Receiver<()> {
        self.closing.clone()
    }

    /// Counts a task in, as a hold: nobody waits for a task that waits, because the thread that closes the client may be the one that polls it.
    /// Fails with [`Error::ShutDown`] after the closing. The caller must count it out in each case in which it succeeds.
    #[cfg(feature = "async")]
    pub(crate) fn begin_task(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::ShutDown);
        }
        self.holds.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Counts a release in that a task leaves to a thread of the client, as if that thread were inside already. Do this before the hold is counted
    /// out.
    pub(crate) fn begin_release(&self) {
        self.inside.fetch_add(1, SeqCst);
    }

    /// Counts a hold out. Returns `true` if it was the last one and the closing thread has gone: the caller must then
    /// run the shutdown.
    pub(crate) fn end_hold(&self) -> bool {
        self.holds.fetch_sub(1, SeqCst);
        // Read in this order: until all threads have left, one of them may still get a hold, even after this was the
        // last one.
        self.stage.load(SeqCst) == DRAINED && self.holds.load(SeqCst) == 0
    }

    /// After the closing, waits until no thread is inside. Returns whether there is no hold then either. (This call
    /// and the end of the last hold may both see that: each first writes its own change and then reads the other's.)
    pub(crate) fn wait_until_left(&self) -> bool {
        let mut gate = self.gate.lock();
        while self.inside.load(SeqCst) > 0 {
            self.left.wait(&mut gate);
        }
        drop(gate);
        self.stage.store(DRAINED, SeqCst);
        self.holds.load(SeqCst) == 0
    }
}

/// A thread inside `lock`, which is counted until this is dropped.
#[must_use]
pub(crate) struct Inside<'a>(&'a Activity);

impl<'a> Inside<'a> {
    /// Counts the calling thread in. Fails with [`Error::ShutDown`] after the closing. The caller is not counted then.
    pub(crate) fn of(activity: &'a Activity) -> Result<Self, Error> {
        if activity.is_closed() {
            return Err(Error::ShutDown);
        }
        activity.inside.fetch_add(1, SeqCst);
        let inside = Self(activity);
        // The closing thread looks at the count after it has closed. So it sees this thread, or this thread sees that.
        if activity.is_closed() { Err(Error::ShutDown) } else { Ok(inside) }
    }

    /// Takes over a release that was [counted in](Activity::begin_release).
    pub(crate) fn of_release(activity: &'a Activity) -> Self {
        Self(activity)
    }

    /// Counts a hold in place of the thread.
    pub(crate) fn begin_hold(self) {
        self.0.holds.fetch_add(1, SeqCst);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let activity = self.0;
        if activity.inside.fetch_sub(1, SeqCst) == 1 && activity.is_closed() {
            before_notifying(&activity.gate);
            activity.left.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/activity.rs"]
mod tests;
