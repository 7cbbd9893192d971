//! What a client tells its observer, and when.

use super::core::Core;
use super::long_waits::LongWait;
use super::metrics::{Renewal, Sample};
use super::observer::{Observer, Queued};
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::event::{Acquired, Event, HoldEnd, How, NewServer, Released, RenewedLate, SlowWait};
use crate::state::key::Key;
use crate::state::tenure::Tenure;
use crate::store::processor::{Outcome, Request};
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// A call that wants a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(super) settings: &'a Arc<DLockConfig>,
    /// When it began, if anybody wants to know.
    pub(super) called_at: Option<Moment>,
    /// How its thread gets the lock.
    pub(super) how: How,
}

impl Core {
    /// Returns what time it is if the observer wants to know how long threads wait and hold.
    pub(super) fn observed_now(&self) -> Option<Moment> {
        self.observer.as_ref().filter(|observer| observer.times_holds()).map(|_| self.clock.now())
    }

    /// Returns when a wait that begins now counts as slow, if anybody wants to know.
    pub(super) fn slow_at(&self) -> Option<Moment> {
        let after = self.observer.as_ref()?.slow_after?;
        Some(self.clock.now() + after)
    }

    /// Queues that the calling thread has the lock. Call it with the key's mutex held.
    #[inline]
    pub(super) fn queue_acquired(&self, tenure: &mut Tenure, call: Call<'_>) -> Queued {
        match (&self.observer, call.called_at) {
            (Some(observer), Some(called_at)) => self.acquired(observer, tenure, call, called_at),
            _ => Queued::nothing(),
        }
    }

    #[cold]
    fn acquired(&self, observer: &Observer, tenure: &mut Tenure, call: Call<'_>, called_at: Moment) -> Queued {
        let waited = self.clock.now().since(called_at);
        // A tenure that the store has just granted has had no other hold.
        let how = if call.how == How::Granted && tenure.kept_on { How::PassedOn } else { call.how };
        tenure.of_hold = Some(Arc::clone(call.settings));
        let (lock, token) = (Arc::clone(call.settings), tenure.token());
        let sample = Sample::Acquired { lock: Arc::clone(&lock), waited, how };
        observer.queue(&Event::Acquired(Acquired { lock, token, waited, how }), Some(sample))
    }

    /// Queues that the hold with this token has ended. Call it with the key's mutex held, or as the thread that has the turn.
    #[inline]
    pub(super) fn queue_released(&self, tenure: &Tenure, token: u64, now: Moment, end: HoldEnd) -> Queued {
        match &self.observer {
            Some(observer) if observer.times_holds() => released(observer, tenure, token, now, end),
            _ => Queued::nothing(),
        }
    }

    /// Tells that the last hold of a tenure has ended. Call it as the thread that has the turn.
    pub(super) fn tell_released(&self, tenure: &Tenure, now: Moment, result: &Result<(), Error>) {
        let end = match result {
            _ if tenure.is_lost() => HoldEnd::Lost,
            Ok(()) => HoldEnd::GivenBack,
            Err(Error::LeaseLost(_)) => HoldEnd::Lost,
            Err(_) => HoldEnd::Unconfirmed,
        };
        self.queue_released(tenure, tenure.token(), now, end).finish();
    }

    /// Queues that a lease is extended, as the reply that arrived now says. Call it with the key's mutex held, before the tenure knows.
    pub(super) fn queue_renewed(&self, tenure: &Tenure, now: Moment) -> Queued {
        let Some(observer) = &self.observer else { return Queued::nothing() };
        // Nobody has the lock before the first extension of a grant that came late.
        if !tenure.told {
            return Queued::nothing();
        }
        let lock = holder(tenure);
        if tenure.lease.is_late(now) {
            let sample = Sample::Renewal { lock: Arc::clone(&lock), result: Renewal::Late };
            let left = tenure.deadline().since(now);
            return observer.queue(&Event::RenewedLate(RenewedLate { lock, left }), Some(sample));
        }
        Queued::of(observer, Sample::Renewal { lock, result: Renewal::InTime })
    }

    /// Records that an extension has failed. No mutex may be held.
    pub(super) fn record_unrenewed(&self, lock: &Arc<DLockConfig>) {
        if let Some(observer) = &self.observer {
            observer.record(Sample::Renewal { lock: Arc::clone(lock), result: Renewal::Failed });
        }
    }

