//! The first commands on a connection: login, client name, database, a check that the server can carry locks, and who it is.
//!
//! They go out in one write, and cost one round trip: `HELLO 2` with the login and the name, `SELECT` for a database other than 0, and
//! `INFO`. If `HELLO` is refused, the commands behind it do no harm.
//!
//! A server carries locks if it is version 7.0 or newer (older ones refuse the flags of our scripts), is no Sentinel, and says that it is a
//! master. A Sentinel or a Cluster map may call a server a master. That is not believed unless the server says so, too. No command of a
//! lock is sent before the end of the handshake, so after each failure here the call counts as not executed.
//!
//! A refusal may repeat the login, because a server that does not know `HELLO` quotes its arguments. So the words of such a refusal are not
//! shown.

use super::address::Address;
use super::classify::{classify, without_user};
use super::connector::WriteHalf;
use super::identity::{self, Identity};
use super::link::Link;
use super::resp::{Packed, shape};
use crate::error::{BackendFailure, Error};
use ::redis::{ServerError, Value};
use std::io;
use std::time::Instant;

/// The name that `CLIENT LIST` shows.
const CLIENT_NAME: &str = "redis-dlock";
/// The oldest server whose scripts accept the flags that we need.
const OLDEST_MAJOR: u64 = 7;

/// What a server says of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) is_in_cluster: bool,
    is_replica: bool,
}

impl Part {
    /// Checks that a server takes locks.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] (not executed) for a replica. One that is promoted says so to the next connection.
    pub(crate) fn check_master(self, address: &Address) -> Result<(), Error> {
        // A replica refuses writes. But an old master that became a replica still answers reads, and its answer to a probe would be worthless.
        if self.is_replica {
            let message = format!("{address} is a replica, which takes no locks: give the address of the master");
            return Err(Error::backend(BackendFailure::NotExecuted, message));
        }
        Ok(())
    }

    /// Checks that a server is of the kind that the client was made for: a node of a Cluster, or one that stands alone. Fails with
    /// [`Error::Unsupported`].
    pub(crate) fn check_kind(self, in_cluster: bool, address: &Address) -> Result<(), Error> {
        let hint = match (in_cluster, self.is_in_cluster) {
            (true, false) => "it is no node of a Redis Cluster: write redis://host:port",
            (false, true) => "it is a node of a Redis Cluster: write redis+cluster://host:port",
            _ => return Ok(()),
        };
        Err(unsupported(address, hint))
    }
}

/// Introduces the client, and checks which server answers. Returns its part, and who it is, if it says so.
///
/// # Errors
///
/// See [`Endpoint::connect`](super::endpoint::Endpoint::connect).
pub(crate) fn run(link: &mut Link, address: &Address, deadline: Instant) -> Result<(Part, Option<Identity>), Error> {
    let mut packed = introduction(address);
    let db = address.db.to_string();
    if address.db != 0 {
        packed.words(&["SELECT", &db]);
    }
    packed.words(identity::QUESTION);
    link.outbound.send(&packed.bytes, deadline).map_err(|e| failed(address, e))?;
    // The replies come in the order of the commands. If the first one ends the handshake, the others are never read: the connection ends
    // here.
    let part = check_hello(&reply(link, address, deadline)?, address)?;
    if address.db != 0
        && let Value::ServerError(e) = reply(link, address, deadline)?
    {
        let error = address.hide(classify(&e, ""));
        return Err(match error {
            // Only one mistake leads here, so the error names that mistake, and not a refusal of `SELECT`.
            Error::Backend { .. } if part.is_in_cluster => no_database_of_a_cluster(address.db),
            Error::Backend { failure: BackendFailure::Unknown, message, .. } => {
                let hint = format!(
                    "{message}: give the number of a database that the server has, 0 to 15 unless set otherwise"
                );
                Error::invalid_config("database", db, hint)
            }
            other => other,
        });
    }
    Ok((part, Identity::read(&reply(link, address, deadline)?)))
}

/// The error for a database other than 0 of a Cluster.
pub(crate) fn no_database_of_a_cluster(db: i64) -> Error {
    let hint = "the server is a node of a Redis Cluster, which has only the database 0: leave the database out";
    Error::invalid_config("database", db.to_string(), hint)
}

/// Introduces the client to a Sentinel.
///
/// # Errors
///
/// Those of [`run`]; [`Error::Unsupported`] if it is no Sentinel.
pub(crate) fn run_with_sentinel(link: &mut Link, address: &Address, deadline: Instant) -> Result<(), Error> {
    link.outbound.send(&introduction(address).bytes, deadline).map_err(|e| failed(address, e))?;
    let reply = reply(link, address, deadline)?;
    match field(hello(&reply, address)?, "mode") {
        "sentinel" => Ok(()),
        _ => Err(unsupported(address, "it is no Sentinel: give the addresses of the service's Sentinels")),
    }
}

