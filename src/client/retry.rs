//! The retry thread: asks again for every key that threads of this client wait for, gives back tenures that have
//! lingered, works through the clean-up list, and collects the replies to releases that nobody waited for.
//!
//! It asks after lease/10 first, then every lease/6, and when the holder's lease ends, whichever is earlier (the
//! JVM's `RetryLockThread` has the same two figures). Everything due goes to the store in one batch. Messages only
//! make this faster: this thread is what guarantees that a waiter makes progress.

use crate::client::cleanup::{Ending, PendingCleanup};
use crate::client::core::Core;
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::{Outcome, Request};
use crate::state::key::Key;
use crate::state::tenure::Tenure;
use std::sync::Arc;
use std::time::Duration;

/// Runs one round: asks for the keys that are due, and releases what has lingered and the pending clean-ups that are due.
pub(crate) fn round(core: &Core, now: Moment) -> Moment {
    core.releases.collect(core, now);
    let (mut keys, mut cleanups) = (core.retries.take_due(now), core.retries.take_cleanups(now));
    retry_on_slow_nodes(core, &mut keys, &mut cleanups);
    ask(core, keys, cleanups);
    core.describe.answer_questions();
    core.retries.next().min(core.releases.next_collection())
}

/// The same for keys whose servers keep others waiting.
pub(crate) fn round_on_slow_nodes(core: &Core, _now: Moment) -> Moment {
    let (keys, cleanups) = core.slow_nodes.take_retries();
    ask(core, keys, cleanups);
    // What is to be repeated is in the schedules of the other thread, which may know of nothing that is due.
    core.retries.wake();
    Moment::NEVER
}

fn ask(core: &Core, keys: Vec<Arc<Key>>, mut cleanups: Vec<PendingCleanup>) {
    let (mut turns, mut over) = (Vec::new(), Vec::new());
    for key in keys {
        match Turn::of_lingering(core, &key, false) {
            Some(lingered) => over.push(lingered),
            None => {
                // Its threads may have begun to wait before there was an inbox. Other keys do not wait for this one: the inbox tells when
                // it hears of it.
                core.subscription.gets_ready_to_hear(&key, || Duration::ZERO);
                turns.extend(Turn::of_waiters(core, &key));
            }
        }
    }
    let unsettled = if core.limits.settles { std::mem::take(&mut cleanups) } else { Vec::new() };
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key().name, core.id(), None))
        .chain(over.iter().map(|(turn, tenure)| release_of(core, turn, tenure)))
        .chain(cleanups.iter().map(|cleanup| cleanup.request(core.id().as_str())))
        .collect();
    let sent_at = core.clock.now();
    let mut results = core.batch(&requests, core.limits.command).into_iter();
    drop(requests);
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let answer = turn.take_in(question, result, sent_at);
        unwanted.extend(turn.end_retry(answer, sent_at));
    }
    for ((turn, tenure), result) in over.into_iter().zip(&mut results) {
        released(core, &turn, &tenure, &result);
    }
    for (cleanup, result) in cleanups.into_iter().zip(&mut results) {
        core.retries.cleanup.put_back(cleanup, &result, false, sent_at);
    }
    core.retries.settle(unsettled);
    if core.is_closed() {
        // The thread that closes the client waits for this one, and works through the clean-up list next.
        for (turn, tenure) in unwanted {
            core.retries.cleanup.add(&turn.key().name, &tenure.locker, tenure.kept(), Ending::GivenUp);
        }
    } else {
        release(core, unwanted, core.limits.command);
    }
}

/// Takes from keys and pending clean-ups that are due what the retry thread must not ask about, because the slow-node worker does.
fn retry_on_slow_nodes(core: &Core, keys: &mut Vec<Arc<Key>>, cleanups: &mut Vec<PendingCleanup>) {
    let is_on_slow_node = |key: &str| core.processor.keeps_waiting(key);
    let slow_keys: Vec<_> = keys.extract_if(.., |key| is_on_slow_node(&key.name)).collect();
    let mut slow_cleanups: Vec<_> = cleanups.extract_if(.., |cleanup| is_on_slow_node(cleanup.key())).collect();
    if slow_keys.is_empty() && slow_cleanups.is_empty() {
        return;
    }
    if !core.slow_nodes.starts_retrying() {
        keys.extend(slow_keys);
        cleanups.append(&mut slow_cleanups);
        return;
    }
    let now = core.clock.now();
    core.slow_nodes.add_retries(slow_keys, &mut slow_cleanups, now);
    for cleanup in slow_cleanups {
        let why = "its server keeps others waiting, and others are tried first";
        let later = Error::backend(BackendFailure::NotExecuted, why);
        core.retries.cleanup.put_back(cleanup, &Err::<(), _>(later), false, now);
    }
}

/// Releases tenures that nobody wants any more, and passes their turns on.
pub(crate) fn release(core: &Core, unwanted: Vec<(Turn<'_>, Tenure)>, limit: Duration) {
    let requests: Vec<_> = unwanted.iter().map(|(turn, tenure)| release_of(core, turn, tenure)).collect();
    let results = core.batch(&requests, limit);
    drop(requests);
    for ((turn, tenure), result) in unwanted.into_iter().zip(results) {
        released(core, &turn, &tenure, &result);
    }
}

fn release_of<'a>(core: &'a Core, turn: &'a Turn<'_>, tenure: &'a Tenure) -> Request<'a> {
    Request::Release(core.ending(&turn.key().name, tenure))
}

fn released(core: &Core, turn: &Turn<'_>, tenure: &Tenure, result: &Result<Outcome, Error>) {
    if result.is_err() {
        let ending = Ending::ReleaseUnanswered(tenure.deadline());
        core.retries.cleanup.add(&turn.key().name, &tenure.locker, tenure.kept(), ending);
    }
}
