//! The Lua scripts, with their shared chunks spliced in, and how a call of one is packed into bytes.

use crate::sync::mutant;
use ::redis::Script as Hashed;
use once_cell::sync::Lazy;
use std::ops::Range;

const ISSUE: &str = include_str!("../../scripts/issue.lua");
const HAND_OVER: &str = include_str!("../../scripts/hand_over.lua");
const ENQUEUE: &str = include_str!("../../scripts/enqueue.lua");

/// The placeholder of the fence's slack, whatever it will be: five digits, so that it can be patched in place.
const SLACK_PLACEHOLDER: &str = "00000";

/// What the scripts check before they change a key, and mutants do not.
const COMPARE: &str = "if holder == ARGV[1] then";
const COMPARE_ARGS: &str = "if holder == args[1] then";

/// A script as the server gets it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    sha: String,
}

pub(crate) static ACQUIRE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../scripts/acquire.lua")));
pub(crate) static POLL: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../scripts/poll.lua")));
pub(crate) static EXTEND: Lazy<Script> = Lazy::new(|| {
    let source = include_str!("../../scripts/extend.lua");
    if mutant!(ExtendsWithoutCompare) {
        let mistaken = "if true then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])";
        return Script::new(&source.replacen(COMPARE, mistaken, 1));
    }
    Script::new(source)
});
pub(crate) static RELEASE: Lazy<Script> = Lazy::new(|| {
    let source = include_str!("../../scripts/release.lua");
    if mutant!(DeletesWithoutCompare) {
        return Script::new(&source.replacen(COMPARE_ARGS, "if holder then", 1));
    }
    Script::new(source)
});
pub(crate) static PROBE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../scripts/probe.lua")));
pub(crate) static INSPECT: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../../scripts/inspect.lua")));

impl Script {
    fn new(source: &str) -> Self {
        let text = splice(source);
        let sha = Hashed::new(&text).get_hash().to_owned();
        Self { text, sha }
    }
}

/// Puts the chunks in the place of their `-- #include name` lines.
fn splice(source: &str) -> String {
    let mut text = String::with_capacity(2 * source.len());
    for line in source.lines() {
        match line.trim().strip_prefix("-- #include ") {
            Some("issue") => text.push_str(&splice(code_of(ISSUE))),
            Some("enqueue") => text.push_str(code_of(ENQUEUE)),
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
    /// How many of the keys the script is given.
    pub(crate) key_count: usize,
    pub(crate) args: [&'a str; 6],
    /// How many of the arguments the script is given, not counting a slack of its own.
    pub(crate) arg_count: usize,
    pub(crate) slack: Slack,
}

/// How a script is given the fence's slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slack {
    /// Not at all.
    None,
    /// As its last argument.
    Last,
    /// Behind a blank, in the argument with that index.
    In(usize),
}

/// Packed commands, back to back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// How many replies they will have.
    pub(crate) replies: usize,
    /// Where the five digits of a slack stand in `bytes`.
    pub(crate) slack_at: Vec<usize>,
    /// The last script that was added by its hash, and where the hash stands in `bytes` with its command's name.
    hashed: Option<(&'static Script, Range<usize>)>,
}

impl Packed {
    /// Room for one call.
    pub(crate) fn for_one() -> Self {
        Self { bytes: Vec::with_capacity(320), ..Self::default() }
    }

    /// Adds a call as `EVALSHA`, or with the full text.
    pub(crate) fn push(&mut self, call: &Call<'_>, full_text: bool) {
        self.array(3 + call.key_count + call.arg_count + usize::from(call.slack == Slack::Last));
        if full_text {
            self.bulk("EVAL");
            self.bulk(&call.script.text);
        } else {
            let start = self.bytes.len();
            self.bulk("EVALSHA");
            self.bulk(&call.script.sha);
            self.hashed = Some((call.script, start..self.bytes.len()));
        }
        self.bulk(match call.key_count {
            1 => "1",
            2 => "2",
            3 => "3",
            _ => "4",
        });
        call.keys[..call.key_count].iter().for_each(|key| self.bulk(key));
        for (i, arg) in call.args[..call.arg_count].iter().enumerate() {
            if call.slack == Slack::In(i) {
                self.bulk_with_slack(arg, " ");
            } else {
                self.bulk(arg);
            }
        }
        if call.slack == Slack::Last {
            self.bulk_with_slack("", "");
        }
    }

    /// Puts the full text in the place of the hash of a call that is alone here.
    pub(crate) fn spell_out(&mut self) {
        let Some((script, hash)) = self.hashed.take() else { return };
        let mut spelt = Self { bytes: self.bytes[..hash.start].to_vec(), ..Self::default() };
        spelt.bulk("EVAL");
        spelt.bulk(&script.text);
        let longer = spelt.bytes.len() - hash.end;
        spelt.bytes.extend_from_slice(&self.bytes[hash.end..]);
        self.bytes = spelt.bytes;
        self.slack_at.iter_mut().for_each(|at| *at += longer);
    }

    /// Adds a command of plain words.
    pub(crate) fn words(&mut self, words: &[&str]) {
        self.array(words.len());
        words.iter().for_each(|word| self.bulk(word));
    }

    fn array(&mut self, elements: usize) {
        self.replies += 1;
        self.header(b'*', elements);
    }

    fn bulk(&mut self, text: &str) {
        self.header(b'$', text.len());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A text, a mark, and the slack, whose place is noted.
    fn bulk_with_slack(&mut self, text: &str, mark: &str) {
        self.header(b'$', text.len() + mark.len() + SLACK_PLACEHOLDER.len());
        [text, mark].iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        self.slack_at.push(self.bytes.len());
        self.bytes.extend_from_slice(SLACK_PLACEHOLDER.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, n: usize) {
        let mut digits = itoa::Buffer::new();
        self.bytes.push(kind);
        self.bytes.extend_from_slice(digits.format(n).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
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
            (Slack::Last, &["locker-1", "5", SLACK_PLACEHOLDER]),
            (Slack::In(1), &["locker-1", "5 00000"]),
        ] {
            let mut packed = Packed::default();
            packed.push(&Call { script: &PROBE, keys, key_count: 3, args, arg_count: 2, slack }, false);
            let mut command = ::redis::cmd("EVALSHA");
            command.arg(&PROBE.sha).arg(3).arg(&keys[..3]).arg(expected);
            assert_eq!(packed.bytes, command.get_packed_command());
            let end = packed.bytes.len() - 7;
            assert_eq!(packed.slack_at, if slack == Slack::None { vec![] } else { vec![end] });
            assert_eq!(packed.replies, 1);
        }
    }

    #[test]
    fn a_call_that_is_spelt_out_is_the_one_with_the_full_text() {
        let (keys, args) = (["k", "q", "", ""], ["locker-1", "5", "", "", "", ""]);
        for slack in [Slack::None, Slack::Last, Slack::In(1)] {
            let call = Call { script: &RELEASE, keys, key_count: 2, args, arg_count: 2, slack };
            let (mut spelt, mut full) = (Packed::for_one(), Packed::for_one());
            spelt.push(&call, false);
            spelt.spell_out();
            full.push(&call, true);
            assert_eq!((spelt.bytes, spelt.slack_at, spelt.replies), (full.bytes, full.slack_at, full.replies));
        }
    }
}