/// The login, and the client's name.
fn introduction(address: &Address) -> Packed {
    let mut words = vec!["HELLO", "2"];
    if let Some(password) = &address.password {
        // The login is a part of `HELLO`, because a server with a password answers nothing else before. A separate command would cost a round trip.
        words.extend(["AUTH", address.user.as_deref().unwrap_or("default"), password]);
    }
    words.extend(["SETNAME", CLIENT_NAME]);
    Packed::of(&words)
}

/// Waits for one reply. Nothing that matters has been executed so far.
fn reply(link: &mut Link, address: &Address, deadline: Instant) -> Result<Value, Error> {
    link.reply(deadline).map_err(|e| failed(address, e))?.ok_or_else(|| {
        let message = format!("{address} accepted the connection and did not answer in time");
        Error::backend(BackendFailure::NotExecuted, message)
    })
}

/// The error for a connection that could not be opened, or that broke before it was used.
pub(crate) fn failed(address: &Address, cause: io::Error) -> Error {
    let message = format!("cannot connect to {address}: {cause}");
    Error::backend_caused_by(BackendFailure::NotExecuted, message, cause)
}

/// Checks whether a server that answers `HELLO` with this reply is one for locks, and returns its part.
pub(crate) fn check_hello(reply: &Value, address: &Address) -> Result<Part, Error> {
    let fields = hello(reply, address)?;
    let field = |name: &str| field(fields, name);
    let version = field("version");
    let major: Option<u64> = version.split('.').next().and_then(|major| major.parse().ok());
    let mode = field("mode");
    if mode == "sentinel" {
        return Err(unsupported(address, "it is a Sentinel: write redis+sentinel://host:26379/service"));
    }
    // The version is checked after the kind: the URL of an old Sentinel is wrong, whatever its version is.
    if major.is_none_or(|major| major < OLDEST_MAJOR) {
        return Err(unsupported(address, &format!("its version is {version:?}, 7.0 or newer is needed")));
    }
    let is_replica = matches!(field("role"), "replica" | "slave");
    Ok(Part { is_in_cluster: mode == "cluster", is_replica })
}

/// The fields of the reply to `HELLO`.
fn hello<'a>(reply: &'a Value, address: &Address) -> Result<&'a [Value], Error> {
    match reply {
        Value::Array(fields) => Ok(fields),
        Value::ServerError(e) => Err(refusal(e, address)),
        other => Err(unsupported(address, &format!("it answers HELLO with {}", shape(other)))),
    }
}

/// Returns the text of a field; empty if the server does not send it. In protocol 2, a map is a list in which names and values alternate.
fn field<'a>(fields: &'a [Value], name: &str) -> &'a str {
    let pair = fields.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name));
    pair.and_then(|pair| text(&pair[1])).unwrap_or_default()
}

/// Interprets an error reply to `HELLO`.
fn refusal(reply: &ServerError, address: &Address) -> Error {
    let (code, detail) = (reply.code(), reply.details().unwrap_or_default());
    let words = if repeats_login(detail, address) {
        format!("{code} (the server's message is not shown: it may repeat the password)")
    } else {
        address.hide_user(&without_user(format!("{code} {detail}").trim_end()))
    };
    match classify(reply, "") {
        // `HELLO` exists since Redis 6.0: a server that does not know it is older than any that carries locks.
        Error::Unsupported { .. } => {
            unsupported(address, &format!("it is older than 7.0, which is needed: it does not know HELLO ({words})"))
        }
        Error::Denied { .. } => Error::Denied { message: words },
        Error::Backend { failure: BackendFailure::Refused, .. } => Error::backend(BackendFailure::Refused, words),
        // No command about a lock was sent.
        _ => Error::backend(BackendFailure::NotExecuted, words),
    }
}

/// Returns whether an error's words may contain our login. A server that does not know `HELLO` quotes its arguments. Redis quotes them, too, and cuts
/// some of them off.
fn repeats_login(words: &str, address: &Address) -> bool {
    address.password.as_deref().is_some_and(|password| {
        // The first characters are enough. Redis cuts an argument off that it quotes, and part of a password is a secret, too.
        let start: String = password.chars().take(6).collect();
        words.contains("AUTH") || words.contains("args beginning with") || words.contains(&start)
    })
}

/// The error for a server that can carry no locks, or not in the way it is addressed; `why` says what is wrong.
fn unsupported(address: &Address, why: &str) -> Error {
    Error::Unsupported { message: format!("{address}: {why}") }
}

/// The text of a value, if it is one.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/net/handshake.rs"]
mod tests;
