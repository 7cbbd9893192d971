//! The Lua scripts, with their shared chunks spliced in, and how a call of a script is packed into bytes.

use crate::store::redis::net::resp::{Packed, Stamp};
use crate::sync::mutant;
use ::redis::Script as Hashed;
use once_cell::sync::Lazy;
use std::time::Duration;

const ISSUE: &str = include_str!("../../../../scripts/issue.lua");
const HAND_OVER: &str = include_str!("../../../../scripts/hand_over.lua");
const ENQUEUE: &str = include_str!("../../../../scripts/enqueue.lua");
const WAITERS: &str = include_str!("../../../../scripts/waiters.lua");

/// How long a waiter that nobody hears keeps its place. `scripts/hand_over.lua` says it in milliseconds.
pub(crate) const KEEP: Duration = Duration::from_secs(1);

/// The comparison that the scripts make before they change a key. Mutants replace it.
const COMPARE: &str = "if holder == ARGV[1] then";
const COMPARE_ARGS: &str = "if holder == args[1] then";

/// The slack of the fence in microseconds, as the scripts receive it. Calls are packed with none.
const NO_SLACK: Stamp = *b"00000";

/// The slack on a connection on which a fence number was read recently: 10 ms. See `scripts/issue.lua`.
pub(crate) const SLACK: Stamp = *b"10000";

/// A script as the server receives it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    sha: String,
}

pub(crate) static ACQUIRE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/acquire.lua")));
pub(crate) static POLL: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/poll.lua")));
pub(crate) static EXTEND: Lazy<Script> = Lazy::new(|| {
    let source = include_str!("../../../../scripts/extend.lua");
    if mutant!(ExtendsWithoutCompare) {
        let mistaken = "if true then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])";
        return Script::new(&source.replacen(COMPARE, mistaken, 1));
    }
    Script::new(source)
});
pub(crate) static RELEASE: Lazy<Script> = Lazy::new(|| {
    let source = include_str!("../../../../scripts/release.lua");
    if mutant!(DeletesWithoutCompare) {
        return Script::new(&source.replacen(COMPARE_ARGS, "if holder then", 1));
    }
    Script::new(source)
});
pub(crate) static PROBE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/probe.lua")));
pub(crate) static INSPECT: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../../../scripts/inspect.lua")));

impl Script {
    fn new(source: &str) -> Self {
        let text = splice(source);
        let sha = Hashed::new(&text).get_hash().to_owned();
        Self { text, sha }
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

/// One call of a script, ready to be sent: as `EVALSHA`, or as `EVAL` to a server that does not know the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Script,
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
    /// Adds the call to `packed`, as `EVALSHA`, or as `EVAL` with the script's full text.
    pub(crate) fn pack(&self, packed: &mut Packed, full_text: bool) {
        packed.command(3 + self.key_count + self.arg_count + usize::from(self.slack == Slack::Last));
        let full = ["EVAL", self.script.text.as_str()];
        if full_text {
            full.iter().for_each(|word| packed.bulk(word));
        } else {
            packed.short_form(["EVALSHA", &self.script.sha], full);
        }
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
mod tests {
    use super::*;

    #[test]
    fn scripts_are_whole_and_start_with_their_flags() {
        for (script, first) in [
            (&ACQUIRE, "#!lua"),
            (&POLL, "#!lua flags=allow-oom"),
            (&PROBE, "#!lua flags=allow-oom"),
            (&EXTEND, "#!lua flags=allow-oom"),
            (&RELEASE, "#!lua flags=allow-oom"),
            (&INSPECT, "#!lua flags=no-writes"),
        ] {
            assert_eq!(script.text.lines().next(), Some(first));
            assert!(!script.text.contains("#include"), "{}", script.text);
            assert!(!script.text.contains("function"), "a closure costs time at every call");
            assert_eq!(script.sha.len(), 40);
        }
    }

    #[test]
    fn a_call_is_packed_as_redis_wants_it() {
        let keys = ["k", "q", "é", ""];
        let args = ["locker-1", "5", "", "", "", ""];
        for (slack, expected) in [
            (Slack::None, &["locker-1", "5"][..]),
            (Slack::Last, &["locker-1", "5", "00000"]),
            (Slack::In(1), &["locker-1", "5 00000"]),
        ] {
            let mut packed = Packed::default();
            Call { script: &PROBE, keys, key_count: 3, args, arg_count: 2, slack, is_confirmed: false }
                .pack(&mut packed, false);
            let mut command = ::redis::cmd("EVALSHA");
            command.arg(&PROBE.sha).arg(3).arg(&keys[..3]).arg(expected);
            assert_eq!(packed.bytes, command.get_packed_command());
            let end = packed.bytes.len() - 7;
            assert_eq!(packed.stamp_at, if slack == Slack::None { vec![] } else { vec![end] });
            assert_eq!(packed.replies, 1);
        }
    }

    #[test]
    fn a_call_that_is_spelt_out_is_the_one_with_the_full_text() {
        let (keys, args) = (["k", "q", "", ""], ["locker-1", "5", "", "", "", ""]);
        for slack in [Slack::None, Slack::Last, Slack::In(1)] {
            let call = Call { script: &RELEASE, keys, key_count: 2, args, arg_count: 2, slack, is_confirmed: false };
            let (mut spelt, mut full) = (Packed::for_one(), Packed::for_one());
            call.pack(&mut spelt, false);
            spelt.spell_out();
            call.pack(&mut full, true);
            assert_eq!((spelt.bytes, spelt.stamp_at, spelt.replies), (full.bytes, full.stamp_at, full.replies));
        }
    }
}
