//! The inbox of a client: whether it hears of grants, of which keys it does, and the thread that listens.

use super::context::Context;
use super::listener::Listener;
use crate::backoff::{Backoff, Cooldown};
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::state::key::Key;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Subscription {
    context: Arc<Context>,
    listener: Listener,
    /// Whether the right to send messages has been checked, or a thread is about to check it.
    // ORDERING: the value alone matters: the swap lets one thread check, and a thread that sees `true` relies on
    // nothing that the other has done. Relaxed would do.
    is_checked: AtomicBool,
    /// Until when that is not checked again, after a check without an answer.
    check_cooldown: Mutex<Cooldown<Moment>>,
}

impl Subscription {
    pub(super) fn new(context: &Arc<Context>, listener: Listener) -> Self {
        Self {
            context: Arc::clone(context),
            listener,
            is_checked: AtomicBool::new(false),
            check_cooldown: Mutex::default(),
        }
    }

    /// Returns whether waiters are handed the lock: by messages between processes, and by one another within this
    /// process.
    pub(crate) fn hands_over(&self) -> bool {
        self.listener.enabled
    }

    /// Returns whether the client receives messages of grants.
    pub(crate) fn is_open(&self) -> bool {
        self.listener.is_subscribed()
    }

    /// Returns whether the thread was started, or never will be.
    pub(super) fn is_started(&self) -> bool {
        self.listener.is_started()
    }

    /// Returns whether the client would hear of a grant of this key now. Only then may its threads wait in the store's
    /// queue.
    pub(crate) fn hears(&self, key: &Key) -> bool {
        let context = &self.context;
        let hears = |client: &str| context.processor.queue().is_some_and(|queue| queue.hears(client, &key.name));
        self.listener.is_subscribed() && hears(context.id().as_str())
    }

    /// Returns whether the client hears of grants of this key, after it has got ready for that. May ask the store.
    pub(crate) fn gets_ready_to_hear(&self, key: &Key, limit: impl FnOnce() -> Duration) -> bool {
        if self.hears(key) || !self.is_open() {
            return self.is_open();
        }
        let client = self.context.id().as_str();
        let ready = self.context.processor.queue().map(|queue| queue.get_ready_to_hear(client, &key.name, limit()));
        if let Some(Err(error)) = ready {
            log::debug!(HAND_OVER, "lock {:?}: not ready to hear grants, polling: {error}", key.name);
        }
        self.hears(key)
    }

    /// Starts the thread if necessary, and gets ready to hear of this key, without waiting for that.
    pub(crate) fn listen_for(&self, key: &Key) {
        self.listen();
        if self.is_open() && !self.hears(key) {
            self.gets_ready_to_hear(key, || Duration::ZERO);
        }
    }

    /// Starts the thread if necessary. Until it is subscribed, and if that fails, waiting threads poll.
    pub(crate) fn listen(&self) {
        if self.listener.is_started() || self.context.process.is_forked() {
            return;
        }
        if let Err(error) = self.listener.start() {
            log::error!(HAND_OVER, "cannot start the listener, falling back to polling: {error}");
        }
    }

    /// Checks the right to send messages to other processes, once; later calls are cheap. A check without an answer is repeated after a
    /// pause, so that a server that does not answer delays no other lock each time.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if messages may not be sent; [`Error::Forked`]. It is not an error here that the store cannot be reached.
    pub(crate) fn check(&self, key: &str, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        // ORDERING: the flag alone matters, here and below: see `is_checked`.
        if self.is_checked.load(Ordering::Acquire) || !self.hands_over() {
            return Ok(());
        }
        let Some(queue) = self.context.processor.queue() else { return Ok(()) };
        self.context.process.check()?;
        let clock = &self.context.clock;
        // ORDERING: as above; of two threads that see that the cool-down is over one checks.
        if self.check_cooldown.lock().lasts(clock.now()) || self.is_checked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let checked = queue.check_inbox(self.context.id().as_str(), key, limit());
        if let Err(error) = &checked {
            if !matches!(error, Error::Denied { .. }) {
                self.check_cooldown.lock().fail(clock.now(), Backoff::constant(timing::CHECK_PAUSE));
            }
            // ORDERING: as above.
            self.is_checked.store(false, Ordering::Release);
        }
        match checked {
            Err(error @ Error::Denied { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the pause before the next attempt to subscribe: another server answers now.
    pub(super) fn hasten(&self) {
        self.listener.hasten();
    }

    /// Has the thread subscribe again: the client has another identity.
    pub(super) fn reopen(&self) {
        self.listener.reopen();
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        self.listener.stop();
    }
}
