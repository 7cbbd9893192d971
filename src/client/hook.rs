//! The callbacks of the program. Each callback runs on its own thread: however slow it is, it delays no renewal, no
//! unlock and no waiter.

use crate::error::LeaseLoss;
use crate::log;
use crate::sync::{Mutex, catch_panic, thread};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How many events may wait for a slow callback. It is not told of any further ones.
const ROOM: usize = 4096;

/// What a callback is told of.
pub(crate) trait Event: Send + 'static {
    /// The method of the builder that sets the callback.
    const HOOK: &'static str;
    /// The thread that calls it.
    const THREAD: &'static str;

    fn key(&self) -> &str;

    /// Logs an error with the log target of this kind of event.
    fn log_error(error: fmt::Arguments<'_>);
}

impl Event for LeaseLoss {
    const HOOK: &'static str = "on_lost";
    const THREAD: &'static str = "dlock-lost";

    fn key(&self) -> &str {
        &self.key
    }

    fn log_error(error: fmt::Arguments<'_>) {
        log::error!(LEASE, "{error}");
    }
}

/// A thread that has waited long for a lock, and still waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowWait {
    /// The key that the thread waits for.
    pub key: String,
    /// How long it has waited.
    pub waited: Duration,
    /// The name of the waiting thread, if it has one.
    pub thread: Option<String>,
    /// What the lock is for, as set in its [config](crate::DLockConfig::with_reason).
    pub reason: Option<String>,
}

impl Event for SlowWait {
    const HOOK: &'static str = "on_slow_wait";
    const THREAD: &'static str = "dlock-slow-wait";

    fn key(&self) -> &str {
        &self.key
    }

    fn log_error(error: fmt::Arguments<'_>) {
        log::error!(ACQUIRE, "{error}");
    }
}

type Told<E> = dyn Fn(&E) + Send + Sync;

/// A callback and, from the first event on, the channel to its thread. The thread ends after the client does, once it
/// has reported all events; nobody waits for that.
pub(crate) struct Hook<E> {
    told: Arc<Told<E>>,
    line: Mutex<Option<Sender<E>>>,
}

/// The callback for lost holds.
pub(crate) type LossHook = Hook<LeaseLoss>;

/// The callbacks of one client.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) on_lost: Option<Arc<LossHook>>,
    /// With how long a wait must last to be reported.
    pub(crate) on_slow_wait: Option<(Duration, Hook<SlowWait>)>,
}

impl Hooks {
    /// Lets the threads end once they have reported all events. No hold or wait is left to report, and nobody waits
    /// for the threads.
    pub(crate) fn end(&self) {
        if let Some(hook) = &self.on_lost {
            hook.end();
        }
        if let Some((_, hook)) = &self.on_slow_wait {
            hook.end();
        }
    }
}

impl<E: Event> Hook<E> {
    pub(crate) fn new(told: impl Fn(&E) + Send + Sync + 'static) -> Self {
        Self { told: Arc::new(told), line: Mutex::new(None) }
    }

    /// Queues an event. Does not wait for the callback.
    pub(crate) fn tell(&self, event: E) {
        // The log is written without the mutex: the program's logger may block.
        match self.sender().map(|sender| sender.try_send(event)) {
            Err(e) => {
                E::log_error(format_args!("{} is not called: the operating system refused a thread: {e}", E::HOOK));
            }
            Ok(Err(TrySendError::Full(event))) => {
                let key = event.key();
                E::log_error(format_args!("{} is {ROOM} events behind and is not called for lock {key:?}", E::HOOK));
            }
            Ok(_) => {}
        }
    }

    /// Returns the way to the callback's thread. The first event starts the thread.
    fn sender(&self) -> io::Result<Sender<E>> {
        let mut line = self.line.lock();
        if let Some(sender) = &*line {
            return Ok(sender.clone());
        }
        let (sender, events) = bounded(ROOM);
        let told = Arc::clone(&self.told);
        thread::Builder::new().name(E::THREAD.to_owned()).spawn(move || tell_all(&*told, &events))?;
        Ok(line.insert(sender).clone())
    }

    fn end(&self) {
        *self.line.lock() = None;
    }
}

fn tell_all<E: Event>(told: &Told<E>, events: &Receiver<E>) {
    for event in events {
        if catch_panic(|| told(&event)).is_err() {
            E::log_error(format_args!("{} panicked when it was called for lock {:?}", E::HOOK, event.key()));
        }
    }
}

impl<E> fmt::Debug for Hook<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}
