//! The inbox: what a client does about a message, and about not having heard for a while.
//!
//! A message is a hint. It is compared with what the client knows of the locker that it names: a grant is taken up by the
//! tenure that waits for it, kept for the question under way that it has overtaken, ignored by the tenure that has it
//! already, and released when nobody here wants it. A tenure that is being released does not want it: the grant may be later than the
//! release, so the release is repeated, but not before it is answered. Mostly the grant is that by which the tenure began, and a repetition that
//! came first would take the key from under the release, whose answer then told of a loss.

use crate::cleanup::Ending;
use crate::client::Client;
use crate::config::MIN_LEASE;
use crate::key::Key;
use crate::processor::{Grant, Message};
use crate::state::Phase;
use crate::sync::mutant;
use std::sync::Arc;

impl Client {
    /// Takes in a message.
    pub(crate) fn hear(&self, message: &Message) {
        match message {
            Message::Granted { key, locker, grant } => {
                let known = self.known_key(key);
                if !known.is_some_and(|key| self.hear_granted(&key, locker, *grant)) && self.is_ours(locker) {
                    // Given up while the grant was on its way, or the grant of a time long gone.
                    self.give_up_grant(key, &Arc::from(locker.as_str()));
                }
            }
            Message::Contended { key, locker } => {
                if let Some(key) = self.known_key(key) {
                    self.hear_contended(&key, locker);
                }
            }
        }
    }

    /// Releases a locker that was given a key and that nobody here wants.
    pub(crate) fn give_up_grant(&self, key: &str, locker: &Arc<str>) {
        self.cleanup.add(key, locker, MIN_LEASE, Ending::GivenUp);
        self.wake_cleanup();
    }

    /// Lets the retry thread ask for every waited-for key now, and holders take others to wait: the inbox is open again,
    /// and what was said before is lost.
    pub(crate) fn retry_all_now(&self) {
        let now = self.clock.now();
        for key in self.known_keys() {
            if let Some(tenure) = key.state().kept() {
                tenure.others_wait(1, now);
            }
        }
        self.hasten_retries(now);
    }
}

impl Client {
    /// Takes in a grant that the inbox heard; `false` when the locker is none of this key's.
    pub(crate) fn hear_granted(&self, key: &Arc<Key>, locker: &str, grant: Grant) -> bool {
        let mut state = key.state();
        match &mut state.phase {
            Phase::Held(tenure) | Phase::Lingering { tenure, .. } => *tenure.locker == *locker,
            Phase::Asking { about: Some(about), .. } | Phase::Releasing { about: Some(about), .. }
                if *about.locker == *locker && !mutant!(DeafWhileAsking) =>
            {
                about.heard = Some(grant);
                true
            }
            Phase::Releasing { ended: Some(ended), .. } if *ended.locker == *locker && !mutant!(RepeatsAtOnce) => {
                ended.heard = true;
                true
            }
            Phase::Waiting { unsettled } => {
                let Some(granted) =
                    unsettled.take_if(|unsettled| *unsettled.locker == *locker || mutant!(TakesAnyGrant))
                else {
                    return false;
                };
                let Some(waiter) = state.queue.pop() else { return false };
                self.forget_retry(key);
                self.grant(key, &mut state, granted.granted(grant), waiter.thread);
                drop(state);
                waiter.parked.notify_one();
                true
            }
            _ => false,
        }
    }

    /// Takes in that others wait for what this locker holds, or is about to.
    pub(crate) fn hear_contended(&self, key: &Arc<Key>, locker: &str) {
        let mut state = key.state();
        let now = self.clock.now();
        if let Some(tenure) = state.live_tenure(locker) {
            tenure.others_wait(1, now);
        } else if let Phase::Asking { about: Some(about), .. } | Phase::Releasing { about: Some(about), .. } =
            &mut state.phase
            && *about.locker == *locker
        {
            about.contended = true;
        }
        if state.is_recalled() {
            self.retry_at(key, now);
        }
    }
}
