//! What a client tells the program, and when: the log, the channels of a loss, the functions of the builder, and the recorder of metrics.
//!
//! | file | contents |
//! |---|---|
//! | `events.rs` | the events of an acquisition, a hold, a renewal, a loss, and a call of the store |
//! | `events/observer.rs` | the functions and the recorder that receive the events of a client |
//! | `events/hook.rs` | the functions of the program, the queue before them, and its thread |
//! | `events/metrics.rs`, `events/metrics/meters.rs` | what is recorded, and the series |
//! | `events/outage.rs` | whether the store fails now |
//! | `events/long_waits.rs` | threads that wait for one another |
//!
//! This file and its folder know neither the store nor another part of the client.
//!
//! Each thing that happens is a method of [`Events`]. They have an observer only if the builder was given a function or told to record
//! metrics. Without one, an event costs a branch, and reads no clock. `on_lost` and `on_slow_wait` are functions that receive one kind of
//! event each, by the same path.
//!
//! * *An event is queued where it happens, and delivered on another thread.* Queueing takes the queue's own mutex and does no I/O, so it
//!   may be done under the mutex of a key. The rest (`Queued::finish`) comes after that mutex is released: it starts the thread, writes to
//!   the log, and calls the recorder.
//! * *The events of a key are in order*, because each is queued under the key's mutex, or by the thread that has the turn before it passes
//!   it on. So a hand-over that ends a turn queues the event of the release before it wakes the next thread. The reply to a posted release
//!   is the one exception.
//! * *A function that blocks delays no news of a loss, and many locks crowd out none*. Events that find no room in the queue are counted, and
//!   `Dropped` is delivered in their place.
//! * *No client waits for a function*, not even when it ends, because a function may close its own client.
//! * *Metrics are recorded on the thread that locks*, after all mutexes are released. Recorders are made for that, and a queue could drop
//!   figures.
//! * *The beginning and the end of an outage* are read from the results of requests. The port does not say which server of several a key is
//!   on, so an answer ends an outage only if it is about the key that failed last, or if nothing has failed for 3 s.

mod hook;
mod long_waits;
mod metrics;
mod observer;
mod outage;

pub(crate) use self::hook::Function;
pub(super) use self::long_waits::LongWait;
pub(crate) use self::observer::Hooks;

use self::hook::FollowUp;
use self::long_waits::LongWaits;
use self::metrics::{Meters, Sample, name_of, why_not, word_for};
use self::observer::Observer;
use crate::client::wait_limit::WaitLimit;
use crate::clock::{Moment, Timer};
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::event::{Acquired, Event, HoldEnd, How, NewServer, Released, RenewedLate, SlowWait};
use crate::log;
use crate::port::{Outcome, ReleaseOutcome, Request};
use crate::state::key::Key;
use crate::state::machine::Waiter;
use crate::state::owner;
use crate::state::task::Watcher;
use crate::state::tenure::Tenure;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// A call that wants a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall<'a> {
    pub(super) settings: &'a Arc<DLockConfig>,
    /// When it began, if anybody wants to know.
    pub(super) called_at: Option<Moment>,
    /// How its thread gets the lock.
    pub(super) how: How,
}

/// An event that is in the queue. What remains to be done may block.
#[must_use]
pub(crate) struct Queued {
    /// What remains to be done for the functions.
    told: Vec<FollowUp>,
    /// What is to be recorded.
    figure: Option<(Arc<Meters>, Option<Sample>)>,
}

impl Queued {
    /// Nothing was queued, and there is only a figure to record.
    fn of(observer: &Observer, sample: Sample) -> Self {
        Self { told: Vec::new(), figure: observer.meters.clone().map(|meters| (meters, Some(sample))) }
    }

    /// Nothing was queued.
    pub(super) const NOTHING: Self = Self { told: Vec::new(), figure: None };

    /// Call it with no mutex held: it may start a thread, write to the log and call the recorder of metrics.
    #[inline]
    pub(super) fn finish(self) {
        if !self.told.is_empty() || self.figure.is_some() {
            self.finish_something();
        }
    }

    #[cold]
    fn finish_something(self) {
        let dropped = self.told.iter().filter(|told| told.is_dropped).count() as u64;
        self.told.into_iter().for_each(FollowUp::finish);
        if let Some((meters, sample)) = self.figure {
            sample.into_iter().for_each(|sample| meters.record(sample));
            if dropped > 0 {
                meters.record(Sample::Dropped { events: dropped });
            }
        }
    }
}

