//! Counts who needs the store: threads in `lock`, and holds. After a client is closed, the last of them shuts it
//! down.
//!
//! A thread enters before it looks at anything, and leaves after it has cleaned up after itself. If it got a hold,
//! the hold is counted in its place. After the closing no thread can enter. The closing thread waits until all
//! threads have left, and runs the shutdown if no hold is left then; otherwise the last hold does. A thread that
//! gives up waiting never has to run the shutdown.

use crate::error::Error;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, before_notifying};

#[derive(Debug, Default)]
pub(crate) struct Activity {
    closed: AtomicBool,
    inside: AtomicUsize,
    /// Whether all threads have left after the closing.
    drained: AtomicBool,
    holds: AtomicUsize,
    gate: Mutex<()>,
    left: Condvar,
}

impl Activity {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Lets no thread enter any more. Returns `false` if that was so before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, SeqCst)
    }

    /// Counts the calling thread in.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] after the closing; the caller is then not counted.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::ShutDown);
        }
        self.inside.fetch_add(1, SeqCst);
        if self.is_closed() {
            self.leave();
            return Err(Error::ShutDown);
        }
        Ok(())
    }

    /// Counts the calling thread out.
    pub(crate) fn leave(&self) {
        if self.inside.fetch_sub(1, SeqCst) == 1 && self.is_closed() {
            before_notifying(&self.gate);
            self.left.notify_all();
        }
    }

    /// Counts a hold, before its thread leaves.
    pub(crate) fn begin_hold(&self) {
        self.holds.fetch_add(1, SeqCst);
    }

    /// Counts a hold out. Returns `true` if it was the last one and the closing thread has gone: the caller must then
    /// run the shutdown.
    pub(crate) fn end_hold(&self) -> bool {
        self.holds.fetch_sub(1, SeqCst);
        // Read in this order: until all threads have left, one of them may still get a hold, even after this was the
        // last one.
        self.drained.load(SeqCst) && self.holds.load(SeqCst) == 0
    }

    /// After the closing, waits until no thread is inside. Returns whether there is no hold then either. (This call
    /// and the end of the last hold may both see that: each first writes its own change and then reads the other's.)
    pub(crate) fn wait_until_left(&self) -> bool {
        let mut gate = self.gate.lock();
        while self.inside.load(SeqCst) > 0 {
            self.left.wait(&mut gate);
        }
        drop(gate);
        self.drained.store(true, SeqCst);
        self.holds.load(SeqCst) == 0
    }
}

/// A thread inside `lock`, which is counted until this is dropped.
#[must_use]
pub(crate) struct Inside<'a>(&'a Activity);

impl<'a> Inside<'a> {
    /// Counts the calling thread in.
    ///
    /// # Errors
    ///
    /// Those of [`Activity::enter`].
    pub(crate) fn of(activity: &'a Activity) -> Result<Self, Error> {
        activity.enter()?;
        Ok(Self(activity))
    }

    /// Counts a hold in place of the thread.
    pub(crate) fn begin_hold(self) {
        self.0.begin_hold();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: L6.
    #[test]
    fn the_last_hold_after_the_closing_knows_it() {
        let activity = Activity::default();
        activity.enter().expect("open");
        activity.begin_hold();
        activity.leave();
        activity.begin_hold();
        assert!(!activity.end_hold());
        assert!(activity.close());
        assert!(!activity.close());
        assert!(activity.enter().is_err());
        assert!(!activity.wait_until_left());
        assert!(activity.end_hold());
    }

    /// Shows: L6.
    #[test]
    fn the_closing_thread_waits_for_those_inside() {
        let activity = Activity::default();
        activity.enter().expect("open");
        std::thread::scope(|scope| {
            activity.close();
            let closer = scope.spawn(|| activity.wait_until_left());
            // Time enough for it to end too early.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!closer.is_finished());
            activity.leave();
            assert!(closer.join().expect("no panic"));
        });
    }
}
