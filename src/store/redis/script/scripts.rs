//! The Lua scripts, with their shared chunks spliced in, and how a call of a script is packed into bytes.
//!
//! A node of a Redis Cluster gets each script in another form. There the inbox of a client is a *shard channel* in the slot of the lock: a
//! message reaches the subscribers at this node, and no other node hears of it. Three replacements make that form: `SPUBLISH` for `PUBLISH`,
//! `SHARDNUMSUB` for `NUMSUB`, and the name of the channel, which begins as the name of the queue does.

use crate::store::redis::net::resp::{Packed, Stamp};
use ::redis::Script as Hashed;
use once_cell::sync::{Lazy, OnceCell};

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

impl Call<'_> {
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
        self.pack_with(packed, |packed, sha, full| packed.short_form(["EVALSHA", sha], full));
    }

    /// Adds the call to `packed`, as `EVAL` with the script's text.
    pub(crate) fn pack_in_full(&self, packed: &mut Packed) {
        self.pack_with(packed, |packed, _, full| full.iter().for_each(|word| packed.bulk(word)));
    }

    fn pack_with(&self, packed: &mut Packed, script: impl FnOnce(&mut Packed, &str, &'static [&'static str; 2])) {
        packed.is_confirmed |= self.is_confirmed;
        packed.command(3 + self.key_count + self.arg_count + usize::from(self.slack == Slack::Last));
        let Text { full, sha } = self.script.text(self.form);
        script(packed, sha, full);
        packed.bulk(match self.key_count {
            1 => "1",
            2 => "2",
            3 => "3",
            _ => "4",
        });
        self.keys[..self.key_count].iter().for_each(|key| packed.bulk(key));
        for (i, arg) in self.args[..self.arg_count].iter().enumerate() {
            if self.slack == Slack::In(i) {
                packed.bulk_with_stamp(arg, " ", &NO_SLACK);
            } else {
                packed.bulk(arg);
            }
        }
        if self.slack == Slack::Last {
            packed.bulk_with_stamp("", "", &NO_SLACK);
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/white_box/store/redis/script/scripts.rs"]
mod tests;
