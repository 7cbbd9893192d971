//! `lock()`: how a thread gets a hold.
//!
//! A thread that already holds the key enters again. Any other thread takes up a tenure that lingers, or asks the
//! store, or parks in the local queue until it is given the hold or the turn to ask. A hold is confirmed before its
//! thread is told: if the grant came late, the lease is extended first.

use crate::client::ask::Asked;
use crate::client::at_exit;
use crate::client::core::Core;
use crate::client::events::{Call, Events, Queued};
use crate::client::linger::Lingering;
use crate::client::loss;
use crate::client::patience::Patience;
use crate::client::renew;
use crate::client::turn::Turn;
use crate::client::wait_limit::WaitLimit;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::event::How;
use crate::log;
use crate::state::hold::Reentry;
use crate::state::key::Key;
use crate::state::machine::Phase;
use crate::state::owner::{self, current_thread};
use crate::state::queue::Waiter;
use crate::state::tenure::Tenure;
use crate::sync::mutant;
use crate::timer::{AT_WORK, Sleeper};
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

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

    fn sleeps_until(&self) -> Moment {
        let state = self.key.state();
        let thread = self.waiter.thread;
        if self.key.hold.is_owned_by(thread) || state.is_turn_of(thread) { AT_WORK } else { self.waiter.parked_until() }
    }
}

/// How parking ended.
enum Woken {
    /// The calling thread holds the lock.
    Granted,
    /// It is the calling thread's turn to ask.
    Turn,
    /// The calling thread's limit is over.
    GaveUp,
}

/// Whether a hold may begin.
enum Confirmed {
    /// With what is told of it.
    Yes(Queued),
    /// It was lost, or its lease is over.
    Lost,
    /// Only a message has told of it, and the store has not answered for it.
    Failed(Error),
}

impl Core {
    /// Gets the hold for the calling thread, or increments its count if the thread already has it. Returns the hold's
    /// token, or `None` if the limit ends first.
    pub(crate) fn lock(
        &self,
        key: &Arc<Key>,
        settings: &Arc<DLockConfig>,
        wait_limit: &WaitLimit<'_>,
    ) -> Result<Option<u64>, Error> {
        if key.hold.is_owned_by(current_thread()) {
            // As on the JVM, cancellation takes precedence over reentry.
            return if wait_limit.is_cancelled() { Ok(None) } else { self.reenter(key).map(Some) };
        }
        // Also before a lingering tenure is taken up: it is the parent's.
        self.process.check()?;
        let inside = self.enter()?;
        let token = self.lock_first(key, settings, wait_limit)?;
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
        wait_limit: &WaitLimit<'_>,
    ) -> Result<Option<u64>, Error> {
        if wait_limit.is_cancelled() {
            return Ok(None);
        }
        let called_at = self.events.now();
        self.prepare(&key.name, || wait_limit.limit(self.clock.now(), self.limits.command))?;
        let lingers = !settings.linger().is_zero();
        if settings.reason().is_some()
            && self.record.is_on()
            && (self.subscription.is_started() || !self.record.listens_with_it())
        {
            // A client that says what its locks are for can be asked.
            self.subscription.listen_for(key);
        }
        if lingers {
            // A client whose tenures may linger must hear when others wait.
            self.subscription.listen();
            // A tenure that lingers is taken up without it. The first release of another one only lingers if it is heard by then, so this
            // may take a little of the caller's time.
            if self.subscription.is_open()
                && !self.subscription.hears(key)
                && !matches!(key.state().phase, Phase::Lingering { .. })
            {
                let most = || wait_limit.limit(self.clock.now(), self.limits.command) / 4;
                self.subscription.gets_ready_to_hear(key, || most().min(timing::LISTEN_FIRST));
            }
        }
        let mut slow_at = self.events.slow_at();
        let mut state = key.state();
        match self.take_up(key, &mut state, settings) {
            Lingering::No => {}
            Lingering::Taken => {
                let call = Call { settings, called_at, how: How::TakenUp };
                let queued = state.kept().map_or(Queued::nothing(), |tenure| self.events.queue_acquired(tenure, call));
                drop(state);
                queued.finish();
                return Ok(Some(key.hold.token()));
            }
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
            self.ask(key, settings, wait_limit)?
        } else if wait_limit.is_one_attempt() {
            // Threads of this process hold the key, ask for it or wait for it.
            return wait_limit.outcome(state.failure.clone()).map(|()| None);
        } else {
            let waiter = Waiter::new(current_thread(), Arc::clone(settings), self.clock.now());
            state.queue.push(Arc::clone(&waiter));
            drop(state);
            // The holder in this process must hear when others wait.
            self.subscription.listen_for(key);
            Asked::Queued(waiter)
        };
        loop {
            let got = match asked {
                Asked::No => return Ok(None),
                Asked::Got(how) => Some(how),
                Asked::Queued(waiter) => match self.park(key, &waiter, wait_limit, &mut slow_at)? {
                    Woken::Granted => Some(How::Granted),
                    Woken::GaveUp => return Ok(None),
                    Woken::Turn => None,
                },
            };
            let turn = match got.map(|how| self.confirm(key, wait_limit, Call { settings, called_at, how })) {
                Some(Confirmed::Yes(queued)) => {
                    queued.finish();
                    return Ok(Some(key.hold.token()));
                }
                Some(Confirmed::Failed(error)) => {
                    let turn = self.discard(key);
                    asked = self.after_unconfirmed(turn, settings, wait_limit, error)?;
                    continue;
                }
                Some(Confirmed::Lost) => {
                    let turn = self.discard(key);
                    if wait_limit.is_one_attempt() {
                        let late = "the lease ended before the client learned of the grant";
                        return Err(Error::backend(BackendFailure::Unknown, late));
                    }
                    turn
                }
                None => Turn::of(self, key),
            };
            if wait_limit.is_over(self.clock.now()) || self.is_closed() {
                let failure = if self.is_closed() { Some(Error::ShutDown) } else { key.state().failure.clone() };
                drop(turn);
                return wait_limit.outcome(failure).map(|()| None);
            }
            turn.end();
            asked = self.ask(key, settings, wait_limit)?;
        }
    }

