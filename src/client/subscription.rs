//! The inbox of a client: whether the client hears of grants, and for which keys; the thread `dlock-listen`; and what the client does with
//! a message. So a waiter learns of its grant without polling.
//!
//! A message is a hint. If a message is lost, the retry thread finds out what it said. So the listening thread may start late, lose its
//! subscription, or be switched off: that changes only latency and the order across processes. While it is not subscribed, the client's
//! threads wait outside the store's queue, because the store would pass over a waiter that does not listen, and drop it as dead.
//!
//! A message is compared with what the client knows of the locker that it names. A grant is taken up if a tenure waits for it. It is kept
//! if it has overtaken the reply to a request in flight. It is ignored if the tenure has the key already, and released if no thread of this
//! client wants it.
//!
//! A grant may also name a tenure that is being released. The grant may be later than the release, so the release is repeated, but only
//! after it is answered. Usually that grant is the one with which the tenure began. If the repetition were sent earlier and arrived first,
//! it would end the tenure, and the reply to the release itself would report a loss.
//!
//! # What can cross, and why it does no harm
//!
//! A message and an answer about the same locker arrive on two connections. The tenure begins once, whichever of the two arrives first:
//!
//! | crossing | why it is right |
//! |---|---|
//! | The grant is received before the answer "you wait" is read | The grant is kept with the question (`About`), and looked at when the answer is read. |
//! | … or after the answer is read, before the thread has settled to wait | The grant is looked at again under the mutex under which the phase changes to `Waiting`. (Otherwise the grant would belong to no known locker and would be released, and the lock would pass over the thread to which it was granted.) |
//! | The retry thread's poll finds the key ours, and the grant is received later | The grant's locker is that of the tenure that is held, or has ended. The grant is ignored, or the locker is released once more, which does nothing. |
//! | A grant is received for a locker whose release is under way | The grant may be later than the release, so the locker is released once more when the release is answered, or posted. (Mostly it is the grant by which the tenure began, received after the retry thread's poll. If the release were repeated earlier, the repetition would end the tenure, and the release itself would be answered "not ours": a false loss.) |
//! | The last local waiter gives up, and the grant is on its way | The locker is on the clean-up list; its release passes the key on, whether it finds the locker in the queue or holding. When the grant arrives, no thread of this client wants it, and it is released. |
//! | `contended` is received before the answer that made the key ours | It is kept with the question, too. |
//! | A grant is read long after it was given | Its lease counts from the sending of the last question that was answered "you wait" (before any answer: from the first sending). The grant can only be later. If little of the lease is left, it is extended before `lock()` returns; if the lease is over, the tenure is given up before that. |
//! | `broken` is received, and the store still says "ours" | The message is a hint: the lease thread probes at once, for one tenure once a second at most, and only the answer ends the hold. After a failover that has lost the break, the hold goes on. |
//! | `broken` is lost, or the client does not listen | The next probe finds that the key is free or has another holder, and the client asks by whom the hold was broken. |
//! | A client is dead, and no one receives the message | Its inbox has no subscriber: the script sees that by `NUMSUB`, and passes the client over in the same call. A stopped client that still has a subscription is granted the key, which costs its lease once. Then the polls of the others hand the key on. |
//! | The subscription is broken for a while | The client's lockers are passed over and keep their places, are dropped as dead after a second, or are granted without the client's knowledge. When it subscribes again, all waiting keys are polled at once (waiting, `gone`, or ours), and what is held counts as contended. |
//! | All subscriptions are broken at once, as at a failover | No waiter has a subscriber, so a released key becomes free. The client that asks first gets it, and all others keep their places. Each client's polls come when its subscription breaks and when it is back. |
//!
//! *Why no waiter is forgotten*: a locker leaves the queue in four ways. It is granted the key; it is released by its client; the queue
//! expires, two leases after its last poll; or it has been unheard for a second. In the last two cases the client's next poll is answered
//! `gone`, and the client asks again. If the message of a grant is lost, the client's own poll finds the grant, at most lease/6 later. If
//! the client is gone, the grant ends with its lease, and then the poll of any waiter hands the key on. So a waiter's progress needs no
//! message at all, only its own retry thread.
//!
//! *Why no two clients hold the key*: the key has one value. A client believes that it holds the key only after a script has succeeded, and
//! counts the lease from before that script was sent. A locker is never sent by two acquires, so no late command can bring an ended tenure
//! back.

