//! The Lua scripts, with their shared chunks inserted, the calls of these scripts that carry out requests, and the bytes of a call.
//!
//! A node of a Redis Cluster gets each script in another form. There the inbox of a client is a *shard channel* in the slot of the lock: a
//! message reaches the subscribers at this node, and no other node hears of it. Three replacements make that form: `SPUBLISH` for `PUBLISH`,
//! `SHARDNUMSUB` for `NUMSUB`, and the name of the channel, which begins as the name of the queue does.

use super::acks;
use super::breaking::{told_key, words};
use super::keys::{FENCE, broken_key, gapped_key, queue_name, slot_fence_key, tag_for};
use crate::port::{Break, Claim, Request};
use crate::store::redis::net::resp::{Packed, Stamp};
use ::redis::Script as Hashed;
use once_cell::sync::{Lazy, OnceCell};
use std::time::Duration;

const ISSUE: &str = include_str!("../../../../scripts/issue.lua");
const HAND_OVER: &str = include_str!("../../../../scripts/hand_over.lua");
const ENQUEUE: &str = include_str!("../../../../scripts/enqueue.lua");
const WAITERS: &str = include_str!("../../../../scripts/waiters.lua");
const NOT_OURS: &str = include_str!("../../../../scripts/not_ours.lua");
const LOOK: &str = include_str!("../../../../scripts/look.lua");

/// How many waiting lockers are named.
const MOST_NAMED: &str = "100";

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
pub(crate) static DELAY_RELEASE: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../../scripts/delay_release.lua")));
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
            Some("not_ours") => text.push_str(code_of(NOT_OURS)),
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

/// One call of a script, which carries out a request or asks something for people. It is sent as `EVALSHA`, which the transport repeats as
/// `EVAL` to a server that does not know the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    kind: CallKind<'a>,
    /// Whether it does with fewer keys: see [`alone`](Self::alone).
    is_alone: bool,
    /// Whether it goes behind an `ASKING`: the server takes the key's slot over and has not got it yet.
    pub(crate) asking: bool,
}

