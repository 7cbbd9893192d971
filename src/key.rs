//! One lock key in one client: its hold, its local FIFO, and how threads come to the hold.
//!
//! All handles of a key made by one generator share one `Key`. The rules of who may do what are those of
//! [`tenure`](crate::tenure); this module carries them out: it talks to the store with the mutex released, and wakes
//! threads after it has released it.

use crate::ask::{Answer, Question};
use crate::backoff::Backoff;
use crate::cancel::Patience;
use crate::client::Client;
use crate::config::DLockConfig;
use crate::error::{BackendFailure, Error};
use crate::hold::{Hold, Reentry, current_thread};
use crate::queue::Waiter;
use crate::tenure::{Phase, State, Tenure, Unsettled};
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Key {
    /// Tells this key from others in the schedules.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) hold: Hold,
    state: Mutex<State>,
    client: Weak<Client>,
}

/// What a turn to ask has led to.
enum Asked {
    /// The calling thread holds the lock.
    Got,
    /// The lock is busy and the caller does not wait.
    No,
    /// The caller stands in the queue.
    Queued(Arc<Waiter>),
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

    /// The state, for the retry and lease threads.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn queue_length(&self) -> usize {
        self.state.lock().queue.len()
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
        let mut state = self.state.lock();
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
                        let failure = self.state.lock().failure.clone();
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

