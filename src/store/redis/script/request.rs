//! Turns requests into calls of the scripts.

use super::keys::{FENCE, gapped_key, queue_key};
use super::scripts::{ACQUIRE, Call, EXTEND, INSPECT, POLL, PROBE, RELEASE, Slack};
use crate::store::processor::{ReleaseRequest, Request};
use std::time::Duration;

/// The texts that a request's call borrows in addition to those of the request. A text that is not needed is empty.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    queue: String,
    lease: String,
    next_lease: String,
    gap: Option<GapTexts>,
}

/// The texts of a release with a gap.
#[derive(Debug)]
struct GapTexts {
    key: String,
    length: String,
    every: String,
}

impl Texts {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let of_queue = |key, lease| Self { queue: queue_key(key), lease: millis(lease), ..Self::default() };
        match request {
            Request::Acquire(r) => of_queue(r.key, r.lease),
            Request::Poll(r) => of_queue(r.key, r.lease),
            Request::Extend(r) => of_queue(r.key, r.lease),
            Request::Release(r) => Self {
                next_lease: r.next.map_or(String::new(), |(_, lease)| millis(lease)),
                gap: r.gap.map(|gap| GapTexts {
                    key: gapped_key(r.key),
                    length: millis(gap.length),
                    every: millis(gap.every),
                }),
                ..of_queue(r.key, r.lease)
            },
            // The only request that needs no queue.
            Request::Probe(_) => Self::default(),
        }
    }

    /// The call that carries out the request from which these texts were made.
    pub(crate) fn call<'a>(&'a self, request: &Request<'a>) -> Call<'a> {
        let keys = |key| [key, self.queue.as_str(), FENCE, ""];
        let lease = self.lease.as_str();
        match request {
            Request::Acquire(r) => {
                let args = [r.locker, lease, flag(r.wait), "", "", ""];
                Call { script: &ACQUIRE, keys: keys(r.key), key_count: 3, args, arg_count: 3, slack: Slack::Last }
            }
            Request::Poll(r) => {
                let args = [r.locker, lease, "", "", "", ""];
                Call { script: &POLL, keys: keys(r.key), key_count: 3, args, arg_count: 2, slack: Slack::Last }
            }
            Request::Extend(r) => {
                let args = [r.locker, lease, flag(r.fresh_numbers), "", "", ""];
                Call { script: &EXTEND, keys: keys(r.key), key_count: 3, args, arg_count: 3, slack: Slack::Last }
            }
            Request::Release(r) => self.release(r),
            Request::Probe(r) => {
                let args = [r.locker, "", "", "", "", ""];
                Call { script: &PROBE, keys: keys(r.key), key_count: 1, args, arg_count: 1, slack: Slack::None }
            }
        }
    }

    fn release<'a>(&'a self, request: &ReleaseRequest<'a>) -> Call<'a> {
        let (key, next) = (request.key, request.next.map_or("", |(next, _)| next));
        let (keys, key_count, length, every) = match &self.gap {
            Some(gap) => ([key, &self.queue, FENCE, &gap.key], 4, gap.length.as_str(), gap.every.as_str()),
            None => ([key, &self.queue, FENCE, ""], 3, "", ""),
        };
        let arg_count = match (&self.gap, request.next) {
            (Some(_), _) => 6,
            (None, Some(_)) => 4,
            (None, None) => 2,
        };
        let args = [request.locker, &self.lease, next, &self.next_lease, length, every];
        Call { script: &RELEASE, keys, key_count, args, arg_count, slack: Slack::In(1) }
    }
}

/// The call that inspects a key.
pub(crate) fn inspect<'a>(key: &'a str, queue: &'a str) -> Call<'a> {
    Call { script: &INSPECT, keys: [key, queue, "", ""], key_count: 2, args: [""; 6], arg_count: 0, slack: Slack::None }
}

/// The lock key that a request concerns.
pub(crate) fn key_of<'a>(request: &Request<'a>) -> &'a str {
    match request {
        Request::Acquire(r) => r.key,
        Request::Poll(r) => r.key,
        Request::Extend(r) => r.key,
        Request::Release(r) => r.key,
        Request::Probe(r) => r.key,
    }
}

/// A time in whole milliseconds, as Redis expects it.
pub(crate) fn millis(time: Duration) -> String {
    itoa::Buffer::new().format(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).to_owned()
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}
