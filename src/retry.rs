//! The retry thread: asks again for every key that threads of this client wait for, and works off the clean-up list.
//!
//! First after lease/10, then every lease/6, and when the holder's lease ends, whichever is first (the JVM's
//! `RetryLockThread` has the same two figures). All that is due goes to the store in one batch. Messages only make this
//! faster: it is what guarantees that a waiter gets on.

use crate::cleanup::{Ending, Leftover};
use crate::client::Client;
use crate::clock::Moment;
use crate::processor::{ReleaseRequest, Request};
use crate::tenure::Tenure;
use crate::turn::Turn;
use std::time::Duration;

/// One round: asks for the keys that are due, and releases the leftovers that are due.
pub(crate) fn round(client: &Client, now: Moment) -> Moment {
    let turns: Vec<_> = client.take_due_retries(now).iter().filter_map(|key| key.begin_retry(client)).collect();
    let leftovers = client.cleanup.take_due(now);
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key().name))
        .chain(leftovers.iter().map(Leftover::request))
        .collect();
    let sent_at = client.clock.now();
    let mut results = client.batch(&requests, client.processor.command_limit()).into_iter();
    drop(requests);
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let heard = turn.key().state().heard();
        let answer = question.answer(&turn.key().name, result, sent_at, heard, client);
        unwanted.extend(turn.end_retry(client, answer));
    }
    for (leftover, result) in leftovers.into_iter().zip(&mut results) {
        client.cleanup.put_back(leftover, &result);
    }
    release(client, &unwanted);
    client.next_retry()
}

/// Releases tenures that came when nobody waited any more. After all answers were handed out: nobody waits for this.
fn release(client: &Client, unwanted: &[(Turn, Tenure)]) {
    let requests: Vec<_> = unwanted
        .iter()
        .map(|(turn, tenure)| {
            let (key, locker, lease) = (turn.key().name.as_str(), &*tenure.locker, tenure.lease());
            Request::Release(ReleaseRequest { key, locker, lease, next: None, gap: None })
        })
        .collect();
    // A thread that closes the client waits for this one: then the clean-up list has to do.
    let limit = if client.is_closed() { Duration::ZERO } else { client.processor.command_limit() };
    let results = client.batch(&requests, limit);
    for ((turn, tenure), result) in unwanted.iter().zip(results) {
        if result.is_err() {
            let ending = Ending::ReleaseUnanswered(tenure.deadline());
            client.cleanup.add(&turn.key().name, &tenure.locker, tenure.lease(), ending);
        }
    }
}
