//! `lock()`: how a thread gets a hold.
//!
//! A thread that already holds the key enters again without this file. Any other thread takes up a tenure that lingers, asks the store, or
//! parks in the local queue until it is given the hold or the turn to ask. A hold is confirmed before `lock()` returns it: if the grant
//! came late, the lease is extended first.
//!
//! | the thread | it goes on with |
//! |---|---|
//! | arrives ([`Acquire::arrive`]) | the hold of a tenure that lingers, its turn to ask, or a place in the local queue |
//! | has the turn ([`Asker::ask`]) | requests to the store, one after another, as the table in [`steps`](crate::client) says |
//! | waits ([`Acquire::park`]) | the hold, the turn, or the end of its limit |
//! | has a hold ([`Acquire::confirm`]) | the end of `lock()`, or, if the hold was lost, its turn to ask again |

mod park;
#[cfg(feature = "async")]
mod task;

#[cfg(feature = "async")]
pub(crate) use self::task::{TaskAcquire, TaskWait};

use crate::client::closing::Inside;
use crate::client::events::{Events, LockCall, Queued};
use crate::client::lease_thread::{self, Numbers};
use crate::client::parts::Parts;
use crate::client::question::{Answer, Question, QuestionKind};
use crate::client::releases;
use crate::client::steps::{Asking, QueuePlace, Seen, Step};
use crate::client::turn::Turn;
use crate::client::turn_end::wait_more;
use crate::client::twin;
use crate::client::wait_limit::WaitLimit;
use crate::clock::{Moment, Sleeper};
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error, LossCause};
use crate::event::How;
use crate::log;
use crate::state::key::Key;
use crate::state::machine::{AskedBy, Phase, State, Taker, Waiter};
use crate::state::owner;
use crate::state::tenure::Tenure;
use crate::sync::{MutexGuard, thread};
use crate::timing;
use park::{Parked, Patience};
use std::sync::Arc;
use std::time::Duration;

/// A thread that wants a lock, while it is in `lock()`, or a task while it is polled.
pub(crate) struct Acquire<'c> {
    parts: &'c Parts,
    key: &'c Arc<Key>,
    /// The number of the thread, or of the [`Hold`](crate::Hold) that it wants.
    owner: u64,
    /// The settings of the handle on which it was called.
    settings: &'c Arc<DLockConfig>,
    limit: WaitLimit<'c>,
    /// When the call began, if an event or a metric needs that.
    called_at: Option<Moment>,
    /// The moment from which the wait counts as slow. `None` if nobody is told of slow waits, or once the program was told.
    slow_at: Option<Moment>,
    /// The waiter of the task. `None` for a thread, which has one while it waits.
    task: Option<Arc<Waiter>>,
}

/// How far the thread is.
enum Progress {
    /// The hold is confirmed. Contains the event of the acquisition.
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

/// Whether a hold may begin.
enum Confirmed {
    /// The hold may begin. Contains the event of the acquisition.
    Yes(Queued),
    /// The hold was lost, or its lease is over.
    Lost,
    /// The hold is known only from a message, and the store has not confirmed it; or it could not be extended, and would be lost at once.
    Failed(Error),
}

impl<'c> Acquire<'c> {
    pub(crate) fn new(
        parts: &'c Parts,
        key: &'c Arc<Key>,
        settings: &'c Arc<DLockConfig>,
        limit: &WaitLimit<'c>,
        owner: u64,
    ) -> Self {
        Self { parts, key, owner, settings, limit: *limit, called_at: None, slow_at: None, task: None }
    }

    /// Gets the hold for the owner, which must not have it yet. Returns the hold's token, or `None` if the limit ends first.
    pub(crate) fn lock(mut self) -> Result<Option<u64>, Error> {
        let (parts, key) = (self.parts, self.key);
        // Before a lingering tenure is taken up, too: in a forked child it belongs to the parent.
        let _inside = Inside::of(parts)?;
        if self.limit.is_cancelled() {
            return Ok(None);
        }
        (self.called_at, self.slow_at) = parts.core.events.call_begins();
        releases::note_use(parts);
        let mut progress = match self.take_up_first() {
            Some(queued) => Progress::Confirmed(queued),
            None => {
                self.prepare()?;
                self.arrive()?
            }
        };
        loop {
            progress = match progress {
                Progress::Confirmed(queued) => {
                    queued.finish();
                    parts.core.activity.begin_hold();
                    let token = key.hold.token();
                    log::trace!(ACQUIRE, "lock {:?}: held, token {token}", key.name);
                    return Ok(Some(token));
                }
                Progress::Holds(how) => self.confirm(how)?,
                Progress::HasTurn => self.asker(Turn::of(parts, key)).ask_again()?,
                Progress::Waits(waiter) => self.park(&waiter)?,
                Progress::Ended => return Ok(None),
            };
        }
    }

