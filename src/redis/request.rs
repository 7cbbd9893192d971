//! Requests as calls of the scripts.

use super::keys::{FENCE, queue_key};
use super::script::{ACQUIRE, Call, EXTEND, INSPECT, POLL, PROBE, RELEASE};
use crate::processor::Request;
use std::time::Duration;

/// The texts that a request's call borrows beside those of the request.
#[derive(Debug)]
pub(crate) struct Texts {
    queue: String,
    lease: String,
    next_lease: String,
}

impl Texts {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let none = Duration::ZERO;
        let (key, lease, next_lease) = match request {
            Request::Acquire(r) => (r.key, r.lease, none),
            Request::Poll(r) => (r.key, r.lease, none),
            Request::Extend(r) => (r.key, r.lease, none),
            Request::Release(r) => (r.key, r.lease, r.next.map_or(none, |(_, lease)| lease)),
            // The only one that needs no queue.
            Request::Probe(_) => return Self { queue: String::new(), lease: String::new(), next_lease: String::new() },
        };
        Self {
            queue: queue_key(key),
            lease: lease.as_millis().to_string(),
            next_lease: if next_lease == none { String::new() } else { next_lease.as_millis().to_string() },
        }
    }

    /// The call that carries out the request these texts are of.
    pub(crate) fn call<'a>(&'a self, request: &Request<'a>) -> Call<'a> {
        let keys = |key| [key, self.queue.as_str(), FENCE];
        let lease = self.lease.as_str();
        match request {
            Request::Acquire(r) => {
                let args = [r.locker, lease, flag(r.wait), ""];
                Call { script: &ACQUIRE, keys: keys(r.key), key_count: 3, args, arg_count: 3, slack: Some(3) }
            }
            Request::Poll(r) => {
                let args = [r.locker, lease, "", ""];
                Call { script: &POLL, keys: keys(r.key), key_count: 3, args, arg_count: 2, slack: Some(2) }
            }
            Request::Extend(r) => {
                let args = [r.locker, lease, flag(r.fresh_numbers), ""];
                Call { script: &EXTEND, keys: keys(r.key), key_count: 3, args, arg_count: 3, slack: Some(3) }
            }
            Request::Release(r) => {
                let args = [r.locker, lease, r.next.map_or("", |(next, _)| next), &self.next_lease];
                let arg_count = if r.next.is_some() { 4 } else { 2 };
                Call { script: &RELEASE, keys: keys(r.key), key_count: 3, args, arg_count, slack: Some(2) }
            }
            Request::Probe(r) => {
                let args = [r.locker, "", "", ""];
                Call { script: &PROBE, keys: keys(r.key), key_count: 1, args, arg_count: 1, slack: None }
            }
        }
    }
}

/// The call that looks at a key.
pub(crate) fn inspect<'a>(key: &'a str, queue: &'a str) -> Call<'a> {
    Call { script: &INSPECT, keys: [key, queue, ""], key_count: 2, args: [""; 4], arg_count: 0, slack: None }
}

/// The lock key that a request is about.
pub(crate) fn key_of<'a>(request: &Request<'a>) -> &'a str {
    match request {
        Request::Acquire(r) => r.key,
        Request::Poll(r) => r.key,
        Request::Extend(r) => r.key,
        Request::Release(r) => r.key,
        Request::Probe(r) => r.key,
    }
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}
