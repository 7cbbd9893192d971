//! The Lua scripts, with their shared chunks inserted, the calls of these scripts that carry out requests, and the bytes of a call.
//!
//! A node of a Redis Cluster gets each script in another form. There the inbox of a client is a *shard channel* in the slot of the lock: a
//! message reaches the subscribers at this node, and no other node hears of it. Three replacements make that form: `SPUBLISH` for `PUBLISH`,
//! `SHARDNUMSUB` for `NUMSUB`, and the name of the channel, which begins as the name of the queue does.

use super::acks;
use super::keys::{FENCE, broken_key, gapped_key, queue_name, slot_fence_key, tag_for};
use crate::port::{Break, Claim, Request};
use crate::store::redis::net::resp::Word::{self, Bytes, Parts, Stamped, Text};
use crate::store::redis::net::resp::{Packed, Stamp};
use ::redis::Script as Hashed;
use once_cell::sync::{Lazy, OnceCell};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::time::Duration;

/// What several scripts contain, by the names that their `-- #include` lines have.
const CHUNKS: [(&str, &str); 6] = [
    ("issue", include_str!("../../../../scripts/issue.lua")),
    ("hand_over", include_str!("../../../../scripts/hand_over.lua")),
    ("enqueue", include_str!("../../../../scripts/enqueue.lua")),
    ("waiters", include_str!("../../../../scripts/waiters.lua")),
    ("not_ours", include_str!("../../../../scripts/not_ours.lua")),
    ("look", include_str!("../../../../scripts/look.lua")),
];

/// How many waiting lockers are named.
const MOST_NAMED: &str = "100";

/// The slack of the fence in microseconds, as the scripts receive it. Calls are packed with none.
const NO_SLACK: &str = "00000";

/// The slack on a connection on which a fence number was read recently: 10 ms. See `scripts/issue.lua`.
pub(crate) const SLACK: Stamp = *b"10000";

/// A script as servers receive it.
#[derive(Debug)]
pub(crate) struct Script {
    server: ScriptText,
    /// Made at its first use: most processes never talk to a Cluster.
    cluster: OnceCell<ScriptText>,
}

/// A script in one of its forms.
#[derive(Debug)]
struct ScriptText {
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
        Self { server: ScriptText::new(splice(source)), cluster: OnceCell::new() }
    }

    fn text(&self, form: Form) -> &ScriptText {
        match form {
            Form::Server => &self.server,
            Form::Cluster => self.cluster.get_or_init(|| self.server.for_cluster()),
        }
    }
}

impl ScriptText {
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
        let Some(name) = line.trim().strip_prefix("-- #include ") else {
            text.extend([line, "\n"]);
            continue;
        };
        let chunk = CHUNKS.iter().find(|(known, _)| *known == name);
        let (_, chunk) = chunk.unwrap_or_else(|| unreachable!("no chunk is named {name:?}: a fault of our own files"));
        text.push_str(&splice(code_of(chunk)));
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
    /// The key that the call is about. All its keys are in the slot of that key.
    pub(crate) key: &'a str,
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
    /// Who holds the key and who waits for it.
    Lockers,
    /// To keep, delete or read the client record in the key.
    Record(&'a [&'a str]),
    /// A command of plain words, which goes to the server of the key.
    Words(&'a [&'a str]),
    /// To take the key from a holder that is no text: its bytes. No client of ours has such a locker, so nobody is told.
    BreakBytes(&'a [u8]),
}

impl<'a> Call<'a> {
    /// The call that carries out a request.
    pub(crate) const fn of(request: &'a Request<'a>) -> Self {
        Self { key: request.key(), kind: CallKind::Request(request), is_alone: false, asking: false }
    }

    const fn new(key: &'a str, kind: CallKind<'a>) -> Self {
        Self { key, kind, is_alone: false, asking: false }
    }

    /// The call that names the lockers of a key.
    pub(crate) const fn lockers(key: &'a str) -> Self {
        Self::new(key, CallKind::Lockers)
    }

