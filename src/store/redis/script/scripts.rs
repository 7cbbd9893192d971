//! The Lua scripts, with their shared chunks spliced in, and how a call of a script is packed into bytes.
//!
//! A node of a Redis Cluster gets each script in another form. There the inbox of a client is a *shard channel* in the slot of the lock: a
//! message reaches the subscribers at this node, and no other node hears of it. Three replacements make that form: `SPUBLISH` for `PUBLISH`,
//! `SHARDNUMSUB` for `NUMSUB`, and the name of the channel, which begins as the name of the queue does.

use crate::store::redis::net::resp::{Packed, Stamp};
use crate::sync::mutant;
use ::redis::Script as Hashed;
use once_cell::sync::{Lazy, OnceCell};

const ISSUE: &str = include_str!("../../../../scripts/issue.lua");
const HAND_OVER: &str = include_str!("../../../../scripts/hand_over.lua");
const ENQUEUE: &str = include_str!("../../../../scripts/enqueue.lua");
const WAITERS: &str = include_str!("../../../../scripts/waiters.lua");
const LOOK: &str = include_str!("../../../../scripts/look.lua");

/// The comparison that the scripts make before they change a key. Mutants replace it.
const COMPARE: &str = "if holder == ARGV[1] then";
const COMPARE_ARGS: &str = "if holder == args[1] then";

