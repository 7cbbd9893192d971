//! The end of the main thread: it waits for what became of posted releases.
//!
//! A program that ends takes its threads with it, and nobody is left to repeat a release that met a server without the script or a
//! connection that was cut. So the main thread, when it ends (`main` returns or panics, or it calls `exit`), waits until each release that was
//! posted before has its answer, or is cleaned up, of all clients that it has used. The destructor of a thread-local is where it does: with
//! the C library of GNU, and on macOS, that runs at these ends, and the other threads still run then.

use super::Client;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// How many posted releases have no answer, in two halves: those of before the end of the main thread, and those that came
/// since. The end waits for the former.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    half: AtomicUsize,
    counts: [AtomicUsize; 2],
}

/// One of them, until this is dropped.
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

    /// Lets later ones be counted apart; the half that was used until now.
    #[cfg_attr(any(not(unix), all(test, dlock_shuttle)), expect(dead_code, reason = "nobody waits there"))]
    fn turn_over(&self) -> &AtomicUsize {
        &self.counts[self.half.fetch_add(1, Ordering::SeqCst) % 2]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.of.counts[self.half].fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
mod imp {
    use super::Client;
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
        last: Cell<*const Client>,
        clients: RefCell<Vec<Weak<Client>>>,
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
            let clients = self.clients.get_mut().drain(..).filter_map(|client| client.upgrade());
            let clients: Vec<_> = clients.filter(|client| !client.is_forked()).collect();
            // A panic here would abort the program.
            let _ = contain(|| await_answers(&clients));
            for client in clients {
                let _ = contain(|| drop(client));
            }
        }
    }

    /// Waits for the answers of all clients side by side: a server that does not answer takes no time from the others.
    fn await_answers(clients: &[Arc<Client>]) {
        let limit = clients.iter().map(|client| client.processor.command_limit()).max().unwrap_or_default();
        let until = Instant::now() + limit.saturating_mul(COMMANDS).min(LONGEST);
        let mut waits: Vec<_> = clients.iter().map(|client| (client, client.unanswered.turn_over())).collect();
        loop {
            waits.retain(|(_, unanswered)| unanswered.load(Ordering::SeqCst) > 0);
            if waits.is_empty() || Instant::now() >= until {
                return;
            }
            for (client, _) in &waits {
                let _ = contain(|| client.processor.collect());
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    impl Client {
        /// Notes that the calling thread has used this client.
        pub(crate) fn note_use(&self) {
            // At the very end of a thread it is too late.
            let _ = USED.try_with(|used| {
                if used.is_main && used.last.replace(self) != std::ptr::from_ref(self) {
                    let mut clients = used.clients.borrow_mut();
                    clients.retain(|client| client.strong_count() > 0 && !std::ptr::eq(client.as_ptr(), self));
                    clients.push(Weak::clone(&self.this));
                }
            });
        }
    }
}

#[cfg(not(all(unix, not(all(test, dlock_shuttle)))))]
impl Client {
    /// Nobody waits for answers here: see the module.
    pub(crate) fn note_use(&self) {
        let _ = self;
    }
}
