//! Who needs the store: threads in `lock`, and holds. When a client is closed, the last of them ends the rest.
//!
//! A thread enters before it looks at anything, and leaves after it has cleaned up behind itself; a hold takes the place
//! of the thread that got it. After the closing nobody enters. The closing thread waits until all have left, and ends
//! the rest if no hold is on then; else the last hold does. A thread that only wanted to wait for a while never has to.

use crate::error::Error;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, mutant};

#[derive(Debug, Default)]
pub(crate) struct Activity {
    closed: AtomicBool,
    inside: AtomicUsize,
    /// Whether, after the closing, all threads have left.
    drained: AtomicBool,
    holds: AtomicUsize,
    gate: Mutex<()>,
    left: Condvar,
}

impl Activity {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Lets nobody enter any more; `false` when that was so before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, SeqCst)
    }

    /// Counts the calling thread in.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] after the closing; the caller is not counted then.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::ShutDown);
        }
        self.inside.fetch_add(1, SeqCst);
        if self.is_closed() && !mutant!(EntersWithoutSecondLook) {
            self.leave();
            return Err(Error::ShutDown);
        }
        Ok(())
    }

    /// Counts the calling thread out.
    pub(crate) fn leave(&self) {
        if self.inside.fetch_sub(1, SeqCst) == 1 && self.is_closed() {
            // With the gate: between its look and its waiting, the closing thread would not hear this.
            if !mutant!(LeavesWithoutGate) {
                drop(self.gate.lock());
            }
            self.left.notify_all();
        }
    }

    /// Counts a hold, before its thread leaves.
    pub(crate) fn begin_hold(&self) {
        self.holds.fetch_add(1, SeqCst);
    }

    /// Counts a hold out; `true` when no other is on, the closing thread has gone, and so the rest is to be ended.
    pub(crate) fn end_hold(&self) -> bool {
        let then = self.holds.fetch_sub(1, SeqCst) - 1;
        // In this order: until all have left, one of them may come to hold, also after this was the last hold.
        self.drained.load(SeqCst) && (if mutant!(EndsByOldCount) { then } else { self.holds.load(SeqCst) }) == 0
    }

    /// Waits, after the closing, until no thread is inside; whether no hold is on then either. (This and the last hold's
    /// end may both see that: each first says what it did, and then looks at the other.)
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_closing_thread_waits_for_those_inside() {
        let activity = Activity::default();
        activity.enter().expect("open");
        std::thread::scope(|scope| {
            activity.close();
            let closer = scope.spawn(|| activity.wait_until_left());
            assert!(!closer.is_finished());
            activity.leave();
            assert!(closer.join().expect("no panic"));
        });
    }
}
