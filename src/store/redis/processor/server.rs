//! The servers behind a store, one by one: plain commands for a program that examines them.

use crate::error::{BackendFailure, Error};
use crate::store::redis::net::address::{Address, Place};
use crate::store::redis::net::classify::classify;
use crate::store::redis::net::endpoint::Endpoint;
use crate::store::redis::net::handshake::failed;
use crate::store::redis::net::link::Link;
use crate::store::redis::script::keys::{Slot, tag_of};
use crate::timing::end_of;
use ::redis::Value;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One server of a [`RedisLockProcessor`](super::RedisLockProcessor), for a program that examines it, as `dlock doctor` does. It is asked over
/// a connection of its own, which the locks do not use. The connection is opened for the first command, with the login, certificates and
/// time-out of the store.
pub struct Server {
    endpoint: Endpoint,
    slots: Vec<Slot>,
    link: Option<Link>,
}

impl Server {
    pub(super) fn at(endpoint: &Endpoint, address: Address, slots: Vec<Slot>) -> Self {
        // The store must not take the identity of this server for that of its own.
        let endpoint = Endpoint { address, finder: None, servers: Arc::default(), ..endpoint.clone() };
        Self { endpoint, slots, link: None }
    }

    /// Returns the server's address, without user and password.
    #[must_use]
    pub fn address(&self) -> String {
        self.endpoint.address.to_string()
    }

    /// Returns how many slots of a Cluster it owned when it was found. Outside a Cluster that is 0.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns a number that leads a key to this node of a Cluster, if it stands in braces in the key's name. `None` outside a Cluster, and for a node
    /// that owns no slot.
    #[must_use]
    pub fn hash_tag(&self) -> Option<u32> {
        self.slots.first().copied().map(tag_of)
    }

    /// Returns another server that is reached in the same way, with the same login: a replica, say.
    #[must_use]
    pub fn beside(&self, host: &str, port: u16) -> Self {
        let tls = matches!(self.endpoint.address.place, Place::Tcp { tls: true, .. });
        let place = Place::Tcp { host: host.to_owned(), port, tls };
        Self::at(&self.endpoint, Address { place, ..self.endpoint.address.clone() }, Vec::new())
    }

    /// Sends one command, and returns the texts and numbers of the reply in their order, without their nesting. A reply of nil is empty. Blocks for at
    /// most `limit`. A replica is asked as well as a master.
    ///
    /// # Errors
    ///
    /// The error with which a lock would fail after the same answer. After [`Error::Backend`] with a [`source`](std::error::Error::source) the
    /// connection is opened again for the next command.
    pub fn ask(&mut self, words: &[&str], limit: Duration) -> Result<Vec<String>, Error> {
        let deadline = end_of(limit, Instant::now());
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.endpoint.connect_to_any(deadline.min(Instant::now() + self.endpoint.connect_timeout))?,
        };
        let reply = link.ask(words, deadline).map_err(|error| self.broken(error))?;
        let reply = reply.ok_or_else(|| self.broken(ErrorKind::TimedOut.into()))?;
        self.link = Some(link);
        self.texts(&reply)
    }

    /// Waits for a message to a channel to which [`ask`](Self::ask) has subscribed, at most for `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the connection has ended.
    pub fn next_message(&mut self, limit: Duration) -> Result<Option<Vec<String>>, Error> {
        let Some(mut link) = self.link.take() else { return Err(self.broken(ErrorKind::NotConnected.into())) };
        let message = link.reply(end_of(limit, Instant::now())).map_err(|error| self.broken(error))?;
        self.link = Some(link);
        message.map(|message| self.texts(&message)).transpose()
    }

    fn broken(&self, cause: io::Error) -> Error {
        match failed(&self.endpoint.address, cause) {
            Error::Backend { message, source, .. } => {
                let message = message.replacen("cannot connect to", "no answer from", 1);
                Error::Backend { failure: BackendFailure::Unknown, message, source }
            }
            other => other,
        }
    }

    fn texts(&self, reply: &Value) -> Result<Vec<String>, Error> {
        let mut texts = Vec::new();
        match flatten(reply, &mut texts) {
            Ok(()) => Ok(texts),
            Err(error) => Err(self.endpoint.address.hide(classify(error, ""))),
        }
    }
}

/// A clone has a connection of its own.
impl Clone for Server {
    fn clone(&self) -> Self {
        Self { endpoint: self.endpoint.clone(), slots: self.slots.clone(), link: None }
    }
}

/// Adds the leaves of a reply. Fails with an error of the server, if there is one.
fn flatten<'a>(reply: &'a Value, texts: &mut Vec<String>) -> Result<(), &'a ::redis::ServerError> {
    match reply {
        Value::ServerError(error) => return Err(error),
        Value::Array(items) => return items.iter().try_for_each(|item| flatten(item, texts)),
        Value::Int(number) => texts.push(number.to_string()),
        Value::BulkString(bytes) => texts.push(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => texts.push(text.clone()),
        Value::Okay => texts.push("OK".to_owned()),
        // RESP2 has no other types.
        _ => {}
    }
    Ok(())
}

/// Shows the address.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slots, link, .. } = self;
        f.debug_struct("Server")
            .field("address", &self.address())
            .field("slots", &slots.len())
            .field("open", &link.is_some())
            .finish_non_exhaustive()
    }
}