    /// Asks the store, as the thread whose turn it is; afterwards the turn is somebody else's, or the hold is ours.
    fn ask(
        self: &Arc<Self>,
        client: &Client,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Asked, Error> {
        if let Err(shut_down) = client.enter() {
            self.pass_turn(client);
            return Err(shut_down);
        }
        let asked = self.ask_entered(client, settings, patience);
        if !matches!(asked, Ok(Asked::Got)) {
            client.leave();
        }
        asked
    }

    fn ask_entered(
        self: &Arc<Self>,
        client: &Client,
        settings: &Arc<DLockConfig>,
        patience: &Patience<'_>,
    ) -> Result<Asked, Error> {
        let mut question = Question::fresh(client.next_locker(), Arc::clone(settings));
        let mut polled = false;
        loop {
            let sent_at = client.clock.now();
            let limit = patience.limit(sent_at, client.processor.command_limit());
            let result = client.run(&question.request(&self.name), limit);
            match question.answer(&self.name, result, sent_at, &client.cleanup) {
                Answer::Acquired(tenure) => {
                    let mut state = self.state.lock();
                    self.grant(client, &mut state, tenure, current_thread());
                    return Ok(Asked::Got);
                }
                Answer::Gone => {
                    client.wake_cleanup();
                    if patience.is_over(client.clock.now()) {
                        self.pass_turn(client);
                        return Ok(Asked::No);
                    }
                    question = Question::fresh(client.next_locker(), Arc::clone(settings));
                }
                Answer::Failed { error, unsettled: Some(unsettled) }
                    if !polled && is_unknown(&error) && !patience.is_over(client.clock.now()) =>
                {
                    log::debug!("lock {:?}: {error}; asking what became of it", self.name);
                    polled = true;
                    question = Question::again(unsettled);
                }
                answer if patience.is_one_attempt() || answer.is_refusal(client) => {
                    self.pass_turn(client);
                    let refusal =
                        if let Answer::Failed { error, .. } = &answer { Err(error.clone()) } else { Ok(Asked::No) };
                    client.abandon(&self.name, answer.into_unsettled());
                    return refusal;
                }
                answer => {
                    if let Err(error) = client.start_retry_thread() {
                        self.pass_turn(client);
                        client.abandon(&self.name, answer.into_unsettled());
                        return Err(error);
                    }
                    let waiter = Waiter::new(current_thread(), Arc::clone(settings));
                    let mut state = self.state.lock();
                    state.queue.push_back_to_head(Arc::clone(&waiter));
                    self.wait_more(client, &mut state, answer);
                    return Ok(Asked::Queued(waiter));
                }
            }
        }
    }

    /// Settles in `Waiting` after an answer that is neither a success nor final, and tells the retry thread when to ask again.
    pub(crate) fn wait_more(self: &Arc<Self>, client: &Client, state: &mut State, answer: Answer) {
        let now = client.clock.now();
        let lease = state.queue.head().map_or(crate::config::DEFAULT_LEASE, |head| head.settings.lease());
        let (due, unsettled) = match answer {
            Answer::Busy { remaining, unsettled } => {
                let pause = if state.asked == 0 { lease / 10 } else { lease / 6 };
                // Redis counts a key as gone when its millisecond is over.
                let ends = remaining.map_or(Duration::MAX, |ttl| ttl + Duration::from_millis(1));
                state.asked = state.asked.saturating_add(1);
                state.failures = 0;
                state.failure = None;
                (now + pause.min(ends), unsettled)
            }
            Answer::Failed { error, unsettled } => {
                state.failures = state.failures.saturating_add(1);
                if state.failures == 1 || matches!(error, Error::Backend { failure: BackendFailure::Refused, .. }) {
                    log::warn!("lock {:?}: {error}; {} threads wait on", self.name, state.queue.len());
                }
                state.failure = Some(error);
                (now + Backoff::capped(lease / 6).after(state.failures), unsettled)
            }
            Answer::Gone | Answer::Acquired(_) => (now, None),
        };
        state.phase = Phase::Waiting { unsettled };
        client.retry_at(self, due);
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
        let mut state = self.state.lock();
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
        drop(self.state.lock());
        waiter.parked.notify_one();
    }

    pub(crate) fn nudge_all(&self) {
        let waiters: Vec<_> = self.state.lock().queue.iter().map(Arc::clone).collect();
        for waiter in waiters {
            waiter.parked.notify_one();
        }
    }

    pub(crate) fn pass_turn(&self, client: &Client) {
        let next = self.state.lock().pass_turn();
        if let Some(waiter) = next {
            waiter.parked.notify_one();
        } else {
            client.forget_retry(self);
        }
    }

    /// Extends a hold that came with less than half its lease; `false` when it turns out lost.
    fn confirm(self: &Arc<Self>, client: &Client) -> bool {
        let worn = match &self.state.lock().phase {
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
        let mut state = self.state.lock();
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
        let loss = match &self.state.lock().phase {
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
        let mut state = self.state.lock();
        if self.hold.token() == token && matches!(state.phase, Phase::Held(_)) {
            if self.hold.is_lost() {
                let _ = sender.try_send(());
            } else {
                state.watchers.push(sender);
            }
        }
        receiver
    }

    /// The retry thread's turn: takes it if there is still somebody to ask for.
    pub(crate) fn begin_retry(&self, client: &Client) -> Option<Question> {
        let mut state = self.state.lock();
        let settings = Arc::clone(&state.queue.head()?.settings);
        let Phase::Waiting { unsettled } = &mut state.phase else { return None };
        let question = match unsettled.take() {
            Some(unsettled) => Question::again(unsettled),
            None => Question::fresh(client.next_locker(), settings),
        };
        state.phase = Phase::Asking { turn: None };
        Some(question)
    }

    /// The end of the retry thread's turn.
    pub(crate) fn end_retry(self: &Arc<Self>, client: &Client, answer: Answer) {
        let mut state = self.state.lock();
        match answer {
            Answer::Acquired(tenure) => {
                let entered = client.enter().is_ok();
                let next = if entered { state.queue.pop() } else { None };
                if let Some(waiter) = next {
                    self.grant(client, &mut state, tenure, waiter.thread);
                    drop(state);
                    waiter.parked.notify_one();
                } else {
                    // Everybody gave up while the question was under way, or the client was closed.
                    state.phase = Phase::Releasing;
                    drop(state);
                    let _ = client.give_back(&self.name, &tenure);
                    self.pass_turn(client);
                    if entered {
                        client.leave();
                    }
                }
            }
            // A refusal is for the first waiter: it asks for itself, and hears it itself.
            answer if state.queue.is_empty() || answer.is_refusal(client) => {
                drop(state);
                client.abandon(&self.name, answer.into_unsettled());
                self.pass_turn(client);
            }
            answer => self.wait_more(client, &mut state, answer),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some(client) = self.client.upgrade() {
            client.forget_key(&self.name);
        }
    }
}

fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. })
}

impl Answer {
    /// Whether this is a failure that a blocking `lock()` does not wait out. Before the store's first answer that is
    /// every failure: then the address or the password is more likely wrong than the server down.
    fn is_refusal(&self, client: &Client) -> bool {
        match self {
            Self::Failed { error, .. } => !matches!(error, Error::Backend { .. }) || !client.processor.has_answered(),
            _ => false,
        }
    }

    fn into_unsettled(self) -> Option<Unsettled> {
        match self {
            Self::Busy { unsettled, .. } | Self::Failed { unsettled, .. } => unsettled,
            Self::Gone | Self::Acquired(_) => None,
        }
    }
}
