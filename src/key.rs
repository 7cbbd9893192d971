//! One lock key in one client: its hold, its local FIFO, and how threads come to the hold.
//!
//! All handles of a key made by one generator share one `Key`. The rules of who may do what are those of
//! [`tenure`](crate::tenure); this module carries them out: it talks to the store with the mutex released, and wakes
//! threads after it has released it.

use crate::cancel::Patience;
use crate::client::Client;
use crate::config::DLockConfig;
use crate::error::Error;
use crate::hold::{Hold, Reentry, current_thread};
use crate::queue::Waiter;
use crate::tenure::{Phase, State, Tenure};
use crate::turn::Asked;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(crate) struct Key {
    /// Tells this key from others in the schedules.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) hold: Hold,
    state: Mutex<State>,
    client: Weak<Client>,
}

/// How parking ended.
enum Parked {
    /// The calling thread holds the lock.
    Granted,
    /// It is the calling thread's turn to ask.
    Turn,
    /// Its time is over.
    GaveUp,
}

impl Key {
    pub(crate) fn new(id: u64, name: String, client: Weak<Client>) -> Self {
        Self { id, name, hold: Hold::none(), state: Mutex::new(State::new()), client }
    }

    /// The state, with its mutex.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn queue_length(&self) -> usize {
        self.state().queue.len()
    }

    /// Gets the hold for the calling thread, once more if it has it already; the hold's token, or `None` when
    /// patience ends first.
    pub(crate) fn lock(
        self: &Arc<Self>,
        client: &Client,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Option<u64>, Error> {
        let me = current_thread();
        if self.hold.is_owned_by(me) {
            return self.reenter(client).map(Some);
        }
        if client.is_closed() {
            return Err(Error::ShutDown);
        }
        if patience.is_cancelled() {
            return Ok(None);
        }
        client.start_lease_thread()?;
        let mut state = self.state();
        let mut asked = if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Asking { turn: None };
            drop(state);
            self.ask(client, settings, patience)?
        } else if patience.is_one_attempt() {
            // Threads of this process hold it, ask for it or wait for it.
            return state.failure.clone().map_or(Ok(None), Err);
        } else {
            let waiter = Waiter::new(me, Arc::clone(settings));
            state.queue.push(Arc::clone(&waiter));
            drop(state);
            Asked::Queued(waiter)
        };
        loop {
            asked = match asked {
                Asked::No => return Ok(None),
                Asked::Got => {
                    if self.confirm(client) {
                        return Ok(Some(self.hold.token()));
                    }
                    self.discard(client);
                    self.ask(client, settings, patience)?
                }
                Asked::Queued(waiter) => match self.park(client, &waiter, patience)? {
                    Parked::Granted => Asked::Got,
                    Parked::GaveUp => return Ok(None),
                    Parked::Turn if patience.is_over(client.clock.now()) => {
                        let failure = self.state().failure.clone();
                        self.pass_turn(client);
                        return failure.map_or(Ok(None), Err);
                    }
                    Parked::Turn => self.ask(client, settings, patience)?,
                },
            };
        }
    }

    fn reenter(&self, client: &Client) -> Result<u64, Error> {
        match self.hold.reenter() {
            Reentry::Entered => Ok(self.hold.token()),
            Reentry::Lost => Err(self.loss_error(client)),
            Reentry::TooMany => Err(Error::TooManyHolds { key: self.name.clone() }),
        }
    }

    /// Gives the hold to a thread. From `Asking`.
    pub(crate) fn grant(self: &Arc<Self>, client: &Client, state: &mut State, tenure: Tenure, thread: u64) {
        log::trace!("lock {:?}: held as {:?}, token {}", self.name, tenure.locker, tenure.token());
        state.asked = 0;
        state.failures = 0;
        state.failure = None;
        client.keep(self, &tenure);
        let (token, deadline) = (tenure.token(), tenure.deadline());
        state.phase = Phase::Held(tenure);
        self.hold.begin(thread, token, deadline);
    }

    fn park(self: &Arc<Self>, client: &Client, waiter: &Arc<Waiter>, patience: &Patience<'_>) -> Result<Parked, Error> {
        let _registered = patience.register(self, waiter);
        let mut state = self.state();
        loop {
            if self.hold.is_owned_by(waiter.thread) {
                return Ok(Parked::Granted);
            }
            if state.is_turn_of(waiter.thread) {
                return Ok(Parked::Turn);
            }
            let now = client.clock.now();
            if client.is_closed() || patience.is_over(now) {
                let failure = state.failure.clone();
                let (was_last, unsettled) = state.give_up(waiter.thread);
                drop(state);
                if was_last {
                    client.forget_retry(self);
                }
                client.abandon(&self.name, unsettled);
                return match failure {
                    _ if client.is_closed() => Err(Error::ShutDown),
                    Some(error) if !patience.is_cancelled() => Err(error),
                    _ => Ok(Parked::GaveUp),
                };
            }
            match patience.until() {
                Some(until) => {
                    waiter.parked.wait_for(&mut state, until.since(now));
                }
                None => waiter.parked.wait(&mut state),
            }
        }
    }

    /// Wakes a parked thread so that it looks at its patience, or at whether the client is closed, again.
    pub(crate) fn nudge(&self, waiter: &Waiter) {
        // With the mutex: between its look and its parking, the thread would not hear this.
        drop(self.state());
        waiter.parked.notify_one();
    }

    pub(crate) fn nudge_all(&self) {
        let waiters: Vec<_> = self.state().queue.iter().map(Arc::clone).collect();
        for waiter in waiters {
            waiter.parked.notify_one();
        }
    }

    /// Extends a hold that came with less than half its lease; `false` when it turns out lost.
    fn confirm(self: &Arc<Self>, client: &Client) -> bool {
        let worn = match &self.state().phase {
            Phase::Held(tenure) if tenure.is_lost() => return false,
            Phase::Held(tenure) if tenure.is_worn(client.clock.now()) => Arc::clone(&tenure.locker),
            _ => return true,
        };
        log::debug!("lock {:?}: granted late, extending before use", self.name);
        crate::lease::extend_now(client, self, &worn);
        !self.hold.is_lost()
    }

    /// Gives back a hold that was lost before its thread heard of it, and takes the turn to ask anew.
    fn discard(&self, client: &Client) {
        let Some((tenure, _)) = self.end_hold(client, Phase::Asking { turn: None }) else { return };
        // The loss is no news to anybody: nobody was told of the hold.
        let _ = client.give_back(&self.name, &tenure);
        client.leave();
    }

    /// Ends the hold of the calling thread; the tenure, and who watched the hold.
    fn end_hold(&self, client: &Client, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        let mut state = self.state();
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(tenure) => {
                client.forget_kept(self, &tenure);
                self.hold.end();
                Some((tenure, std::mem::take(&mut state.watchers)))
            }
            other => {
                debug_assert!(false, "a thread owned a hold in {other:?}");
                state.phase = other;
                None
            }
        }
    }

    /// Unlocks once, for the hold with this token, or for whichever the calling thread has.
    pub(crate) fn unlock(&self, client: &Client, token: Option<u64>) -> Result<(), Error> {
        let not_held = || Error::NotHeld { key: self.name.clone() };
        if !self.hold.is_owned_by(current_thread()) || token.is_some_and(|token| token != self.hold.token()) {
            return Err(not_held());
        }
        if self.hold.leave_inner() {
            return if self.hold.is_lost() { Err(self.loss_error(client)) } else { Ok(()) };
        }
        let (mut tenure, watchers) = self.end_hold(client, Phase::Releasing).ok_or_else(not_held)?;
        let now = client.clock.now();
        if !tenure.is_lost() && now >= tenure.deadline() {
            let at = tenure.deadline();
            crate::lease::lose(&self.name, &mut tenure, crate::error::LossCause::Deadline, at);
            watchers.iter().for_each(|watcher| _ = watcher.try_send(()));
        }
        drop(watchers);
        let loss = tenure.loss_error(&self.name, now);
        let released = client.give_back(&self.name, &tenure);
        self.pass_turn(client);
        client.leave();
        loss.map_or(released, Err)
    }

    /// The loss of the current hold, which the caller has seen marked.
    pub(crate) fn loss_error(&self, client: &Client) -> Error {
        let loss = match &self.state().phase {
            Phase::Held(tenure) => tenure.loss_error(&self.name, client.clock.now()),
            _ => None,
        };
        loss.unwrap_or_else(|| Error::NotHeld { key: self.name.clone() })
    }

    /// Whether the hold with this token is certainly ours. A passed deadline is made final: a renewal that comes in
    /// later cannot make valid what was called invalid.
    pub(crate) fn is_valid(&self, client: &Client, token: u64) -> bool {
        if self.hold.is_valid(token, client.clock.now()) {
            return true;
        }
        if self.hold.token() == token && !self.hold.is_lost() {
            crate::lease::notice_deadline(client, self);
        }
        self.hold.is_valid(token, client.clock.now())
    }

    /// Why the hold with this token is not valid.
    pub(crate) fn why_invalid(&self, client: &Client, token: u64) -> Error {
        if self.hold.token() == token { self.loss_error(client) } else { Error::NotHeld { key: self.name.clone() } }
    }

    /// A channel that tells the loss of the hold with this token.
    pub(crate) fn watch(&self, token: u64) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        let mut state = self.state();
        if self.hold.token() == token && matches!(state.phase, Phase::Held(_)) {
            if self.hold.is_lost() {
                let _ = sender.try_send(());
            } else {
                state.watchers.push(sender);
            }
        }
        receiver
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some(client) = self.client.upgrade() {
            client.forget_key(&self.name);
        }
    }
}
