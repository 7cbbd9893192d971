//! The thread `dlock-listen`: it keeps the inbox open, and does what a message asks for. So a waiter learns of its grant without polling.
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

use super::describe::{self, Heard};
use super::parts::Parts;
use super::subscription::Subscribed;
use super::twin;
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::port::{Grant, Inbox, Message};
use crate::state::key::Key;
use crate::state::machine::Phase;
use crate::sync::catch_panic;
use crate::timing;
use std::sync::{Arc, Weak};

/// The work of the thread: subscribes, and receives messages until the inbox breaks. Returns when to subscribe again, or `None` if the client
/// is gone or stops listening.
pub(super) fn listen(parts: &Weak<Parts>) -> Option<Moment> {
    let strong = parts.upgrade()?;
    let (subscription, clock) = (Arc::clone(&strong.subscription), strong.core.clock.clone());
    let asked_at = clock.now();
    subscription.note_begin();
    let client = strong.core.id.current().as_str();
    match strong.core.processor.queue()?.open_inbox(client, timing::SUBSCRIBE_LIMIT) {
        Ok(mut inbox) => {
            if !subscription.register(&*inbox, clock.now()) {
                return None;
            }
            // Until the inbox was registered, it could not be cut for a new identity.
            if strong.core.id.current().as_str() != client {
                return Some(asked_at);
            }
            live(strong, parts, &mut *inbox);
        }
        Err(error) => {
            if subscription.note_failure() {
                log::warn!(HAND_OVER, "cannot subscribe, falling back to polling: {error}");
            }
        }
    }
    let pause = subscription.note_end(clock.now());
    Some(clock.pause_begins(asked_at) + pause)
}

/// The life of an open inbox.
fn live(strong: Arc<Parts>, parts: &Weak<Parts>, inbox: &mut dyn Inbox) {
    let subscription = Arc::clone(&strong.subscription);
    // This comes before tenures may linger. Later, it would recall a tenure that lingers, and `try_lock` would find the lock busy meanwhile. A tenure
    // that begins from here on misses no message.
    may_have_missed(&strong);
    let subscribed = Subscribed::on(&subscription);
    // Ask for keys that were granted or freed while the client did not listen.
    strong.retries.ask_about_all(&strong.core.keys);
    let broken = catch_panic(|| {
        if strong.record.is_on {
            describe::hear_questions(&strong.core, &strong.subscription);
        }
        twin::greet(&strong);
        drop(strong);
        hear(inbox, parts)
    });
    drop(subscribed);
    // Without an inbox, the client would not learn that others want a lingering tenure.
    if let Some(parts) = parts.upgrade() {
        may_have_missed(&parts);
        parts.retries.ask_about_all(&parts.core.keys);
    }
    match broken {
        Some(Some(_)) if subscription.is_stopped() => log::debug!(HAND_OVER, "unsubscribed: the client is closing"),
        Some(Some(error)) => log::info!(HAND_OVER, "{error}; subscribing again"),
        Some(None) => {}
        // The panic came from a store or from the log. Missed grants are asked for once the client is
        // subscribed again.
        None => log::error!(CLIENT, "the thread dlock-listen has caught a panic; please report it"),
    }
}

/// Makes all holders assume that others wait.
fn may_have_missed(parts: &Parts) {
    let now = parts.core.clock.now();
    parts.core.keys.all().iter().for_each(|key| key.state.lock().note_missed(now));
}

/// Receives messages until the inbox breaks or the client is gone.
fn hear(inbox: &mut dyn Inbox, parts: &Weak<Parts>) -> Option<Error> {
    loop {
        match inbox.next(timing::LISTEN) {
            Ok(message) => {
                let strong = parts.upgrade()?;
                if let Some(message) = message {
                    on_message(&strong, &message);
                }
            }
            Err(error) => return Some(error),
        }
    }
}