    /// Prepares for the first lock: starts the lease thread, and checks the right to send messages to other
    /// processes. Each happens once; later calls are cheap.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if messages may not be sent, [`Error::Backend`] if the operating system refuses a thread. It
    /// is not an error here that the store cannot be reached.
    pub(crate) fn prepare(&self, key: &str, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        at_exit::note_use(self);
        self.start_renewing()?;
        self.subscription.check(key, limit)
    }

    fn reenter(&self, key: &Key) -> Result<u64, Error> {
        match key.hold.reenter() {
            Reentry::Entered => Ok(key.hold.token()),
            Reentry::Lost => Err(loss::error(self, key)),
            Reentry::Refused => Err(Error::AlreadyHeld { key: key.name.to_string() }),
            Reentry::TooMany => Err(Error::TooManyHolds { key: key.name.to_string() }),
        }
    }

    /// Waits in the local queue for the hold or for the turn to ask. From `slow_at` on the wait counts as slow.
    /// `slow_at` is set to `None` once that has been reported.
    fn park(
        &self,
        key: &Arc<Key>,
        waiter: &Arc<Waiter>,
        wait_limit: &WaitLimit<'_>,
        slow_at: &mut Option<Moment>,
    ) -> Result<Woken, Error> {
        let _counted = self.events.count_waiter(&waiter.settings);
        let sleeper = || Arc::new(Parked { key: Arc::clone(key), waiter: Arc::clone(waiter) }) as Arc<dyn Sleeper>;
        let mut patience = self.patience(wait_limit);
        // Register before the first check, so that no wake-up after it is missed.
        let _registered = (wait_limit.register(sleeper), self.clock.register(sleeper));
        let (mut circle_at, mut long_wait) = (Events::circle_at(waiter), None);
        let mut state = key.state();
        loop {
            if key.hold.is_owned_by(waiter.thread)
                && !(mutant!(GivesUpWithHold) && wait_limit.is_over(self.clock.now()))
            {
                return Ok(Woken::Granted);
            }
            if state.is_turn_of(waiter.thread) && !(mutant!(GivesUpWithTurn) && wait_limit.is_over(self.clock.now())) {
                return Ok(Woken::Turn);
            }
            let now = self.clock.now();
            let in_vain = patience.as_mut().is_some_and(|patience| self.has_no_answer(patience, key, &state));
            if self.is_closed() || wait_limit.is_over(now) || in_vain {
                let failure = if self.is_closed() { Some(Error::ShutDown) } else { state.failure.clone() };
                let (was_last, unsettled) = state.give_up(waiter.thread);
                if was_last && !mutant!(ForgetsRetryLate) {
                    // Do this before the mutex is released: the next thread that waits adds an entry of its own.
                    self.retries.forget(key);
                }
                if !was_last && state.failures == 0 && matches!(state.phase, Phase::Waiting { unsettled: None }) {
                    // There may have been no time to ask for a place in the store's queue. The threads that still wait have that time.
                    self.retries.ask_at(key, now);
                }
                drop(state);
                if was_last && mutant!(ForgetsRetryLate) {
                    self.retries.forget(key);
                }
                self.abandon(&key.name, unsettled);
                return wait_limit.outcome(failure).map(|()| Woken::GaveUp);
            }
            if let Some(at) = slow_at.take_if(|at| *at <= now) {
                drop(state);
                self.events.tell_slow(key, &waiter.settings, now.since(at), long_wait.as_ref());
                state = key.state();
                continue;
            }
            if circle_at.take_if(|at| *at <= now).is_some() {
                drop(state);
                long_wait = Some(self.events.waits_long(key, waiter));
                state = key.state();
                continue;
            }
            let until = [wait_limit.until(), *slow_at, circle_at].into_iter().flatten().min().unwrap_or(Moment::NEVER);
            let sleep = patience.as_ref().map_or(Duration::MAX, Patience::left).min(self.clock.sleep(until, now));
            waiter.park(&mut state, until, sleep);
        }
    }

