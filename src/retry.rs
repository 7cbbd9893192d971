//! The retry thread: asks again for every key that threads of this client wait for, and works off the clean-up list.
//!
//! First after lease/10, then every lease/6, and when the holder's lease ends, whichever is first (the JVM's
//! `RetryLockThread` has the same two figures). All that is due goes to the store in one batch. Messages only make this
//! faster: it is what guarantees that a waiter gets on.

use crate::client::Client;
use crate::clock::Moment;

/// One round: asks for the keys that are due, and releases the leftovers that are due.
pub(crate) fn round(client: &Client, now: Moment) -> Moment {
    let questions: Vec<_> = client
        .take_due_retries(now)
        .into_iter()
        .filter_map(|key| key.begin_retry(client).map(|question| (key, question)))
        .collect();
    let leftovers = client.cleanup.take_due(now);
    let requests: Vec<_> = questions
        .iter()
        .map(|(key, question)| question.request(&key.name))
        .chain(leftovers.iter().map(crate::cleanup::Leftover::request))
        .collect();
    if !requests.is_empty() {
        let sent_at = client.clock.now();
        let mut results = client.processor.batch(&requests, client.processor.command_limit()).into_iter();
        drop(requests);
        for ((key, question), result) in questions.into_iter().zip(&mut results) {
            let answer = question.answer(&key.name, result, sent_at, &client.cleanup);
            key.end_retry(client, answer);
        }
        for (leftover, result) in leftovers.into_iter().zip(&mut results) {
            client.cleanup.put_back(leftover, &result);
        }
    }
    client.next_retry()
}