    /// The call that keeps, deletes or reads the client record in this key.
    pub(crate) const fn record(key: &'a str, args: &'a [&'a str]) -> Self {
        Self::new(key, CallKind::Record(args))
    }

    /// A command of plain words, which goes to the server of a key and has no keys.
    pub(crate) const fn words(key: &'a str, words: &'a [&'a str]) -> Self {
        Self::new(key, CallKind::Words(words))
    }

    /// The call that takes a key from a holder that is no text.
    pub(crate) const fn break_bytes(key: &'a str, holder: &'a [u8]) -> Self {
        Self::new(key, CallKind::BreakBytes(holder))
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
            | CallKind::Record(..)
            | CallKind::Words(..) => false,
            CallKind::Request(_) | CallKind::Lockers | CallKind::BreakBytes(_) => true,
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
        let (key, mut tag) = (self.key, itoa::Buffer::new());
        let queue = queue_name(tag.format(tag_for(key)), key);
        let fence = match to.form {
            Form::Server => Cow::Borrowed(FENCE),
            Form::Cluster => Cow::Owned(slot_fence_key(key)),
        };
        // The keys of a script that may issue a number. Others need the first, or the first two.
        let keys = [Text(key), Parts(&queue), Text(&fence)];
        let request = match self.kind {
            CallKind::Request(request) => request,
            CallKind::Words(words) => return to.packed.words(words),
            CallKind::Lockers => return to.call(&LOCKERS, &keys[..2], &[Text(MOST_NAMED)]),
            CallKind::BreakBytes(holder) => {
                return to.call(&BREAK, &keys, &[Bytes(holder), Text(""), Stamped(&[NO_SLACK])]);
            }
            CallKind::Record(args) => {
                let args: SmallVec<[_; 4]> = args.iter().copied().map(Text).collect();
                return to.call(&RECORD, &keys[..1], &args);
            }
        };
        to.packed.is_confirmed |= acks::is_confirmed(request);
        match request {
            Request::Acquire(claim) => to.numbered(&ACQUIRE, &keys, claim, Some("0")),
            Request::Join(claim) => to.numbered(&ACQUIRE, &keys, claim, Some("1")),
            Request::Poll(claim) => to.numbered(&POLL, &keys, claim, None),
            Request::Extend(claim) if self.is_alone => {
                let lease = millis(claim.lease);
                to.call(&EXTEND_ALONE, &keys[..1], &[Text(claim.locker), Text(itoa::Buffer::new().format(lease))]);
            }
            Request::Extend(claim) => to.numbered(&EXTEND, &keys, claim, Some("0")),
            Request::ExtendWithNumbers(claim) => to.numbered(&EXTEND, &keys, claim, Some("1")),
            // The store refuses to settle before a call is made for it.
            Request::Release(claim) | Request::Settle(claim) => to.release(&keys, claim, None),
            Request::HandOver(claim, next) => to.release(&keys, claim, Some(next)),
            Request::DelayRelease(claim, delay) => {
                // A part of a millisecond counts as a whole one.
                let time = millis(delay.time.saturating_add(Duration::from_nanos(999_999)));
                let args = [Text(claim.locker), Text(delay.mark), Text(&time.to_string())];
                to.call(&DELAY_RELEASE, &keys[..1], &args);
            }
            Request::Probe(claim) => to.call(&PROBE, &keys[..1], &[Text(claim.locker)]),
            Request::Inspect { .. } => to.call(&INSPECT, &keys[..2], &[]),
            // The order is noted for the holder, unless the call must do without the key for that.
            Request::Break(order) if self.is_alone => {
                to.call(&BREAK, &keys, &[Text(order.locker), Text(""), Stamped(&[NO_SLACK])]);
            }
            Request::Break(order) => {
                let args = [Text(order.locker), Text(&words(order)), Stamped(&[NO_SLACK])];
                to.call(&BREAK, &with(keys, &told_key(order)), &args);
            }
            Request::Broken { locker, .. } => to.call(&BROKEN, &[Text(&broken_key(key, locker))], &[]),
        }
    }
}

fn with<'a>([key, queue, fence]: [Word<'a>; 3], fourth: &'a str) -> [Word<'a>; 4] {
    [key, queue, fence, Text(fourth)]
}

/// Writes one call.
struct CallWriter<'p> {
    form: Form,
    packed: &'p mut Packed,
    /// Whether it is written with the script's text.
    is_full: bool,
}

impl CallWriter<'_> {
    fn call(&mut self, script: &'static Script, keys: &[Word<'_>], args: &[Word<'_>]) {
        let ScriptText { full, sha } = script.text(self.form);
        let short = if self.is_full { None } else { Some(["EVALSHA", sha]) };
        self.packed.script(short, full, keys, args);
    }

    /// A call that may take the key or extend its lease, so that its script may issue a fence number. It receives the slack last.
    fn numbered(&mut self, script: &'static Script, keys: &[Word<'_>], claim: &Claim<'_>, flag: Option<&str>) {
        let mut lease = itoa::Buffer::new();
        let (locker, lease, slack) =
            (Text(claim.locker), Text(lease.format(millis(claim.lease))), Stamped(&[NO_SLACK]));
        match flag {
            Some(flag) => self.call(script, keys, &[locker, lease, Text(flag), slack]),
            None => self.call(script, keys, &[locker, lease, slack]),
        }
    }

    /// The script of a release receives the slack behind the lease.
    fn release(&mut self, keys: &[Word<'_>; 3], claim: &Claim<'_>, next: Option<&Claim<'_>>) {
        let (mut of_claim, mut of_next) = (itoa::Buffer::new(), itoa::Buffer::new());
        let gap = claim.poller_gap.map(|gap| [gap.length, gap.every].map(|time| millis(time).to_string()));
        let lease = [of_claim.format(millis(claim.lease)), " ", NO_SLACK];
        let mut args: SmallVec<[_; 6]> = smallvec![Text(claim.locker), Stamped(&lease)];
        match next {
            Some(next) => args.extend([Text(next.locker), Text(of_next.format(millis(next.lease)))]),
            None if gap.is_some() => args.extend([Text(""), Text("")]),
            None => {}
        }
        let Some([length, every]) = &gap else { return self.call(&RELEASE, keys, &args) };
        args.extend([Text(length), Text(every)]);
        self.call(&RELEASE, &with(*keys, &gapped_key(claim.key)), &args);
    }
}

/// The longest locker that is told by whom it was broken. Those of this crate are shorter, and nobody else asks.
const LONGEST_LOCKER: usize = 256;

/// Returns the key in which the order for a forced break is noted. An order about a locker that is too long has a key that nobody reads.
fn told_key(order: &Break<'_>) -> String {
    broken_key(order.key, if is_told(order) { order.locker } else { "" })
}

fn is_told(order: &Break<'_>) -> bool {
    order.locker.len() <= LONGEST_LOCKER
}

/// Returns what is noted of an order: who gave it, a space, and why. Nothing is noted for a locker that is not told.
fn words(order: &Break<'_>) -> String {
    if is_told(order) { [order.by, " ", order.reason].concat() } else { String::new() }
}

/// A time in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/scripts.rs"]
mod tests;
