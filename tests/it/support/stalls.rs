//! Counts how often the machine lets the whole process stand still. A lease that is lost then says nothing about its renewal.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a scene is played at most.
const PLAYS: usize = 10;

/// A thread that sleeps 2 ms again and again, and counts how often that took much longer.
pub(crate) struct Stalls {
    is_over: Arc<AtomicBool>,
    watcher: thread::JoinHandle<usize>,
}

impl Stalls {
    /// Counts the stalls that take longer than `shortest`.
    pub(crate) fn watch(shortest: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let watcher = thread::spawn(move || {
            let (mut last, mut stalls) = (Instant::now(), 0);
            while !over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(2));
                stalls += usize::from(last.elapsed() > shortest);
                last = Instant::now();
            }
            stalls
        });
        Self { is_over, watcher }
    }

    pub(crate) fn stop(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.watcher.join().unwrap()
    }
}

/// Plays a scene that needs a running machine. If it fails, and the process stood still for longer than `longest` meanwhile, the scene is played
/// again, a few times at most. A failure without such a stall counts. Each further play is told in a line that begins with `played again:`, so that a
/// report can count them.
pub(crate) fn on_a_running_machine(longest: Duration, scene: impl Fn()) {
    for play in 1.. {
        let stalls = Stalls::watch(longest);
        let played = catch_unwind(AssertUnwindSafe(&scene));
        let stalls = stalls.stop();
        match played {
            Ok(()) => return,
            Err(_) if stalls > 0 && play < PLAYS => played_again(&format!("{stalls} stalls of more than {longest:?}")),
            Err(failure) => resume_unwind(failure),
        }
    }
}

/// Tells that the calling test plays a scene again, and why. The line is written although the test may pass: what is printed by a macro is
/// shown for a test that fails only.
pub(crate) fn played_again(why: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("played again: {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
