//! How a task waits for a hold. It is polled, and must not block the thread that polls it, nor wait for the store.
//!
//! | the task | then |
//! |---|---|
//! | is polled for the first time | it takes up a tenure that lingers, or enters the local queue. If nobody has asked for the key, the retry thread asks now |
//! | is polled while it waits | it finds that it has the hold, or that its wait was ended, or it leaves because its limit is over |
//! | has a hold that must be confirmed | the retry thread extends the lease, and wakes it |
//! | is dropped while it waits | it leaves the queue, or gives back the hold that it was just given |
//!
//! A task is counted as a hold from its first poll to its end: see [`Activity::begin_task`](crate::client::activity::Activity::begin_task).
//! Whoever takes its waiter out of the queue counts it out: the task itself, or a thread of the client that ends its wait.

use super::{Acquire, Confirmed, Progress};
use crate::client::orders::{Confirmation, Order};
use crate::client::parts::Parts;
use crate::client::releases;
use crate::client::unlock::{AfterRelease, Unlock};
use crate::client::wait_limit::WaitLimit;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::event::How;
use crate::state::key::Key;
use crate::state::machine::{AskedBy, Phase, State, Waiter};
use crate::state::task::{ConfirmingExtension, Task, TaskPolling};
use crate::sync::MutexGuard;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// What a task that acquires a hold keeps between two polls.
#[derive(Debug)]
pub(crate) struct TaskWait {
    limit: WaitLimit<'static>,
    called_at: Option<Moment>,
    slow_at: Option<Moment>,
    stage: Stage,
    /// Whether an alarm is set.
    has_alarm: bool,
    /// Whether it is counted among those that wait.
    is_counted: bool,
    polling: TaskPolling,
}

#[derive(Debug)]
enum Stage {
    /// It was not polled yet.
    New,
    /// Its waiter stands in the queue, or was taken out: by a grant, or by a thread that has ended the wait.
    Waits(Arc<Waiter>),
    /// It has ended.
    Over,
}

impl TaskWait {
    pub(crate) fn new(limit: WaitLimit<'static>) -> Self {
        let polling = TaskPolling::default();
        Self { limit, called_at: None, slow_at: None, stage: Stage::New, has_alarm: false, is_counted: false, polling }
    }

    /// Returns how long the task is willing to wait.
    pub(crate) fn limit(&self) -> WaitLimit<'static> {
        self.limit
    }

    /// Returns whether the task was polled, and has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Waits(_))
    }
}

/// A task that is polled, or whose future is dropped.
pub(crate) struct TaskAcquire<'c> {
    call: Acquire<'c>,
    wait: &'c mut TaskWait,
}

impl<'c> TaskAcquire<'c> {
    pub(crate) fn new(
        parts: &'c Parts,
        key: &'c Arc<Key>,
        settings: &'c Arc<DLockConfig>,
        owner: u64,
        wait: &'c mut TaskWait,
    ) -> Self {
        let mut call = Acquire::new(parts, key, settings, &wait.limit, owner);
        (call.called_at, call.slow_at) = (wait.called_at, wait.slow_at);
        Self { call, wait }
    }

    /// Gets the hold for the owner, a [`Hold`](crate::Hold). Returns its token, or `None` if the limit has ended before. Do not call it again after
    /// it has returned something.
    pub(crate) fn poll(mut self, waker: &Waker) -> Poll<Result<Option<u64>, Error>> {
        // The stage changes only once the outcome is known: a waker is the runtime's code, and may panic.
        let progress = match &self.wait.stage {
            Stage::New => self.begin(waker),
            Stage::Waits(waiter) => {
                let waiter = Arc::clone(waiter);
                self.call.task = Some(Arc::clone(&waiter));
                self.look_again(waiter, waker)
            }
            Stage::Over => Ok(Progress::Ended),
        };
        let polled = progress.map_or_else(|error| Poll::Ready(Err(error)), |progress| self.go_on(progress, waker));
        self.wait.slow_at = self.call.slow_at;
        if polled.is_ready() {
            self.wait.stage = Stage::Over;
            self.end();
        }
        polled
    }

    /// Ends a wait whose future is dropped.
    pub(crate) fn abandon(mut self) {
        if let Stage::Waits(waiter) = std::mem::replace(&mut self.wait.stage, Stage::Over) {
            self.give_up(&waiter);
            self.call.parts.core.events.note_abandoned(self.call.settings);
        }
        self.end();
    }

