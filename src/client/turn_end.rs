//! How a turn ends whose request was answered: what becomes of those who wait for the key, and when the store is asked next.

use super::question::Answer;
use super::steps::{Asking, QueuePlace, Seen, Step};
use super::turn::Turn;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::event::How;
use crate::log;
use crate::state::machine::{Phase, State};
use crate::state::task::Task;
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::MutexGuard;
use crate::timing;
use std::sync::Arc;

/// Ends the retry thread's turn, whose request was sent at `sent_at`. Returns a tenure that was granted after
/// every waiter had given up: release it before its turn is dropped.
pub(super) fn end_retry<'c>(turn: Turn<'c>, answer: Answer, sent_at: Moment) -> Option<(Turn<'c>, Box<Tenure>)> {
    let (parts, key) = (turn.parts, Arc::clone(&turn.key));
    let mut state = key.state.lock();
    match answer.without_given_up(parts, &key.name) {
        Answer::Acquired(tenure) => {
            let Some(waiter) = state.queue.pop_front() else {
                state.phase = Phase::Releasing { ended: None, about: None };
                drop(state);
                return Some((turn, tenure));
            };
            if let Some(task) = &waiter.task {
                task.note_granted(if state.was_busy() { How::Granted } else { How::Free });
            }
            parts.renewals.grant(&key, &mut state, tenure, (&waiter).into(), parts.core.clock.now());
            turn.end();
            drop(state);
            waiter.wake();
        }
        // A refusal is for the first waiter. A thread asks again itself, and gets the error as its own.
        answer if state.queue.is_empty() || answer.is_refusal(&parts.core) => {
            let refused = match &answer {
                // A task that came after the request was sent gets a request of its own next.
                Answer::Failed { error, .. } if state.first_task().is_some_and(Task::was_asked) => {
                    state.end_first(Err(error.clone()))
                }
                _ => None,
            };
            drop(state);
            parts.retries.abandon(&key.name, answer.into_unsettled());
            drop(turn);
            refused.iter().for_each(|waiter| parts.dismiss(waiter));
        }
        // An answer to an earlier request says nothing to the attempt. The attempt has the next request, about the same locker if that may have a
        // place.
        answer if state.first_task().is_some_and(|task| task.is_one_attempt && !task.was_asked()) => {
            enter_waiting(turn, state, answer.into_unsettled(), sent_at);
        }
        answer if state.first_task().is_some_and(|task| task.is_one_attempt) => {
            go_on_with_attempt(turn, answer, state, sent_at);
        }
        answer => {
            let has_task = state.first_task().is_some();
            wait_more(turn, answer, state, sent_at, true);
            if has_task {
                // An arriving task does not start the listener, because the first answer may be the grant.
                parts.subscription.listen(&parts.core);
            }
        }
    }
    None
}

/// Goes on with the single attempt of a task, which is the first waiter, or ends it. The table in [`steps`](super::steps) says what comes after
/// each answer. Here each step is a turn of the retry thread.
fn go_on_with_attempt(turn: Turn<'_>, answer: Answer, mut state: MutexGuard<'_, State>, sent_at: Moment) {
    let (parts, key) = (turn.parts, Arc::clone(&turn.key));
    let Some(task) = state.first_task() else { return };
    let now = parts.core.clock.now();
    let holder = answer.holder();
    let seen = Seen {
        now,
        took: now.since(sent_at),
        is_over: false,
        is_closed: parts.core.activity.is_closed(),
        has_time: false,
        wants_place: false,
        is_released: holder.is_some() && state.released.as_deref() == holder,
        may_recall: answer.may_recall(&parts.core),
        is_refused: false,
    };
    let mut asking = Asking::of_task(task.attempt());
    let step = asking.next(answer, &seen);
    asking.attempt.wants_place = matches!(step, Step::Ask(QueuePlace::ForRecall));
    task.set_attempt(asking.attempt);
    let (end, abandoned) = match step {
        Step::Ask(_) => return enter_waiting(turn, state, None, now),
        Step::Poll { unsettled, after } => return enter_waiting(turn, state, Some(unsettled), now + after),
        Step::End { abandoned, failure } => (failure.map_or(Ok(()), Err), abandoned),
        Step::Refuse(Answer::Failed { error, unsettled }) | Step::Wait(Answer::Failed { error, unsettled }) => {
            (Err(error), unsettled)
        }
        Step::Refuse(answer) | Step::Wait(answer) => (Ok(()), answer.into_unsettled()),
    };
    let waiter = state.end_first(end);
    drop(state);
    parts.retries.abandon(&key.name, abandoned);
    drop(turn);
    waiter.iter().for_each(|waiter| parts.dismiss(waiter));
}

/// Enters `Waiting` after a reply that is neither a success nor final, which ends the turn, and schedules the next request of the
/// retry thread: immediately if there is no place in the store's queue and the first waiter `may_ask`. The state is that of the key.
pub(super) fn wait_more(
    turn: Turn<'_>,
    answer: Answer,
    mut guard: MutexGuard<'_, State>,
    sent_at: Moment,
    may_ask: bool,
) {
    let (parts, key, state) = (turn.parts, &turn.key, &mut *guard);
    let now = parts.core.clock.pause_begins(sent_at);
    let mut warning = None;
    let (due, unsettled) = match answer.without_given_up(parts, &key.name) {
        Answer::Busy { busy, unsettled } => {
            // The client is outside the store's queue for one of two reasons: the inbox was not open yet (now it
            // is), or the store looked at the key only.
            let late = unsettled.is_none() && parts.subscription.hears(&parts.core, key) && may_ask;
            let left = busy.remaining.map(|left| left.saturating_add(parts.core.limits.tick));
            let pause = state.note_busy(left, unsettled.as_ref());
            let due = match late || state.about().is_some_and(|about| about.changed) {
                true => now,
                false => now + pause,
            };
            (due, unsettled)
        }
        Answer::Failed { error, unsettled } => {
            let is_refused = matches!(error, Error::Backend { failure: BackendFailure::Refused, .. });
            let text = format!("lock {:?}: {error}; threads still waiting: {}", key.name, state.queue.len());
            let failures = state.note_failure(error);
            warning = (failures == 1 || is_refused).then_some(text);
            (now + timing::retries(timing::longest_ask_retry(state.lease_wanted())).after(failures), unsettled)
        }
        Answer::Gone | Answer::Acquired(_) => (now, None),
    };
    enter_waiting(turn, guard, unsettled, due);
    if let Some(warning) = warning {
        log::warn!(ACQUIRE, "{warning}");
    }
}

/// Enters `Waiting`, which ends the turn. The retry thread asks next when that is due. If a grant has come since the reply was read, it goes to
/// the first waiter instead.
fn enter_waiting(turn: Turn<'_>, mut state: MutexGuard<'_, State>, unsettled: Option<Unsettled>, due: Moment) {
    let (parts, key) = (turn.parts, &turn.key);
    let granted = match state.heard_meanwhile(unsettled.as_ref()) {
        Some((tenure, waiter)) => {
            parts.renewals.grant(key, &mut state, tenure, (&waiter).into(), parts.core.clock.now());
            Some(waiter)
        }
        None => {
            state.phase = Phase::Waiting { unsettled };
            parts.retries.ask_at(key, due);
            None
        }
    };
    turn.end();
    drop(state);
    if let Some(waiter) = granted {
        waiter.wake();
    }
}
