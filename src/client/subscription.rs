//! The inbox of a client: whether the client hears of grants, and for which keys. What the thread `dlock-listen` does, and what the client does
//! with a message, stands in [`listen_thread`](super::listen_thread).

use super::core::Core;
use super::worker::Worker;
use crate::backoff::{Backoff, Cooldown};
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::port::{Inbox, InboxBreaker};
use crate::state::key::Key;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timing;
use std::time::Duration;

/// See the module. The thread is started when a thread of the program first has to wait, a tenure may linger, a lock has a reason, or a lock is
/// described.
pub(crate) struct Subscription {
    thread: Worker,
    // ORDERING: `Subscribed::on` stores `true` with Release after the store has opened the inbox; `is_open` loads
    // it with Acquire. So a thread that sees `true` asks for a place in the store's queue after the inbox was opened.
    subscribed: AtomicBool,
    /// Whether the right to send messages has been checked, or a thread is about to check it.
    // ORDERING: the value alone matters: the swap lets one thread check, and a thread that sees `true` relies on
    // nothing that the other has done. So Relaxed is enough.
    is_checked: AtomicBool,
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    is_stopped: bool,
    early: Early,
    /// How many attempts to subscribe have failed in a row.
    failures: u32,
    /// How many inboxes in a row have ended soon after they were opened.
    brief: u32,
    /// When the inbox was opened.
    opened: Option<Moment>,
    /// Cuts the inbox, while there is one.
    breaker: Option<Box<dyn InboxBreaker>>,
    /// The pause before the right to send messages is checked again, after a check without an answer.
    check_cooldown: Cooldown<Moment>,
}

/// Whether an attempt to subscribe comes early, because another server answers. The attempt after an early one never comes early.
/// Otherwise, where servers do not say who they are, each attempt that fails, or whose inbox ends at once, would hasten the next one, because each
/// of its connections counts as one to another server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Early {
    #[default]
    No,
    Next,
    Last,
}