/// What a client tells. See the module.
pub(crate) struct Events {
    clock: Timer,
    /// Who is told what happens, if anybody is.
    observer: Option<Observer>,
    long_waits: LongWaits,
}

impl Events {
    pub(super) fn new(clock: Timer, hooks: Hooks) -> Self {
        Self { clock, observer: hooks.into_observer(), long_waits: LongWaits::default() }
    }

    /// Returns when a call that begins now has begun, and when its wait counts as slow, each if anybody wants to know.
    pub(super) fn call_begins(&self) -> (Option<Moment>, Option<Moment>) {
        let Some(observer) = &self.observer else { return (None, None) };
        let now = self.clock.now();
        (observer.times_holds().then_some(now), observer.slow_after.map(|after| now + after))
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(crate) fn dropped(&self) -> u64 {
        self.observer.as_ref().map_or(0, Observer::dropped)
    }

    /// Lets the threads of the functions end once they have delivered all events. No thread waits for them.
    pub(super) fn end(&self) {
        if let Some(observer) = &self.observer {
            observer.end();
        }
    }

    /// Notes that the program names a lock. Call it with no mutex held.
    pub(crate) fn see(&self, key: &Key, settings: &DLockConfig) {
        let Some(meters) = self.observer.as_ref().and_then(|observer| observer.meters.as_ref()) else { return };
        meters.see(settings.lock_type());
        if key.known.get().is_none() {
            // If another thread has counted it meanwhile, this counts it out again.
            let _ = key.known.set(meters.count_key(settings.lock_type()));
        }
    }

    /// Notes how a call with this limit has ended, if it got no lock. Call it with no mutex held.
    pub(crate) fn note_call(
        &self,
        settings: &Arc<DLockConfig>,
        limit: &WaitLimit<'_>,
        ended: &Result<Option<u64>, Error>,
    ) {
        if let Some(observer) = &self.observer
            && !matches!(ended, Ok(Some(_)))
        {
            let why = why_not(limit, ended.as_ref().err());
            observer.record(Sample::NotAcquired { lock: Arc::clone(settings), why });
        }
    }

    /// Notes that a task has given up its wait for a lock. Call it with no mutex held.
    #[cfg(feature = "async")]
    pub(super) fn note_abandoned(&self, settings: &Arc<DLockConfig>) {
        if let Some(observer) = &self.observer {
            observer.record(Sample::NotAcquired { lock: Arc::clone(settings), why: metrics::CANCELLED });
        }
    }

    /// Queues that the calling thread has the lock. Call it with the key's mutex held.
    #[inline]
    pub(super) fn queue_acquired(&self, tenure: &mut Tenure, call: LockCall<'_>) -> Queued {
        match (&self.observer, call.called_at) {
            (Some(observer), Some(called_at)) => self.acquired(observer, tenure, call, called_at),
            _ => Queued::NOTHING,
        }
    }

    #[cold]
    fn acquired(&self, observer: &Observer, tenure: &mut Tenure, call: LockCall<'_>, called_at: Moment) -> Queued {
        let waited = self.clock.now().since(called_at);
        // A tenure that the store has just granted has had no other hold.
        let how = if call.how == How::Granted && tenure.had_earlier_hold { How::PassedOn } else { call.how };
        tenure.of_hold = Some(Arc::clone(call.settings));
        let (lock, token) = (Arc::clone(call.settings), tenure.tokens.current());
        let sample = Sample::Acquired { lock: Arc::clone(&lock), waited, how };
        observer.queue(&Event::Acquired(Acquired { lock, token, waited, how }), Some(sample))
    }

    /// Queues that the hold with this token has ended, if anybody was told of it. Call it with the key's mutex held, or as the thread that has the
    /// turn.
    #[inline]
    pub(super) fn queue_released(&self, tenure: &Tenure, token: u64, now: Moment, end: HoldEnd) -> Queued {
        match &self.observer {
            Some(observer) if tenure.is_confirmed && observer.times_holds() => {
                released(observer, tenure, token, now, end)
            }
            _ => Queued::NOTHING,
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
        self.queue_released(tenure, tenure.tokens.current(), now, end).finish();
    }

    /// Queues that a lease is extended, as the reply that arrived now says. Call it with the key's mutex held, before the tenure knows.
    pub(super) fn queue_renewed(&self, tenure: &Tenure, now: Moment) -> Queued {
        let Some(observer) = &self.observer else { return Queued::NOTHING };
        // A grant that came late is no hold before its first extension, so that extension is no event.
        if !tenure.is_confirmed {
            return Queued::NOTHING;
        }
        let (lock, left) = (holder(tenure), tenure.deadline().since(now));
        let is_late = tenure.lease.is_late(now);
        let sample = Sample::Renewed { lock: Arc::clone(&lock), left, is_late };
        if is_late {
            return observer.queue(&Event::RenewedLate(RenewedLate { lock, left }), Some(sample));
        }
        Queued::of(observer, sample)
    }

    /// Records that an extension has failed. No mutex may be held.
    pub(super) fn record_unrenewed(&self, lock: &Arc<DLockConfig>) {
        if let Some(observer) = &self.observer {
            observer.record(Sample::NotRenewed { lock: Arc::clone(lock) });
        }
    }

    /// Tells that another server answers than before.
    pub(super) fn tell_new_server(&self, number: u64) {
        if let Some(observer) = &self.observer {
            observer.queue(&Event::NewServer(NewServer { number }), Some(Sample::NewServer)).finish();
        }
    }
}

/// Losses.
impl Events {
    /// Queues the loss of a tenure, if a thread was told of the hold. Call it with the key's mutex held, or as the thread that has the turn.
    pub(super) fn queue_lost(&self, key: &str, tenure: &Tenure) -> Queued {
        let Some(observer) = self.observer.as_ref().filter(|_| tenure.is_confirmed) else { return Queued::NOTHING };
        let Some((cause, at)) = tenure.loss() else { return Queued::NOTHING };
        let Some(loss) = tenure.loss_of(key, *at) else { return Queued::NOTHING };
        let sample = Sample::Lost { lock: Arc::clone(&tenure.settings), cause: word_for(cause) };
        observer.queue(&Event::Lost(loss), Some(sample))
    }

    /// Announces a lost tenure to the log, the loss channels and the program. Does nothing if the tenure is not lost. Call it without holding
    /// any mutex.
    pub(super) fn tell_lost(&self, key: &str, tenure: &Tenure, watchers: Vec<Watcher>) {
        tell_queued(self.queue_lost(key, tenure), key, tenure, watchers);
    }
}

/// As [`Events::tell_lost`], for a loss that is queued for the program.
pub(super) fn tell_queued(queued: Queued, key: &str, tenure: &Tenure, watchers: Vec<Watcher>) {
    let Some((loss, at)) = tenure.loss() else { return };
    let error = tenure.loss_error(key, *at).map(|error| error.to_string()).unwrap_or_default();
    match tenure.settings.reason() {
        _ if !tenure.is_confirmed => {
            log::debug!(LEASE, "lock {key:?}: lost before its thread was told of the grant: {loss}");
        }
        Some(reason) => log::warn!(LEASE, "{error} (held for: {reason})"),
        None => log::warn!(LEASE, "{error}"),
    }
    tell_watchers(watchers);
    queued.finish();
}

/// Tells those who watch the hold of its loss.
pub(super) fn tell_watchers(watchers: Vec<Watcher>) {
    watchers.into_iter().for_each(Watcher::tell);
}

/// Waits.
impl Events {
    /// Counts the calling thread as one that waits, until the returned value is dropped. Both must happen with no mutex held.
    pub(super) fn count_waiter(&self, settings: &Arc<DLockConfig>) -> Option<CountedWaiter<'_>> {
        let observer = self.observer.as_ref().filter(|observer| observer.meters.is_some())?;
        observer.record(Sample::Waiting { lock: Arc::clone(settings), more: true });
        Some(CountedWaiter { observer, lock: Arc::clone(settings) })
    }

    /// Records that one more task waits, or one less. Call it with no mutex held.
    #[cfg(feature = "async")]
    pub(super) fn note_waiting(&self, settings: &Arc<DLockConfig>, more: bool) {
        if let Some(observer) = &self.observer {
            observer.record(Sample::Waiting { lock: Arc::clone(settings), more });
        }
    }

    /// Tells the program that the calling thread's wait has been slow for `since`, and the circle that it has closed.
    pub(super) fn tell_slow(&self, key: &Key, settings: &DLockConfig, since: Duration, wait: Option<&LongWait<'_>>) {
        let circle = wait.map_or(&[][..], |wait| &wait.circle);
        if let Some(after) = self.observer.as_ref().and_then(|observer| observer.slow_after) {
            self.tell_slow_wait(key, settings, after.saturating_add(since), circle);
        }
    }

    /// Tells the program that the calling thread has waited for so long, and the circle that it waits in. No mutex may be held.
    fn tell_slow_wait(&self, key: &Key, settings: &DLockConfig, waited: Duration, circle: &[String]) {
        if let Some(observer) = &self.observer {
            let thread = std::thread::current().name().map(str::to_owned);
            let reason = settings.reason().map(str::to_owned);
            let error = key.state.lock().failure.clone();
            let (key, circle) = (key.name.to_string(), circle.to_vec());
            observer.tell(&Event::SlowWait(SlowWait { key, waited, thread, reason, circle, error }));
        }
    }

    /// Returns when to look whether the wait of the calling thread closes a circle. A thread without a hold is in none.
    pub(super) fn circle_at(waiter: &Waiter) -> Option<Moment> {
        owner::has_holds().then(|| waiter.since + timing::CIRCLE)
    }

    /// Enters the calling thread among those that have waited long, and tells the program if that closes a circle.
    pub(super) fn waits_long(&self, key: &Arc<Key>, waiter: &Waiter) -> LongWait<'_> {
        // A thread that waits for a `Hold` is in a circle by what it holds itself.
        let thread = owner::current_thread();
        let wait = self.long_waits.enter(thread, key);
        if !wait.circle.is_empty() {
            let name = owner::name_of(thread).unwrap_or_default();
            log::warn!(
                ACQUIRE,
                "lock {:?}: {name} is in a deadlock, which will not end by itself: each of the locks {:?} is held by the thread \
                 that waits for the next one, and the last one by this thread; lock them in one order everywhere",
                key.name,
                wait.circle
            );
            let waited = self.clock.now().since(waiter.since);
            self.tell_slow_wait(key, &waiter.settings, waited, &wait.circle);
        }
        wait
    }
}