/// Handles a message.
fn on_message(parts: &Parts, message: &Message) {
    match message {
        Message::Granted { key, locker, grant } => {
            let known = parts.core.keys.known(key);
            if known.is_some_and(|key| on_granted(parts, &key, locker, *grant)) || !parts.core.is_ours(locker) {
                return;
            }
            // A grant to a copy of this process is not given up. The message alone does not prove that there is a copy, because any program
            // may have sent it. A locker that has another key is not given up either: on a consensus store, that would end the session that
            // holds that key.
            let is_of_another_key = || parts.core.keys.all().iter().any(|key| key.state.lock().has(locker));
            if !parts.core.id.current().is_of_twin(locker) && !is_of_another_key() {
                // The locker was given up while the grant was on its way, or the grant is long outdated.
                parts.retries.give_up_grant(key, &Arc::from(locker.as_str()));
            }
        }
        Message::Contended { key, locker } => {
            if let Some(key) = parts.core.keys.known(key) {
                on_contended(parts, &key, locker);
            }
        }
        Message::Broken { key, locker } => {
            if let Some(key) = parts.core.keys.known(key) {
                on_broken(parts, &key, locker);
            }
        }
        Message::Said { text } => on_said(parts, text),
        Message::Changed { key: Some(key) } => {
            if let Some(key) = parts.core.keys.known(key) {
                ask_again_now(parts, &key);
            }
        }
        Message::Changed { key: None } => {
            may_have_missed(parts);
            parts.retries.ask_about_all(&parts.core.keys);
        }
        Message::ChangedAmong { keys } => {
            parts
                .core
                .keys
                .all()
                .iter()
                .filter(|key| keys.matches(&key.name))
                .for_each(|key| ask_again_now(parts, key));
        }
    }
}

/// Makes a key due for the retry thread now if threads wait for it, and makes its holder assume that others wait.
fn ask_again_now(parts: &Parts, key: &Arc<Key>) {
    let mut state = key.state.lock();
    let now = parts.core.clock.now();
    state.note_missed(now);
    state.note_change();
    if matches!(state.phase, Phase::Waiting { .. }) || state.is_recalled() {
        parts.retries.ask_at(key, now);
    }
}

/// Handles a grant that the inbox received. Returns `false` if the locker does not belong to this key.
fn on_granted(parts: &Parts, key: &Arc<Key>, locker: &str, grant: Grant) -> bool {
    let mut state = key.state.lock();
    if let Some(about) = state.about_locker(locker) {
        about.heard = Some(grant);
        return true;
    }
    match &mut state.phase {
        Phase::Held(tenure) | Phase::Lingering { tenure, .. } => *tenure.locker == *locker,
        Phase::Releasing { ended: Some(ended), .. } if *ended.locker == *locker => {
            ended.heard = true;
            true
        }
        Phase::Waiting { unsettled } => {
            let Some(granted) = unsettled.take_if(|unsettled| *unsettled.locker == *locker) else {
                return false;
            };
            let Some(waiter) = state.queue.pop_front() else { return false };
            parts.retries.forget(key);
            parts.renewals.grant(key, &mut state, granted.heard(grant), (&waiter).into(), parts.core.clock.now());
            drop(state);
            waiter.wake();
            true
        }
        _ => false,
    }
}

/// Handles the message that others wait for what this locker holds or is about to hold.
fn on_contended(parts: &Parts, key: &Arc<Key>, locker: &str) {
    let mut state = key.state.lock();
    let now = parts.core.clock.now();
    if let Some(tenure) = state.live_tenure(locker) {
        tenure.others.note(1, now);
    } else if let Some(about) = state.about_locker(locker) {
        about.contended = true;
    }
    if state.is_recalled() {
        parts.retries.ask_at(key, now);
    }
}

/// Handles the message that the tenure of this locker was broken: the lease thread asks the store at once, but for one tenure only once a
/// second. The message alone ends no hold. Any program that may publish could have sent it, and a failover may have undone the break.
fn on_broken(parts: &Parts, key: &Arc<Key>, locker: &str) {
    let mut state = key.state.lock();
    let now = parts.core.clock.now();
    if let Some(tenure) = state.live_tenure(locker) {
        tenure.lease.told_broken(now);
        parts.renewals.put(key, tenure);
    } else if let Some(about) = state.about_locker(locker) {
        about.broken = true;
    }
}

/// Handles what another client says.
fn on_said(parts: &Parts, text: &str) {
    match parts.describe.on_said(text) {
        Heard::Question if parts.retries.thread.start().is_ok() => parts.retries.thread.wake_by(parts.core.clock.now()),
        Heard::Greeting(greeting) => twin::on_greeting(parts, &greeting),
        Heard::Question | Heard::Nothing => {}
    }
}
