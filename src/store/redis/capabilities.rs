//! What the Redis store can do beyond the required methods: the queue with its inbox, ranges of numbers, posted releases.

use super::inbox::RedisInbox;
use super::net::classify::classify;
use super::processor::RedisLockProcessor;
use super::script::keys::inbox_channel;
use crate::error::Error;
use crate::store::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inbox, Numbers, Posting, ReleaseDone, ReleaseOutcome, Request, WaitQueue,
};
use ::redis::Value;
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