    /// Tells the program that the calling thread's wait has been slow for `since`, and the circle that it has closed.
    pub(super) fn tell_slow(&self, key: &Key, settings: &DLockConfig, since: Duration, wait: Option<&LongWait<'_>>) {
        let circle = wait.map_or(&[][..], |wait| &wait.circle);
        if let Some(after) = self.observer.as_ref().and_then(|observer| observer.slow_after) {
            self.tell_slow_wait(key, settings, after.saturating_add(since), circle);
        }
    }

    /// Tells the program that the calling thread has waited for so long, and the circle that it waits in.
    pub(super) fn tell_slow_wait(&self, key: &Key, settings: &DLockConfig, waited: Duration, circle: &[String]) {
        if let Some(observer) = &self.observer {
            let thread = std::thread::current().name().map(str::to_owned);
            let reason = settings.reason().map(str::to_owned);
            let (key, circle) = (key.name.to_string(), circle.to_vec());
            observer.tell(&Event::SlowWait(SlowWait { key, waited, thread, reason, circle }));
        }
    }

    /// Counts the calling thread as one that waits, until the returned value is dropped. Both must happen with no mutex held.
    pub(super) fn count_waiter(&self, settings: &Arc<DLockConfig>) -> Option<Waits<'_>> {
        let observer = self.observer.as_deref().filter(|observer| observer.is_metered())?;
        observer.record(Sample::Waiting { lock: Arc::clone(settings), more: true });
        Some(Waits { observer, lock: Arc::clone(settings) })
    }

    /// Tells that another server answers than before.
    pub(super) fn tell_new_server(&self, number: u64) {
        if let Some(observer) = &self.observer {
            observer.queue(&Event::NewServer(NewServer { number }), Some(Sample::NewServer)).finish();
        }
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.observer.as_ref().map_or(0, |observer| observer.dropped())
    }

    /// Makes one call of the store, and notes how it ended.
    #[cold]
    pub(super) fn observed<T>(
        &self,
        observer: &Observer,
        (name, key): (&'static str, &str),
        limit: Duration,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sent_at = observer.is_metered().then(|| self.clock.now());
        let result = call();
        if let Some(sent_at) = sent_at {
            let took = self.clock.now().since(sent_at);
            observer.record(Sample::Call { name, took, is_answered: result.is_ok() });
        }
        match &result {
            Err(error) if !is_of_the_store(error, limit) => {}
            result => observer.note_answer(key, result.as_ref().err(), || self.clock.now()),
        }
        result
    }

    /// Makes one call of the store for many requests, and notes how each ended.
    #[cold]
    pub(super) fn observed_batch(
        &self,
        observer: &Observer,
        requests: &[Request<'_>],
        limit: Duration,
    ) -> Vec<Result<Outcome, Error>> {
        let sent_at = observer.is_metered().then(|| self.clock.now());
        let results = self.processor.batch(requests, limit);
        if let Some(sent_at) = sent_at {
            let took = self.clock.now().since(sent_at);
            let is_answered = results.iter().all(Result::is_ok);
            observer.record(Sample::Call { name: "batch", took, is_answered });
        }
        for (request, result) in requests.iter().zip(&results) {
            observer.note_answer(request.claim().key, result.as_ref().err(), || self.clock.now());
        }
        results
    }
}

/// Returns whether an error says something of the store. A limit of the caller's own may be too short for any store.
fn is_of_the_store(error: &Error, limit: Duration) -> bool {
    match error {
        Error::Backend { failure: BackendFailure::NotExecuted | BackendFailure::Unknown, .. } => {
            limit >= timing::FAIR_LIMIT
        }
        _ => true,
    }
}

/// Returns the settings of the handle through which a hold was acquired.
fn holder(tenure: &Tenure) -> Arc<DLockConfig> {
    Arc::clone(tenure.of_hold.as_ref().unwrap_or(&tenure.settings))
}

#[cold]
fn released(observer: &Observer, tenure: &Tenure, token: u64, now: Moment, end: HoldEnd) -> Queued {
    let (lock, held) = (holder(tenure), now.since(tenure.held_since()));
    let sample = Sample::Released { lock: Arc::clone(&lock), held, end };
    observer.queue(&Event::Released(Released { lock, token, held, end }), Some(sample))
}

/// A thread that is counted as waiting.
#[must_use]
pub(super) struct Waits<'a> {
    observer: &'a Observer,
    lock: Arc<DLockConfig>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.observer.record(Sample::Waiting { lock: Arc::clone(&self.lock), more: false });
    }
}
