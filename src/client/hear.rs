//! The inbox: what a client does about a message, and after a time in which it could not receive any.
//!
//! A message is a hint. It is compared with what the client knows of the locker that it names. A grant is taken up if
//! a tenure waits for it, kept if it has overtaken the reply to a request in flight, ignored if the tenure has it
//! already, and released if nobody here wants it. For a tenure that is being released, the grant may be later than
//! the release, so the release is repeated, but only after it is answered. Usually that grant is the one with which
//! the tenure began. A repetition that arrived first would then take the key away before the release, whose reply
//! would report a loss.

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
            if !core.id().is_of_twin(locker) {
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
    let mut state = key.state();
    let now = core.clock.now();
    state.note_change(now);
    if matches!(state.phase, Phase::Waiting { .. }) || state.is_recalled() {
        core.retries.ask_at(key, now);
    }
}

/// Handles a grant that the inbox received. Returns `false` if the locker does not belong to this key.
fn on_granted(core: &Core, key: &Arc<Key>, locker: &str, grant: Grant) -> bool {
    let mut state = key.state();
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
            core.grant(key, &mut state, granted.heard(grant), (&waiter).into());
            drop(state);
            waiter.parked.notify_one();
            true
        }
        _ => false,
    }
}

/// Handles the message that others wait for what this locker holds or is about to hold.
fn on_contended(core: &Core, key: &Arc<Key>, locker: &str) {
    let mut state = key.state();
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
    let mut state = key.state();
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
        Heard::Question if core.retries.start().is_ok() => core.retries.wake_by(core.clock.now()),
        Heard::Greeting { nonce, client } => twin::on_greeting(core, nonce, &client),
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
        let opened = queue.open_inbox(strong.id().as_str(), timing::SUBSCRIBE_LIMIT);
        match opened {
            Ok(mut inbox) if control.register(&*inbox) => {
                failures = 0;
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
