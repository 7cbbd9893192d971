//! What becomes of a tenure when its hold ends: it is passed on in this process, kept for a while, or given back.

use crate::client::Client;
use crate::error::{Error, LossCause};
use crate::key::Key;
use crate::state::{Phase, State};
use crate::turn::Turn;
use std::sync::Arc;

impl Key {
    /// Passes the hold of the calling thread to the first thread that waits in this process, without the store; `false`
    /// when nobody waits, or others have to be let in.
    pub(crate) fn pass_on(self: &Arc<Self>, client: &Client) -> bool {
        let mut state = self.state();
        if self.needs_numbers(&state) {
            let (locker, limit) = (self.held_locker(&state), client.processor.command_limit());
            drop(state);
            if let Some(locker) = locker {
                crate::lease::extend_now(client, self, &locker, true, limit);
            }
            state = self.state();
        }
        let now = client.clock.now();
        let State { phase, queue, watchers, .. } = &mut *state;
        let Phase::Held(tenure) = phase else { return false };
        if queue.is_empty()
            || tenure.is_lost()
            || now >= tenure.deadline()
            || client.is_closed()
            || !tenure.may_pass(now, client.is_listening())
            || !tenure.tokens().advance()
        {
            return false;
        }
        let Some(waiter) = queue.pop() else { return false };
        let ended = std::mem::take(watchers);
        let (token, deadline) = (tenure.token(), tenure.deadline());
        self.hold.end();
        self.hold.begin(waiter.thread, token, deadline);
        drop(state);
        waiter.parked.notify_one();
        drop(ended);
        true
    }

    /// Whether the tokens run out while threads of this process wait: once in 1024 holds, and then in ten million.
    fn needs_numbers(&self, state: &State) -> bool {
        match &state.phase {
            Phase::Held(tenure) => !state.queue.is_empty() && tenure.needs_numbers(),
            _ => false,
        }
    }

    fn held_locker(&self, state: &State) -> Option<Arc<str>> {
        match &state.phase {
            Phase::Held(tenure) => Some(Arc::clone(&tenure.locker)),
            _ => None,
        }
    }

    /// Ends the hold of the calling thread and its tenure: the key goes back to the store, and this client to the end of
    /// the store's queue when threads of it wait.
    pub(crate) fn end_tenure(self: &Arc<Self>, client: &Client) -> Option<Result<(), Error>> {
        let (mut tenure, watchers) = self.end_hold(client, Phase::Releasing { ending: None, about: None })?;
        let _leaving = client.leaving();
        let turn = Turn::of(self);
        let now = client.clock.now();
        let known = tenure.is_lost();
        if !known && now >= tenure.deadline() {
            let at = tenure.deadline();
            tenure.lose(LossCause::Deadline, at);
        }
        let next = if tenure.is_lost() { None } else { self.next_in_line(client) };
        // Without a next locker the first waiter gets its turn when all is said about this hold.
        let (mut released, rest) = match next {
            Some(next) => (self.hand_over(client, turn, &tenure, next), None),
            None => (client.give_back(&self.name, &tenure), Some(turn)),
        };
        if let Err(Error::LeaseLost(loss)) = &released {
            tenure.lose(loss.cause.clone(), now);
        }
        if let Some(loss) = tenure.loss_error(&self.name, now) {
            released = Err(loss);
        }
        if !known {
            crate::lease::tell(&self.name, &tenure, watchers);
        }
        drop(rest);
        Some(released)
    }
}
