//! The Lua scripts, with their shared chunks inserted, the calls of these scripts that carry out requests, and the bytes of a call.
//!
//! A node of a Redis Cluster gets each script in another form. There the inbox of a client is a *shard channel* in the slot of the lock: a
//! message reaches the subscribers at this node, and no other node hears of it. Three replacements make that form: `SPUBLISH` for `PUBLISH`,
//! `SHARDNUMSUB` for `NUMSUB`, and the name of the channel, which begins as the name of the queue does.

use super::acks;
use super::breaking::{told_key, words};
use super::keys::{FENCE, broken_key, gapped_key, queue_key, slot_fence_key};
use crate::port::{Break, Claim, Request};
use crate::store::redis::net::resp::{Packed, Stamp};
use ::redis::Script as Hashed;
use once_cell::sync::{Lazy, OnceCell};
use std::ops::Deref;
use std::time::Duration;

const ISSUE: &str = include_str!("../../../../scripts/issue.lua");
const HAND_OVER: &str = include_str!("../../../../scripts/hand_over.lua");
const ENQUEUE: &str = include_str!("../../../../scripts/enqueue.lua");
const WAITERS: &str = include_str!("../../../../scripts/waiters.lua");
const LOOK: &str = include_str!("../../../../scripts/look.lua");

/// The slack of the fence in microseconds, as the scripts receive it. Calls are packed with none.
const NO_SLACK: Stamp = *b"00000";

/// The slack on a connection on which a fence number was read recently: 10 ms. See `scripts/issue.lua`.
pub(crate) const SLACK: Stamp = *b"10000";

/// A script as servers receive it.
#[derive(Debug)]
pub(crate) struct Script {
    server: Text,
    /// Made at its first use: most processes never talk to a Cluster.
    cluster: OnceCell<Text>,
}

/// A script in one of its forms.
#[derive(Debug)]
struct Text {
    /// What begins a call in full. It is kept as long as the program runs, as the scripts are.
    full: [&'static str; 2],
    sha: String,
}

/// The two forms of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For a single server.
    Server,
    /// For a node of a Cluster.
    Cluster,
}

/// What makes the form for a Cluster out of the other one. Each is a literal of Lua, and its replacement an expression.
const REPLACEMENTS: [(&str, &str); 3] = [
    ("'PUBLISH'", "'SPUBLISH'"),
    ("'NUMSUB'", "'SHARDNUMSUB'"),
    // The queue is `DLOCK:1:{tag}:queue:` and the key.
    ("'DLOCK:1:inbox:' ..", "string.sub(KEYS[2], 1, -(#KEYS[1] + 7)) .. 'inbox:' .."),
];

pub(crate) static ACQUIRE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/acquire.lua")));
pub(crate) static POLL: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/poll.lua")));
pub(crate) static EXTEND: Lazy<Script> = Lazy::new(|| {
    let source = include_str!("../../../../scripts/extend.lua");
    Script::new(source)
});
pub(crate) static RELEASE: Lazy<Script> = Lazy::new(|| {
    let source = include_str!("../../../../scripts/release.lua");
    Script::new(source)
});
pub(crate) static PROBE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/probe.lua")));
/// A forced break, and what tells of it.
pub(crate) static BREAK: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/break.lua")));
pub(crate) static BROKEN: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/broken.lua")));
/// The extension of a lease in a slot that is moving to another node: it needs no key but the lock's.
pub(crate) static EXTEND_ALONE: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../../scripts/extend_alone.lua")));
pub(crate) static INSPECT: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/inspect.lua")));

/// Who holds a key and who waits for it.
pub(crate) static LOCKERS: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/lockers.lua")));
/// What a client says of itself.
pub(crate) static RECORD: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/record.lua")));

impl Script {
    fn new(source: &str) -> Self {
        Self { server: Text::new(splice(source)), cluster: OnceCell::new() }
    }

    fn text(&self, form: Form) -> &Text {
        match form {
            Form::Server => &self.server,
            Form::Cluster => self.cluster.get_or_init(|| self.server.for_cluster()),
        }
    }
}

impl Text {
    fn new(text: String) -> Self {
        let sha = Hashed::new(&text).get_hash().to_owned();
        Self { full: ["EVAL", text.leak()], sha }
    }

    fn for_cluster(&self) -> Self {
        let [_, text] = self.full;
        let text = REPLACEMENTS.iter().fold(text.to_owned(), |text, (here, there)| text.replace(here, there));
        Self::new(text)
    }
}

