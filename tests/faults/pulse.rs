//! Whether this process runs: on a busy machine a process may stand still for longer than a lease, which is no fault of the lock's.

use crate::history::Nanos;
use crate::worker::now;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long a thread may oversleep before its process counts as away.
const AWAY: Nanos = 50_000_000;

/// Ends the watch when dropped.
#[derive(Debug)]
pub(crate) struct Pulse(Arc<AtomicBool>);

/// Tells each time that the process did not run: since when, and when it came back.
pub(crate) fn keep(tell: impl Fn(Nanos, Nanos) + Send + 'static) -> Pulse {
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    // Before the thread runs: that may take long, too.
    let mut since = now();
    thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            let at = now();
            if at - since > AWAY {
                tell(since, at);
            }
            since = at;
            thread::sleep(Duration::from_millis(5));
        }
    });
    Pulse(over)
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
