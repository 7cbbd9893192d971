//! What the Redis store can do beyond its requests: the inbox of its queue, and posted releases.

use super::inbox::RedisInbox;
use super::net::classify::{classify, is_no_master};
use super::processor::RedisLockProcessor;
use super::script::keys::{inbox_channel, slot_inbox_channel};
use super::script::reply::{self, mismatch};
use super::script::request::Texts;
use super::script::scripts::Form;
use super::script::sight::{self, Sight};
use super::script::slot::slot_of;
use super::transport::{Answer, KeyHash};
use super::ways::Ways;
use crate::error::Error;
use crate::store::processor::{Claim, Inbox, Operations, Posting, ReleaseDone, ReleaseOutcome, Request, WaitQueue};
use ::redis::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl WaitQueue for RedisLockProcessor {
    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        if self.ways.is_closed() {
            return Err(Error::ShutDown);
        }
        match &self.ways {
            Ways::One(node) => {
                let inbox = RedisInbox::open(node.transport.endpoint(), client, limit, self.io_timeout)?;
                let channel = inbox_channel(client);
                match node.sees(Form::Server, &channel, self.io_timeout.min(limit) / 4, || inbox.is_broken()) {
                    Sight::Unseen => return Err(sight::hidden(&self.address.to_string())),
                    Sight::Refused(error) => {
                        sight::warn_of(Form::Server, &self.address.hide(classify(&error, &channel)));
                    }
                    Sight::Seen | Sight::Unknown => {}
                }
                Ok(Box::new(inbox))
            }
            Ways::Cluster(cluster) => Ok(Box::new(cluster.open_inbox(client)?)),
        }
    }

    fn check_inbox(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        // A word that no version of the inbox reads as a message.
        const WORD: &str = "hello";
        self.publish(client, key, WORD, limit).map(|_| ())
    }

    fn hears(&self, client: &str, key: &str) -> bool {
        match &self.ways {
            Ways::One(_) => true,
            Ways::Cluster(cluster) => cluster.hears(client, key),
        }
    }

    fn get_ready_to_hear(&self, client: &str, key: &str, limit: Duration) -> Result<(), Error> {
        match &self.ways {
            Ways::One(_) => Ok(()),
            Ways::Cluster(cluster) => cluster.get_ready_to_hear(client, key, limit),
        }
    }
}

impl Posting for RedisLockProcessor {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        self.post(claim, limit, done)
    }

    fn collect(&self) -> bool {
        self.ways.collect()
    }
}

impl RedisLockProcessor {
    /// Publishes a text in the inbox of a client, where it hears of this key. Returns how many receive it, as the server says.
    pub(super) fn publish(&self, client: &str, key: &str, text: &str, limit: Duration) -> Result<Value, Error> {
        let (channel, reply) = match &self.ways {
            Ways::One(node) => {
                let channel = inbox_channel(client);
                let reply = node.say(&["PUBLISH", &channel, text], limit)?;
                (channel, reply)
            }
            Ways::Cluster(cluster) => {
                let slot = slot_of(key.as_bytes());
                let channel = slot_inbox_channel(slot, client);
                let reply = cluster.publish(slot, &channel, text, limit)?;
                (channel, reply)
            }
        };
        match reply {
            Value::ServerError(e) => Err(self.address.hide(classify(&e, &channel))),
            value => Ok(value),
        }
    }

    /// Posts a release: [`Posting::post_release`].
    fn post(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        self.forget_earlier_server();
        if !self.ways.may_post(claim.key) {
            // The server may not know the script. A synchronous release is repeated with the script's text at once.
            done(self.release(claim, limit));
            return false;
        }
        let hash = KeyHash::of(claim.key);
        let request = Request::Release(*claim);
        let texts = Texts::of(&request, self.ways.form());
        let (is_demoted, contention) = (Arc::clone(&self.is_demoted), Arc::clone(&self.contention));
        let address = Arc::clone(&self.address);
        let callback = move |answer: Answer| {
            // ORDERING: Relaxed: `Attempt::run` swaps the flag.
            if answer.values.iter().any(is_no_master) {
                is_demoted.store(true, Ordering::Relaxed);
            }
            let answer = released(answer).map_err(|e| address.hide(e));
            if let Ok(outcome) = &answer {
                contention.note_release(hash, outcome);
            }
            done(answer);
        };
        self.ways.post(&texts.call(&request), limit, callback);
        true
    }
}

/// Reads the answer to a posted release.
fn released(answer: Answer) -> Result<ReleaseOutcome, Error> {
    // How a reply is read depends only on the kind of request.
    let any = Claim::new("", "", "", Duration::ZERO);
    match (answer.values.first(), answer.failure) {
        (Some(value), _) => reply::outcome(&Request::Release(any), value)?.try_into(),
        (None, failure) => Err(failure.unwrap_or_else(mismatch)),
    }
}
