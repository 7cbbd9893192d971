//! One lock key in one client: its hold, its local FIFO, and how threads come to the hold.
//!
//! All handles of a key made by one generator share one `Key`. The rules of who may do what are those of
//! [`state`](crate::state); this module carries them out: it talks to the store with the mutex released, and wakes
//! threads after it has released it.

use crate::cancel::Patience;
use crate::client::Client;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::hold::{Hold, Reentry};
use crate::log;
use crate::owner::{self, current_thread};
use crate::passing::Lingering;
use crate::queue::Waiter;
use crate::state::{Ended, Phase, State};
use crate::sync::{Mutex, MutexGuard, mutant};
use crate::tenure::Tenure;
use crate::timer::Sleeper;
use crate::turn::{Asked, Turn};
use crossbeam_channel::Sender;
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(crate) struct Key {
    /// Tells this key from others in the schedules.
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) hold: Hold,
    state: Mutex<State>,
    client: Weak<Client>,
}

/// A thread that waits for a key.
#[derive(Debug)]
struct Parked {
    key: Arc<Key>,
    waiter: Arc<Waiter>,
}

impl Sleeper for Parked {
    fn wake(&self) {
        self.key.nudge(&self.waiter);
    }
}

/// How parking ended.
enum Woken {
    /// The calling thread holds the lock.
    Granted,
    /// It is the calling thread's turn to ask.
    Turn,
    /// Its time is over.
    GaveUp,
}

impl Key {
    pub(crate) fn new(id: u64, name: Arc<str>, client: Weak<Client>) -> Self {
        Self { id, name, hold: Hold::none(), state: Mutex::new(State::new()), client }
    }