/// What decides whether waiters that nobody hears keep their places.
const KEEPS: &str = "local keeps, stands = unheard > 0, false";

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
    text: String,
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
        Self { text, sha }
    }

    fn for_cluster(&self) -> Self {
        let text = REPLACEMENTS.iter().fold(self.text.clone(), |text, (here, there)| text.replace(here, there));
        Self::new(if mutant!(DropsTheUnheard) {
            text.replace(KEEPS, "local keeps, stands = false, false")
        } else {
            text
        })
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
        let extends =
            std::ptr::eq(self.script, &raw const *EXTEND) && self.args[2] == "0" && !mutant!(ExtendsWithAllKeys);
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

    fn pack_with(&self, packed: &mut Packed, script: impl FnOnce(&mut Packed, &str, [&'static str; 2])) {
        packed.is_confirmed |= self.is_confirmed;
        packed.command(3 + self.key_count + self.arg_count + usize::from(self.slack == Slack::Last));
        let Text { text, sha } = self.script.text(self.form);
        script(packed, sha, ["EVAL", text.as_str()]);
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

    /// All scripts, and their first lines.
    fn all() -> Vec<(&'static Lazy<Script>, &'static str)> {
        vec![
            (&ACQUIRE, "#!lua"),
            (&EXTEND_ALONE, "#!lua flags=allow-oom"),
            (&POLL, "#!lua flags=allow-oom"),
            (&PROBE, "#!lua flags=allow-oom"),
            (&EXTEND, "#!lua flags=allow-oom"),
            (&RELEASE, "#!lua flags=allow-oom"),
            (&INSPECT, "#!lua flags=no-writes"),
            (&BREAK, "#!lua flags=allow-oom"),
            (&BROKEN, "#!lua flags=no-writes"),
            (&LOCKERS, "#!lua flags=no-writes"),
            (&RECORD, "#!lua"),
        ]
    }

    #[test]
    fn no_script_is_forgotten_here() {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts")).expect("the scripts");
        let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text"));
        assert_eq!(texts.filter(|text| text.starts_with("#!lua")).count(), all().len());
    }

    #[test]
    fn scripts_are_whole_and_start_with_their_flags() {
        for (script, first) in all() {
            for form in [Form::Server, Form::Cluster] {
                let Text { text, sha } = script.text(form);
                assert_eq!(text.lines().next(), Some(first));
                assert!(!text.contains("#include"), "{text}");
                assert!(!text.contains("function"), "a closure costs time at every call");
                assert_eq!(sha.len(), 40);
            }
        }
    }

    #[test]
    fn the_two_forms_differ_by_the_three_replacements_alone() {
        let mut applied = [0; 3];
        for (script, _) in all() {
            let (server, cluster) = (&script.server.text, script.text(Form::Cluster));
            let (cluster, sha) = (&cluster.text, &cluster.sha);
            let back = REPLACEMENTS.iter().fold(cluster.clone(), |text, (here, there)| text.replace(there, here));
            assert_eq!(back, *server);
            // Whatever else is like what is replaced would be a call to the wrong channel.
            for word in ["PUBLISH", "NUMSUB", "DLOCK:"] {
                let code = |text: &str| {
                    text.lines().filter(|line| !line.starts_with("--")).collect::<String>().matches(word).count()
                };
                let known = REPLACEMENTS.iter().filter(|(here, _)| here.contains(word));
                assert_eq!(code(server), known.map(|(here, _)| server.matches(here).count()).sum::<usize>(), "{word}");
            }
            for (count, (here, there)) in applied.iter_mut().zip(REPLACEMENTS) {
                assert_eq!(server.matches(here).count(), cluster.matches(there).count());
                assert!(!cluster.contains(here));
                *count += server.matches(here).count();
            }
            assert_eq!(server == cluster, script.server.sha == *sha);
        }
        // hand_over.lua is in four scripts, and each script that hands over sends its message.
        assert_eq!(applied, [6, 5, 8]);
    }

    #[test]
    fn an_extension_without_numbers_can_do_with_the_key_alone() {
        let keys = ["k", "q", "f", ""];
        let call = |script, flag| Call {
            script,
            form: Form::Cluster,
            keys,
            key_count: 3,
            args: ["l-1", "5", flag, "", "", ""],
            arg_count: 3,
            slack: Slack::Last,
            is_confirmed: true,
        };
        let mut packed = Packed::default();
        let alone = call(&EXTEND, "0").alone().expect("an extension");
        assert!(alone.is_confirmed);
        alone.pack(&mut packed);
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(&EXTEND_ALONE.text(Form::Cluster).sha).arg(1).arg("k").arg("l-1").arg("5");
        assert_eq!(packed.bytes, command.get_packed_command());
        assert!(call(&EXTEND, "1").alone().is_none() && call(&POLL, "0").alone().is_none());
        let whole = Call { key_count: 4, arg_count: 2, ..call(&BREAK, "") };
        let few = whole.alone().expect("a break");
        assert_eq!((few.key_count, few.arg_count, few.args[0], few.args[1]), (3, 2, "l-1", ""));
        assert!(few.alone().is_none());
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
            Call {
                script: &PROBE,
                form: Form::Server,
                keys,
                key_count: 3,
                args,
                arg_count: 2,
                slack,
                is_confirmed: false,
            }
            .pack(&mut packed);
            let mut command = ::redis::cmd("EVALSHA");
            command.arg(&PROBE.server.sha).arg(3).arg(&keys[..3]).arg(expected);
            assert_eq!(packed.bytes, command.get_packed_command());
            let end = packed.bytes.len() - 7;
            assert_eq!(packed.stamps().collect::<Vec<_>>(), if slack == Slack::None { vec![] } else { vec![end] });
            assert_eq!(packed.replies(), 1);
        }
    }

    #[test]
    fn commands_that_are_spelt_out_have_the_full_text_and_the_stamp_in_its_place() {
        let (keys, args) = (["k", "q", "", ""], ["locker-1", "5", "", "", "", ""]);
        let call = |slack| Call {
            script: &RELEASE,
            form: Form::Server,
            keys,
            key_count: 2,
            args,
            arg_count: 2,
            slack,
            is_confirmed: false,
        };
        let full = |stamped: &[&str]| {
            let mut command = ::redis::cmd("EVAL");
            command.arg(&RELEASE.server.text).arg(2).arg(&keys[..2]).arg("locker-1").arg(stamped);
            command.get_packed_command()
        };
        let kinds = [(Slack::None, &["5"][..]), (Slack::Last, &["5", "00000"]), (Slack::In(1), &["5 00000"])];
        let mut packed = Packed::for_one();
        packed.words(&["PING"]);
        kinds.iter().for_each(|(slack, _)| call(*slack).pack(&mut packed));
        for chosen in [&[0, 1, 2, 3][..], &[1], &[3], &[1, 2], &[2, 3]] {
            let mut spelt = packed.clone();
            spelt.spell_out(chosen.iter().copied());
            let (mut bytes, mut stamps) = (Vec::new(), Vec::new());
            for at in chosen {
                match at.checked_sub(1).map(|kind| kinds[kind]) {
                    None => bytes.extend(::redis::cmd("PING").get_packed_command()),
                    Some((slack, stamped)) => {
                        bytes.extend(full(stamped));
                        stamps.extend((slack != Slack::None).then_some(bytes.len() - 7));
                    }
                }
            }
            assert_eq!((&spelt.bytes, spelt.stamps().collect()), (&bytes, stamps), "{chosen:?}");
            assert_eq!((spelt.replies(), spelt.short_texts().count()), (chosen.len(), 0));
        }
    }
}
