//! What the Redis store can do beyond the required methods: the queue with its inbox, ranges of numbers, posted releases.

use super::inbox::RedisInbox;
use super::net::classify::{classify, is_no_master};
use super::net::resp::Packed;
use super::processor::RedisLockProcessor;
use super::script::keys::inbox_channel;
use super::script::reply::{self, mismatch};
use super::script::request::Texts;
use super::transport::{Answer, KeyHash};
use crate::error::Error;
use crate::store::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inbox, LockProcessor, Numbers, Outcome, Posting, ReleaseDone, ReleaseOutcome,
    Request, WaitQueue,
};
use ::redis::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl WaitQueue for RedisLockProcessor {
    fn join(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        self.take(claim, true, limit)
    }

    fn hand_over(&self, claim: &Claim<'_>, next: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.end(Request::HandOver(*claim, *next), limit)
    }

    fn open_inbox(&self, client: &str, limit: Duration) -> Result<Box<dyn Inbox>, Error> {
        if self.transport.is_closed() {
            return Err(Error::ShutDown);
        }
        Ok(Box::new(RedisInbox::open(self.transport.endpoint(), client, limit, self.io_timeout)?))
    }

    fn check_inbox(&self, client: &str, limit: Duration) -> Result<(), Error> {
        let channel = inbox_channel(client);
        // A word that no version of the inbox reads as a message.
        match self.say(&["PUBLISH", &channel, "hello"], limit)? {
            Value::ServerError(e) => Err(self.address.hide(classify(&e, &channel))),
            _ => Ok(()),
        }
    }
}

impl Numbers for RedisLockProcessor {
    fn extend_with_numbers(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.renew(claim, true, limit)
    }
}

impl Posting for RedisLockProcessor {
    fn post_release(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        self.post(claim, limit, done)
    }

    fn collect(&self) -> bool {
        self.transport.collect()
    }
}

impl RedisLockProcessor {
    /// Posts a release: [`Posting::post_release`].
    fn post(&self, claim: &Claim<'_>, limit: Duration, done: ReleaseDone) -> bool {
        self.forget_earlier_server();
        // ORDERING: Relaxed: a guess.
        if !self.knows_release.load(Ordering::Relaxed) {
            // The server may not know the script. A synchronous release is repeated with the script's text at once.
            done(self.release(claim, limit));
            return false;
        }
        let hash = KeyHash::of(claim.key);
        let request = Request::Release(*claim);
        let texts = Texts::of(&request);
        let mut packed = Packed::for_one();
        texts.call(&request).pack(&mut packed, false);
        let (knows_release, contention) = (Arc::clone(&self.knows_release), Arc::clone(&self.contention));
        let (is_demoted, address) = (Arc::clone(&self.is_demoted), Arc::clone(&self.address));
        let callback = move |answer: Answer| {
            // ORDERING: Relaxed: `Attempt::run` swaps the first flag; the second is a guess.
            if answer.values.iter().any(is_no_master) {
                is_demoted.store(true, Ordering::Relaxed);
            }
            let answer = released(answer).map_err(|e| address.hide(e));
            match &answer {
                Ok(outcome) => contention.note_release(hash, outcome),
                // The server may have lost the script, or be another server.
                Err(_) => knows_release.store(false, Ordering::Relaxed),
            }
            done(answer);
        };
        self.transport.post(hash, packed, limit, Box::new(callback));
        true
    }
}

/// Reads the answer to a posted release.
fn released(answer: Answer) -> Result<ReleaseOutcome, Error> {
    // How a reply is read depends only on the kind of request.
    let any = Claim::new("", "", "", Duration::ZERO);
    match (answer.values.first(), answer.failure) {
        (Some(value), _) => match reply::outcome(&Request::Release(any), value)? {
            Outcome::Release(outcome) => Ok(outcome),
            _ => Err(mismatch()),
        },
        (None, failure) => Err(failure.unwrap_or_else(mismatch)),
    }
}
