//! The thread `dlock-retry`: it asks again for every key for which threads of this client wait, gives back tenures that have lingered,
//! works through the clean-up list, and collects the replies to posted releases.
//!
//! It asks for a key after lease/10 first, and then every lease/6. It asks earlier if the holder's lease ends earlier. (The JVM's
//! `RetryLockThread` has the same two figures.) All requests that are due go to the store in one batch. Messages only make a hand-over
//! faster: this thread guarantees that a waiter makes progress.

use super::cleanup::{Ending, PendingCleanup};
use super::parts::Parts;
use super::question::Question;
use super::turn::Turn;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::state::key::Key;
use std::sync::Arc;
use std::time::Duration;

/// Runs one round: asks for the keys that are due, and releases what has lingered and the pending clean-ups that are due.
pub(crate) fn round(parts: &Parts, now: Moment) -> Moment {
    parts.retries.collect(&parts.core, now);
    let (mut keys, mut cleanups) = (parts.retries.take_due(now), parts.retries.cleanup.take_due(now));
    retry_on_slow_nodes(parts, &mut keys, &mut cleanups);
    ask(parts, keys, cleanups);
    parts.describe.answer_questions(&parts.core);
    parts.retries.next()
}

/// Does the work of [`round`] for keys whose servers keep others waiting.
pub(crate) fn round_on_slow_nodes(parts: &Parts, _now: Moment) -> Moment {
    let (keys, mut cleanups) = parts.slow_nodes.take_retries();
    // The client may have met a twin since the other thread has looked.
    cleanups.retain(|cleanup| parts.core.is_ours(&cleanup.locker));
    ask(parts, keys, cleanups);
    // What is to be repeated is in the schedules of the other thread, which may know of nothing that is due.
    parts.retries.wake();
    Moment::NEVER
}

fn ask(parts: &Parts, keys: Vec<Arc<Key>>, mut cleanups: Vec<PendingCleanup>) {
    let (mut turns, mut over) = (Vec::new(), Vec::new());
    for key in keys {
        match Turn::of_lingering(parts, &key, false) {
            Some(lingered) => over.push(lingered),
            None => {
                // The threads of the key may have begun to wait before there was an inbox. The other keys of this round do not wait until
                // the inbox hears of this one: the inbox reports that later.
                parts.subscription.gets_ready_to_hear(&parts.core, &key, || Duration::ZERO);
                turns.extend(Question::of_waiters(parts, &key));
            }
        }
    }
    let unsettled = if parts.core.limits.settles { std::mem::take(&mut cleanups) } else { Vec::new() };
    let sent_at = parts.core.clock.now();
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key.name, parts.core.id.current(), None))
        .chain(over.iter().map(|(turn, tenure)| turn.release_of(tenure)))
        .chain(cleanups.iter().map(|cleanup| cleanup.request(parts.core.id.current().as_str(), sent_at)))
        .collect();
    let mut results = parts.core.batch(&requests, parts.core.limits.command).into_iter();
    drop(requests);
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let answer = question.take_in(&turn, result, sent_at);
        unwanted.extend(answer.end_retry(turn, sent_at));
    }
    for ((turn, tenure), result) in over.into_iter().zip(&mut results) {
        turn.released(&tenure, &result);
    }
    for (cleanup, result) in cleanups.into_iter().zip(&mut results) {
        parts.retries.cleanup.put_back(cleanup, &result, false, sent_at);
    }
    parts.retries.settle(&parts.core, unsettled);
    if parts.core.activity.is_closed() {
        // The thread that closes the client waits for this one, and works through the clean-up list next.
        for (turn, tenure) in unwanted {
            parts.retries.cleanup.add(&turn.key.name, &tenure.locker, tenure.kept(), Ending::GivenUp, None);
        }
    } else {
        Turn::release_all(parts, unwanted, parts.core.limits.command);
    }
}

/// Removes the keys and pending clean-ups from those that are due about which the slow-node worker asks instead of the retry thread.
fn retry_on_slow_nodes(parts: &Parts, keys: &mut Vec<Arc<Key>>, cleanups: &mut Vec<PendingCleanup>) {
    let is_on_slow_node = |key: &str| parts.core.processor.keeps_waiting(key);
    let slow_keys: Vec<_> = keys.extract_if(.., |key| is_on_slow_node(&key.name)).collect();
    let mut slow_cleanups: Vec<_> = cleanups.extract_if(.., |cleanup| is_on_slow_node(&cleanup.key)).collect();
    if slow_keys.is_empty() && slow_cleanups.is_empty() {
        return;
    }
    if !parts.slow_nodes.starts_retrying() {
        keys.extend(slow_keys);
        cleanups.append(&mut slow_cleanups);
        return;
    }
    let now = parts.core.clock.now();
    parts.slow_nodes.add_retries(slow_keys, &mut slow_cleanups, now);
    for cleanup in slow_cleanups {
        let why = "its server keeps others waiting, and others are tried first";
        let later = Error::backend(BackendFailure::NotExecuted, why);
        parts.retries.cleanup.put_back(cleanup, &Err::<(), _>(later), false, now);
    }
}
