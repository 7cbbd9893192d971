//! The handle that all forms of a lock share: a key of a client, its settings, and the operations on it. The lock, its guards and the
//! unguarded lock contain a handle, so none of them needs to know the others.

use crate::client::Client;
use crate::client::acquire::Acquire;
#[cfg(feature = "async")]
use crate::client::acquire::{TaskAcquire, TaskWait};
use crate::client::loss;
use crate::client::orders::ReleaseReply;
use crate::client::unlock::{AfterRelease, Unlock};
use crate::client::wait_limit::WaitLimit;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error, LeaseLoss};
use crate::log;
use crate::state::hold::{Exit, Reentry};
use crate::state::key::Key;
use crate::state::owner::{self, HoldNumber, current_thread};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A key of a client, with the settings of one handle.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Arc<Key>,
    pub(crate) settings: Arc<DLockConfig>,
}

// A panic of the program unwinds through the program's own code and its guards, whose drop unlocks. The client's shared state is changed under
// mutexes, by code that does not panic. So the lock is usable after the panic is caught.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl Handle {
    pub(crate) fn wait_limit(&self, limit: Duration) -> WaitLimit<'static> {
        WaitLimit::within(limit, self.now())
    }

    pub(crate) fn limit_until(&self, deadline: Instant) -> WaitLimit<'static> {
        self.wait_limit(deadline.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn is_over(&self, limit: &WaitLimit<'_>) -> bool {
        limit.is_over(self.now())
    }

    /// Increments the hold count and returns the token, if the calling thread has the hold and may enter again. It takes only a few steps,
    /// because callers use it in hot loops. If it returns `None`, call [`acquire`](Self::acquire), which handles every other case.
    #[inline]
    pub(crate) fn lock_again(&self) -> Option<u64> {
        let hold = &self.key.hold;
        matches!(hold.reenter(current_thread()), Reentry::Entered).then(|| hold.token())
    }

    /// Acquires the hold, or increments its count if the calling thread already has it. Returns its token, or `None` when the limit ended
    /// first.
    pub(crate) fn acquire(&self, limit: &WaitLimit<'_>) -> Result<Option<u64>, Error> {
        let (hold, thread) = (&self.key.hold, current_thread());
        if !hold.is_owned_by(thread) {
            let token = self.acquire_for(thread, limit)?;
            if token.is_some() {
                owner::hold_begins();
            }
            return Ok(token);
        }
        // As on the JVM, cancellation takes precedence over reentry.
        if limit.is_cancelled() {
            return Ok(None);
        }
        match hold.reenter(thread) {
            Reentry::Entered => Ok(Some(hold.token())),
            refused => Err(self.client.why_not_again(&self.key, refused)),
        }
    }

    /// Acquires a hold that belongs to no thread. Returns its number and its token, or `None` when the limit ended first.
    pub(crate) fn acquire_hold(&self, limit: &WaitLimit<'_>) -> Result<Option<(HoldNumber, u64)>, Error> {
        let number = HoldNumber::new(self.settings.holder_name());
        let token = self.acquire_for(number.get(), limit)?;
        Ok(token.map(|token| (number, token)))
    }

    fn acquire_for(&self, owner: u64, limit: &WaitLimit<'_>) -> Result<Option<u64>, Error> {
        let ended = Acquire::new(&self.client.parts, &self.key, &self.settings, limit, owner).lock();
        self.client.parts.core.events.note_call(&self.settings, limit, &ended);
        ended
    }

    /// Returns the call by which a task acquires the hold with this number.
    #[cfg(feature = "async")]
    pub(crate) fn acquire_for_task<'c>(&'c self, number: u64, wait: &'c mut TaskWait) -> TaskAcquire<'c> {
        TaskAcquire::new(&self.client.parts, &self.key, &self.settings, number, wait)
    }

    pub(crate) fn now(&self) -> Moment {
        self.client.core().clock.now()
    }
}

/// Shows the key alone: the store may show what does not belong in a log.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.key.name).finish()
    }
}

/// Operations on the hold with a given token.
impl Handle {
    pub(crate) fn holds_validly(&self, token: u64) -> bool {
        loss::is_valid(&self.client.parts, &self.key, token)
    }

    pub(crate) fn remaining_of(&self, token: u64) -> Duration {
        if self.holds_validly(token) { self.key.hold.deadline().since(self.now()) } else { Duration::ZERO }
    }

    pub(crate) fn ensure_valid_hold(&self, token: u64) -> Result<(), Error> {
        if self.holds_validly(token) { Ok(()) } else { Err(loss::why_invalid(&self.client.parts, &self.key, token)) }
    }

    pub(crate) fn loss_of(&self, token: u64) -> Option<LeaseLoss> {
        match self.ensure_valid_hold(token) {
            Err(Error::LeaseLost(loss)) => Some(*loss),
            _ => None,
        }
    }

    pub(crate) fn held_for(&self, token: u64) -> Duration {
        self.key.held_since(token).map_or(Duration::ZERO, |since| self.now().since(since))
    }

    /// Leaves once the hold of this owner that has this token; without a token, whichever hold the owner has.
    pub(crate) fn leave(&self, owner: u64, token: Option<u64>) -> Exit {
        let exit = self.key.hold.leave(owner, token);
        if matches!(exit, Exit::Last) && owner::is_thread(owner) {
            owner::hold_ends();
        }
        exit
    }

