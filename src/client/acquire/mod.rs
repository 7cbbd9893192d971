//! `lock()`: how a thread gets a hold.
//!
//! A thread that already holds the key enters again. Any other thread takes up a tenure that lingers, or asks the
//! store, or parks in the local queue until it is given the hold or the turn to ask. A hold is confirmed before its
//! thread is told: if the grant came late, the lease is extended first.
//!
//! | the thread | it goes on with |
//! |---|---|
//! | arrives ([`Acquire::arrive`]) | the hold of a tenure that lingers, its turn to ask, or a place in the local queue |
//! | has the turn ([`Acquire::ask`]) | requests to the store, one after another, as the table in [`steps`] says |
//! | waits ([`Acquire::park`]) | the hold, the turn, or the end of its limit |
//! | has a hold ([`Acquire::confirm`]) | the end of `lock()`, or, if the hold was lost, its turn to ask again |

mod ask;
mod park;
mod patience;
mod recall;
mod steps;

use crate::client::at_exit;
use crate::client::core::Core;
use crate::client::events::{LockCall, Queued};
use crate::client::loss;
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
use crate::state::machine::{Phase, State};
use crate::state::owner::{self, current_thread};
use crate::state::queue::Waiter;
use crate::state::tenure::Tenure;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// A thread that wants a lock, while it is in `lock()`.
#[derive(Debug)]
pub(crate) struct Acquire<'c> {
    core: &'c Core,
    key: &'c Arc<Key>,
    /// The settings of the handle that it has called.
    settings: &'c Arc<DLockConfig>,
    limit: WaitLimit<'c>,
    /// When the call began, if anybody wants to know.
    called_at: Option<Moment>,
    /// From when on the wait counts as slow. `None` if nobody wants to know, or once that is told.
    slow_at: Option<Moment>,
}

/// How far the thread is.
enum Progress {
    /// The hold is confirmed; with what is told of it.
    Confirmed(Queued),
    /// The thread has a hold, which is to be confirmed.
    Holds(How),
    /// It is the thread's turn to ask.
    HasTurn,
    /// The thread stands in the local queue.
    Waits(Arc<Waiter>),
    /// The lock is busy, and the thread does not wait, or no longer waits.
    Ended,
}

/// What an arriving thread gets from a lingering tenure.
enum Lingering {
    /// No tenure lingers, or others want it.
    No,
    /// The calling thread has the next hold.
    Taken(Queued),
    /// Its deadline has passed. The caller must release it, and has the turn to ask.
    Over(Box<Tenure>),
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

impl<'c> Acquire<'c> {
    pub(crate) fn new(
        core: &'c Core,
        key: &'c Arc<Key>,
        settings: &'c Arc<DLockConfig>,
        limit: &WaitLimit<'c>,
    ) -> Self {
        Self { core, key, settings, limit: *limit, called_at: None, slow_at: None }
    }

    /// Gets the hold for the calling thread, or increments its count if the thread already has it. Returns the hold's
    /// token, or `None` if the limit ends first.
    pub(crate) fn lock(mut self) -> Result<Option<u64>, Error> {
        let (core, key) = (self.core, self.key);
        if key.hold.is_owned_by(current_thread()) {
            // As on the JVM, cancellation takes precedence over reentry.
            return if self.limit.is_cancelled() { Ok(None) } else { self.reenter().map(Some) };
        }
        // Also before a lingering tenure is taken up: it is the parent's.
        core.process.check()?;
        let inside = core.enter()?;
        let token = self.lock_first()?;
        if let Some(token) = token {
            inside.begin_hold();
            owner::hold_begins();
            log::trace!(ACQUIRE, "lock {:?}: held, token {token}", key.name);
        }
        Ok(token)
    }

    fn reenter(&self) -> Result<u64, Error> {
        let key = self.key;
        match key.hold.reenter() {
            Reentry::Entered => Ok(key.hold.token()),
            Reentry::Lost => Err(loss::error(self.core, key)),
            Reentry::Refused => Err(Error::AlreadyHeld { key: key.name.to_string() }),
            Reentry::TooMany => Err(Error::TooManyHolds { key: key.name.to_string() }),
        }
    }

