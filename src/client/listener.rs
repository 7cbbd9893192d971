//! The listener: one thread per client that receives messages of grants, so that no waiter has to poll for what it
//! was given.
//!
//! A message is a hint. The retry thread finds out whatever gets lost. So the listener may start late, break, or be
//! switched off; that changes only latency and the order across processes. While it is not subscribed, the client's
//! threads wait outside the store's queue: the store would pass over a waiter that does not listen, and drop it as dead.

use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::port::{Inbox, InboxBreaker};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, before_notifying};
use crate::timer::{Registration, Sleeper, Timer};
use std::sync::{Arc, Weak};

/// The work of the thread: it listens for its subject until it is told to end or the subject is gone.
pub(crate) type Listen<S> = fn(&InboxControl, &Weak<S>, &Timer);

/// The same for the listener's own subject.
type ListenLoop = dyn Fn(&InboxControl, &Timer) + Send + Sync;

/// The listener thread of a client, started when a thread first has to wait or a tenure may linger.
pub(crate) struct Listener {
    /// Whether the client listens at all.
    pub(super) enabled: bool,
    clock: Timer,
    listen: Arc<ListenLoop>,
    /// What the thread shares with the others.
    control: Arc<InboxControl>,
    _woken: Option<Registration>,
    // ORDERING: Relaxed would do: it saves taking the mutex of `control`, under which it is set, and nothing is read
    // through it.
    started: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct InboxControl {
    // ORDERING: `Subscribed::on` stores `true` with Release after the store has opened the inbox; `is_subscribed` loads
    // it with Acquire. So a thread that sees `true` asks for a place in the store's queue after the inbox was opened.
    subscribed: AtomicBool,
    state: Mutex<ControlState>,
    stopped: Condvar,
}

#[derive(Default)]
struct ControlState {
    stop: bool,
    /// Whether the pause before the next attempt ends at once.
    is_hastened: bool,
    /// When the pause before the next attempt ends, while there is one.
    pause_ends: Option<Moment>,
    breaker: Option<Box<dyn InboxBreaker>>,
    /// The thread, from its start until somebody waits for its end.
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for ControlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlState").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Listener {
    /// Prepares the thread of a subject, if it may be started at all.
    pub(crate) fn new<S: Send + Sync + 'static>(
        enabled: bool,
        clock: Timer,
        subject: &Weak<S>,
        listen: Listen<S>,
    ) -> Self {
        let control = Arc::<InboxControl>::default();
        let subject = Weak::clone(subject);
        Self {
            enabled,
            _woken: clock.register(|| Arc::clone(&control) as Arc<dyn Sleeper>),
            clock,
            listen: Arc::new(move |control, clock| listen(control, &subject, clock)),
            control,
            started: AtomicBool::new(false),
        }
    }

    /// Returns whether messages of grants are received. Threads may then wait in the store's queue.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.control.subscribed.load(Ordering::Acquire) // ORDERING: pairs with `Subscribed::on`: the inbox is open.
    }

    /// Returns whether there is nothing to start.
    pub(crate) fn is_started(&self) -> bool {
        !self.enabled || self.started.load(Ordering::Acquire) // ORDERING: a hint: see `started`.
    }

    /// Starts the thread, unless it was started before or is switched off.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the operating system refuses a thread. Waiting works without it.
    pub(crate) fn start(&self) -> Result<(), Error> {
        // ORDERING: a hint: see `started`.
        if !self.enabled || self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.control.state.lock();
        if state.thread.is_none() && !state.stop {
            let (control, listen, clock) = (Arc::clone(&self.control), Arc::clone(&self.listen), self.clock.clone());
            let spawned = thread::Builder::new()
                .name("dlock-listen".to_owned())
                .spawn(move || listen(&control, &clock))
                .map_err(|e| {
                    let message = format!("the operating system refused the thread dlock-listen: {e}");
                    Error::backend_caused_by(BackendFailure::NotExecuted, message, e)
                })?;
            state.thread = Some(spawned);
        }
        self.started.store(true, Ordering::Release); // ORDERING: under the mutex of `control`: see `started`.
        Ok(())
    }

    /// Ends the pause before the next attempt to subscribe: another server answers now. If there is no pause, the next
    /// one does not begin.
    pub(crate) fn hasten(&self) {
        self.control.state.lock().is_hastened = true;
        self.control.stopped.notify_all();
    }

    /// Ends the subscription, so that the thread subscribes again: the client has another identity.
    pub(crate) fn reopen(&self) {
        if let Some(breaker) = &self.control.state.lock().breaker {
            breaker.cut();
        }
    }

    /// Ends the thread and waits for it. On that thread itself, only tells it to end.
    pub(crate) fn stop(&self) {
        let mut state = self.control.state.lock();
        state.stop = true;
        if let Some(breaker) = &state.breaker {
            breaker.cut();
        }
        let handle = state.thread.take_if(|handle| handle.thread().id() != thread::current().id());
        drop(state);
        self.control.stopped.notify_all();
        if handle.is_some_and(|handle| handle.join().is_err()) {
            log::error!(CLIENT, "the thread dlock-listen ended by a panic; please report it");
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("enabled", &self.enabled)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

impl InboxControl {
    /// Registers the inbox's breaker, so that a stopping thread can cut the inbox. Returns `false` if the listener is
    /// already stopped.
    pub(super) fn register(&self, inbox: &dyn Inbox) -> bool {
        let mut state = self.state.lock();
        state.is_hastened = false;
        if !state.stop {
            state.breaker = Some(inbox.breaker());
        }
        !state.stop
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits until the next attempt. Returns `false` if stopped. After a pause that was hastened, the next one is not:
    /// where servers do not say who they are, each attempt in vain would hasten the next one.
    pub(super) fn pause(&self, clock: &Timer, until: Moment, was_hastened: &mut bool) -> bool {
        let may_hasten = !std::mem::take(was_hastened);
        let mut state = self.state.lock();
        state.breaker = None;
        state.pause_ends = Some(until);
        while !state.stop {
            if may_hasten && std::mem::take(&mut state.is_hastened) {
                state.pause_ends = None;
                *was_hastened = true;
                return true;
            }
            let now = clock.now();
            if until <= now {
                (state.is_hastened, state.pause_ends) = (false, None);
                return true;
            }
            self.stopped.wait_for(&mut state, clock.sleep(until, now));
        }
        state.pause_ends = None;
        false
    }
}

impl Sleeper for InboxControl {
    fn wake(&self) {
        before_notifying(&self.state);
        self.stopped.notify_all();
    }

    /// A thread that receives messages does so in real time, as the store does that sends them.
    fn sleeps_until(&self) -> Moment {
        self.state.lock().pause_ends.unwrap_or(Moment::NEVER)
    }
}

/// The duration of a subscription, which a panic ends, too.
pub(super) struct Subscribed<'a>(&'a InboxControl);

impl<'a> Subscribed<'a> {
    pub(super) fn on(control: &'a InboxControl) -> Self {
        control.subscribed.store(true, Ordering::Release); // ORDERING: pairs with `Listener::is_subscribed`.
        Self(control)
    }
}

impl Drop for Subscribed<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed would do: a thread that still sees `true` is passed over in the store's queue, or dropped, and
        // its next poll says so.
        self.0.subscribed.store(false, Ordering::Release);
    }
}
