//! What the Redis store can do beyond its requests: the inbox of its queue, and posted releases.

use super::RedisLockProcessor;
use crate::error::Error;
use crate::port::{Claim, Inbox, Posting, ReleaseDone, ReleaseOutcome, Request, WaitQueue};
use crate::store::redis::net::classify::classify;
use crate::store::redis::script::reply::{self, mismatch};
use crate::store::redis::script::scripts::Texts;
use crate::store::redis::transport::{CallReplies, KeyHash};
use ::redis::Value;
use std::sync::Arc;
use std::time::Duration;

impl WaitQueue for RedisLockProcessor {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        self.topology.open_inbox(client, limit)
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        // A word that no version of the inbox reads as a message.
        const WORD: &str = "hello";
        self.publish(client, key, WORD, limit).map(|_| ())
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        self.topology.hears(client, key)
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        self.topology.get_ready_to_hear(client, key, limit)
    }
}

impl Posting for RedisLockProcessor {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        self.post(claim, limit, done)
    }

    fn collect(&self) -> bool {
        self.topology.collect()
    }
}

impl RedisLockProcessor {
    /// Publishes a text in the inbox of a client, where it hears of this key. Returns how many receive it, as the server says.
    pub(super) fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<Value, Error> {
        let (channel, reply) = self.topology.publish(client, key, text, limit)?;
        match reply {
            Value::ServerError(e) => Err(self.address.hide(classify(&e, &channel))),
            value => Ok(value),
        }
    }

    /// Posts a release: [`Posting::post_release`].
    fn post(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        let hash = KeyHash::of(claim.key);
        let request = Request::Release(*claim);
        let texts = Texts::of(&request, self.topology.form());
        let (topology, address) = (self.topology.clone(), Arc::clone(&self.address));
        let callback = move |answer: CallReplies| {
            let reply = answer.first().cloned();
            let outcome = released(answer).map_err(|e| address.hide(e));
            if let Some(one) = topology.one() {
                one.note_release(hash, reply.as_ref(), outcome.as_ref().ok());
            }
            done(outcome);
        };
        self.topology.post(&texts.call(&request), limit, Box::new(callback));
        true
    }
}

/// Reads the answer to a posted release.
fn released(answer: CallReplies) -> Result<ReleaseOutcome, Error> {
    // How a reply is read depends only on the kind of request.
    let any = Claim::new("", "", "", Duration::ZERO);
    match answer.first() {
        Some(value) => reply::outcome(&Request::Release(any), value)?.try_into(),
        None => Err(answer.failure.unwrap_or_else(mismatch)),
    }
}