    /// Prepares for the first lock: starts the lease thread, checks the right to send messages to other processes, and gets ready to hear messages.
    /// Each of these happens once; later calls are cheap. Fails with [`Error::Denied`] if messages may not be sent, and with [`Error::Backend`] if
    /// the operating system refuses a thread. It is not an error here that the store cannot be reached.
    fn prepare(&self) -> Result<(), Error> {
        let (parts, key) = (self.parts, self.key);
        if parts.renewals.thread.start()? {
            parts.renewals.thread.wake_by(parts.record.begin(&parts.core));
        }
        parts.subscription.check(&parts.core, &key.name, || self.command_limit())?;
        if self.settings.reason.is_some()
            && parts.record.is_on
            && (parts.subscription.is_started(&parts.core) || !parts.record.defer_listening())
        {
            // A client that gives reasons for its locks must hear questions about them.
            parts.subscription.listen_for(&parts.core, key);
        }
        if !self.settings.linger.is_zero() {
            // A client whose tenures may linger must hear when others wait.
            parts.subscription.listen(&parts.core);
            // A tenure that lingers is taken up without this. A new tenure lingers at its first release only if the client hears of the key by then.
            // So this may use a little of the caller's time.
            if parts.subscription.is_open()
                && !parts.subscription.hears(&parts.core, key)
                && !matches!(key.state.lock().phase, Phase::Lingering { .. })
            {
                parts
                    .subscription
                    .get_ready_to_hear(&parts.core, key, || (self.command_limit() / 4).min(timing::LISTEN_FIRST));
            }
        }
        Ok(())
    }

    /// Takes up a tenure that lingers, before anything is prepared: its first holder has prepared everything. [`arrive`](Self::arrive) deals with a
    /// tenure that cannot be taken up.
    fn take_up_first(&self) -> Option<Queued> {
        if self.settings.linger.is_zero() {
            return None;
        }
        self.take_up(&mut self.key.state.lock())
    }

    /// Takes what an arriving thread finds: a tenure that lingers, the turn to ask, or a place in the local queue.
    fn arrive(&self) -> Result<Progress, Error> {
        let (parts, key) = (self.parts, self.key);
        let mut state = key.state.lock();
        if self.task.is_some() && parts.core.activity.is_closed() {
            // The closing thread has looked, or will look, for the tasks in the queue.
            return Err(Error::ShutDown);
        }
        if let Some(queued) = self.take_up(&mut state) {
            return Ok(Progress::Confirmed(queued));
        }
        if matches!(&state.phase, Phase::Lingering { tenure, .. } if parts.core.clock.now() >= tenure.deadline()) {
            Turn::lose_lingering(parts, key, state, &LossCause::Deadline);
            state = key.state.lock();
        }
        if matches!(state.phase, Phase::Idle) {
            if let Some(waiter) = &self.task {
                state.phase = Phase::Waiting { unsettled: None };
                state.push_back(Arc::clone(waiter));
                let now = parts.core.clock.now();
                parts.retries.ask_at(key, now);
                drop(state);
                parts.retries.thread.wake_and_expect_more(now);
                return Ok(Progress::Waits(Arc::clone(waiter)));
            }
            state.phase = Phase::Asking { by: AskedBy::Arriving, about: None };
            drop(state);
            return self.asker(Turn::of(parts, key)).ask();
        }
        // The key is free for a task once the retry thread has given back a hold that another task has dropped.
        let may_be_free_soon = self.task.is_some() && state.is_unwanted();
        if self.limit.is_one_attempt && !may_be_free_soon {
            // Others of this process hold the key, ask for it or wait for it.
            return self.limit.outcome(state.failure.clone()).map(|()| Progress::Ended);
        }
        let waiter = self.waiter();
        state.push_back(Arc::clone(&waiter));
        drop(state);
        // The holder in this process must hear when others wait.
        parts.subscription.listen_for(&parts.core, key);
        Ok(Progress::Waits(waiter))
    }

