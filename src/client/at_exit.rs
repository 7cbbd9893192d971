//! The end of the main thread: it waits for the outcome of posted releases.
//!
//! The end of a program ends its threads, too, so nobody is left to repeat a release that met a server without the
//! script or a connection that broke. So when the main thread ends (`main` returns or panics, or it calls `exit`), it
//! waits until each release posted before is answered or cleaned up, for all clients that it has used. It does so in
//! the destructor of a thread-local. With the GNU C library and on macOS that destructor runs in these cases, while
//! the other threads still run.

use super::core::Core;

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
mod imp {
    use super::Core;
    use crate::sync::catch_panic;
    use crate::timing::{EXIT_LOOK, exit_wait};
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Weak};
    use std::thread;
    use std::time::Instant;

    /// The clients that the main thread has used. Other threads record none.
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
            let clients: Vec<_> = clients.filter(|core| !core.process.is_forked()).collect();
            // A panic here would abort the program.
            let _ = catch_panic(|| await_answers(&clients));
            for core in clients {
                let _ = catch_panic(|| drop(core));
            }
        }
    }

    /// Waits for the replies of all clients at the same time, so that a server that does not reply takes no time from
    /// the others.
    fn await_answers(clients: &[Arc<Core>]) {
        let limit = clients.iter().map(|core| core.limits.command).max().unwrap_or_default();
        let until = Instant::now() + exit_wait(limit);
        let mut waits: Vec<_> = clients.iter().map(|core| (core, core.releases.turn_over())).collect();
        loop {
            waits.retain(|(_, unanswered)| unanswered.load(Ordering::SeqCst) > 0);
            if waits.is_empty() || Instant::now() >= until {
                return;
            }
            for (core, _) in &waits {
                let _ = catch_panic(|| core.releases.collect_replies(core));
            }
            thread::sleep(EXIT_LOOK);
        }
    }

    /// Records that the calling thread has used this client.
    pub(in crate::client) fn note_use(core: &Core) {
        // At the very end of a thread this fails: it is too late.
        let _ = USED.try_with(|used| {
            if used.is_main && used.last.replace(core) != std::ptr::from_ref(core) {
                let mut clients = used.clients.borrow_mut();
                clients.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), core));
                clients.push(Weak::clone(&core.this));
            }
        });
    }
}

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
pub(super) use self::imp::note_use;

/// Does nothing: on this platform nobody waits for replies. See the module.
#[cfg(not(all(unix, not(all(test, dlock_shuttle)))))]
pub(super) fn note_use(_core: &Core) {}