    /// Unlocks once the hold of the calling thread, or of a [`Hold`](crate::Hold) with this number, as [`leave`](Self::leave) says.
    #[inline]
    pub(crate) fn unlock(&self, number: Option<&HoldNumber>, token: Option<u64>) -> Result<(), Error> {
        let owner = owner_of(number);
        if self.key.hold.leave_inner(owner, token) { Ok(()) } else { self.unlock_last(owner, token) }
    }

    /// Unlocks a hold that probably ends. This is a separate function so that inner unlocks need no room for it on the stack.
    #[inline(never)]
    fn unlock_last(&self, owner: u64, token: Option<u64>) -> Result<(), Error> {
        self.end(self.leave(owner, token), AfterRelease::Awaited)
    }

    /// Unlocks once, and keeps everybody from the key until `at_least` has passed since the hold began. Returns how much of that is left.
    pub(crate) fn unlock_after(
        &self,
        number: Option<&HoldNumber>,
        token: u64,
        at_least: Duration,
    ) -> Result<Duration, Error> {
        let owner = owner_of(number);
        let until = self.delay_release(owner, token, at_least);
        match self.leave(owner, Some(token)) {
            Exit::Inner => until.map(|_| Duration::ZERO),
            exit => {
                let until = self.end(exit, AfterRelease::Awaited).and(until)?;
                Ok(until.map_or(Duration::ZERO, |until| until.since(self.now())))
            }
        }
    }

    /// Unlocks for a guard or a hold that was dropped.
    #[inline]
    pub(crate) fn unlock_dropped(&self, number: Option<&HoldNumber>, token: u64) {
        let owner = owner_of(number);
        if !self.key.hold.leave_inner(owner, Some(token)) {
            self.unlock_last_dropped(owner, token);
        }
    }

    /// The same for a hold that probably ends: see [`unlock_last`](Self::unlock_last).
    #[inline(never)]
    fn unlock_last_dropped(&self, owner: u64, token: u64) {
        if let Err(error) = self.end(self.leave(owner, Some(token)), AfterRelease::Unawaited) {
            self.note_dropped(&error);
        }
    }

    /// Notes that nobody is to get the key until `at_least` has passed since the hold with this token began. Returns the moment at which that
    /// is over. Fails if the store cannot do that; then the hold ends as it would without this.
    fn delay_release(&self, owner: u64, token: u64, at_least: Duration) -> Result<Option<Moment>, Error> {
        self.client.core().limits.check_release_delay(at_least.saturating_sub(self.held_for(token)))?;
        Ok(self.key.delay_release(owner, token, at_least, &self.settings))
    }

    /// Ends the hold with this number and token, or that of the calling thread, without waiting for the store. Returns whether the outcome is left in
    /// `released` later, or else is known.
    pub(crate) fn release_for_task(
        &self,
        number: Option<&HoldNumber>,
        token: u64,
        released: Option<ReleaseReply>,
    ) -> Result<bool, Error> {
        let exit = self.leave(owner_of(number), Some(token));
        Unlock::new(&self.client.parts, &self.key, AfterRelease::Elsewhere).unlock_for_task(exit, released)
    }

    /// Drops the handle without waiting for the store: a thread of the client ends the client if this was the last handle. In a forked child the
    /// client has no threads, and its end does not wait.
    pub(crate) fn drop_by_task(self) {
        if let Some(client) = Arc::into_inner(self.client).filter(|client| !client.core().process.is_forked()) {
            client.drop_later();
        }
    }

    /// Ends a hold as [`release_for_task`](Self::release_for_task) does, and logs a failure, because no caller waits for the result: the hold is a
    /// [`Hold`](crate::Hold) of a task that was dropped, or one of several locks that were taken in vain.
    pub(crate) fn release_dropped_by_task(&self, number: Option<&HoldNumber>, token: u64) {
        let _ = self.release_for_task(number, token, None).inspect_err(|error| self.note_dropped(error));
    }

    fn end(&self, exit: Exit, after: AfterRelease) -> Result<(), Error> {
        Unlock::new(&self.client.parts, &self.key, after).unlock(exit)
    }

    fn note_dropped(&self, error: &Error) {
        // Lost leases and unanswered releases have already been logged with their causes.
        log::debug!(RELEASE, "lock {:?}: a dropped guard could not unlock: {error}", self.key.name);
    }
}

/// Returns what a call without a limit has acquired: only a limit, or a cancelled token, ends a wait without it.
#[inline]
pub(crate) fn without_limit<T>(acquired: Result<Option<T>, Error>) -> Result<T, Error> {
    let never = || {
        debug_assert!(false, "a wait without a limit has ended without the lock");
        Error::backend(BackendFailure::Unknown, "the wait has ended without the lock; please report it")
    };
    acquired?.ok_or_else(never)
}

/// Returns the number of the hold that belongs to no thread, or that of the calling thread.
#[inline]
pub(crate) fn owner_of(number: Option<&HoldNumber>) -> u64 {
    number.map_or_else(current_thread, HoldNumber::get)
}