    /// Takes up a tenure that lingers for the calling thread. `None` if there is none, its lease is over, or others want it.
    fn take_up(&self, state: &mut State) -> Option<Queued> {
        let (parts, key) = (self.parts, self.key);
        let Phase::Lingering { tenure, .. } = &mut state.phase else { return None };
        let now = parts.core.clock.now();
        if now >= tenure.deadline() || tenure.others.wait() || !tenure.tokens.advance() {
            return None;
        }
        let lingering = std::mem::replace(&mut state.phase, Phase::Asking { by: AskedBy::Arriving, about: None });
        let Phase::Lingering { mut tenure, .. } = lingering else { return None };
        parts.renewals.grant_next(key, &mut tenure, self.taker(), now);
        let queued = parts.core.events.queue_acquired(&mut tenure, self.call(How::TakenUp));
        state.phase = Phase::Held(tenure);
        Some(queued)
    }

    /// Confirms the thread's hold, or gives it back and goes on without it.
    fn confirm(&self, how: How) -> Result<Progress, Error> {
        self.after_confirmation(self.confirmed(self.call(how)))
    }

    fn after_confirmation(&self, confirmed: Confirmed) -> Result<Progress, Error> {
        match confirmed {
            Confirmed::Yes(queued) => Ok(Progress::Confirmed(queued)),
            Confirmed::Failed(error) => self.asker(self.discard()).after_unconfirmed(error),
            Confirmed::Lost => {
                let turn = self.discard();
                if self.limit.is_one_attempt {
                    let late = "the lease ended before the client learned of the grant";
                    return Err(Error::backend(BackendFailure::Unknown, late));
                }
                self.asker(turn).ask_again()
            }
        }
    }

    /// Confirms a hold before its thread is told: if less than half its lease is left, the lease is extended first. A hold that is known
    /// only from a message is confirmed by an extension, too, if the store wants that.
    fn confirmed(&self, call: LockCall<'_>) -> Confirmed {
        let (parts, key) = (self.parts, self.key);
        let mut state = key.state.lock();
        if let Some(confirmed) = self.confirm_now(&mut state, call, parts.core.clock.now()) {
            return confirmed;
        }
        let Some(expiring) = state.tenure_mut().map(|tenure| Arc::clone(&tenure.locker)) else {
            return Confirmed::Lost;
        };
        drop(state);
        let now = parts.core.clock.now();
        let unconfirmed = Unconfirmed(self);
        log::debug!(ACQUIRE, "lock {:?}: granted late or by a message, extending the lease before use", key.name);
        let limit = self.limit.of_command(now, parts.core.limits.command);
        let extended = lease_thread::extend_now(parts, key, &expiring, Numbers::Keep, limit);
        std::mem::forget(unconfirmed);
        self.after_extension(&mut key.state.lock(), call, extended.err())
    }

    /// Confirms the thread's hold, after an extension that has ended with this failure, or without one. After a failure, there must be time left for
    /// another attempt: far from the servers the hold would otherwise be lost as soon as its thread is told of it.
    fn after_extension(&self, state: &mut State, call: LockCall<'_>, failure: Option<Error>) -> Confirmed {
        let parts = self.parts;
        match &mut state.phase {
            Phase::Held(tenure) if !tenure.is_lost() && parts.core.clock.now() < tenure.deadline() => {
                let left = tenure.deadline().since(parts.core.clock.now());
                let may_last = failure.is_none() || left >= timing::least_for_attempt(parts.renewals.trip());
                tenure.is_confirmed = may_last && tenure.counts(&parts.core.limits);
                match failure {
                    _ if tenure.is_confirmed => Confirmed::Yes(parts.core.events.queue_acquired(tenure, call)),
                    Some(error) => Confirmed::Failed(error),
                    None => Confirmed::Lost,
                }
            }
            _ => Confirmed::Lost,
        }
    }

    /// Confirms the thread's hold if what is known of it is enough now, without a request. Call it with the key's mutex held.
    fn confirm_now(&self, state: &mut State, call: LockCall<'_>, now: Moment) -> Option<Confirmed> {
        let parts = self.parts;
        let Phase::Held(tenure) = &mut state.phase else { return Some(Confirmed::Yes(Queued::NOTHING)) };
        if tenure.is_lost() {
            return Some(Confirmed::Lost);
        }
        // The lease thread already renews a tenure that is passed on, so it is enough that its deadline has not passed.
        tenure.is_confirmed = tenure.counts(&parts.core.limits)
            && (!tenure.lease.is_near_expiry(now) || (tenure.is_confirmed && now < tenure.deadline()));
        if tenure.is_confirmed { Some(Confirmed::Yes(parts.core.events.queue_acquired(tenure, call))) } else { None }
    }