    /// Confirms a hold before its thread is told: if less than half its lease is left, the lease is extended first. So is
    /// one of which only a message has told, if the store wants that.
    fn confirm(&self, key: &Arc<Key>, wait_limit: &WaitLimit<'_>, call: Call<'_>) -> Confirmed {
        let now = self.clock.now();
        let worn = match &mut key.state().phase {
            Phase::Held(tenure) if tenure.is_lost() => return Confirmed::Lost,
            Phase::Held(tenure) => {
                // The lease thread already renews a tenure that is passed on. It only must not be over.
                let is_fresh = !tenure.is_worn(now) || (tenure.told && now < tenure.deadline());
                tenure.told = is_fresh && self.counts(tenure);
                if tenure.told {
                    return Confirmed::Yes(self.events.queue_acquired(tenure, call));
                }
                Arc::clone(&tenure.locker)
            }
            _ => return Confirmed::Yes(Queued::nothing()),
        };
        let unconfirmed = Unconfirmed { key, core: self };
        log::debug!(ACQUIRE, "lock {:?}: granted late or by a message, extending the lease before use", key.name);
        let failure = renew::extend_now(self, key, &worn, false, wait_limit.limit(now, self.limits.command));
        std::mem::forget(unconfirmed);
        let mut state = key.state();
        match &mut state.phase {
            Phase::Held(tenure) if !tenure.is_lost() && self.clock.now() < tenure.deadline() => {
                tenure.told = self.counts(tenure);
                match failure {
                    _ if tenure.told => Confirmed::Yes(self.events.queue_acquired(tenure, call)),
                    Some(error) => Confirmed::Failed(error),
                    None => Confirmed::Lost,
                }
            }
            _ => Confirmed::Lost,
        }
    }

    /// Returns whether what the client knows of a tenure is enough to tell a thread of its hold.
    pub(super) fn counts(&self, tenure: &Tenure) -> bool {
        tenure.is_answered() || !self.limits.extends_heard_grants || mutant!(BelievesMessages)
    }

    /// Releases a hold that was lost before its thread was told, and takes the turn to ask anew.
    fn discard(&self, key: &Arc<Key>) -> Turn<'_> {
        if let Some((tenure, _)) = self.end_hold(key, Phase::Asking { turn: None, about: None }) {
            self.release_later(&key.name, &tenure);
        }
        Turn::of(self, key)
    }
}

/// A hold whose thread has not been told of it. If the store panics, this gives it back, because nobody else would.
struct Unconfirmed<'a> {
    key: &'a Arc<Key>,
    core: &'a Core,
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        drop(self.core.discard(self.key));
    }
}
