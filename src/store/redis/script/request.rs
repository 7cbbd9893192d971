//! Turns requests into calls of the scripts.

use super::acks;
use super::keys::{FENCE, gapped_key, queue_key};
use super::scripts::{ACQUIRE, Call, EXTEND, INSPECT, POLL, PROBE, RELEASE, Slack};
use crate::store::processor::{Claim, Request};
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

impl GapTexts {
    /// The gap that a release asks for, if it asks for one.
    fn of(claim: &Claim<'_>) -> Option<Self> {
        let gap = claim.poller_gap?;
        Some(Self { key: gapped_key(claim.key), length: millis(gap.length), every: millis(gap.every) })
    }
}

impl Texts {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let of_queue =
            |claim: &Claim<'_>| Self { queue: queue_key(claim.key), lease: millis(claim.lease), ..Self::default() };
        match request {
            Request::Acquire(claim)
            | Request::Join(claim)
            | Request::Poll(claim)
            | Request::Extend(claim)
            | Request::ExtendWithNumbers(claim) => of_queue(claim),
            Request::Release(claim) => Self { gap: GapTexts::of(claim), ..of_queue(claim) },
            Request::HandOver(claim, next) => {
                Self { next_lease: millis(next.lease), gap: GapTexts::of(claim), ..of_queue(claim) }
            }
            // The only request that needs no queue.
            Request::Probe(_) => Self::default(),
        }
    }

    /// The call that carries out the request from which these texts were made.
    pub(crate) fn call<'a>(&'a self, request: &Request<'a>) -> Call<'a> {
        let keys = |key| [key, self.queue.as_str(), FENCE, ""];
        let lease = self.lease.as_str();
        let is_confirmed = acks::is_confirmed(request);
        match request {
            Request::Acquire(r) | Request::Join(r) => {
                let args = [r.locker, lease, flag(matches!(request, Request::Join(_))), "", "", ""];
                Call {
                    script: &ACQUIRE,
                    keys: keys(r.key),
                    key_count: 3,
                    args,
                    arg_count: 3,
                    slack: Slack::Last,
                    is_confirmed,
                }
            }
            Request::Poll(r) => {
                let args = [r.locker, lease, "", "", "", ""];
                Call {
                    script: &POLL,
                    keys: keys(r.key),
                    key_count: 3,
                    args,
                    arg_count: 2,
                    slack: Slack::Last,
                    is_confirmed,
                }
            }
            Request::Extend(r) | Request::ExtendWithNumbers(r) => {
                let args = [r.locker, lease, flag(matches!(request, Request::ExtendWithNumbers(_))), "", "", ""];
                Call {
                    script: &EXTEND,
                    keys: keys(r.key),
                    key_count: 3,
                    args,
                    arg_count: 3,
                    slack: Slack::Last,
                    is_confirmed,
                }
            }
            Request::Release(claim) => self.release(claim, None),
            Request::HandOver(claim, next) => self.release(claim, Some(next)),
            Request::Probe(r) => {
                let args = [r.locker, "", "", "", "", ""];
                Call {
                    script: &PROBE,
                    keys: keys(r.key),
                    key_count: 1,
                    args,
                    arg_count: 1,
                    slack: Slack::None,
                    is_confirmed,
                }
            }
        }
    }

    fn release<'a>(&'a self, claim: &Claim<'a>, next: Option<&Claim<'a>>) -> Call<'a> {
        let (key, next_locker) = (claim.key, next.map_or("", |next| next.locker));
        let (keys, key_count, length, every) = match &self.gap {
            Some(gap) => ([key, &self.queue, FENCE, &gap.key], 4, gap.length.as_str(), gap.every.as_str()),
            None => ([key, &self.queue, FENCE, ""], 3, "", ""),
        };
        let arg_count = match (&self.gap, next) {
            (Some(_), _) => 6,
            (None, Some(_)) => 4,
            (None, None) => 2,
        };
        let args = [claim.locker, &self.lease, next_locker, &self.next_lease, length, every];
        Call { script: &RELEASE, keys, key_count, args, arg_count, slack: Slack::In(1), is_confirmed: next.is_some() }
    }
}

/// The call that inspects a key.
pub(crate) fn inspect<'a>(key: &'a str, queue: &'a str) -> Call<'a> {
    Call {
        script: &INSPECT,
        keys: [key, queue, "", ""],
        key_count: 2,
        args: [""; 6],
        arg_count: 0,
        slack: Slack::None,
        is_confirmed: false,
    }
}

/// A time in whole milliseconds, as Redis expects it.
pub(crate) fn millis(time: Duration) -> String {
    itoa::Buffer::new().format(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).to_owned()
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}