    /// Releases a hold that was lost before its thread was told, and takes the turn to ask again.
    fn discard(&self) -> Turn<'c> {
        let (parts, key) = (self.parts, self.key);
        let ended =
            parts.renewals.end_hold(key, &mut key.state.lock(), Phase::Asking { by: AskedBy::Arriving, about: None });
        if let Some((tenure, _)) = ended {
            parts.retries.release_later(&key.name, &tenure);
        }
        Turn::of(parts, key)
    }

    fn asker(&self, turn: Turn<'c>) -> Asker<'_, 'c> {
        Asker { acquire: self, turn }
    }

    /// Returns the waiter of this call.
    fn waiter(&self) -> Arc<Waiter> {
        let new = || Waiter::new(self.owner, Arc::clone(self.settings), self.parts.core.clock.now());
        self.task.clone().unwrap_or_else(new)
    }

    fn taker(&self) -> Taker<'c> {
        Taker { owner: self.owner, settings: self.settings }
    }

    fn call(&self, how: How) -> LockCall<'c> {
        LockCall { settings: self.settings, called_at: self.called_at, how }
    }

    /// Returns how long a request that is sent now may take.
    fn command_limit(&self) -> Duration {
        self.limit.of_command(self.parts.core.clock.now(), self.parts.core.limits.command)
    }

    /// Waits in the local queue for the hold or for the turn to ask.
    fn park(&mut self, waiter: &Arc<Waiter>) -> Result<Progress, Error> {
        let (parts, key, limit) = (self.parts, self.key, self.limit);
        let _counted = parts.core.events.count_waiter(&waiter.settings);
        let sleeper = || Arc::new(Parked { key: Arc::clone(key), waiter: Arc::clone(waiter) }) as Arc<dyn Sleeper>;
        let mut patience = Patience::of(limit, &parts.core.clock);
        // Register before the first check, so that no wake-up after it is missed.
        let _registered = (limit.register(sleeper), parts.core.clock.register(sleeper));
        let (mut circle_at, mut long_wait) = (Events::circle_at(waiter), None);
        let mut state = key.state.lock();
        loop {
            if key.hold.is_owned_by(waiter.owner) {
                return Ok(Progress::Holds(How::Granted));
            }
            if state.is_turn_of(waiter.owner) {
                return Ok(Progress::HasTurn);
            }
            let now = parts.core.clock.now();
            let in_vain = patience.as_mut().is_some_and(|patience| patience.look_at_store(parts, key, &state));
            if parts.core.activity.is_closed() || limit.is_over(now) || in_vain {
                return self.leave(waiter, state);
            }
            if let Some(at) = self.slow_at.take_if(|at| *at <= now) {
                drop(state);
                parts.core.events.tell_slow(key, &waiter.settings, now.since(at), long_wait.as_ref());
                state = key.state.lock();
                continue;
            }
            if circle_at.take_if(|at| *at <= now).is_some() {
                drop(state);
                long_wait = Some(parts.core.events.waits_long(key, waiter));
                state = key.state.lock();
                continue;
            }
            let until = [limit.until, self.slow_at, circle_at].into_iter().flatten().min().unwrap_or(Moment::NEVER);
            let sleep = patience.as_ref().map_or(Duration::MAX, Patience::left).min(parts.core.clock.sleep(until, now));
            waiter.park(&mut state, until, sleep);
        }
    }

    /// Leaves the local queue without the lock.
    fn leave(&self, waiter: &Waiter, mut state: MutexGuard<'_, State>) -> Result<Progress, Error> {
        let (parts, key) = (self.parts, self.key);
        let failure = if parts.core.activity.is_closed() { Some(Error::ShutDown) } else { state.failure.clone() };
        let unsettled = Turn::leave_queue(parts, key, &mut state, waiter);
        drop(state);
        parts.retries.abandon(&key.name, unsettled);
        self.limit.outcome(failure).map(|()| Progress::Ended)
    }
}

/// A thread that has the turn, and asks the store.
struct Asker<'a, 'c> {
    acquire: &'a Acquire<'c>,
    turn: Turn<'c>,
}