/// Replaces the `-- #include name` lines by the chunks that they name.
fn splice(source: &str) -> String {
    let mut text = String::with_capacity(2 * source.len());
    for line in source.lines() {
        match line.trim().strip_prefix("-- #include ") {
            Some("issue") => text.push_str(&splice(code_of(ISSUE))),
            Some("enqueue") => text.push_str(code_of(ENQUEUE)),
            Some("waiters") => text.push_str(code_of(WAITERS)),
            Some("look") => text.push_str(code_of(LOOK)),
            Some("hand_over") => text.push_str(&splice(code_of(HAND_OVER))),
            Some(other) => unreachable!("no chunk is named {other:?}: a fault of our own files, seen by every test"),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// A chunk without the comment at its top, which ends with an empty line.
fn code_of(chunk: &'static str) -> &'static str {
    chunk.split_once("\n\n").map_or(chunk, |(_, code)| code)
}

/// One call of a script, ready to be sent: as `EVALSHA`, which the transport repeats as `EVAL` to a server that does not know the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Script,
    pub(crate) form: Form,
    pub(crate) keys: [&'a str; 4],
    /// How many of the keys are passed to the script.
    pub(crate) key_count: usize,
    pub(crate) args: [&'a str; 6],
    /// How many of the arguments are passed to the script, not counting a separate slack argument.
    pub(crate) arg_count: usize,
    pub(crate) slack: Slack,
    /// Whether the call's write is confirmed before its reply counts, where the store confirms writes.
    pub(crate) is_confirmed: bool,
}

/// How a script receives the fence's slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slack {
    /// It receives none.
    None,
    /// As an additional last argument.
    Last,
    /// After a space, at the end of the argument with this index.
    In(usize),
}

impl<'a> Call<'a> {
    /// A call that receives no slack, and whose write need not be confirmed.
    pub(super) fn new(script: &'static Script, form: Form, keys: &[&'a str], args: &[&'a str]) -> Self {
        let (key_count, arg_count) = (keys.len(), args.len());
        let (mut all_keys, mut all_args) = ([""; 4], [""; 6]);
        all_keys[..key_count].copy_from_slice(keys);
        all_args[..arg_count].copy_from_slice(args);
        let slack = Slack::None;
        Self { script, form, keys: all_keys, key_count, args: all_args, arg_count, slack, is_confirmed: false }
    }

    /// Returns the call that does the same with fewer keys, for a slot that is moving: an extension that asks for no numbers can do with the
    /// lock's key alone. A forced break can do without the key that tells the holder, which is never there before.
    pub(crate) fn alone(&self) -> Option<Self> {
        if std::ptr::eq(self.script, &raw const *BREAK) && self.key_count == 4 {
            let [locker, ..] = self.args;
            return Some(Self { key_count: 3, args: [locker, "", "", "", "", ""], ..*self });
        }
        let extends = std::ptr::eq(self.script, &raw const *EXTEND) && self.args[2] == "0";
        extends.then(|| Self { script: &EXTEND_ALONE, key_count: 1, arg_count: 2, slack: Slack::None, ..*self })
    }

    /// Adds the call to `packed`, as `EVALSHA`, whose full form is `EVAL` with the script's text.
    pub(crate) fn pack(&self, packed: &mut Packed) {
        let Text { full, sha } = self.script.text(self.form);
        packed.command(self.words());
        packed.short_form(["EVALSHA", sha], full);
        self.pack_arguments(packed);
    }

    /// Adds the call to `packed`, as `EVAL` with the script's text.
    pub(crate) fn pack_in_full(&self, packed: &mut Packed) {
        packed.command(self.words());
        packed.bulks(&self.script.text(self.form).full);
        self.pack_arguments(packed);
    }

    /// The number of the command's words.
    fn words(&self) -> usize {
        3 + self.key_count + self.arg_count + usize::from(matches!(self.slack, Slack::Last))
    }

    /// Adds what follows the script: the number of its keys, the keys, and the arguments.
    fn pack_arguments(&self, packed: &mut Packed) {
        packed.is_confirmed |= self.is_confirmed;
        packed.bulks(&[["0", "1", "2", "3", "4"][self.key_count]]);
        packed.bulks(&self.keys[..self.key_count]);
        let args = &self.args[..self.arg_count];
        match self.slack {
            Slack::None => packed.bulks(args),
            Slack::Last => {
                packed.bulks(args);
                packed.bulk_with_stamp("", "", &NO_SLACK);
            }
            Slack::In(at) => {
                packed.bulks(&args[..at]);
                packed.bulk_with_stamp(args[at], " ", &NO_SLACK);
                packed.bulks(&args[at + 1..]);
            }
        }
    }
}

/// The texts that the call of a request borrows, in addition to those of the request itself. A text that is not needed is empty.
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
    /// The text that is stored in that key.
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
        let mut texts = Self {
            form,
            queue: String::new(),
            fence: None,
            lease: NO_TIME,
            next_lease: NO_TIME,
            gap: None,
            broken: String::new(),
            words: String::new(),
        };
        let key = match request {
            Request::Probe(_) => return texts,
            Request::Broken { key, locker } => {
                texts.broken = broken_key(key, locker);
                return texts;
            }
            Request::Inspect { key } => key,
            Request::Break(order) => {
                (texts.broken, texts.words) = (told_key(order), words(order));
                order.key
            }
            Request::Acquire(claim)
            | Request::Join(claim)
            | Request::Poll(claim)
            | Request::Extend(claim)
            | Request::ExtendWithNumbers(claim) => {
                texts.lease = millis(claim.lease);
                claim.key
            }
            // The store refuses this request before a call is made for it.
            Request::Release(claim) | Request::Settle(claim) => {
                (texts.lease, texts.gap) = (millis(claim.lease), GapTexts::of(claim));
                claim.key
            }
            Request::HandOver(claim, next) => {
                (texts.lease, texts.gap) = (millis(claim.lease), GapTexts::of(claim));
                texts.next_lease = millis(next.lease);
                claim.key
            }
        };
        texts.queue = queue_key(key);
        if matches!(form, Form::Cluster) {
            texts.fence = Some(slot_fence_key(key));
        }
        texts
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
            Request::Probe(claim) => Call::new(&PROBE, self.form, &[claim.key], &[claim.locker]),
            // These two scripts have the same text in both forms.
            Request::Inspect { key } => Call::new(&INSPECT, Form::Server, &[key, &self.queue], &[]),
            Request::Break(order) => self.break_hold(order),
            Request::Broken { .. } => Call::new(&BROKEN, Form::Server, &[&self.broken], &[]),
        };
        Call { is_confirmed: acks::is_confirmed(request), ..call }
    }

    /// A call that may take the key or extend its lease, so that its script may issue a fence number.
    fn numbered<'a>(&'a self, script: &'static Script, claim: &Claim<'a>, flag: Option<&'static str>) -> Call<'a> {
        let keys = [claim.key, &self.queue, self.fence()];
        let args = [claim.locker, &self.lease, flag.unwrap_or_default()];
        let args = if flag.is_some() { &args[..] } else { &args[..2] };
        Call { slack: Slack::Last, ..Call::new(script, self.form, &keys, args) }
    }

    fn break_hold<'a>(&'a self, order: &Break<'a>) -> Call<'a> {
        let keys = [order.key, &self.queue, self.fence(), &self.broken];
        Call { slack: Slack::Last, ..Call::new(&BREAK, self.form, &keys, &[order.locker, &self.words]) }
    }

    fn release<'a>(&'a self, claim: &Claim<'a>, next: Option<&Claim<'a>>) -> Call<'a> {
        let next_locker = next.map_or("", |next| next.locker);
        let (gapped, length, every) = match &self.gap {
            Some(gap) => (&*gap.key, &*gap.length, &*gap.every),
            None => ("", "", ""),
        };
        let (key_count, arg_count) = match (&self.gap, next) {
            (Some(_), _) => (4, 6),
            (None, Some(_)) => (3, 4),
            (None, None) => (3, 2),
        };
        let keys = [claim.key, &self.queue, self.fence(), gapped];
        let args = [claim.locker, &self.lease, next_locker, &self.next_lease, length, every];
        Call { slack: Slack::In(1), ..Call::new(&RELEASE, self.form, &keys[..key_count], &args[..arg_count]) }
    }
}

/// A time in whole milliseconds, as the text that Redis expects. It needs no allocation.
#[derive(Debug)]
pub(crate) struct Millis {
    digits: [u8; 20],
    count: usize,
}

/// No text.
const NO_TIME: Millis = Millis { digits: [0; 20], count: 0 };

/// Writes a time in whole milliseconds.
pub(crate) fn millis(time: Duration) -> Millis {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let mut millis = Millis { count: text.len(), ..NO_TIME };
    millis.digits[..text.len()].copy_from_slice(text.as_bytes());
    millis
}

impl Deref for Millis {
    type Target = str;

    fn deref(&self) -> &str {
        // The bytes are digits, so this does not fail.
        std::str::from_utf8(&self.digits[..self.count]).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/scripts.rs"]
mod tests;
