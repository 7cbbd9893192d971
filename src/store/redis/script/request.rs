//! Turns requests into calls of the scripts.

use super::acks;
use super::breaking::{looked_at_key, told_key, words};
use super::keys::{FENCE, gapped_key, queue_key, slot_fence_key};
use super::scripts::{ACQUIRE, BREAK, BROKEN, Call, EXTEND, Form, INSPECT, POLL, PROBE, RELEASE, Script, Slack};
use crate::port::{Break, Claim, Request};
use std::ops::Deref;
use std::time::Duration;

/// The texts that a request's call borrows in addition to those of the request. A text that is not needed is empty.
#[derive(Debug)]
pub(crate) struct Texts {
    form: Form,
    queue: String,
    /// The fence of the key's slot, in a Cluster.
    fence: Option<String>,
    lease: Millis,
    next_lease: Millis,
    gap: Option<GapTexts>,
    /// The key that says by whom a hold was broken.
    broken: String,
    /// What it says.
    words: String,
}

/// The texts of a release with a gap.
#[derive(Debug)]
struct GapTexts {
    key: String,
    length: Millis,
    every: Millis,
}

impl GapTexts {
    /// The gap that a release asks for, if it asks for one.
    fn of(claim: &Claim<'_>) -> Option<Self> {
        let gap = claim.poller_gap?;
        Some(Self { key: gapped_key(claim.key), length: millis(gap.length), every: millis(gap.every) })
    }
}

impl Texts {
    pub(crate) fn of(request: &Request<'_>, form: Form) -> Self {
        let none = || Self {
            form,
            queue: String::new(),
            fence: None,
            lease: Millis::default(),
            next_lease: Millis::default(),
            gap: None,
            broken: String::new(),
            words: String::new(),
        };
        let of_key = |key: &str| Self {
            queue: queue_key(key),
            fence: (form == Form::Cluster).then(|| slot_fence_key(key)),
            ..none()
        };
        let of_queue = |claim: &Claim<'_>| Self { lease: millis(claim.lease), ..of_key(claim.key) };
        match request {
            Request::Acquire(claim)
            | Request::Join(claim)
            | Request::Poll(claim)
            | Request::Extend(claim)
            | Request::ExtendWithNumbers(claim) => of_queue(claim),
            // The store refuses to settle.
            Request::Release(claim) | Request::Settle(claim) => Self { gap: GapTexts::of(claim), ..of_queue(claim) },
            Request::HandOver(claim, next) => {
                Self { next_lease: millis(next.lease), gap: GapTexts::of(claim), ..of_queue(claim) }
            }
            Request::Break(order) => Self { broken: told_key(order), words: words(order), ..of_key(order.key) },
            Request::Inspect { key } => Self { queue: queue_key(key), ..none() },
            Request::Broken { key, locker } => Self { broken: looked_at_key(key, locker), ..none() },
            Request::Probe(_) => none(),
        }
    }

    fn fence(&self) -> &str {
        self.fence.as_deref().unwrap_or(FENCE)
    }

    /// The call that carries out the request from which these texts were made.
    pub(crate) fn call<'a>(&'a self, request: &Request<'a>) -> Call<'a> {
        let call = match request {
            Request::Acquire(claim) => self.numbered(&ACQUIRE, claim, Some("0")),
            Request::Join(claim) => self.numbered(&ACQUIRE, claim, Some("1")),
            Request::Poll(claim) => self.numbered(&POLL, claim, None),
            Request::Extend(claim) => self.numbered(&EXTEND, claim, Some("0")),
            Request::ExtendWithNumbers(claim) => self.numbered(&EXTEND, claim, Some("1")),
            Request::Release(claim) | Request::Settle(claim) => self.release(claim, None),
            Request::HandOver(claim, next) => self.release(claim, Some(next)),
            Request::Probe(claim) => self.probe(claim),
            Request::Inspect { key } => inspect(key, &self.queue),
            Request::Break(order) => self.break_hold(order),
            Request::Broken { .. } => self.look_for_break(),
        };
        Call { is_confirmed: acks::is_confirmed(request), ..call }
    }

    /// A call that may take the key, or extends its lease: its script may issue a number.
    fn numbered<'a>(&'a self, script: &'static Script, claim: &Claim<'a>, flag: Option<&'static str>) -> Call<'a> {
        Call {
            script,
            form: self.form,
            keys: [claim.key, &self.queue, self.fence(), ""],
            key_count: 3,
            args: [claim.locker, &self.lease, flag.unwrap_or_default(), "", "", ""],
            arg_count: if flag.is_some() { 3 } else { 2 },
            slack: Slack::Last,
            is_confirmed: false,
        }
    }

    fn probe<'a>(&self, claim: &Claim<'a>) -> Call<'a> {
        Call {
            script: &PROBE,
            form: self.form,
            keys: [claim.key, "", "", ""],
            key_count: 1,
            args: [claim.locker, "", "", "", "", ""],
            arg_count: 1,
            slack: Slack::None,
            is_confirmed: false,
        }
    }

    fn break_hold<'a>(&'a self, order: &Break<'a>) -> Call<'a> {
        Call {
            script: &BREAK,
            form: self.form,
            keys: [order.key, &self.queue, self.fence(), &self.broken],
            key_count: 4,
            args: [order.locker, &self.words, "", "", "", ""],
            arg_count: 2,
            slack: Slack::Last,
            is_confirmed: false,
        }
    }

    fn look_for_break(&self) -> Call<'_> {
        Call {
            script: &BROKEN,
            // Both forms are the same.
            form: Form::Server,
            keys: [&self.broken, "", "", ""],
            key_count: 1,
            args: [""; 6],
            arg_count: 0,
            slack: Slack::None,
            is_confirmed: false,
        }
    }

    fn release<'a>(&'a self, claim: &Claim<'a>, next: Option<&Claim<'a>>) -> Call<'a> {
        let (key, next_locker) = (claim.key, next.map_or("", |next| next.locker));
        let (keys, key_count, length, every) = match &self.gap {
            Some(gap) => ([key, &self.queue, self.fence(), &gap.key], 4, &*gap.length, &*gap.every),
            None => ([key, &self.queue, self.fence(), ""], 3, "", ""),
        };
        let arg_count = match (&self.gap, next) {
            (Some(_), _) => 6,
            (None, Some(_)) => 4,
            (None, None) => 2,
        };
        let args = [claim.locker, &self.lease, next_locker, &self.next_lease, length, every];
        Call {
            script: &RELEASE,
            form: self.form,
            keys,
            key_count,
            args,
            arg_count,
            slack: Slack::In(1),
            is_confirmed: false,
        }
    }
}

/// The call that inspects a key.
pub(crate) fn inspect<'a>(key: &'a str, queue: &'a str) -> Call<'a> {
    Call {
        script: &INSPECT,
        // Both forms are the same.
        form: Form::Server,
        keys: [key, queue, "", ""],
        key_count: 2,
        args: [""; 6],
        arg_count: 0,
        slack: Slack::None,
        is_confirmed: false,
    }
}

/// A time in whole milliseconds, as Redis expects it: a text that costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Millis {
    digits: [u8; 20],
    count: usize,
}

/// Writes a time in whole milliseconds.
pub(crate) fn millis(time: Duration) -> Millis {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let mut millis = Millis { count: text.len(), ..Millis::default() };
    millis.digits[..text.len()].copy_from_slice(text.as_bytes());
    millis
}

impl Deref for Millis {
    type Target = str;

    fn deref(&self) -> &str {
        // They are digits.
        std::str::from_utf8(&self.digits[..self.count]).unwrap_or_default()
    }
}
