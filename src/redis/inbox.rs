//! A client's inbox: a connection of its own that has subscribed to one channel.

use super::classify::classify;
use super::keys::inbox_channel;
use super::link::{Endpoint, Link};
use super::message;
use super::reply::shape;
use super::script::Packed;
use crate::error::{BackendFailure, Error};
use crate::processor::{Inbox, Message};
use ::redis::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// See the module. Ends, for the server too, when it is dropped.
pub(crate) struct RedisInbox {
    channel: String,
    place: String,
    /// `None` once the connection has failed.
    link: Option<Link>,
}

impl RedisInbox {
    /// Connects and subscribes; returns when the server has confirmed it.
    ///
    /// # Errors
    ///
    /// Those of a connect; [`Error::Denied`] when the user may not hear the channel.
    pub(crate) fn open(endpoint: &Endpoint, client: &str, limit: Duration) -> Result<Self, Error> {
        let deadline = Instant::now() + limit.min(endpoint.connect_timeout);
        let mut link = Link::open(endpoint, deadline)?;
        let (channel, place) = (inbox_channel(client), endpoint.address.to_string());
        let mut packed = Packed::default();
        packed.words(&["SUBSCRIBE", &channel]);
        let broken =
            |e: std::io::Error| Error::backend(BackendFailure::NotExecuted, format!("subscribing at {place}: {e}"));
        link.send(&packed.bytes, deadline).map_err(broken)?;
        let confirmation = loop {
            link.flush(deadline).map_err(broken)?;
            if let Some(value) = link.take_reply().map_err(broken)? {
                break value;
            }
            if !link.fill(deadline).map_err(broken)? {
                return Err(broken(std::io::ErrorKind::TimedOut.into()));
            }
        };
        match &confirmation {
            Value::Array(items) if matches!(items.first(), Some(Value::BulkString(kind)) if kind == b"subscribe") => {
                Ok(Self { channel, place, link: Some(link) })
            }
            Value::ServerError(e) => Err(classify(e, &channel)),
            other => {
                let message = format!("{place} answers SUBSCRIBE with {}", shape(other));
                Err(Error::backend(BackendFailure::NotExecuted, message))
            }
        }
    }

    /// The next message on this link, until the deadline.
    fn hear(link: &mut Link, deadline: Instant) -> std::io::Result<Option<Message>> {
        loop {
            while let Some(value) = link.take_reply()? {
                if let Some(message) = payload(&value).and_then(message::parse) {
                    return Ok(Some(message));
                }
            }
            if !link.fill(deadline)? {
                return Ok(None);
            }
        }
    }
}

/// What was published, if the reply is a published message.
fn payload(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::Array(items) => match items.as_slice() {
            [Value::BulkString(kind), _, Value::BulkString(payload)] if kind == b"message" => Some(payload),
            _ => None,
        },
        _ => None,
    }
}

impl Inbox for RedisInbox {
    fn next(&mut self, limit: Duration) -> Result<Option<Message>, Error> {
        let broken = |why: &str| {
            Error::backend(BackendFailure::Unknown, format!("the subscription at {} is broken: {why}", self.place))
        };
        let Some(link) = &mut self.link else { return Err(broken("open a new one")) };
        let now = Instant::now();
        let deadline = now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 86_400));
        match Self::hear(link, deadline) {
            Ok(heard) => Ok(heard),
            Err(cause) => {
                let error = broken(&cause.to_string());
                self.link = None;
                Err(error)
            }
        }
    }
}

impl fmt::Debug for RedisInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { channel, place, link } = self;
        f.debug_struct("RedisInbox")
            .field("channel", channel)
            .field("address", place)
            .field("open", &link.is_some())
            .finish()
    }
}
