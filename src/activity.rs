//! Who needs the store: threads in `lock`, and holds. When a client is closed, the last of them ends the rest.
//!
//! A thread enters before it looks at anything, and leaves after it has cleaned up behind itself; a hold takes the place
//! of the thread that got it. After the closing nobody enters, so both counts only fall, and whoever brings them to
//! zero sees it: each decrements first and looks afterwards, and a hold is counted before its thread is not.

use crate::error::Error;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

#[derive(Debug, Default)]
pub(crate) struct Activity {
    closed: AtomicBool,
    inside: AtomicUsize,
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
    /// [`Error::ShutDown`] after the closing; the caller is to [`leave`](Self::leave) all the same.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        self.inside.fetch_add(1, SeqCst);
        if self.is_closed() { Err(Error::ShutDown) } else { Ok(()) }
    }

    /// Counts the calling thread out; `true` when it is the last after the closing.
    pub(crate) fn leave(&self) -> bool {
        self.inside.fetch_sub(1, SeqCst);
        self.is_last()
    }

    /// Counts a hold, before its thread leaves.
    pub(crate) fn begin_hold(&self) {
        self.holds.fetch_add(1, SeqCst);
    }

    /// Counts a hold out; `true` when it is the last after the closing.
    pub(crate) fn end_hold(&self) -> bool {
        self.holds.fetch_sub(1, SeqCst);
        self.is_last()
    }

    /// Waits, after the closing, until no thread is inside; whether no hold is left then either.
    pub(crate) fn wait_until_left(&self) -> bool {
        let mut gate = self.gate.lock();
        while self.inside.load(SeqCst) > 0 {
            self.left.wait(&mut gate);
        }
        drop(gate);
        self.holds.load(SeqCst) == 0
    }

    fn is_last(&self) -> bool {
        if !self.is_closed() {
            return false;
        }
        // With the gate: between its look and its waiting, the closing thread would not hear this.
        drop(self.gate.lock());
        self.left.notify_all();
        // In this order: a thread that leaves with a hold has counted the hold before.
        self.inside.load(SeqCst) == 0 && self.holds.load(SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_out_after_the_closing_knows_it() {
        let activity = Activity::default();
        activity.enter().expect("open");
        activity.enter().expect("open");
        activity.begin_hold();
        assert!(!activity.leave());
        assert!(activity.close());
        assert!(!activity.close());
        assert!(activity.enter().is_err());
        assert!(!activity.leave());
        assert!(!activity.leave());
        assert!(!activity.wait_until_left());
        assert!(activity.end_hold());
    }
}
