//! A client's inbox: a connection of its own that is subscribed to one channel.

use super::net::classify::classify;
use super::net::connector::{ReadHalf, WriteHalf};
use super::net::endpoint::Endpoint;
use super::net::link::Link;
use super::net::resp::{Packed, shape};
use super::net::socket::Socket;
use super::script::keys::inbox_channel;
use super::script::message;
use super::timing::SILENCE;
use crate::error::{BackendFailure, Error};
use crate::port::{Inbox, InboxBreaker, Message};
use crate::timing::end_of;
use ::redis::Value;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The inbox of the Redis store. Dropping it ends the subscription, on the server too.
pub(crate) struct RedisInbox {
    place: String,
    /// `None` once the connection has failed.
    link: Option<Link>,
    /// The same connection, for the thread that breaks it.
    breaker: Arc<Socket>,
    /// When the server last sent something.
    heard: Instant,
    /// When the PING was sent that is unanswered.
    pinged: Option<Instant>,
    io_timeout: Duration,
}

impl InboxBreaker for Arc<Socket> {
    fn cut(&self) {
        Socket::cut(self);
    }
}

impl RedisInbox {
    /// Connects, which may take `connect_timeout`, and subscribes, which may take `io_timeout`; both together take at most `limit`. Returns
    /// once the server has confirmed the subscription. Fails as a connect does, and with [`Error::Denied`] when the user may not subscribe to
    /// the channel.
    pub(crate) fn open(
        endpoint: &Endpoint,
        client: &str,
        limit: Duration,
        io_timeout: Duration,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let end = end_of(limit, start);
        let mut link = endpoint.connect(end.min(start + endpoint.connect_timeout))?;
        let deadline = end.min(Instant::now() + io_timeout);
        let (channel, place) = (inbox_channel(client), endpoint.address.to_string());
        let broken = |cause: std::io::Error| {
            let message = format!("cannot subscribe at {place}: {cause}");
            Error::backend_caused_by(BackendFailure::NotExecuted, message, cause)
        };
        let confirmation = link.ask(&["SUBSCRIBE", &channel], deadline).map_err(broken)?;
        let confirmation = confirmation.ok_or_else(|| broken(ErrorKind::TimedOut.into()))?;
        match &confirmation {
            Value::Array(items) if matches!(items.first(), Some(Value::BulkString(kind)) if kind == b"subscribe") => {
                let breaker = link.socket();
                let heard = Instant::now();
                Ok(Self { place, link: Some(link), breaker, heard, pinged: None, io_timeout })
            }
            Value::ServerError(e) => Err(endpoint.address.hide(classify(e, &channel))),
            other => {
                let message = format!("{place} answered SUBSCRIBE with {}", shape(other));
                Err(Error::backend(BackendFailure::NotExecuted, message))
            }
        }
    }

    /// Waits for the next message until the deadline. Sends a PING after a long silence.
    fn hear(&mut self, deadline: Instant) -> std::io::Result<Option<Message>> {
        let Some(link) = &mut self.link else { return Err(ErrorKind::NotConnected.into()) };
        loop {
            while let Some(value) = link.inbound.take_reply()? {
                if let Some(message) = payload(&value).and_then(message::parse) {
                    return Ok(Some(message));
                }
            }
            // The server has its time from the PING on: the client may not have read for a while before that.
            let patience = self.pinged.map_or(self.heard + SILENCE, |pinged| pinged + self.io_timeout);
            if link.inbound.fill(Some(deadline.min(patience)))? {
                self.heard = Instant::now();
                self.pinged = None;
            } else if Instant::now() >= patience {
                if self.pinged.is_some() {
                    return Err(std::io::Error::new(ErrorKind::TimedOut, "the server did not answer a PING"));
                }
                let now = Instant::now();
                link.outbound.send(&Packed::of(&["PING"]).bytes, now + self.io_timeout)?;
                self.pinged = Some(now);
            } else if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }
}

/// The published text, if the reply is a published message.
pub(crate) fn payload(reply: &Value) -> Option<&[u8]> {
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
        let heard = self.hear(end_of(limit, Instant::now()));
        if heard.is_err() {
            self.link = None;
        }
        heard.map_err(|cause| {
            let message = format!("the subscription at {} is broken: {cause}", self.place);
            Error::backend_caused_by(BackendFailure::Unknown, message, cause)
        })
    }

    fn breaker(&self) -> Box<dyn InboxBreaker> {
        Box::new(Arc::clone(&self.breaker))
    }
}

#[cfg(all(test, unix))]
#[path = "../../../tests/white_box/store/redis/inbox.rs"]
mod tests;
