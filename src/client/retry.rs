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
use crate::error::Error;
use crate::state::tenure::Tenure;
use crate::store::processor::{Outcome, ReleaseRequest, Request};
use std::time::Duration;

/// Runs one round: asks for the keys that are due, and releases what has lingered and the leftovers that are due.
pub(crate) fn round(core: &Core, now: Moment) -> Moment {
    core.collect(now);
    let (mut turns, mut over) = (Vec::new(), Vec::new());
    for key in core.take_due_retries(now) {
        match core.end_linger(&key, false) {
            Some(lingered) => over.push(lingered),
            None => turns.extend(core.begin_retry(&key)),
        }
    }
    let leftovers = core.cleanup.take_due(now);
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key().name))
        .chain(over.iter().map(|(turn, tenure)| release_of(turn, tenure)))
        .chain(leftovers.iter().map(Leftover::request))
        .collect();
    let sent_at = core.clock.now();
    let mut results = core.batch(&requests, core.processor.command_limit()).into_iter();
    drop(requests);
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let heard = turn.key().state().heard();
        let answer = core.take_in(turn.key(), question, result, sent_at, heard);
        unwanted.extend(turn.end_retry(answer, sent_at));
    }
    for ((turn, tenure), result) in over.into_iter().zip(&mut results) {
        released(core, &turn, &tenure, &result);
    }
    for (leftover, result) in leftovers.into_iter().zip(&mut results) {
        core.cleanup.put_back(leftover, &result, sent_at);
    }
    if core.is_closed() {
        // The thread that closes the client waits for this one, and works through the clean-up list next.
        for (turn, tenure) in unwanted {
            core.cleanup.add(&turn.key().name, &tenure.locker, tenure.lease(), Ending::GivenUp);
        }
    } else {
        release(core, unwanted, core.processor.command_limit());
    }
    core.next_retry()
}

/// Releases tenures that nobody wants any more, and passes their turns on.
pub(crate) fn release(core: &Core, unwanted: Vec<(Turn<'_>, Tenure)>, limit: Duration) {
    let requests: Vec<_> = unwanted.iter().map(|(turn, tenure)| release_of(turn, tenure)).collect();
    let results = core.batch(&requests, limit);
    drop(requests);
    for ((turn, tenure), result) in unwanted.into_iter().zip(results) {
        released(core, &turn, &tenure, &result);
    }
}

fn release_of<'a>(turn: &'a Turn<'_>, tenure: &'a Tenure) -> Request<'a> {
    let (key, locker, lease) = (&*turn.key().name, &*tenure.locker, tenure.lease());
    Request::Release(ReleaseRequest { key, locker, lease, next: None, gap: tenure.gap })
}

fn released(core: &Core, turn: &Turn<'_>, tenure: &Tenure, result: &Result<Outcome, Error>) {
    if result.is_err() {
        let ending = Ending::ReleaseUnanswered(tenure.deadline());
        core.cleanup.add(&turn.key().name, &tenure.locker, tenure.lease(), ending);
    }
}