impl Asker<'_, '_> {
    /// Asks the store, as the thread whose turn it is. Afterwards the caller has the hold, or its turn has ended.
    fn ask(self) -> Result<Progress, Error> {
        let parts = self.acquire.parts;
        let mut asking = Asking::new(self.acquire.limit.is_one_attempt, parts.core.limits.remaining_known);
        let mut question = self.question(QueuePlace::IfHeard);
        loop {
            self.acquire.key.state.lock().ask_about(&question.about.locker);
            let sent_at = parts.core.clock.now();
            let may_queue = !matches!(question.kind, QuestionKind::Look);
            let answer = self.put(question, sent_at);
            let now = parts.core.clock.now();
            if let Answer::Acquired(tenure) = answer {
                parts.renewals.note_trip(now.since(sent_at));
                let how = if asking.attempt.is_busy { How::Granted } else { How::Free };
                return self.take(tenure, how, now);
            }
            let seen = self.look(&answer, may_queue, sent_at, now);
            question = match asking.next(answer, &seen) {
                Step::Ask(place) => self.question(place),
                Step::Poll { unsettled, after } => {
                    if !after.is_zero() {
                        thread::sleep(after);
                    }
                    Question::again(unsettled)
                }
                Step::End { abandoned, failure } => {
                    parts.retries.abandon(&self.acquire.key.name, abandoned);
                    return self.acquire.limit.outcome(failure).map(|()| Progress::Ended);
                }
                Step::Refuse(answer) => return self.refuse(answer),
                Step::Wait(answer) => return self.wait_on(answer, sent_at),
            };
        }
    }

    /// Asks again, as the thread whose turn it is, unless its wait is over.
    fn ask_again(self) -> Result<Progress, Error> {
        let parts = self.acquire.parts;
        if self.acquire.limit.is_over(parts.core.clock.now()) || parts.core.activity.is_closed() {
            let failure = if parts.core.activity.is_closed() {
                Some(Error::ShutDown)
            } else {
                self.acquire.key.state.lock().failure.clone()
            };
            drop(self.turn);
            return self.acquire.limit.outcome(failure).map(|()| Progress::Ended);
        }
        if let Some(waiter) = &self.acquire.task {
            let mut state = self.acquire.key.state.lock();
            if parts.core.activity.is_closed() {
                // The closing thread may have looked for the tasks in the queue.
                drop(state);
                return Err(Error::ShutDown);
            }
            state.push_front(Arc::clone(waiter));
            drop(state);
            drop(self.turn);
            return Ok(Progress::Waits(Arc::clone(waiter)));
        }
        self.ask()
    }

    /// Goes on after a grant that the store has not confirmed, and that was given back. Returns the error, or lets the thread wait.
    fn after_unconfirmed(self, error: Error) -> Result<Progress, Error> {
        let parts = self.acquire.parts;
        let now = parts.core.clock.now();
        let is_undone = matches!(error, Error::Backend { failure: BackendFailure::Unacknowledged, .. });
        let answer = Answer::Failed { error, unsettled: None };
        if self.acquire.limit.is_one_attempt || parts.core.activity.is_closed() || answer.is_refusal(&parts.core) {
            return self.refuse(answer);
        }
        if self.acquire.limit.is_over(now) && !is_undone {
            // The lock was busy, and there was too little time after that.
            return Ok(Progress::Ended);
        }
        self.wait_on(answer, now)
    }

    /// Returns the first request for a fresh locker. A waiter stands in the store's queue only if the inbox is open
    /// to receive the grant: the store would pass over a waiter that does not listen, and drop it as dead.
    fn question(&self, place: QueuePlace) -> Question {
        let (parts, key) = (self.acquire.parts, self.acquire.key);
        let joins = match place {
            QueuePlace::None => false,
            QueuePlace::ForRecall => true,
            _ if self.acquire.limit.is_one_attempt => false,
            QueuePlace::IfHeard => parts.subscription.hears(&parts.core, key),
            // If the client is not ready by then, the caller goes on without a place, and asks again when the client hears of the key.
            QueuePlace::OnceHeard => {
                parts.subscription.get_ready_to_hear(&parts.core, key, || self.acquire.command_limit() / 4)
            }
        };
        Question::fresh(parts.core.next_locker(self.acquire.settings), Arc::clone(self.acquire.settings), joins)
    }

    /// Sends a question, and interprets the reply.
    fn put(&self, question: Question, sent_at: Moment) -> Answer {
        let (parts, key) = (self.acquire.parts, self.acquire.key);
        let limit = self.acquire.limit.of_command(sent_at, parts.core.limits.command);
        let thread = thread::current();
        let settings = self.acquire.settings;
        let of_hold = settings.holder_name.as_deref().filter(|_| !owner::is_thread(self.acquire.owner));
        let request = question.request(&key.name, &parts.core, of_hold.or(thread.name()));
        let result = parts.core.run(&request, limit);
        question.take_in(&self.turn, result, sent_at)
    }