impl Subscription {
    pub(super) fn new(thread: Worker) -> Self {
        Self { thread, subscribed: AtomicBool::new(false), is_checked: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Returns whether the client receives messages of grants. Threads may then wait in the store's queue.
    pub(crate) fn is_open(&self) -> bool {
        self.subscribed.load(Ordering::Acquire) // ORDERING: pairs with `Subscribed::on`: the inbox is open.
    }

    /// Returns whether the thread was started, or never will be.
    pub(super) fn is_started(&self, core: &Core) -> bool {
        !core.hands_over || self.thread.is_started()
    }

    /// Returns whether the client would hear of a grant of this key now. Only then may its threads wait in the store's
    /// queue.
    pub(crate) fn hears(&self, core: &Core, key: &Key) -> bool {
        let hears = |client: &str| core.processor.queue().is_some_and(|queue| queue.hears(client, &key.name));
        self.is_open() && hears(core.id.current().as_str())
    }

    /// Returns whether the client hears of grants of this key, after it has got ready for that. May ask the store.
    pub(crate) fn get_ready_to_hear(&self, core: &Core, key: &Key, limit: impl FnOnce() -> Duration) -> bool {
        if !self.is_open() || self.hears(core, key) {
            return self.is_open();
        }
        let client = core.id.current().as_str();
        let ready = core.processor.queue().map(|queue| queue.get_ready_to_hear(client, &key.name, limit()));
        if let Some(Err(error)) = ready {
            log::debug!(HAND_OVER, "lock {:?}: not ready to hear grants, polling: {error}", key.name);
        }
        self.hears(core, key)
    }

    /// Starts the thread if necessary, and gets ready to hear of this key, without waiting for that.
    pub(crate) fn listen_for(&self, core: &Core, key: &Key) {
        self.listen(core);
        self.get_ready_to_hear(core, key, || Duration::ZERO);
    }

    /// Starts the thread if necessary. Until it is subscribed, and if that fails, waiting threads poll.
    pub(crate) fn listen(&self, core: &Core) {
        if self.is_started(core) || core.process.is_forked() {
            return;
        }
        match self.thread.start() {
            Ok(true) => self.thread.wake_by(core.clock.now()),
            Ok(false) | Err(Error::ShutDown) => {}
            Err(error) => log::error!(HAND_OVER, "cannot start the listener, falling back to polling: {error}"),
        }
    }

    /// Checks the right to send messages to other processes, once; later calls are cheap. A check without an answer is repeated after a pause,
    /// so that a server that does not answer delays no other lock each time. Fails with [`Error::Denied`] if messages may not be sent, or with
    /// [`Error::Forked`]. It is not an error here that the store cannot be reached.
    pub(crate) fn check(&self, core: &Core, key: &str, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        // ORDERING: the flag alone matters, here and below: see `is_checked`.
        if self.is_checked.load(Ordering::Relaxed) || !core.hands_over {
            return Ok(());
        }
        let Some(queue) = core.processor.queue() else { return Ok(()) };
        core.process.check()?;
        let is_too_early = self.state.lock().check_cooldown.lasts(core.clock.now());
        // ORDERING: as above; of two threads that see that the cool-down is over one checks.
        if is_too_early || self.is_checked.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let checked = queue.check_inbox(core.id.current().as_str(), key, limit());
        if let Err(error) = &checked {
            if !matches!(error, Error::Denied { .. }) {
                let pause = Backoff::constant(timing::CHECK_PAUSE);
                self.state.lock().check_cooldown.fail(core.clock.now(), pause);
            }
            // ORDERING: as above.
            self.is_checked.store(false, Ordering::Relaxed);
        }
        match checked {
            Err(error @ Error::Denied { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the pause before the next attempt to subscribe, because another server answers now. If there is no pause at the moment, the next pause is
    /// left out.
    pub(super) fn hasten(&self, now: Moment) {
        let mut state = self.state.lock();
        if state.early == Early::No {
            state.early = Early::Next;
            drop(state);
            self.thread.wake_by(now);
        }
    }

    /// Ends the subscription, so that the thread subscribes again: the client has another identity.
    pub(super) fn reopen(&self) {
        if let Some(breaker) = &self.state.lock().breaker {
            breaker.cut();
        }
    }

    /// Ends the thread and waits for it. On that thread itself, only tells it to end.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        if let Some(breaker) = &state.breaker {
            breaker.cut();
        }
        drop(state);
        self.thread.stop();
    }

    /// Notes that the thread begins to subscribe.
    pub(super) fn note_begin(&self) {
        let mut state = self.state.lock();
        state.early = if state.early == Early::Next { Early::Last } else { Early::No };
    }

    /// Notes that an attempt to subscribe has failed. Returns whether the log must say so: it is the first failure in a row.
    pub(super) fn note_failure(&self) -> bool {
        let mut state = self.state.lock();
        state.failures += 1;
        state.failures == 1 && !state.is_stopped
    }

    /// Notes that the thread has no inbox. Returns the pause before it subscribes again. For this pause, an inbox that has ended soon counts as a
    /// failed attempt: a server or a proxy may end each at once.
    pub(super) fn note_end(&self, now: Moment) -> Duration {
        let mut state = self.state.lock();
        state.breaker = None;
        if let Some(opened) = state.opened.take() {
            if now < opened + timing::BRIEF {
                state.brief += 1;
            } else {
                (state.brief, state.early) = (0, Early::No);
            }
        }
        timing::retries(timing::LONGEST_RETRY_PAUSE).after(state.failures.max(state.brief))
    }

    /// Registers the inbox's breaker, so that a stopping thread can cut the inbox. Returns `false` if the thread is
    /// already told to end.
    pub(super) fn register(&self, inbox: &dyn Inbox, now: Moment) -> bool {
        let mut state = self.state.lock();
        (state.failures, state.opened) = (0, Some(now));
        if !state.is_stopped {
            state.breaker = Some(inbox.breaker());
        }
        !state.is_stopped
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }
}

/// The duration of a subscription, which a panic ends, too.
pub(super) struct Subscribed<'a>(&'a Subscription);

impl<'a> Subscribed<'a> {
    pub(super) fn on(subscription: &'a Subscription) -> Self {
        subscription.subscribed.store(true, Ordering::Release); // ORDERING: pairs with `Subscription::is_open`.
        Self(subscription)
    }
}

impl Drop for Subscribed<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed: a thread that still sees `true` is passed over in the store's queue, or dropped, and its next
        // poll says so.
        self.0.subscribed.store(false, Ordering::Relaxed);
    }
}