use super::core::Core;
use super::describe::{self, Heard};
use super::twin;
use super::worker::{Process, Worker};
use crate::backoff::{Backoff, Cooldown};
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::port::{Grant, Inbox, InboxBreaker, Message};
use crate::state::key::Key;
use crate::state::machine::Phase;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, catch_panic};
use crate::timer::Timer;
use crate::timing;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// See the module. The thread is started when a thread of the program first has to wait, a tenure may linger, a lock has a reason, or a lock is
/// described.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Whether the client listens at all. Waiters are then handed the lock: by messages between processes, and by one another within this
    /// process.
    pub(super) hands_over: bool,
    thread: Worker,
    // ORDERING: `Subscribed::on` stores `true` with Release after the store has opened the inbox; `is_open` loads
    // it with Acquire. So a thread that sees `true` asks for a place in the store's queue after the inbox was opened.
    subscribed: AtomicBool,
    /// Whether the right to send messages has been checked, or a thread is about to check it.
    // ORDERING: the value alone matters: the swap lets one thread check, and a thread that sees `true` relies on
    // nothing that the other has done. Relaxed would do.
    is_checked: AtomicBool,
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    is_stopped: bool,
    early: Early,
    /// How many attempts to subscribe have failed in a row.
    failures: u32,
    /// Cuts the inbox, while there is one.
    breaker: Option<Box<dyn InboxBreaker>>,
    /// The pause before the right to send messages is checked again, after a check without an answer.
    check_cooldown: Cooldown<Moment>,
}

/// Whether an attempt to subscribe comes early, because another server answers. The attempt after an early one never comes early.
/// Otherwise, where servers do not say who they are, each failed attempt would hasten the next one, because each of its connections counts
/// as one to another server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Early {
    #[default]
    No,
    Next,
    Last,
}

impl std::fmt::Debug for InboxState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxState").field("is_stopped", &self.is_stopped).finish_non_exhaustive()
    }
}

