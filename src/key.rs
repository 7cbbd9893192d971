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
}

impl Client {
    /// Gets the hold for the calling thread, once more if it has it already; the hold's token, or `None` when
    /// patience ends first.
    pub(crate) fn lock(
        &self,
        key: &Arc<Key>,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Option<u64>, Error> {
        if key.hold.is_owned_by(current_thread()) {
            // As on the JVM, being cancelled comes before reentry.
            return if patience.is_cancelled() { Ok(None) } else { self.reenter(key).map(Some) };
        }
        let lingers = !settings.linger().is_zero();
        if !lingers {
            self.check_process()?;
        }
        let inside = self.enter()?;
        let token = self.lock_first(key, settings, patience)?;
        if let Some(token) = token {
            inside.begin_hold();
            owner::hold_begins();
            log::trace!(ACQUIRE, "lock {:?}: held, token {token}", key.name);
        }
        Ok(token)
    }

    fn lock_first(
        &self,
        key: &Arc<Key>,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Option<u64>, Error> {
        if patience.is_cancelled() {
            return Ok(None);
        }
        self.prepare(|| patience.limit(self.clock.now(), self.processor.command_limit()))?;
        let lingers = !settings.linger().is_zero();
        if lingers {
            // Who lingers has to hear when others wait.
            self.listen();
        }
        let mut state = key.state();
        match self.take_up(key, &mut state) {
            // Not sooner: it costs more than all the rest of taking up what lingers.
            Lingering::No if lingers => self.check_process()?,
            Lingering::No => {}
            Lingering::Taken => return Ok(Some(key.hold.token())),
            Lingering::Over(tenure) => {
                drop(state);
                self.release_later(&key.name, &tenure);
                drop(Turn::of(self, key));
                state = key.state();
            }
        }
        let mut asked = if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Asking { turn: None, about: None };
            drop(state);
            self.ask(key, settings, patience)?
        } else if patience.is_one_attempt() {
            // Threads of this process hold it, ask for it or wait for it.
            return patience.outcome(state.failure.clone()).map(|()| None);
        } else {
            let waiter = Waiter::new(current_thread(), Arc::clone(settings));
            state.queue.push(Arc::clone(&waiter));
            drop(state);
            // Who holds the lock in this process has to hear when others wait.
            self.listen();
            Asked::Queued(waiter)
        };
        loop {
            let got = match asked {
                Asked::No => return Ok(None),
                Asked::Got => true,
                Asked::Queued(waiter) => match self.park(key, &waiter, patience)? {
                    Woken::Granted => true,
                    Woken::GaveUp => return Ok(None),
                    Woken::Turn => false,
                },
            };
            let turn = if got {
                if self.confirm(key, patience) {
                    return Ok(Some(key.hold.token()));
                }
                let late = Error::backend(BackendFailure::Unknown, "the lease was over before its grant was heard");
                let turn = self.discard(key);
                if patience.is_one_attempt() {
                    return Err(late);
                }
                turn
            } else {
                Turn::of(self, key)
            };
            if patience.is_over(self.clock.now()) || self.is_closed() {
                let failure = if self.is_closed() { Some(Error::ShutDown) } else { key.state().failure.clone() };
                drop(turn);
                return patience.outcome(failure).map(|()| None);
            }
            turn.end();
            asked = self.ask(key, settings, patience)?;
        }
    }

    fn reenter(&self, key: &Key) -> Result<u64, Error> {
        match key.hold.reenter() {
            Reentry::Entered => Ok(key.hold.token()),
            Reentry::Lost => Err(self.loss_error(key)),
            Reentry::TooMany => Err(Error::TooManyHolds { key: key.name.to_string() }),
        }
    }

    /// Gives the hold to a thread. From `Asking`.
    pub(crate) fn grant(&self, key: &Arc<Key>, state: &mut State, mut tenure: Tenure, thread: u64) {
        let now = self.clock.now();
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
        self.keep(key, &tenure);
        let (token, deadline) = (tenure.token(), tenure.valid_until());
        state.phase = Phase::Held(tenure);
        key.hold.begin(thread, token, deadline);
    }

    fn park(&self, key: &Arc<Key>, waiter: &Arc<Waiter>, patience: &Patience<'_>) -> Result<Woken, Error> {
        let sleeper = || Arc::new(Parked { key: Arc::clone(key), waiter: Arc::clone(waiter) }) as Arc<dyn Sleeper>;
        // Before the first look: neither is missed after it.
        let _registered = (patience.register(sleeper), self.clock.register(sleeper));
        let mut state = key.state();
        loop {
            if key.hold.is_owned_by(waiter.thread) && !(mutant!(GivesUpWithHold) && patience.is_over(self.clock.now()))
            {
                return Ok(Woken::Granted);
            }
            if state.is_turn_of(waiter.thread) && !(mutant!(GivesUpWithTurn) && patience.is_over(self.clock.now())) {
                return Ok(Woken::Turn);
            }
            let now = self.clock.now();
            if self.is_closed() || patience.is_over(now) {
                let failure = if self.is_closed() { Some(Error::ShutDown) } else { state.failure.clone() };
                let (was_last, unsettled) = state.give_up(waiter.thread);
                if was_last && !mutant!(ForgetsRetryLate) {
                    // Before the mutex is released: the next one to wait has an entry of its own.
                    self.forget_retry(key);
                }
                if !was_last && state.failures == 0 && matches!(state.phase, Phase::Waiting { unsettled: None }) {
                    // Perhaps there was no time to ask for a place in the store's queue; those that wait on have it.
                    self.retry_at(key, now);
                }
                drop(state);
                if was_last && mutant!(ForgetsRetryLate) {
                    self.forget_retry(key);
                }
                self.abandon(&key.name, unsettled);
                return patience.outcome(failure).map(|()| Woken::GaveUp);
            }
            let sleep = self.clock.sleep(patience.until().unwrap_or(Moment::NEVER), now);
            waiter.parked.wait_for(&mut state, sleep);
        }
    }

    /// Makes sure of a hold before its thread is told: one that came with less than half its lease is extended first.
    /// `false` when it turns out lost.
    fn confirm(&self, key: &Arc<Key>, patience: &Patience<'_>) -> bool {
        let now = self.clock.now();
        let worn = match &mut key.state().phase {
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
        let unconfirmed = Unconfirmed { key, client: self };
        log::debug!(ACQUIRE, "lock {:?}: granted late, extending before use", key.name);
        crate::lease::extend_now(self, key, &worn, false, patience.limit(now, self.processor.command_limit()));
        std::mem::forget(unconfirmed);
        let mut state = key.state();
        match &mut state.phase {
            Phase::Held(tenure) if !tenure.is_lost() && self.clock.now() < tenure.deadline() => {
                tenure.told = true;
                true
            }
            _ => false,
        }
    }

    /// Gives back a hold that was lost before its thread was told, and takes the turn to ask anew.
    fn discard(&self, key: &Arc<Key>) -> Turn<'_> {
        if let Some((tenure, _)) = self.end_hold(key, Phase::Asking { turn: None, about: None }) {
            self.release_later(&key.name, &tenure);
        }
        Turn::of(self, key)
    }

    /// Ends the hold of the calling thread; the tenure, and who watched the hold.
    pub(crate) fn end_hold(&self, key: &Key, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        self.end_hold_in(key, &mut key.state(), phase)
    }

    /// As [`end_hold`](Self::end_hold), with the mutex held.
    pub(crate) fn end_hold_in(&self, key: &Key, state: &mut State, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(mut tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
                state.tenure_ends(&mut tenure, self.clock.now());
                self.forget_kept(key);
                key.hold.end();
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
    pub(crate) fn unlock(&self, key: &Arc<Key>, token: Option<u64>, waits: bool) -> Result<(), Error> {
        let not_held = || Error::NotHeld { key: key.name.to_string() };
        if !key.hold.is_owned_by(current_thread()) || token.is_some_and(|token| token != key.hold.token()) {
            return Err(not_held());
        }
        if key.hold.leave_inner() {
            return if key.hold.is_lost() { Err(self.loss_error(key)) } else { Ok(()) };
        }
        owner::hold_ends();
        if !self.hands_over() || !self.keep_tenure(key) {
            return self.end_tenure(key, waits).unwrap_or_else(|| Err(not_held()));
        }
        drop(self.leaving());
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
        drop(self.client.discard(&self.key));
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
