//! Counts the posted releases that are not answered: the end of the main thread waits for them.

use crate::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The number of unanswered posted releases, in two halves: those posted before the end of the main thread, and those
/// posted since. The end waits for the former.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    half: AtomicUsize,
    counts: [AtomicUsize; 2],
}

/// One unanswered release, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    of: Arc<Unanswered>,
    half: usize,
}

impl Unanswered {
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        let half = self.half.load(Ordering::SeqCst) % 2;
        self.counts[half].fetch_add(1, Ordering::SeqCst);
        Ticket { of: Arc::clone(self), half }
    }

    /// Counts later releases in the other half. Returns the half that was used until now.
    #[cfg_attr(any(not(unix), all(test, dlock_shuttle)), expect(dead_code, reason = "nobody waits there"))]
    pub(super) fn turn_over(&self) -> &AtomicUsize {
        &self.counts[self.half.fetch_add(1, Ordering::SeqCst) % 2]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.of.counts[self.half].fetch_sub(1, Ordering::SeqCst);
    }
}