    /// The state, with its mutex.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn queue_length(&self) -> usize {
        self.state().queue.len()
    }

    /// Holds once more, if the calling thread holds already and nothing is to be told to it: a few steps, of which the hot
    /// loops of callers are made. `None`: [`lock`](Self::lock) sees to it.
    #[inline]
    pub(crate) fn lock_again(&self) -> Option<u64> {
        if !self.hold.is_owned_by(current_thread()) || self.hold.reenter() != Reentry::Entered {
            return None;
        }
        Some(self.hold.token())
    }

    /// Holds once less, if this is the calling thread's hold with that token and neither its last nor lost. `false`:
    /// [`unlock`](Self::unlock) sees to it.
    #[inline]
    pub(crate) fn unlock_inner(&self, token: u64) -> bool {
        self.hold.is_owned_by(current_thread())
            && self.hold.token() == token
            && !self.hold.is_lost()
            && self.hold.leave_inner()
    }

    /// Gets the hold for the calling thread, once more if it has it already; the hold's token, or `None` when
    /// patience ends first.
    pub(crate) fn lock(
        self: &Arc<Self>,
        client: &Client,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Option<u64>, Error> {
        if self.hold.is_owned_by(current_thread()) {
            // As on the JVM, being cancelled comes before reentry.
            return if patience.is_cancelled() { Ok(None) } else { self.reenter(client).map(Some) };
        }
        let lingers = !settings.linger().is_zero();
        if !lingers {
            client.check_process()?;
        }
        let inside = client.enter()?;
        let token = self.lock_first(client, settings, patience)?;
        if let Some(token) = token {
            inside.begin_hold();
            owner::hold_begins();
            log::trace!(ACQUIRE, "lock {:?}: held, token {token}", self.name);
        }
        Ok(token)
    }

    fn lock_first(
        self: &Arc<Self>,
        client: &Client,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Option<u64>, Error> {
        if patience.is_cancelled() {
            return Ok(None);
        }
        client.prepare(|| patience.limit(client.clock.now(), client.processor.command_limit()))?;
        let lingers = !settings.linger().is_zero();
        if lingers {
            // Who lingers has to hear when others wait.
            client.listen();
        }
        let mut state = self.state();
        match self.take_up(client, &mut state) {
            // Not sooner: it costs more than all the rest of taking up what lingers.
            Lingering::No if lingers => client.check_process()?,
            Lingering::No => {}
            Lingering::Taken => return Ok(Some(self.hold.token())),
            Lingering::Over(tenure) => {
                drop(state);
                client.release_later(&self.name, &tenure);
                drop(Turn::of(self));
                state = self.state();
            }
        }
        let mut asked = if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Asking { turn: None, about: None };
            drop(state);
            self.ask(client, settings, patience)?
        } else if patience.is_one_attempt() {
            // Threads of this process hold it, ask for it or wait for it.
            return patience.outcome(state.failure.clone()).map(|()| None);
        } else {
            let waiter = Waiter::new(current_thread(), Arc::clone(settings));
            state.queue.push(Arc::clone(&waiter));
            drop(state);
            // Who holds the lock in this process has to hear when others wait.
            client.listen();
            Asked::Queued(waiter)
        };
        loop {
            let got = match asked {
                Asked::No => return Ok(None),
                Asked::Got => true,
                Asked::Queued(waiter) => match self.park(client, &waiter, patience)? {
                    Woken::Granted => true,
                    Woken::GaveUp => return Ok(None),
                    Woken::Turn => false,
                },
            };
            let turn = if got {
                if self.confirm(client, patience) {
                    return Ok(Some(self.hold.token()));
                }
                let late = Error::backend(BackendFailure::Unknown, "the lease was over before its grant was heard");
                let turn = self.discard(client);
                if patience.is_one_attempt() {
                    return Err(late);
                }
                turn
            } else {
                Turn::of(self)
            };
            if patience.is_over(client.clock.now()) || client.is_closed() {
                let failure = if client.is_closed() { Some(Error::ShutDown) } else { self.state().failure.clone() };
                drop(turn);
                return patience.outcome(failure).map(|()| None);
            }
            turn.end();
            asked = self.ask(client, settings, patience)?;
        }
    }

    fn reenter(&self, client: &Client) -> Result<u64, Error> {
        match self.hold.reenter() {
            Reentry::Entered => Ok(self.hold.token()),
            Reentry::Lost => Err(self.loss_error(client)),
            Reentry::TooMany => Err(Error::TooManyHolds { key: self.name.to_string() }),
        }
    }

    /// Gives the hold to a thread. From `Asking`.
    pub(crate) fn grant(self: &Arc<Self>, client: &Client, state: &mut State, mut tenure: Tenure, thread: u64) {
        let now = client.clock.now();
        tenure.begin(now);
        tenure.hold_begins(now);
        if mutant!(CountsFromHearing) {
            tenure.renewed(now);
        }
        if state.about().is_some_and(|about| about.contended && about.locker == tenure.locker) {
            tenure.others_wait(1, now);
        }
        state.asked = 0;
        state.failures = 0;
        state.failure = None;
        client.keep(self, &tenure);
        let (token, deadline) = (tenure.token(), tenure.valid_until());
        state.phase = Phase::Held(tenure);
        self.hold.begin(thread, token, deadline);
    }

    fn park(self: &Arc<Self>, client: &Client, waiter: &Arc<Waiter>, patience: &Patience<'_>) -> Result<Woken, Error> {
        let sleeper = || Arc::new(Parked { key: Arc::clone(self), waiter: Arc::clone(waiter) }) as Arc<dyn Sleeper>;
        // Before the first look: neither is missed after it.
        let _registered = (patience.register(sleeper), client.clock.register(sleeper));
        let mut state = self.state();
        loop {
            if self.hold.is_owned_by(waiter.thread)
                && !(mutant!(GivesUpWithHold) && patience.is_over(client.clock.now()))
            {
                return Ok(Woken::Granted);
            }
            if state.is_turn_of(waiter.thread) && !(mutant!(GivesUpWithTurn) && patience.is_over(client.clock.now())) {
                return Ok(Woken::Turn);
            }
            let now = client.clock.now();
            if client.is_closed() || patience.is_over(now) {
                let failure = if client.is_closed() { Some(Error::ShutDown) } else { state.failure.clone() };
                let (was_last, unsettled) = state.give_up(waiter.thread);
                if was_last && !mutant!(ForgetsRetryLate) {
                    // Before the mutex is released: the next one to wait has an entry of its own.
                    client.forget_retry(self);
                }
                if !was_last && state.failures == 0 && matches!(state.phase, Phase::Waiting { unsettled: None }) {
                    // Perhaps there was no time to ask for a place in the store's queue; those that wait on have it.
                    client.retry_at(self, now);
                }
                drop(state);
                if was_last && mutant!(ForgetsRetryLate) {
                    client.forget_retry(self);
                }
                client.abandon(&self.name, unsettled);
                return patience.outcome(failure).map(|()| Woken::GaveUp);
            }
            let sleep = client.clock.sleep(patience.until().unwrap_or(Moment::NEVER), now);
            waiter.parked.wait_for(&mut state, sleep);
        }
    }

    /// Wakes a parked thread so that it looks at its patience, or at whether the client is closed, again.
    pub(crate) fn nudge(&self, waiter: &Waiter) {
        // With the mutex: between its look and its parking, the thread would not hear this.
        if !mutant!(NudgesWithoutMutex) {
            drop(self.state());
        }
        waiter.parked.notify_one();
    }

    pub(crate) fn nudge_all(&self) {
        let waiters: Vec<_> = self.state().queue.iter().map(Arc::clone).collect();
        for waiter in waiters {
            waiter.parked.notify_one();
        }
    }

    /// Makes sure of a hold before its thread is told: one that came with less than half its lease is extended first.
    /// `false` when it turns out lost.
    fn confirm(self: &Arc<Self>, client: &Client, patience: &Patience<'_>) -> bool {
        let now = client.clock.now();
        let worn = match &mut self.state().phase {
            Phase::Held(tenure) if tenure.is_lost() => return false,
            Phase::Held(tenure) => {
                // A tenure that is passed on is in the lease thread's care already: it only must not be over.
                tenure.told = !tenure.is_worn(now) || (tenure.told && now < tenure.deadline());
                if tenure.told {
                    return true;
                }
                Arc::clone(&tenure.locker)
            }
            _ => return true,
        };
        let unconfirmed = Unconfirmed { key: self, client };
        log::debug!(ACQUIRE, "lock {:?}: granted late, extending before use", self.name);
        crate::lease::extend_now(client, self, &worn, false, patience.limit(now, client.processor.command_limit()));
        std::mem::forget(unconfirmed);
        let mut state = self.state();
        match &mut state.phase {
            Phase::Held(tenure) if !tenure.is_lost() && client.clock.now() < tenure.deadline() => {
                tenure.told = true;
                true
            }
            _ => false,
        }
    }

    /// Gives back a hold that was lost before its thread was told, and takes the turn to ask anew.
    fn discard(self: &Arc<Self>, client: &Client) -> Turn {
        if let Some((tenure, _)) = self.end_hold(client, Phase::Asking { turn: None, about: None }) {
            client.release_later(&self.name, &tenure);
        }
        Turn::of(self)
    }

    /// Ends the hold of the calling thread; the tenure, and who watched the hold.
    pub(crate) fn end_hold(&self, client: &Client, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        self.end_hold_in(client, &mut self.state(), phase)
    }

    /// As [`end_hold`](Self::end_hold), with the mutex held.
    pub(crate) fn end_hold_in(
        &self,
        client: &Client,
        state: &mut State,
        phase: Phase,
    ) -> Option<(Tenure, Vec<Sender<()>>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(mut tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
                state.tenure_ends(&mut tenure, client.clock.now());
                client.forget_kept(self);
                self.hold.end();
                Some((tenure, std::mem::take(&mut state.watchers)))
            }
            other => {
                state.phase = other;
                None
            }
        }
    }

    /// Unlocks once, for the hold with this token, or for whichever the calling thread has; and `waits`, or not, for
    /// the store's answer.
    pub(crate) fn unlock(self: &Arc<Self>, client: &Client, token: Option<u64>, waits: bool) -> Result<(), Error> {
        let not_held = || Error::NotHeld { key: self.name.to_string() };
        if !self.hold.is_owned_by(current_thread()) || token.is_some_and(|token| token != self.hold.token()) {
            return Err(not_held());
        }
        if self.hold.leave_inner() {
            return if self.hold.is_lost() { Err(self.loss_error(client)) } else { Ok(()) };
        }
        owner::hold_ends();
        if !client.hands_over() || !self.keep_tenure(client) {
            return self.end_tenure(client, waits).unwrap_or_else(|| Err(not_held()));
        }
        drop(client.leaving());
        Ok(())
    }
}

/// A hold of which its thread has not been told: a panic of the store gives it back, for nobody would.
struct Unconfirmed<'a> {
    key: &'a Arc<Key>,
    client: &'a Client,
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        drop(self.key.discard(self.client));
    }
}

impl Key {
    /// Gives up a grant that was heard and that nobody takes.
    pub(crate) fn give_up_grant(&self, locker: &Arc<str>) {
        if let Some(client) = self.client.upgrade() {
            client.give_up_grant(&self.name, locker);
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some(client) = self.client.upgrade() {
            client.forget_key(&self.name);
        }
        let owner = self.hold.owner();
        if owner != owner::NOBODY {
            owner::hold_is_gone(owner);
        }
    }
}

#[cfg(all(test, dlock_shuttle))]
impl Key {
    /// For the model.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.upgrade().is_none_or(|client| client.is_closed())
    }
}