    /// Takes the hold that the store has granted, as the reply says that arrived `now`. Ends the turn, and confirms the hold if that takes no
    /// request. Fails with [`Error::Cloned`] if the client has given up the identity that asked: a copy of this process may have the hold, too.
    fn take(self, tenure: Box<Tenure>, how: How, now: Moment) -> Result<Progress, Error> {
        let (parts, key) = (self.acquire.parts, self.acquire.key);
        let mut state = key.state.lock();
        if !parts.core.is_ours(&tenure.locker) {
            drop(state);
            return Err(twin::meet(parts, &key.name, &tenure.locker));
        }
        parts.renewals.grant(key, &mut state, tenure, self.acquire.taker(), now);
        self.turn.end();
        let confirmed = self.acquire.confirm_now(&mut state, self.acquire.call(how), now);
        drop(state);
        match confirmed {
            Some(Confirmed::Yes(queued)) => Ok(Progress::Confirmed(queued)),
            _ => Ok(Progress::Holds(how)),
        }
    }

    /// Returns what the next step depends on, beside the answer.
    fn look(&self, answer: &Answer, may_queue: bool, sent_at: Moment, now: Moment) -> Seen {
        let (parts, key, limit) = (self.acquire.parts, self.acquire.key, self.acquire.limit);
        let holder = answer.holder();
        if let Answer::Failed { error, .. } = answer {
            log::debug!(ACQUIRE, "lock {:?}: a request has failed: {error}", key.name);
        }
        Seen {
            now,
            took: now.since(sent_at),
            is_over: limit.is_over(now),
            is_closed: parts.core.activity.is_closed(),
            has_time: limit.has_time_for_another(now, sent_at),
            wants_place: may_queue
                || matches!(answer, Answer::Busy { .. })
                    && !limit.is_one_attempt
                    && parts.subscription.is_open()
                    && !parts.subscription.hears(&parts.core, key),
            // If the holder is our released locker, the server did not know the script of the release, so this request overtook the release. The
            // release was sent again before this reply was delivered, so the next request comes after it.
            is_released: limit.is_one_attempt && holder.is_some() && key.state.lock().released.as_deref() == holder,
            may_recall: answer.may_recall(&parts.core),
            is_refused: answer.is_refusal(&parts.core),
        }
    }

    /// Ends a turn that was neither successful nor final: the calling thread waits, as the first one of its process.
    fn wait_on(self, answer: Answer, sent_at: Moment) -> Result<Progress, Error> {
        let (parts, key) = (self.acquire.parts, self.acquire.key);
        parts.subscription.listen(&parts.core);
        if let Err(error) = parts.retries.thread.start() {
            parts.retries.abandon(&key.name, answer.into_unsettled());
            return Err(error);
        }
        let now = parts.core.clock.now();
        let waiter = self.acquire.waiter();
        let mut state = key.state.lock();
        if self.acquire.task.is_some() && parts.core.activity.is_closed() {
            drop(state);
            parts.retries.abandon(&key.name, answer.into_unsettled());
            return Err(Error::ShutDown);
        }
        state.push_front(Arc::clone(&waiter));
        // If no request can be answered in the time left, none is sent now. When this thread gives up, the next request is sent if others still wait.
        let may_ask = self.acquire.limit.has_time_for_another(now, sent_at);
        wait_more(self.turn, answer, state, sent_at, may_ask);
        Ok(Progress::Waits(waiter))
    }

    /// Fails the caller without queueing it, and leaves the error for the threads that still wait.
    fn refuse(self, answer: Answer) -> Result<Progress, Error> {
        let outcome = match &answer {
            Answer::Failed { error, .. } => {
                // An error that comes from the caller's own short time limit says nothing to the others.
                if self.acquire.limit.until.is_none() {
                    self.acquire.key.state.lock().failure = Some(error.clone());
                }
                Err(error.clone())
            }
            _ => Ok(Progress::Ended),
        };
        let parts = self.acquire.parts;
        parts.retries.abandon(&self.acquire.key.name, answer.into_unsettled());
        if parts.core.activity.is_closed() { Err(Error::ShutDown) } else { outcome }
    }
}

/// A hold whose thread has not been told of it. If the store panics, this gives the hold back, because no other code would.
struct Unconfirmed<'a>(&'a Acquire<'a>);

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        drop(self.0.discard());
    }
}