impl Subscription {
    pub(super) fn new(hands_over: bool, clock: &Timer, process: Process, core: &Weak<Core>) -> Self {
        let core = Weak::clone(core);
        Self {
            hands_over,
            thread: Worker::listening("dlock-listen", clock, process, move |_| listen(&core)),
            subscribed: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Returns whether the client receives messages of grants. Threads may then wait in the store's queue.
    pub(crate) fn is_open(&self) -> bool {
        self.subscribed.load(Ordering::Acquire) // ORDERING: pairs with `Subscribed::on`: the inbox is open.
    }

    /// Returns whether the thread was started, or never will be.
    pub(super) fn is_started(&self) -> bool {
        !self.hands_over || self.thread.is_started()
    }

    /// Returns whether the client would hear of a grant of this key now. Only then may its threads wait in the store's
    /// queue.
    pub(crate) fn hears(&self, core: &Core, key: &Key) -> bool {
        let hears = |client: &str| core.processor.queue().is_some_and(|queue| queue.hears(client, &key.name));
        self.is_open() && hears(core.id.current().as_str())
    }

    /// Returns whether the client hears of grants of this key, after it has got ready for that. May ask the store.
    pub(crate) fn gets_ready_to_hear(&self, core: &Core, key: &Key, limit: impl FnOnce() -> Duration) -> bool {
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
        self.gets_ready_to_hear(core, key, || Duration::ZERO);
    }

    /// Starts the thread if necessary. Until it is subscribed, and if that fails, waiting threads poll.
    pub(crate) fn listen(&self, core: &Core) {
        if self.is_started() || core.process.is_forked() {
            return;
        }
        match self.thread.start() {
            Ok(true) => self.thread.wake_by(core.clock.now()),
            Ok(false) | Err(Error::ShutDown) => {}
            Err(error) => log::error!(HAND_OVER, "cannot start the listener, falling back to polling: {error}"),
        }
    }

    /// Checks the right to send messages to other processes, once; later calls are cheap. A check without an answer is repeated after a
    /// pause, so that a server that does not answer delays no other lock each time.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if messages may not be sent; [`Error::Forked`]. It is not an error here that the store cannot be reached.
    pub(crate) fn check(&self, core: &Core, key: &str, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        // ORDERING: the flag alone matters, here and below: see `is_checked`.
        if self.is_checked.load(Ordering::Acquire) || !self.hands_over {
            return Ok(());
        }
        let Some(queue) = core.processor.queue() else { return Ok(()) };
        core.process.check()?;
        let is_too_early = self.state.lock().check_cooldown.lasts(core.clock.now());
        // ORDERING: as above; of two threads that see that the cool-down is over one checks.
        if is_too_early || self.is_checked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let checked = queue.check_inbox(core.id.current().as_str(), key, limit());
        if let Err(error) = &checked {
            if !matches!(error, Error::Denied { .. }) {
                let pause = Backoff::constant(timing::CHECK_PAUSE);
                self.state.lock().check_cooldown.fail(core.clock.now(), pause);
            }
            // ORDERING: as above.
            self.is_checked.store(false, Ordering::Release);
        }
        match checked {
            Err(error @ Error::Denied { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the pause before the next attempt to subscribe: another server answers now. If there is no pause, the next
    /// one does not begin.
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

    /// The life of an open inbox.
    fn live(&self, strong: Arc<Core>, core: &Weak<Core>, inbox: &mut dyn Inbox) {
        let subscribed = Subscribed::on(self);
        // Ask for keys that were granted or freed while the client did not listen.
        strong.retries.ask_about_all(&strong);
        let broken = catch_panic(|| {
            if strong.record.is_on() {
                describe::hear_questions(&strong);
            }
            twin::greet(&strong);
            drop(strong);
            hear(inbox, core)
        });
        drop(subscribed);
        // Without an inbox, the client would not learn that others want a lingering tenure.
        if let Some(core) = core.upgrade() {
            core.retries.ask_about_all(&core);
        }
        match broken {
            Some(Some(_)) if self.is_stopped() => log::debug!(HAND_OVER, "unsubscribed: the client is closing"),
            Some(Some(error)) => log::info!(HAND_OVER, "{error}; subscribing again"),
            Some(None) => {}
            // The panic came from a store or from the log. Missed grants are asked for once the client is
            // subscribed again.
            None => log::error!(CLIENT, "the thread dlock-listen has caught a panic; please report it"),
        }
    }

    /// Registers the inbox's breaker, so that a stopping thread can cut the inbox. Returns `false` if the thread is
    /// already told to end.
    fn register(&self, inbox: &dyn Inbox) -> bool {
        let mut state = self.state.lock();
        (state.early, state.failures) = (Early::No, 0);
        if !state.is_stopped {
            state.breaker = Some(inbox.breaker());
        }
        !state.is_stopped
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }
}

/// The duration of a subscription, which a panic ends, too.
struct Subscribed<'a>(&'a Subscription);

impl<'a> Subscribed<'a> {
    fn on(subscription: &'a Subscription) -> Self {
        subscription.subscribed.store(true, Ordering::Release); // ORDERING: pairs with `Subscription::is_open`.
        Self(subscription)
    }
}

impl Drop for Subscribed<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed would do: a thread that still sees `true` is passed over in the store's queue, or dropped, and
        // its next poll says so.
        self.0.subscribed.store(false, Ordering::Release);
    }
}

/// The work of the thread: subscribes, and receives messages until the inbox breaks. Returns when to subscribe again, or `None` if the client
/// is gone or stops listening.
fn listen(core: &Weak<Core>) -> Option<Moment> {
    let strong = core.upgrade()?;
    let (this, clock) = (Arc::clone(&strong.subscription), strong.clock.clone());
    let asked_at = clock.now();
    let mut state = this.state.lock();
    state.early = if state.early == Early::Next { Early::Last } else { Early::No };
    drop(state);
    let client = strong.id.current().as_str();
    match strong.processor.queue()?.open_inbox(client, timing::SUBSCRIBE_LIMIT) {
        Ok(mut inbox) => {
            if !this.register(&*inbox) {
                return None;
            }
            // Until the inbox was registered, it could not be cut for a new identity.
            if strong.id.current().as_str() != client {
                return Some(asked_at);
            }
            this.live(strong, core, &mut *inbox);
        }
        Err(error) => {
            let mut state = this.state.lock();
            state.failures += 1;
            let is_told = state.failures == 1 && !state.is_stopped;
            drop(state);
            if is_told {
                log::warn!(HAND_OVER, "cannot subscribe, falling back to polling: {error}");
            }
        }
    }
    let mut state = this.state.lock();
    state.breaker = None;
    let pause = timing::retries(timing::LONGEST_RETRY_PAUSE).after(state.failures);
    Some(clock.pause_begins(asked_at) + pause)
}

/// Receives messages until the inbox breaks or the client is gone.
fn hear(inbox: &mut dyn Inbox, core: &Weak<Core>) -> Option<Error> {
    loop {
        match inbox.next(timing::LISTEN) {
            Ok(message) => {
                let strong = core.upgrade()?;
                if let Some(message) = message {
                    on_message(&strong, &message);
                }
            }
            Err(error) => return Some(error),
        }
    }
}

/// Handles a message.
fn on_message(core: &Core, message: &Message) {
    match message {
        Message::Granted { key, locker, grant } => {
            let known = core.keys.known(key);
            if known.is_some_and(|key| on_granted(core, &key, locker, *grant)) || !core.is_ours(locker) {
                return;
            }
            // A grant to a copy of this process is not given up. The message alone does not prove that there is a copy, because any program
            // may have sent it. A locker that has another key is not given up either: on a consensus store, that would end the session that
            // holds that key.
            let is_of_another_key = || core.keys.all().iter().any(|key| key.state.lock().has(locker));
            if !core.id.current().is_of_twin(locker) && !is_of_another_key() {
                // The locker was given up while the grant was on its way, or the grant is long outdated.
                core.releases.give_up_grant(core, key, &Arc::from(locker.as_str()));
            }
        }
        Message::Contended { key, locker } => {
            if let Some(key) = core.keys.known(key) {
                on_contended(core, &key, locker);
            }
        }
        Message::Broken { key, locker } => {
            if let Some(key) = core.keys.known(key) {
                on_broken(core, &key, locker);
            }
        }
        Message::Said { text } => on_said(core, text),
        Message::Changed { key: Some(key) } => {
            if let Some(key) = core.keys.known(key) {
                ask_again_now(core, &key);
            }
        }
        Message::Changed { key: None } => core.retries.ask_about_all(core),
        Message::ChangedAmong { keys } => {
            core.keys.all().iter().filter(|key| keys.matches(&key.name)).for_each(|key| ask_again_now(core, key));
        }
    }
}

/// Makes a key due for the retry thread now if threads wait for it, and makes its holder assume that others wait.
fn ask_again_now(core: &Core, key: &Arc<Key>) {
    let mut state = key.state.lock();
    let now = core.clock.now();
    state.note_change(now);
    if matches!(state.phase, Phase::Waiting { .. }) || state.is_recalled() {
        core.retries.ask_at(key, now);
    }
}

/// Handles a grant that the inbox received. Returns `false` if the locker does not belong to this key.
fn on_granted(core: &Core, key: &Arc<Key>, locker: &str, grant: Grant) -> bool {
    let mut state = key.state.lock();
    match &mut state.phase {
        Phase::Held(tenure) | Phase::Lingering { tenure, .. } => *tenure.locker == *locker,
        Phase::Asking { about: Some(about), .. } | Phase::Releasing { about: Some(about), .. }
            if *about.locker == *locker =>
        {
            about.heard = Some(grant);
            true
        }
        Phase::Releasing { ended: Some(ended), .. } if *ended.locker == *locker => {
            ended.heard = true;
            true
        }
        Phase::Waiting { unsettled } => {
            let Some(granted) = unsettled.take_if(|unsettled| *unsettled.locker == *locker) else {
                return false;
            };
            let Some(waiter) = state.queue.pop_front() else { return false };
            core.retries.forget(key);
            core.grant(key, &mut state, granted.heard(grant), (&waiter).into(), core.clock.now());
            drop(state);
            waiter.parked.notify_one();
            true
        }
        _ => false,
    }
}

/// Handles the message that others wait for what this locker holds or is about to hold.
fn on_contended(core: &Core, key: &Arc<Key>, locker: &str) {
    let mut state = key.state.lock();
    let now = core.clock.now();
    if let Some(tenure) = state.live_tenure(locker) {
        tenure.note_waiting(1, now);
    } else if let Phase::Asking { about: Some(about), .. } | Phase::Releasing { about: Some(about), .. } =
        &mut state.phase
        && *about.locker == *locker
    {
        about.contended = true;
    }
    if state.is_recalled() {
        core.retries.ask_at(key, now);
    }
}

/// Handles the message that the tenure of this locker was broken: the lease thread asks the store at once, but for one tenure only once a
/// second. The message alone ends no hold. Any program that may publish could have sent it, and a failover may have undone the break.
fn on_broken(core: &Core, key: &Arc<Key>, locker: &str) {
    let mut state = key.state.lock();
    let now = core.clock.now();
    if let Some(tenure) = state.live_tenure(locker) {
        tenure.lease.told_broken(now);
        core.renewals.put(key, tenure);
    } else if let Phase::Asking { about: Some(about), .. } | Phase::Releasing { about: Some(about), .. } =
        &mut state.phase
        && *about.locker == *locker
    {
        about.broken = true;
    }
}

/// Handles what another client says.
fn on_said(core: &Core, text: &str) {
    match core.describe.on_said(text) {
        Heard::Question if core.retries.thread.start().is_ok() => core.retries.thread.wake_by(core.clock.now()),
        Heard::Greeting(greeting) => twin::on_greeting(core, &greeting),
        Heard::Question | Heard::Nothing => {}
    }
}
