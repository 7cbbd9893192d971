//! One server of a URL, for tools that examine it.
//!
//! A lock asks any server that answers. A tool must know which server has answered: one may be cut off from the others, or have lost its gateway,
//! while the next one in the URL is well. So a tool asks each server on connections of its own. Requests and answers are texts, because the JSON of
//! the servers differs from version to version, and a type of ours for it would promise too much.

use super::deadline::Deadline;
use redis_dlock::Error;
use std::fmt;
use std::time::Duration;

/// Sends a path and a body, and returns the answer.
type Ask = Box<dyn Fn(&str, &str, Deadline) -> Result<String, Error> + Send + Sync>;

/// One of the servers of a URL, for a tool that examines it. No lock needs this.
pub struct Server {
    address: String,
    ask: Ask,
}

impl Server {
    pub(super) fn new(
        address: &str,
        ask: impl Fn(&str, &str, Deadline) -> Result<String, Error> + Send + Sync + 'static,
    ) -> Self {
        Self { address: address.to_owned(), ask: Box::new(ask) }
    }

    /// Returns its address: `http://host:port`, or `https://host:port`. It contains no secret.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends one request to this server alone, with the login of the URL, and returns the answer as JSON: `null` if there is nothing of that
    /// name. The body is JSON, too. etcd is sent a `POST`; Consul a `PUT`, or a `GET` if the body is empty. Blocks for at most `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`], [`Error::Denied`], [`Error::Unsupported`] as for a request of a lock; [`Error::InvalidConfig`] for a body that is no
    /// JSON.
    pub fn ask(&self, path: &str, body: &str, limit: Duration) -> Result<String, Error> {
        (self.ask)(path, body, Deadline::after(limit))
    }
}

/// Reads the body of a request.
pub(super) fn body(text: &str) -> Result<serde_json::Value, Error> {
    let wrong = |_| Error::invalid_config("body of a request", "(not shown)", "give a JSON document");
    if text.is_empty() { Ok(serde_json::Value::Null) } else { serde_json::from_str(text).map_err(wrong) }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}
