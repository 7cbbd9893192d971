//! The inbox: what a client does about a message, and after a time in which it could not receive any.
//!
//! A message is a hint. It is compared with what the client knows of the locker that it names. A grant is taken up if
//! a tenure waits for it, kept if it has overtaken the reply to a request in flight, ignored if the tenure has it
//! already, and released if nobody here wants it. For a tenure that is being released, the grant may be later than
//! the release, so the release is repeated, but only after it is answered. Usually that grant is the one with which
//! the tenure began. A repetition that arrived first would then take the key away before the release, whose reply
//! would report a loss.
//!
//! # What can cross, and why it does no harm
//!
//! A message and an answer about the same locker come on two connections. Whichever is first, the tenure begins once:
//!
//! | crossing | why it is right |
//! |---|---|
//! | The grant is received before the answer "you wait" is read | The grant is kept with the question (`About`), and looked at when the answer is read. |
//! | … or after the answer is read, before the thread has settled to wait | The grant is looked at again under the mutex under which the phase changes to `Waiting`. (Otherwise the grant would belong to nobody known and be released as a stranger's, and the lock would pass over the thread that had it.) |
//! | The retry thread's poll finds the key ours, and the grant is received later | The grant's locker is that of the tenure that is held, or has ended. The grant is ignored, or the locker is released once more, which does nothing. |
//! | A grant is received for a locker whose release is under way | The grant may be later than the release, so the locker is released once more when the release is answered, or posted. (Mostly it is the grant by which the tenure began, received after the retry thread's poll. If the release were repeated earlier, the repetition would end the tenure, and the release itself would be answered "not ours": a false loss.) |
//! | The last local waiter gives up, and the grant is on its way | The locker is on the clean-up list; its release passes the key on, whether it finds the locker in the queue or holding. When the grant arrives, nobody here wants it, and it is released. |
//! | `contended` is received before the answer that made the key ours | It is kept with the question, too. |
//! | A grant is read long after it was given | Its lease counts from the sending of the last question that was answered "you wait" (before any answer: from the first sending). The grant can only be later. If little of the lease is left, it is extended before `lock()` returns; if the lease is over, the tenure is given up before that. |
//! | `broken` is received, and the store still says "ours" | The message is a hint: the lease thread probes at once, for one tenure once a second at most, and only the answer ends the hold. After a failover that has lost the break, the hold goes on. |
//! | `broken` is lost, or nobody listens | The next probe finds the key gone or another's, and the client asks by whom it was broken. |
//! | A client is dead, and the message reaches nobody | Its inbox has no listener, so `NUMSUB` passes it over, in the same call. A stopped client costs its lease once; then the others' polls hand the key on. |
//! | The subscription is broken for a while | The client's lockers are passed over and keep their places, after a second are dropped as dead, or are granted without its knowledge. When it subscribes again, all waiting keys are polled at once (waiting, `gone`, or ours), and what is held counts as contended. |
//! | All subscriptions are broken at once, as at a failover | Nobody is heard, so a released key is freed. Whoever asks first gets it, and all others keep their places. Each client's polls come when its subscription breaks and when it is back. |
//!
//! *Why no waiter is forgotten*: a locker leaves the queue by a grant, by its own release, by the queue's end two leases after its last
//! poll, or when it has been unheard for a second; its own poll finds the last two (`gone`), and it asks again. A grant that nobody takes up
//! is found by the poll of the same client, at most lease/6 later, or ends with its lease, and then any poll of any waiter hands the key on. So each
//! waiter's progress needs no message at all, only its own retry thread.
//!
//! *Why no two hold*: the key has one value. A client believes that it holds the key only after a script's success, and
//! counts the lease from before that. A locker is never sent by two acquires, so no late command can bring an ended tenure back.

use crate::backoff::Backoff;
use crate::client::core::Core;
use crate::client::describe::Heard;
use crate::client::listener::{InboxControl, Subscribed};
use crate::client::twin;
use crate::error::Error;
use crate::log;
use crate::port::{Grant, Inbox, Message};
use crate::state::key::Key;
use crate::state::machine::Phase;
use crate::sync::catch_panic;
use crate::timer::Timer;
use crate::timing;
use std::sync::{Arc, Weak};

/// Handles a message.
fn on_message(core: &Core, message: &Message) {
    match message {
        Message::Granted { key, locker, grant } => {
            let known = core.keys.known(key);
            if known.is_some_and(|key| on_granted(core, &key, locker, *grant)) || !core.is_ours(locker) {
                return;
            }
            // What a copy of this process was granted is not given up. The message alone shows no copy: anybody may have sent it.
            // A locker that has another key is not given up either: on a consensus store, that would end the session that holds that key.
            let is_of_another_key = || core.keys.all().iter().any(|key| key.state.lock().has(locker));
            if !core.id().is_of_twin(locker) && !is_of_another_key() {
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
        Message::Changed { key: None } => core.retries.ask_about_all(),
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
            let Some(waiter) = state.queue.pop() else { return false };
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
/// second. The message alone ends nothing. Anybody who may publish could have sent it, and a failover may have undone the break.
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

/// The work of the listener thread: subscribes, receives messages, and subscribes again when the inbox breaks.
pub(super) fn listen(control: &InboxControl, core: &Weak<Core>, clock: &Timer) {
    let (mut failures, mut was_hastened) = (0, false);
    loop {
        let Some(strong) = core.upgrade() else { return };
        let asked_at = clock.now();
        let Some(queue) = strong.processor.queue() else { return };
        let client = strong.id().as_str();
        let opened = queue.open_inbox(client, timing::SUBSCRIBE_LIMIT);
        match opened {
            Ok(mut inbox) if control.register(&*inbox) => {
                failures = 0;
                // Until the inbox was registered, nobody could cut it for a new identity.
                if strong.id().as_str() != client {
                    continue;
                }
                let subscribed = Subscribed::on(control);
                // Ask for what was granted or freed while nobody listened.
                strong.retries.ask_about_all();
                if strong.record.is_on() {
                    strong.describe.hear_questions(&strong.subscription);
                }
                twin::greet(&strong);
                drop(strong);
                let broken = catch_panic(|| hear(&mut *inbox, core));
                drop(subscribed);
                // Nobody would tell a lingering tenure that others want it.
                if let Some(core) = core.upgrade() {
                    core.retries.ask_about_all();
                }
                match broken {
                    Ok(Some(_)) if control.is_stopped() => {
                        log::debug!(HAND_OVER, "unsubscribed: the client is closing");
                    }
                    Ok(Some(error)) => log::info!(HAND_OVER, "{error}; subscribing again"),
                    Ok(None) => {}
                    // The panic came from a store or from the log. Missed grants are asked for once the client is
                    // subscribed again.
                    Err(_) => log::error!(CLIENT, "the thread dlock-listen has caught a panic; please report it"),
                }
            }
            Ok(_) => return,
            Err(error) => {
                failures += 1;
                if failures == 1 && !control.is_stopped() {
                    log::warn!(HAND_OVER, "cannot subscribe, falling back to polling: {error}");
                }
                drop(strong);
            }
        }
        let pause = Backoff::capped(timing::LONGEST_RETRY_PAUSE).after(failures);
        if !control.pause(clock, clock.pause_begins(asked_at) + pause, &mut was_hastened) {
            return;
        }
    }
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