    /// Removes the alarm of a wait, and tells the metrics that the task waits no longer.
    fn end(&mut self) {
        if std::mem::take(&mut self.wait.has_alarm) {
            self.call.parts.alarms.remove(self.call.owner);
        }
        if std::mem::take(&mut self.wait.is_counted) {
            self.call.parts.core.events.note_waiting(self.call.settings, false);
        }
    }

    /// Leaves the queue, or gives back the hold that the task was given.
    fn give_up(&self, waiter: &Arc<Waiter>) {
        let (parts, key) = (self.call.parts, self.call.key);
        let state = key.state.lock();
        if key.hold.is_owned_by(self.call.owner) {
            self.give_back(state);
        } else if waiter.task.as_ref().is_none_or(|task| task.take_end().is_none()) {
            let _ = self.call.leave(waiter, state);
            parts.count_out_task();
        }
        // Otherwise, the thread that has ended the wait has counted the task out.
    }

    /// Gives back a hold of which the task was not told.
    fn give_back(&self, state: MutexGuard<'_, State>) {
        Unlock::new(self.call.parts, self.call.key, AfterRelease::Elsewhere).unlock_untold(state);
    }

    /// Arrives, for the first poll.
    fn begin(&mut self, waker: &Waker) -> Result<Progress, Error> {
        let parts = self.call.parts;
        let now = parts.core.clock.now();
        if self.call.limit.is_over(now) {
            // The limit counts from the creation of the future. If it is over, the task makes one attempt, as with a limit of zero.
            self.wait.limit = WaitLimit::ONE_ATTEMPT;
            self.call.limit = WaitLimit::ONE_ATTEMPT;
        }
        let task = if self.call.limit.is_one_attempt { Task::of_one_attempt() } else { Task::default() };
        task.waker.keep(waker);
        parts.core.activity.begin_task()?;
        (self.call.called_at, self.call.slow_at) = parts.core.events.call_begins();
        (self.wait.called_at, self.wait.slow_at) = (self.call.called_at, self.call.slow_at);
        self.call.task = Some(Waiter::of_task(self.call.owner, Arc::clone(self.call.settings), now, task));
        let arrived = self.start_threads().and_then(|()| self.call.arrive());
        match &arrived {
            Ok(Progress::Waits(waiter)) => {
                self.wait.stage = Stage::Waits(Arc::clone(waiter));
                self.wait.polling = TaskPolling::begin();
                self.end_polling_unless_next(&self.call.key.state.lock(), waiter);
            }
            Ok(Progress::Confirmed(_)) => {}
            _ => parts.count_out_task(),
        }
        arrived
    }

    /// Starts the threads that work for a task. The retry thread does the other preparations that a thread makes before its first lock.
    fn start_threads(&self) -> Result<(), Error> {
        let parts = self.call.parts;
        releases::note_use(parts);
        if parts.renewals.thread.start()? {
            parts.renewals.thread.wake_by(parts.record.begin(&parts.core));
        }
        parts.retries.thread.start().map(|_| ())
    }

    /// Looks whether the wait has ended.
    fn look_again(&mut self, waiter: Arc<Waiter>, waker: &Waker) -> Result<Progress, Error> {
        let (parts, key) = (self.call.parts, self.call.key);
        let Some(task) = &waiter.task else { return Ok(Progress::Ended) };
        task.waker.keep(waker);
        let state = key.state.lock();
        if key.hold.is_owned_by(self.call.owner) {
            return Ok(Progress::Holds(task.granted()));
        }
        if let Some(end) = task.take_end() {
            return self.call.limit.outcome(end.err()).map(|()| Progress::Ended);
        }
        let now = parts.core.clock.now();
        self.end_polling_unless_next(&state, &waiter);
        if !self.call.limit.is_over(now) {
            drop(state);
            if let Some(at) = self.call.slow_at.take_if(|at| *at <= now) {
                parts.core.events.tell_slow(key, &waiter.settings, now.since(at), None);
            }
            return Ok(Progress::Waits(waiter));
        }
        let is_unanswered = self.is_unanswered(&state, &waiter);
        let left = self.call.leave(&waiter, state);
        parts.count_out_task();
        match left {
            Ok(_) if is_unanswered => {
                Err(Error::backend(BackendFailure::Unknown, "the store has not answered within the limit"))
            }
            left => left,
        }
    }

    /// Whether the store is asked for this task now, and has not said yet that another one has the lock.
    fn is_unanswered(&self, state: &State, waiter: &Arc<Waiter>) -> bool {
        let is_asking = matches!(
            state.phase,
            Phase::Asking { by: AskedBy::Arriving | AskedBy::Client, .. } | Phase::Waiting { unsettled: None }
        );
        is_asking && self.is_next(state, waiter)
    }

