//! Whether a client that waits can be told of a grant: it subscribes, and a script sees the subscription.

use super::{Examination, Subject};
use crate::error::{BackendFailure, Error};
use crate::store::processor::WaitQueue;
use crate::store::redis::processor::RedisLockProcessor;
use crate::store::redis::script::keys::{inbox_channel, slot_inbox_channel};
use crate::store::redis::script::scripts::Form;
use crate::store::redis::script::slot::slot_of;
use ::redis::Value;
use std::time::{Duration, Instant};

/// How long to wait for messages before looking again.
const LOOK: Duration = Duration::from_millis(10);

impl Examination<'_> {
    pub(super) fn messages(&mut self, store: &RedisLockProcessor) {
        let client = format!("doctor-{}-0", std::process::id());
        match self.hears(store, &client) {
            Ok(()) => self.fine(Subject::Messages, "a subscription arrives, and scripts see it".to_owned()),
            Err(error @ Error::Denied { .. }) => {
                let advice = "give the login +subscribe (in a Cluster +ssubscribe) and &DLOCK:1:*; without them, waiting locks poll";
                self.wrong(Subject::Messages, error.to_string(), advice);
            }
            Err(error @ Error::Unsupported { .. }) => {
                self.wrong(
                    Subject::Messages,
                    error.to_string(),
                    "connect past the proxy; until then, waiting locks poll",
                );
            }
            Err(error) => self.failed(Subject::Messages, &error),
        }
    }

    /// Checks that scripts see the subscription of a client.
    fn is_seen(&self, client: &str) -> Result<(), Error> {
        let (channel, count) = match self.form {
            Form::Server => (inbox_channel(client), "return redis.call('PUBSUB', 'NUMSUB', KEYS[1])[2]"),
            Form::Cluster => (
                slot_inbox_channel(slot_of(self.key.as_bytes()), client),
                "return redis.call('PUBSUB', 'SHARDNUMSUB', KEYS[1])[2]",
            ),
        };
        match self.ask(&["EVAL", count, "1", &channel])? {
            Value::Int(0) => Err(Error::unsupported(
                "the subscription is confirmed, and scripts see no subscriber: a proxy on the way subscribes by itself, or at another server",
            )),
            // The right is examined with the others.
            _ => Ok(()),
        }
    }

    fn hears(&self, store: &RedisLockProcessor, client: &str) -> Result<(), Error> {
        let queue: &dyn WaitQueue = store;
        let mut inbox = queue.open_inbox(client, self.left())?;
        loop {
            let ready = queue.get_ready_to_hear(client, &self.key, Duration::ZERO);
            if queue.hears(client, &self.key) {
                return self.is_seen(client);
            }
            match ready {
                Err(error) if !error.is_transient() => return Err(error),
                _ if Instant::now() >= self.deadline => {
                    let message = "the subscription was not confirmed in time";
                    return Err(ready.err().unwrap_or(Error::backend(BackendFailure::NotExecuted, message)));
                }
                _ => drop(inbox.next(LOOK)?),
            }
        }
    }
}