    fn lock_first(&mut self) -> Result<Option<u64>, Error> {
        if self.limit.is_cancelled() {
            return Ok(None);
        }
        self.called_at = self.core.events.now();
        self.prepare()?;
        self.slow_at = self.core.events.slow_at();
        let mut progress = self.arrive()?;
        loop {
            progress = match progress {
                Progress::Confirmed(queued) => {
                    queued.finish();
                    return Ok(Some(self.key.hold.token()));
                }
                Progress::Holds(how) => self.confirm(how)?,
                Progress::HasTurn => self.ask_again(Turn::of(self.core, self.key))?,
                Progress::Waits(waiter) => self.park(&waiter)?,
                Progress::Ended => return Ok(None),
            };
        }
    }

    /// Prepares for the first lock: starts the lease thread, checks the right to send messages to other processes, and gets ready to hear
    /// what others say. Each happens once; later calls are cheap.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if messages may not be sent, [`Error::Backend`] if the operating system refuses a thread. It
    /// is not an error here that the store cannot be reached.
    fn prepare(&self) -> Result<(), Error> {
        let (core, key) = (self.core, self.key);
        at_exit::note_use(core);
        core.start_renewing()?;
        core.subscription.check(&key.name, || self.command_limit())?;
        if self.settings.reason().is_some()
            && core.record.is_on()
            && (core.subscription.is_started() || !core.record.listens_with_it())
        {
            // A client that says what its locks are for can be asked.
            core.subscription.listen_for(key);
        }
        if !self.settings.linger().is_zero() {
            // A client whose tenures may linger must hear when others wait.
            core.subscription.listen();
            // A tenure that lingers is taken up without it. The first release of another one only lingers if it is heard by then, so this
            // may take a little of the caller's time.
            if core.subscription.is_open()
                && !core.subscription.hears(key)
                && !matches!(key.state().phase, Phase::Lingering { .. })
            {
                core.subscription.gets_ready_to_hear(key, || (self.command_limit() / 4).min(timing::LISTEN_FIRST));
            }
        }
        Ok(())
    }

    /// Takes what an arriving thread finds: a tenure that lingers, the turn to ask, or a place in the local queue.
    fn arrive(&self) -> Result<Progress, Error> {
        let (core, key) = (self.core, self.key);
        let mut state = key.state();
        match self.take_up(&mut state) {
            Lingering::No => {}
            Lingering::Taken(queued) => return Ok(Progress::Confirmed(queued)),
            Lingering::Over(tenure) => {
                drop(state);
                core.releases.release_later(core, &key.name, &tenure);
                drop(Turn::of(core, key));
                state = key.state();
            }
        }
        if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Asking { turn: None, about: None };
            drop(state);
            return self.ask(Turn::of(core, key));
        }
        if self.limit.is_one_attempt() {
            // Threads of this process hold the key, ask for it or wait for it.
            return self.limit.outcome(state.failure.clone()).map(|()| Progress::Ended);
        }
        let waiter = Waiter::new(current_thread(), Arc::clone(self.settings), core.clock.now());
        state.queue.push(Arc::clone(&waiter));
        drop(state);
        // The holder in this process must hear when others wait.
        core.subscription.listen_for(key);
        Ok(Progress::Waits(waiter))
    }

    /// Takes up a lingering tenure for the calling thread.
    fn take_up(&self, state: &mut State) -> Lingering {
        let (core, key) = (self.core, self.key);
        let Phase::Lingering { tenure, .. } = &mut state.phase else { return Lingering::No };
        let now = core.clock.now();
        let is_over = now >= tenure.deadline();
        if !is_over && (tenure.is_contended() || !tenure.tokens().advance()) {
            return Lingering::No;
        }
        let lingering = std::mem::replace(&mut state.phase, Phase::Asking { turn: None, about: None });
        let Phase::Lingering { mut tenure, .. } = lingering else { return Lingering::No };
        if is_over {
            core.renewals.forget(key);
            return Lingering::Over(Box::new(tenure));
        }
        tenure.kept_on = true;
        tenure.hold_begins(now);
        if tenure.settings.max_hold().is_some() {
            // The hold may reach its limit before the lease thread would check.
            core.renewals.put(key, &tenure);
        }
        key.hold.begin(current_thread(), self.settings, &tenure);
        let queued = core.events.queue_acquired(&mut tenure, self.call(How::TakenUp));
        state.phase = Phase::Held(tenure);
        Lingering::Taken(queued)
    }