/// Calls of the store.
impl Events {
    /// Returns the current time if the durations of calls are recorded.
    pub(super) fn metered_now(&self) -> Option<Moment> {
        self.observer.as_ref().filter(|observer| observer.meters.is_some()).map(|_| self.clock.now())
    }

    /// Notes the result of a request that had a limit, and that was sent when [`metered_now`](Self::metered_now) returned `sent_at`.
    #[inline]
    pub(super) fn note_request(
        &self,
        request: &Request<'_>,
        limit: Duration,
        sent_at: Option<Moment>,
        result: &Result<Outcome, Error>,
    ) {
        let Some(observer) = &self.observer else { return };
        self.record_call(observer, name_of(Some(request)), sent_at, result.is_ok());
        match result {
            Err(error) if !is_of_the_store(error, limit) => {}
            result => observer.note_answer(request.key(), result.as_ref().err(), || self.clock.now()),
        }
    }

    /// Notes the results of requests that were sent together when [`metered_now`](Self::metered_now) returned `sent_at`.
    pub(super) fn note_batch(
        &self,
        requests: &[Request<'_>],
        sent_at: Option<Moment>,
        results: &[Result<Outcome, Error>],
    ) {
        let Some(observer) = &self.observer else { return };
        self.record_call(observer, name_of(None), sent_at, results.iter().all(Result::is_ok));
        for (request, result) in requests.iter().zip(results) {
            observer.note_answer(request.key(), result.as_ref().err(), || self.clock.now());
        }
    }

    /// Notes how a release has ended that was posted when [`metered_now`](Self::metered_now) returned `posted_at`.
    pub(super) fn note_posted(&self, key: &str, posted_at: Option<Moment>, answer: &Result<ReleaseOutcome, Error>) {
        let Some(observer) = &self.observer else { return };
        self.record_call(observer, "release", posted_at, answer.is_ok());
        observer.note_answer(key, answer.as_ref().err(), || self.clock.now());
    }

    fn record_call(&self, observer: &Observer, name: &'static str, sent_at: Option<Moment>, is_answered: bool) {
        if let Some(sent_at) = sent_at {
            observer.record(Sample::Call { name, took: self.clock.now().since(sent_at), is_answered });
        }
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
    let (lock, held) = (holder(tenure), now.since(tenure.hold.since));
    let sample = Sample::Released { lock: Arc::clone(&lock), held, end };
    observer.queue(&Event::Released(Released { lock, token, held, end }), Some(sample))
}

/// A thread that is counted as waiting.
#[must_use]
pub(super) struct CountedWaiter<'a> {
    observer: &'a Observer,
    lock: Arc<DLockConfig>,
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.observer.record(Sample::Waiting { lock: Arc::clone(&self.lock), more: false });
    }
}
