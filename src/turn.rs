//! Taking a turn to ask the store: by a waiting or arriving thread, or by the retry thread for the first that waits.

use crate::ask::{Answer, Question};
use crate::backoff::Backoff;
use crate::cancel::Patience;
use crate::client::Client;
use crate::config::{DEFAULT_LEASE, DLockConfig};
use crate::error::{BackendFailure, Error};
use crate::hold::current_thread;
use crate::key::Key;
use crate::queue::Waiter;
use crate::tenure::{Phase, State, Unsettled};
use std::sync::Arc;
use std::time::Duration;

/// What a turn to ask has led to.
pub(crate) enum Asked {
    /// The calling thread holds the lock.
    Got,
    /// The lock is busy and the caller does not wait.
    No,
    /// The caller stands in the queue.
    Queued(Arc<Waiter>),
}

impl Key {
    /// Asks the store, as the thread whose turn it is; afterwards the turn is somebody else's, or the hold is ours.
    pub(crate) fn ask(
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
                    let mut state = self.state();
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
                    let mut state = self.state();
                    state.queue.push_back_to_head(Arc::clone(&waiter));
                    self.wait_more(client, &mut state, answer);
                    return Ok(Asked::Queued(waiter));
                }
            }
        }
    }

    /// Settles in `Waiting` after an answer that is neither a success nor final, and tells the retry thread when to ask again.
    fn wait_more(self: &Arc<Self>, client: &Client, state: &mut State, answer: Answer) {
        let now = client.clock.now();
        let lease = state.queue.head().map_or(DEFAULT_LEASE, |head| head.settings.lease());
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

    /// Passes the turn to the first waiter, if there is one.
    pub(crate) fn pass_turn(&self, client: &Client) {
        let next = self.state().pass_turn();
        if let Some(waiter) = next {
            waiter.parked.notify_one();
        } else {
            client.forget_retry(self);
        }
    }

    /// The retry thread's turn: takes it if there is still somebody to ask for.
    pub(crate) fn begin_retry(&self, client: &Client) -> Option<Question> {
        let mut state = self.state();
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
        let mut state = self.state();
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
