//! The retry thread: asks again for every key that threads of this client wait for, gives back tenures that have
//! lingered, works through the clean-up list, and collects the replies to releases that nobody waited for.
//!
//! It asks after lease/10 first, then every lease/6, and when the holder's lease ends, whichever is earlier (the
//! JVM's `RetryLockThread` has the same two figures). Everything due goes to the store in one batch. Messages only
//! make this faster: this thread is what guarantees that a waiter makes progress.

use crate::client::cleanup::{Ending, Leftover};
use crate::client::core::Core;
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::{Outcome, Request};
use crate::state::key::Key;
use crate::state::tenure::Tenure;
use std::sync::Arc;
use std::time::Duration;

/// Runs one round: asks for the keys that are due, and releases what has lingered and the leftovers that are due.
pub(crate) fn round(core: &Core, now: Moment) -> Moment {
    core.releases.collect(core, now);
    let (mut keys, mut leftovers) = (core.retries.take_due(now), core.retries.take_leftovers(now));
    retry_apart(core, &mut keys, &mut leftovers);
    ask(core, keys, leftovers);
    core.describe.answer_questions();
    core.retries.next().min(core.releases.next_collection())
}

/// The same for keys whose servers keep others waiting.
pub(crate) fn round_apart(core: &Core, _now: Moment) -> Moment {
    let (keys, leftovers) = core.apart.take_retries();
    ask(core, keys, leftovers);
    // What is to be repeated is in the schedules of the other thread, which may know of nothing that is due.
    core.retries.wake();
    Moment::NEVER
}

fn ask(core: &Core, keys: Vec<Arc<Key>>, mut leftovers: Vec<Leftover>) {
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
    let unsettled = if core.limits.settles { std::mem::take(&mut leftovers) } else { Vec::new() };
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key().name, core.id(), None))
        .chain(over.iter().map(|(turn, tenure)| release_of(core, turn, tenure)))
        .chain(leftovers.iter().map(|leftover| leftover.request(core.id().as_str())))
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
    for (leftover, result) in leftovers.into_iter().zip(&mut results) {
        core.retries.cleanup.put_back(leftover, &result, false, sent_at);
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

/// Takes from keys and leftovers that are due what the retry thread must not ask about, because the thread apart does.
fn retry_apart(core: &Core, keys: &mut Vec<Arc<Key>>, leftovers: &mut Vec<Leftover>) {
    let is_apart = |key: &str| core.processor.keeps_waiting(key);
    let keys_apart: Vec<_> = keys.extract_if(.., |key| is_apart(&key.name)).collect();
    let mut leftovers_apart: Vec<_> = leftovers.extract_if(.., |leftover| is_apart(leftover.key())).collect();
    if keys_apart.is_empty() && leftovers_apart.is_empty() {
        return;
    }
    if !core.apart.starts_retrying() {
        keys.extend(keys_apart);
        leftovers.append(&mut leftovers_apart);
        return;
    }
    let now = core.clock.now();
    core.apart.add_retries(keys_apart, &mut leftovers_apart, now);
    for leftover in leftovers_apart {
        let why = "its server keeps others waiting, and others are tried first";
        let later = Error::backend(BackendFailure::NotExecuted, why);
        core.retries.cleanup.put_back(leftover, &Err::<(), _>(later), false, now);
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
