//! The end of the main thread: it waits for what became of posted releases.
//!
//! A program that ends takes its threads with it, and nobody is left to repeat a release that met a server without the script or a
//! connection that was cut. So the main thread, when it ends (`main` returns or panics, or it calls `exit`), waits until each release that was
//! posted before has its answer, or is cleaned up, of all clients that it has used. The destructor of a thread-local is where it does: with
//! the C library of GNU, and on macOS, that runs at these ends, and the other threads still run then.

use super::core::Core;

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
mod imp {
    use super::Core;
    use crate::sync::contain;
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Weak};
    use std::thread;
    use std::time::{Duration, Instant};

    /// The pause between two looks for answers.
    const LOOK_AGAIN: Duration = Duration::from_micros(100);

    /// No end is delayed for longer.
    const LONGEST: Duration = Duration::from_secs(10);

    /// So many times the longest limit of a command is waited for: a cut connection is noticed, and the release repeated on another one.
    const COMMANDS: u32 = 2;

    /// The clients that the main thread has used; other threads note none.
    struct Used {
        is_main: bool,
        last: Cell<*const Core>,
        clients: RefCell<Vec<Weak<Core>>>,
    }

    std::thread_local! {
        static USED: Used = Used {
            is_main: thread::current().name() == Some("main"),
            last: Cell::new(std::ptr::null()),
            clients: RefCell::new(Vec::new()),
        };
    }

    impl Drop for Used {
        fn drop(&mut self) {
            let clients = self.clients.get_mut().drain(..).filter_map(|core| core.upgrade());
            let clients: Vec<_> = clients.filter(|core| !core.is_forked()).collect();
            // A panic here would abort the program.
            let _ = contain(|| await_answers(&clients));
            for core in clients {
                let _ = contain(|| drop(core));
            }
        }
    }

    /// Waits for the answers of all clients side by side: a server that does not answer takes no time from the others.
    fn await_answers(clients: &[Arc<Core>]) {
        let limit = clients.iter().map(|core| core.processor.command_limit()).max().unwrap_or_default();
        let until = Instant::now() + limit.saturating_mul(COMMANDS).min(LONGEST);
        let mut waits: Vec<_> = clients.iter().map(|core| (core, core.unanswered.turn_over())).collect();
        loop {
            waits.retain(|(_, unanswered)| unanswered.load(Ordering::SeqCst) > 0);
            if waits.is_empty() || Instant::now() >= until {
                return;
            }
            for (core, _) in &waits {
                let _ = contain(|| core.processor.collect());
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    impl Core {
        /// Notes that the calling thread has used this client.
        pub(crate) fn note_use(&self) {
            // At the very end of a thread it is too late.
            let _ = USED.try_with(|used| {
                if used.is_main && used.last.replace(self) != std::ptr::from_ref(self) {
                    let mut clients = used.clients.borrow_mut();
                    clients.retain(|core| core.strong_count() > 0 && !std::ptr::eq(core.as_ptr(), self));
                    clients.push(Weak::clone(&self.this));
                }
            });
        }
    }
}

#[cfg(not(all(unix, not(all(test, dlock_shuttle)))))]
impl Core {
    /// Nobody waits for answers here: see the module.
    pub(crate) fn note_use(&self) {
        let _ = self;
    }
}
