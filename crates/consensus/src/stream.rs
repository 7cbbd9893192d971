//! Answers that never end: a server sends lines for as long as the connection lives.
//!
//! Each stream has connections of its own, which no other request shares. So the end of a stream is the end of its connection, and a cut harms no
//! other request. The life of a stream is set when it begins, because a silent connection looks like one whose server has died.

use super::deadline::Deadline;
use super::http::{Http, HttpCall, failure, request};
use crate::sync::atomic::Ordering;
use redis_dlock::Error;
use std::time::Duration;
use ureq::Agent;

/// A stream of answers.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) agent: Agent,
    pub(super) status: u16,
    pub(super) body: ureq::Body,
    pub(super) server: String,
}

impl Stream {
    /// Opens a stream of answers to one request, from the first server that gives one. Its connection is its own.
    pub(super) fn open(http: &Http, call: &HttpCall<'_>, life: Duration, deadline: Deadline) -> Result<Self, Error> {
        let first = http.preferred.load(Ordering::SeqCst);
        let mut failed = None;
        for n in 0..http.servers.len() {
            // This is checked for each server, because the store may be closed while one is waited for.
            if http.is_closed.load(Ordering::SeqCst) {
                return Err(Error::ShutDown);
            }
            let server = &http.servers[(first + n) % http.servers.len()];
            // Each server has a new agent, so that the agent that is kept has nothing of a connect that was given up.
            let agent = http.own_agent();
            let left = deadline.left()?;
            // The limit leaves time for the next server if this one hangs.
            let limit = if n + 1 < http.servers.len() { left / 2 } else { left };
            match begin_stream(&agent, server, call, life, limit) {
                Ok((status, body)) => return Ok(Self { agent, status, body, server: server.clone() }),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(Error::ShutDown))
    }
}

/// Asks one server for a stream. Connect and the head of the answer have half of the limit each; the body has the life of the stream.
fn begin_stream(
    agent: &Agent,
    server: &str,
    call: &HttpCall<'_>,
    life: Duration,
    limit: Duration,
) -> Result<(u16, ureq::Body), Error> {
    let request = agent
        .configure_request(request(server, call)?)
        .timeout_connect(Some(limit / 2))
        .timeout_recv_response(Some(limit / 2))
        .timeout_recv_body(Some(life))
        .build();
    let response = agent.run(request).map_err(|e| failure(server, e))?;
    Ok((response.status().as_u16(), response.into_body()))
}