/// What a call asks.
#[derive(Clone, Copy, Debug)]
enum CallKind<'a> {
    Request(&'a Request<'a>),
    /// Who holds a key and who waits for it.
    Lockers(&'a str),
    /// To keep, delete or read the client record in this key.
    Record(&'a str, &'a [&'a str]),
}

impl<'a> Call<'a> {
    const fn new(kind: CallKind<'a>) -> Self {
        Self { kind, is_alone: false, asking: false }
    }

    /// The call that carries out a request.
    pub(crate) const fn of(request: &'a Request<'a>) -> Self {
        Self::new(CallKind::Request(request))
    }

    /// The call that names the lockers of a key.
    pub(crate) const fn lockers(key: &'a str) -> Self {
        Self::new(CallKind::Lockers(key))
    }

    /// The call that keeps, deletes or reads the client record in this key.
    pub(crate) const fn record(key: &'a str, args: &'a [&'a str]) -> Self {
        Self::new(CallKind::Record(key, args))
    }

    /// Returns the key that the call is about. All its keys are in the slot of that key.
    pub(crate) const fn key(&self) -> &'a str {
        match self.kind {
            CallKind::Request(request) => request.key(),
            CallKind::Lockers(key) | CallKind::Record(key, _) => key,
        }
    }

    /// Returns the call that does the same with fewer keys, for a slot that is moving: an extension that asks for no numbers can do with the
    /// lock's key alone. A forced break can do without the key that tells the holder, which is never there before.
    pub(crate) fn alone(&self) -> Option<Self> {
        let can = matches!(self.kind, CallKind::Request(Request::Extend(_) | Request::Break(_)));
        (can && !self.is_alone).then_some(Self { is_alone: true, ..*self })
    }

    /// Returns `true` if the call uses more than one key.
    pub(crate) fn has_many_keys(&self) -> bool {
        match self.kind {
            CallKind::Request(Request::Extend(_)) => !self.is_alone,
            CallKind::Request(Request::DelayRelease(..) | Request::Probe(_) | Request::Broken { .. })
            | CallKind::Record(..) => false,
            CallKind::Request(_) | CallKind::Lockers(_) => true,
        }
    }

    /// Adds the call to `packed`, as `EVALSHA`, whose full form is `EVAL` with the script's text.
    pub(crate) fn pack(&self, form: Form, packed: &mut Packed) {
        self.write(&mut CallWriter { form, packed, is_full: false });
    }

    /// Adds the call to `packed`, as `EVAL` with the script's text.
    pub(crate) fn pack_in_full(&self, form: Form, packed: &mut Packed) {
        self.write(&mut CallWriter { form, packed, is_full: true });
    }

    fn write(&self, to: &mut CallWriter<'_>) {
        let request = match self.kind {
            CallKind::Request(request) => request,
            CallKind::Lockers(key) => {
                to.begin(&LOCKERS, 2, 1);
                to.key_and_queue(key);
                return to.packed.bulks(&[MOST_NAMED]);
            }
            CallKind::Record(key, args) => {
                to.begin(&RECORD, 1, args.len());
                to.packed.bulks(&[key]);
                return to.packed.bulks(args);
            }
        };
        to.packed.is_confirmed |= acks::is_confirmed(request);
        match request {
            Request::Acquire(claim) => to.numbered(&ACQUIRE, claim, &["0"]),
            Request::Join(claim) => to.numbered(&ACQUIRE, claim, &["1"]),
            Request::Poll(claim) => to.numbered(&POLL, claim, &[]),
            Request::Extend(claim) if self.is_alone => {
                to.begin(&EXTEND_ALONE, 1, 2);
                to.packed.bulks(&[claim.key, claim.locker]);
                to.packed.number(millis(claim.lease));
            }
            Request::Extend(claim) => to.numbered(&EXTEND, claim, &["0"]),
            Request::ExtendWithNumbers(claim) => to.numbered(&EXTEND, claim, &["1"]),
            // The store refuses to settle before a call is made for it.
            Request::Release(claim) | Request::Settle(claim) => to.release(claim, None),
            Request::HandOver(claim, next) => to.release(claim, Some(next)),
            Request::DelayRelease(claim, delay) => {
                to.begin(&DELAY_RELEASE, 1, 3);
                to.packed.bulks(&[claim.key, claim.locker, delay.mark]);
                // A part of a millisecond counts as a whole one.
                to.packed.number(millis(delay.time.saturating_add(Duration::from_nanos(999_999))));
            }
            Request::Probe(claim) => {
                to.begin(&PROBE, 1, 1);
                to.packed.bulks(&[claim.key, claim.locker]);
            }
            Request::Inspect { key } => {
                to.begin(&INSPECT, 2, 0);
                to.key_and_queue(key);
            }
            Request::Break(order) => to.break_hold(order, self.is_alone),
            Request::Broken { key, locker } => {
                to.begin(&BROKEN, 1, 0);
                to.packed.bulks(&[&broken_key(key, locker)]);
            }
        }
    }
}

/// Writes one call.
struct CallWriter<'p> {
    form: Form,
    packed: &'p mut Packed,
    /// Whether it is written with the script's text.
    is_full: bool,
}

impl CallWriter<'_> {
    /// Begins the call of a script with this many keys and arguments, which follow.
    fn begin(&mut self, script: &'static Script, keys: usize, args: usize) {
        let Text { full, sha } = script.text(self.form);
        self.packed.command(3 + keys + args);
        if self.is_full {
            self.packed.bulks(full);
        } else {
            self.packed.short_form(["EVALSHA", sha], full);
        }
        self.packed.bulks(&[["0", "1", "2", "3", "4"][keys]]);
    }

    fn key_and_queue(&mut self, key: &str) {
        self.packed.bulks(&[key]);
        self.packed.bulk(&queue_name(itoa::Buffer::new().format(tag_for(key)), key));
    }

    /// The three keys of a script that may issue a number.
    fn numbered_keys(&mut self, key: &str) {
        self.key_and_queue(key);
        match self.form {
            Form::Server => self.packed.bulks(&[FENCE]),
            Form::Cluster => self.packed.bulks(&[&slot_fence_key(key)]),
        }
    }

    /// A call that may take the key or extend its lease, so that its script may issue a fence number. It receives the slack last.
    fn numbered(&mut self, script: &'static Script, claim: &Claim<'_>, flag: &[&str]) {
        self.begin(script, 3, 3 + flag.len());
        self.numbered_keys(claim.key);
        self.packed.bulks(&[claim.locker, itoa::Buffer::new().format(millis(claim.lease))]);
        self.packed.bulks(flag);
        self.packed.bulk_with_stamp("", "", &NO_SLACK);
    }

    /// The script of a release receives the slack behind the lease.
    fn release(&mut self, claim: &Claim<'_>, next: Option<&Claim<'_>>) {
        let gap = claim.poller_gap;
        let args = if gap.is_some() { 6 } else { 2 + 2 * usize::from(next.is_some()) };
        self.begin(&RELEASE, 3 + usize::from(gap.is_some()), args);
        self.numbered_keys(claim.key);
        if gap.is_some() {
            self.packed.bulks(&[&gapped_key(claim.key)]);
        }
        self.packed.bulks(&[claim.locker]);
        self.packed.bulk_with_stamp(itoa::Buffer::new().format(millis(claim.lease)), " ", &NO_SLACK);
        match (next, gap) {
            (Some(next), _) => {
                self.packed.bulks(&[next.locker]);
                self.packed.number(millis(next.lease));
            }
            (None, Some(_)) => self.packed.bulks(&["", ""]),
            (None, None) => {}
        }
        if let Some(gap) = gap {
            self.packed.number(millis(gap.length));
            self.packed.number(millis(gap.every));
        }
    }

    /// A forced break, which leaves word to the holder unless it must do without that key.
    fn break_hold(&mut self, order: &Break<'_>, is_alone: bool) {
        self.begin(&BREAK, 4 - usize::from(is_alone), 3);
        self.numbered_keys(order.key);
        if is_alone {
            self.packed.bulks(&[order.locker, ""]);
        } else {
            self.packed.bulks(&[&told_key(order), order.locker, &words(order)]);
        }
        self.packed.bulk_with_stamp("", "", &NO_SLACK);
    }
}

/// A time in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/scripts.rs"]
mod tests;
