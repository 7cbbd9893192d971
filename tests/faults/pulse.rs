//! Shows whether this process runs. On a busy machine a process may stand still for longer than a lease, or be a little late at every step. The lock
//! is not at fault then.

use crate::history::Nanos;
use crate::worker::now;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause between two beats.
pub(crate) const PAUSE: Nanos = 5_000_000;

/// How much longer a beat may take before it is reported. On an idle machine it takes a tenth of this.
const LATE: Nanos = 2_000_000;

/// Ends the watch when dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Reports each late beat, with the moment of the one before and its own. A beat is a pause and a call of `beat`, which ends the watch by `false`.
pub(crate) fn keep(
    mut beat: impl FnMut() -> bool + Send + 'static,
    tell: impl Fn(Nanos, Nanos) + Send + 'static,
) -> Pulse {
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    // This is before the thread runs, because its start may take long, too.
    let mut since = now();
    let thread = thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) && beat() {
            let at = now();
            if at - since > PAUSE + LATE {
                tell(since, at);
            }
            since = at;
            thread::sleep(Duration::from_nanos(PAUSE));
        }
    });
    Pulse { over, thread: Some(thread) }
}

/// For how many nanoseconds the first thread of a process has waited for a processor since its start; `None` when it has ended.
pub(crate) fn run_delay(pid: u32) -> Option<Nanos> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    stat.split_whitespace().nth(1)?.parse().ok()
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