    /// Confirms the thread's hold, or gives it back and goes on without it.
    fn confirm(&self, how: How) -> Result<Progress, Error> {
        match self.confirmed(self.call(how)) {
            Confirmed::Yes(queued) => Ok(Progress::Confirmed(queued)),
            Confirmed::Failed(error) => self.after_unconfirmed(self.discard(), error),
            Confirmed::Lost => {
                let turn = self.discard();
                if self.limit.is_one_attempt() {
                    let late = "the lease ended before the client learned of the grant";
                    return Err(Error::backend(BackendFailure::Unknown, late));
                }
                self.ask_again(turn)
            }
        }
    }

    /// Confirms a hold before its thread is told: if less than half its lease is left, the lease is extended first. So is
    /// one of which only a message has told, if the store wants that.
    fn confirmed(&self, call: LockCall<'_>) -> Confirmed {
        let (core, key) = (self.core, self.key);
        let mut state = key.state();
        if let Some(confirmed) = self.tell(&mut state, call) {
            return confirmed;
        }
        let Some(expiring) = state.kept().map(|tenure| Arc::clone(&tenure.locker)) else { return Confirmed::Lost };
        drop(state);
        let now = core.clock.now();
        let unconfirmed = Unconfirmed(self);
        log::debug!(ACQUIRE, "lock {:?}: granted late or by a message, extending the lease before use", key.name);
        let failure = renew::extend_now(core, key, &expiring, false, self.limit.limit(now, core.limits.command));
        std::mem::forget(unconfirmed);
        let mut state = key.state();
        match &mut state.phase {
            Phase::Held(tenure) if !tenure.is_lost() && core.clock.now() < tenure.deadline() => {
                tenure.is_confirmed = core.counts(tenure);
                match failure {
                    _ if tenure.is_confirmed => Confirmed::Yes(core.events.queue_acquired(tenure, call)),
                    Some(error) => Confirmed::Failed(error),
                    None => Confirmed::Lost,
                }
            }
            _ => Confirmed::Lost,
        }
    }

    /// Confirms the thread's hold if what is known of it is enough. Call it with the key's mutex held.
    fn tell(&self, state: &mut State, call: LockCall<'_>) -> Option<Confirmed> {
        let core = self.core;
        let Phase::Held(tenure) = &mut state.phase else { return Some(Confirmed::Yes(Queued::nothing())) };
        if tenure.is_lost() {
            return Some(Confirmed::Lost);
        }
        let now = core.clock.now();
        // The lease thread already renews a tenure that is passed on. It only must not be over.
        let is_fresh = !tenure.lease.is_near_expiry(now) || (tenure.is_confirmed && now < tenure.deadline());
        tenure.is_confirmed = is_fresh && core.counts(tenure);
        tenure.is_confirmed.then(|| Confirmed::Yes(core.events.queue_acquired(tenure, call)))
    }

    /// Releases a hold that was lost before its thread was told, and takes the turn to ask again.
    fn discard(&self) -> Turn<'c> {
        if let Some((tenure, _)) = self.core.end_hold(self.key, Phase::Asking { turn: None, about: None }) {
            self.core.releases.release_later(self.core, &self.key.name, &tenure);
        }
        Turn::of(self.core, self.key)
    }

    fn call(&self, how: How) -> LockCall<'c> {
        LockCall { settings: self.settings, called_at: self.called_at, how }
    }

    /// Returns how long a request that is sent now may take.
    fn command_limit(&self) -> Duration {
        self.limit.limit(self.core.clock.now(), self.core.limits.command)
    }
}

/// A hold whose thread has not been told of it. If the store panics, this gives it back, because nobody else would.
struct Unconfirmed<'a>(&'a Acquire<'a>);

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        drop(self.0.discard());
    }
}