    /// Whether this task is the first one that waits, and the store has not said yet that another one has the lock.
    fn is_next(&self, state: &State, waiter: &Arc<Waiter>) -> bool {
        let is_first = state.queue.front().is_some_and(|first| Arc::ptr_eq(first, waiter));
        is_first && !state.was_busy() && state.failure.is_none()
    }

    /// Ends the polling, unless the next answer of the store about the key may give this task the lock.
    fn end_polling_unless_next(&mut self, state: &State, waiter: &Arc<Waiter>) {
        let is_released = matches!(state.phase, Phase::Releasing { .. });
        if !(self.is_unanswered(state, waiter) || is_released && self.is_next(state, waiter)) {
            self.wait.polling.end();
        }
    }

    /// Goes on as far as the task can without waiting.
    fn go_on(&mut self, mut progress: Progress, waker: &Waker) -> Poll<Result<Option<u64>, Error>> {
        loop {
            let next = match progress {
                Progress::Confirmed(queued) => {
                    queued.finish();
                    return Poll::Ready(Ok(Some(self.call.key.hold.token())));
                }
                Progress::Holds(how) => match self.confirm_for_task(how) {
                    Some(next) => next,
                    None if self.call.limit.is_over(self.call.parts.core.clock.now()) => {
                        // There is no time to wait for the extension.
                        self.give_back(self.call.key.state.lock());
                        return Poll::Ready(Ok(None));
                    }
                    None => return self.pause(waker, self.call.limit.until),
                },
                Progress::Waits(_) => {
                    let alarm = [self.call.limit.until, self.call.slow_at].into_iter().flatten().min();
                    return self.pause(waker, alarm);
                }
                Progress::HasTurn | Progress::Ended => return Poll::Ready(Ok(None)),
            };
            progress = match next {
                Ok(next) => next,
                Err(error) => return Poll::Ready(Err(error)),
            };
        }
    }

    /// Waits for the next poll, with an alarm at a moment.
    fn pause(&mut self, waker: &Waker, alarm: Option<Moment>) -> Poll<Result<Option<u64>, Error>> {
        let Some(waiter) = self.call.task.clone() else { return Poll::Pending };
        if !std::mem::replace(&mut self.wait.is_counted, true) {
            self.call.parts.core.events.note_waiting(self.call.settings, true);
        }
        let (store, key) = (&self.call.parts.core.processor, &self.call.key.name);
        if self.wait.polling.again(waker, |since| store.is_expected_soon(key, since)) {
            self.wait.stage = Stage::Waits(waiter);
            return Poll::Pending;
        }
        if let Err(error) = self.set_alarm(waker, alarm) {
            self.give_up(&waiter);
            return Poll::Ready(Err(error));
        }
        self.wait.stage = Stage::Waits(waiter);
        Poll::Pending
    }

    fn set_alarm(&mut self, waker: &Waker, alarm: Option<Moment>) -> Result<(), Error> {
        let Some(at) = alarm else { return Ok(()) };
        self.wait.has_alarm = true;
        self.call.parts.alarms.set(self.call.owner, at, waker)
    }

    /// Confirms the task's hold, or gives it back and goes on without it. Returns `None` while the retry thread extends the lease first.
    fn confirm_for_task(&self, how: How) -> Option<Result<Progress, Error>> {
        let (parts, key) = (self.call.parts, self.call.key);
        let waiter = self.call.task.as_ref()?;
        let task = waiter.task.as_ref()?;
        let mut state = key.state.lock();
        let confirmed = match self.call.confirm_now(&mut state, self.call.call(how), parts.core.clock.now()) {
            Some(confirmed) => confirmed,
            None => {
                let (locker, kept) =
                    state.tenure_mut().map(|tenure| (Arc::clone(&tenure.locker), tenure.store_time()))?;
                match task.take_or_order_extension(&locker) {
                    ConfirmingExtension::Over(_, failure) => {
                        self.call.after_extension(&mut state, self.call.call(how), failure)
                    }
                    ConfirmingExtension::Ordered(_) => return None,
                    ConfirmingExtension::NotOrdered => {
                        drop(state);
                        let (key, waiter) = (Arc::clone(key), Arc::clone(waiter));
                        parts.order(Order::Confirm(Confirmation { key, locker, kept, waiter }));
                        return None;
                    }
                }
            }
        };
        drop(state);
        let is_confirmed = matches!(confirmed, Confirmed::Yes(_));
        let next = self.call.after_confirmation(confirmed);
        // It has neither a hold nor a place in the queue any more.
        if !is_confirmed && !matches!(next, Ok(Progress::Waits(_))) {
            parts.count_out_task();
        }
        Some(next)
    }
}
