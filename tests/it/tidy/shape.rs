//! The shape of the code: a type's methods stand in the file or the folder of the type, a type has at most thirty of them, a function
//! fits a screen, no room passes a bare `bool` to another, a length of time stands in the `timing` of its room, and mutexes come from
//! `sync`, the hardest rooms say why they are right, and a line of comment fits a screen. Files may be as long as one thing is.
//!
//! Each rule has a list of what does not keep it yet. A list may only shrink: what is added to it is a mistake, and what is in it and keeps
//! the rule fails, too. The reader knows Rust by the lines that rustfmt writes.

use super::{files, is_comment, is_test_only, package, room_of, rooms, sources, without_tests};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const MOST_METHODS: usize = 30;
const LONGEST_FUNCTION: usize = 60;
const LONGEST_COMMENT: usize = 160;

/// The types that have more methods, by the files that define them.
const LARGE: &[(&str, &str)] = &[
    // The lock that programs call, in five forms (a guard, an owned guard, a closure, a pair, a hold) with up to seven limits each. Each method
    // is one line: it says what is asked of the handle.
    ("DistributedReentrantLock", "src/lock/reentrant/mod.rs"),
];

/// The impl blocks that stand elsewhere than their types, by their files.
const ELSEWHERE: &[(&str, &str)] = &[];

/// The functions that are longer, by their files.
const LONG: &[(&str, &str)] = &[];

/// The functions that another room calls with a bare `bool`, by their files.
const BARE: &[(&str, &str)] = &[];

/// Where a named length of time stands that is not in a file `timing.rs`.
const TIMES: &[(&str, &str)] = &[
    // What programs may set.
    ("DEFAULT_LEASE", "src/config.rs"),
    ("LONGEST_LOCK_DELAY", "src/config.rs"),
    ("MAX_LEASE", "src/config.rs"),
    ("MIN_LEASE", "src/config.rs"),
];

/// The files whose mutexes no model sees.
const UNSEEN: &[(&str, &str)] = &[
    // What all clients of a process share, which lives longer than one schedule of a model.
    ("parking_lot", "src/state/owner.rs"),
    // The models replace this store, or take each of its operations for one step.
    ("parking_lot", "src/store/memory/processor.rs"),
    ("parking_lot", "src/store/memory/store.rs"),
    // The model of the transport has one server, without TLS.
    ("sync::unseen", "src/store/redis/cluster/inbox/listeners.rs"),
    ("sync::unseen", "src/store/redis/cluster/inbox/slot_subscriptions.rs"),
    ("sync::unseen", "src/store/redis/cluster/map.rs"),
    ("sync::unseen", "src/store/redis/cluster/nodes.rs"),
    ("sync::unseen", "src/store/redis/cluster/refresh.rs"),
    ("sync::unseen", "src/store/redis/net/tls.rs"),
    ("sync::unseen", "src/store/redis/sentinel/ask.rs"),
    ("sync::unseen", "src/store/redis/sentinel/mod.rs"),
    ("sync::unseen", "src/store/redis/sentinel/watch.rs"),
];

/// The types that bear a name with another meaning, by their files.
const AGAIN: &[(&str, &str)] = &[
    // The subcommand.
    ("Break", "crates/cli/src/args.rs"),
    // A client and its tenures as a store sees them, which is what the suite plays.
    ("Client", "crates/conformance/src/suite.rs"),
    ("Tenure", "crates/conformance/src/tenure.rs"),
    ("Waiter", "crates/mongodb/src/entry.rs"),
];

/// The rooms whose words all crates use.
const OF_THE_LOCK: [&str; 4] = ["src/client/", "src/lock/", "src/port/", "src/state/"];

/// How many lines of comments a room has for each line of code, at least: the rooms where it is hardest to see why the code is right.
const COMMENTED: [(&str, f64); 4] = [
    ("src/store/redis/transport/", 0.35),
    ("src/store/redis/cluster/", 0.35),
    ("src/store/redis/net/", 0.35),
    ("crates/consensus/src/", 0.35),
];

/// One function of the product.
struct Function {
    name: String,
    lines: usize,
    /// Whether all of the crate may call it, and must pass a bare `bool`.
    takes_bool: bool,
    /// How it is called, but for the arguments.
    call: String,
    /// The type of the inherent impl that it is a method of.
    of: Option<String>,
}

/// One file of the product, read.
#[derive(Default)]
struct Source {
    types: BTreeSet<String>,
    /// The types of its inherent impls.
    impls: BTreeSet<String>,
    functions: Vec<Function>,
}

/// What stands behind the visibility and the qualifiers of an item.
fn item(line: &str) -> &str {
    let mut rest = line.trim_start();
    if let Some(behind) = rest.strip_prefix("pub(") {
        rest = behind.split_once(") ").map_or("", |(_, behind)| behind);
    }
    for word in ["pub ", "default ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The name of the item, if it is one of this kind.
fn named(line: &str, kind: &str) -> Option<String> {
    item(line).strip_prefix(kind).map(word).filter(|name| !name.is_empty())
}

/// The type of an inherent impl that begins in this line.
fn inherent(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => {
            let mut depth = 1;
            let end = generics.char_indices().find(|(at, c)| {
                depth += i32::from(*c == '<');
                depth -= i32::from(*c == '>' && !generics[..*at].ends_with('-'));
                depth == 0
            })?;
            generics[end.0 + 1..].strip_prefix(' ')?
        }
        None => rest.strip_prefix(' ')?,
    };
    let name = word(rest.rsplit_once("::").filter(|(path, _)| !path.contains('<')).map_or(rest, |(_, name)| name));
    (!rest.contains(" for ") && line.trim_end().ends_with(['{', '}']) && !name.is_empty()).then_some(name)
}

fn read(text: &str) -> Source {
    let mut source = Source::default();
    let lines: Vec<_> = without_tests(text).lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let end = |from: usize| {
        let closing = format!("{}}}", " ".repeat(indent(lines[from])));
        lines.iter().skip(from + 1).position(|line| *line == closing).map_or(from, |n| from + 1 + n)
    };
    let mut block: Option<(usize, usize, Option<String>)> = None;
    for (n, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
        block = block.filter(|(_, last, _)| n <= *last);
        source.types.extend(["struct ", "enum ", "union "].iter().find_map(|kind| named(line, kind)));
        let begins_impl = line.trim_start().starts_with("impl ") || line.trim_start().starts_with("impl<");
        if begins_impl && line.trim_end().ends_with('{') {
            let of = inherent(line);
            source.impls.extend(of.clone());
            block = Some((indent(line), end(n), of));
        }
        let Some(name) = named(line, "fn ") else { continue };
        // The body begins where the signature ends: in this line, or in the next one of the same indentation.
        let head = (n..lines.len())
            .find(|at| *at == n && line.ends_with(['{', '}', ';']) || *at > n && indent(lines[*at]) == indent(line));
        let Some(head) = head.filter(|head| !lines[*head].ends_with(';')) else { continue };
        let last = if lines[head].ends_with('{') { end(head) } else { head };
        let of = block.as_ref().filter(|(at, ..)| indent(line) == at + 4).and_then(|(_, _, of)| of.clone());
        let signature = lines[n..=head].join(" ");
        let takes_bool =
            line.contains("pub(crate)") && signature.split("->").next().is_some_and(|args| args.contains(": bool"));
        let call = match &of {
            _ if signature.contains("self") => format!(".{name}("),
            Some(of) => format!("{of}::{name}("),
            None => format!("{name}("),
        };
        source.functions.push(Function { name, lines: last - n + 1, takes_bool, call, of });
    }
    source
}

/// The files of the product, in all crates.
fn product() -> BTreeMap<String, Source> {
    let mut files = Vec::new();
    sources(&package().join("src"), &mut files);
    if let Ok(crates) = fs::read_dir(package().join("crates")) {
        crates
            .map(|entry| entry.expect("an entry").path().join("src"))
            .filter(|src| src.is_dir())
            .for_each(|src| sources(&src, &mut files));
    }
    let name = |file: &std::path::Path| {
        file.strip_prefix(package()).expect("below").to_str().expect("a name").replace('\\', "/")
    };
    let texts = files.iter().map(|file| (name(file), fs::read_to_string(file).expect("a text")));
    texts
        .filter(|(file, text)| !is_test_only(file, text) && !file.contains("/tests"))
        .map(|(file, text)| (file, read(&text)))
        .collect()
}

/// The name of the folder that would be all of this type's: `Mux` may fill `mux/`.
fn folder_of(name: &str) -> String {
    let mut folder = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !folder.is_empty() {
            folder.push('_');
        }
        folder.extend(c.to_lowercase());
    }
    folder
}

/// Whether an impl in `file` stands with the type of this name that `home` defines.
fn is_with(name: &str, file: &str, home: &str) -> bool {
    let is_below = |folder: &str| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let own = home.strip_suffix("/mod.rs").or_else(|| home.strip_suffix(".rs")).expect("a source");
    let named = home.rsplit_once('/').map_or("", |(folder, _)| folder);
    file == home || is_below(own) || named.rsplit('/').next() == Some(&folder_of(name)) && is_below(named)
}

/// The file that defines the type of an impl in `file`: one that it stands with if there is one, and otherwise the nearest one.
fn home<'a>(files: &'a BTreeMap<String, Source>, name: &str, file: &str) -> Option<&'a str> {
    let alike = |home: &str| home.split('/').zip(file.split('/')).take_while(|(a, b)| a == b).count();
    let homes = files.iter().filter(|(_, source)| source.types.contains(name)).map(|(home, _)| home.as_str());
    homes.max_by_key(|home| (is_with(name, file, home), alike(home), home.len()))
}

fn check(found: &BTreeSet<(String, String)>, known: &[(&str, &str)], rule: &str) {
    let known: BTreeSet<_> = known.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let (new, gone) = (found.difference(&known).collect::<Vec<_>>(), known.difference(found).collect::<Vec<_>>());
    assert!(new.is_empty(), "{rule}: {new:#?}");
    assert!(gone.is_empty(), "these keep the rule now ({rule}), so strike them off the list: {gone:#?}");
}

/// What `--help` wraps: its comments are texts of the command.
const HELP: [&str; 2] = ["crates/cli/src/args.rs", "crates/cli/src/settings/mod.rs"];

#[test]
fn a_line_of_comment_fits_a_screen_but_in_a_table() {
    let mut long = Vec::new();
    for (file, text) in files().into_iter().filter(|(file, _)| !HELP.contains(&&**file)) {
        let is_row = |line: &str| line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
        let is_long = |line: &&str| is_comment(line) && !is_row(line) && line.chars().count() > LONGEST_COMMENT;
        long.extend(text.lines().filter(is_long).map(|line| format!("{file}: {line}")));
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn methods_stand_with_their_type() {
    let files = product();
    let mut elsewhere = BTreeSet::new();
    for (file, source) in &files {
        for name in &source.impls {
            // What a macro defines is not found.
            let home = home(&files, name, file);
            if home.is_some_and(|home| !is_with(name, file, home)) {
                elsewhere.insert((name.clone(), file.clone()));
            }
        }
    }
    check(&elsewhere, ELSEWHERE, "an inherent impl stands in the file of its type or in its folder");
}

#[test]
fn no_type_has_many_methods() {
    let files = product();
    let mut methods = BTreeMap::<_, usize>::new();
    for (file, source) in &files {
        for name in source.functions.iter().filter_map(|function| function.of.as_ref()) {
            *methods.entry((name.clone(), home(&files, name, file).unwrap_or(file).to_owned())).or_default() += 1;
        }
    }
    assert!(methods.values().sum::<usize>() > 1000, "the search finds too little");
    let large = methods.into_iter().filter(|(_, count)| *count > MOST_METHODS).map(|(of, _)| of).collect();
    check(&large, LARGE, "a type has at most thirty methods");
}

/// Within a crate, and between a crate and what the library says of locks.
#[test]
fn a_name_means_one_thing() {
    let files = product();
    let mut known = BTreeSet::<(String, &str)>::new();
    let mut again = BTreeSet::new();
    // The same type without its feature.
    let is_twin = |name: &str, file: &str| name == "Meters" && file.starts_with("src/client/events/");
    for (file, source) in &files {
        let (of, _) = file.split_once("src/").expect("below a root");
        for name in source.types.iter().filter(|name| !is_twin(name, file)) {
            let is_of_the_lock = OF_THE_LOCK
                .iter()
                .any(|room| files.iter().any(|(other, source)| other.starts_with(room) && source.types.contains(name)));
            if !known.insert((name.clone(), of)) || !of.is_empty() && is_of_the_lock {
                again.insert((name.clone(), file.clone()));
            }
        }
    }
    check(&again, AGAIN, "a name stands for one type of a crate, and a word of the lock for none of another crate");
}

#[test]
fn no_function_is_long() {
    let mut long = BTreeSet::new();
    for (file, source) in product() {
        let functions = source.functions.into_iter().filter(|function| function.lines > LONGEST_FUNCTION);
        long.extend(functions.map(|function| (function.name, file.clone())));
    }
    check(&long, LONG, "a function has at most sixty lines");
}

/// What only tests switch on is put into a copy: see `tests/mutants`.
#[test]
fn no_mistake_is_built_into_a_product() {
    for (file, text) in files() {
        assert!(!text.contains("mutant!"), "{file}: put it into a patch below tests/mutants/patches");
    }
}

/// At such a call nobody sees what `true` means.
#[test]
fn no_other_room_passes_a_bare_bool() {
    let rooms = rooms();
    let texts = files();
    let mut bare = BTreeSet::new();
    for (file, text) in texts.iter().filter(|(file, text)| !is_test_only(file, text)) {
        let home = &room_of(&rooms, file).name;
        for function in read(text).functions.iter().filter(|function| function.takes_bool) {
            let is_called = |(other, text): (&String, &String)| {
                let is_above = !is_test_only(other, text) && room_of(&rooms, other).may_use.contains(home);
                is_above && without_tests(text).lines().any(|line| !is_comment(line) && line.contains(&function.call))
            };
            if texts.iter().any(is_called) {
                bare.insert((function.name.clone(), file.clone()));
            }
        }
    }
    check(&bare, BARE, "no bool among the parameters of a function that another room calls");
}

#[test]
fn lengths_of_time_stand_in_the_timing_of_their_room() {
    let mut found = BTreeSet::new();
    let mut in_timing = 0;
    for (file, text) in files().iter().filter(|(file, text)| !is_test_only(file, text)) {
        let times = super::product(text).filter_map(|line| {
            let is_one = line.starts_with("const ") || line.starts_with("pub") && line.contains(" const ");
            let (name, rest) = item(line).split_once(": ").filter(|_| is_one)?;
            let is_time = name == word(name) && rest.split(" = ").next()?.contains("Duration");
            is_time.then(|| name.to_owned())
        });
        if file.ends_with("/timing.rs") {
            in_timing += times.count();
        } else {
            found.extend(times.map(|name| (name, file.clone())));
        }
    }
    assert!(in_timing > 50, "the search finds too little");
    check(&found, TIMES, "a named length of time stands in the file `timing.rs` of its room");
}

#[test]
fn mutexes_come_from_sync() {
    let kinds = ["Mutex", "RwLock", "Condvar"];
    let of_std = |line: &str| line.contains("std::sync") && kinds.iter().any(|kind| line.contains(kind));
    let mut found = BTreeSet::new();
    for (file, text) in
        files().into_iter().filter(|(file, text)| !is_test_only(file, text) && !file.ends_with("/sync.rs"))
    {
        let has = |word: &str| super::product(&text).any(|line| line.contains(word));
        let other = ["parking_lot", "sync::unseen"].into_iter().find(|word| has(word));
        let other = other.or_else(|| super::product(&text).any(of_std).then_some("std"));
        found.extend(other.map(|other| (other.to_owned(), file.clone())));
    }
    check(&found, UNSEEN, "mutexes come from `sync`, so that a model sees them");
}

#[test]
fn what_is_hard_to_see_is_commented() {
    let files = files();
    for (room, least) in COMMENTED {
        let (mut code, mut comments) = (0.0, 0.0);
        for (_, text) in files.iter().filter(|(file, text)| file.starts_with(room) && !is_test_only(file, text)) {
            let lines = || without_tests(text).lines().filter(|line| !line.trim().is_empty());
            comments += lines().filter(|line| is_comment(line)).count() as f64;
            code += lines().filter(|line| !is_comment(line)).count() as f64;
        }
        assert!(code > 1000.0, "{room} is not read");
        assert!(comments / code >= least, "{room} has {:.3} lines of comments for each line of code", comments / code);
    }
}

#[test]
fn the_reader_finds_what_it_looks_for() {
    let text = "\
pub(crate) struct Thing<T>(T);

impl<T: Fn() -> bool> Thing<T> {
    /// A comment with fn nothing().
    pub(crate) const fn short(&self, is_on: bool) -> u8 { 1 }

    fn long(
        &self,
        more: u8,
    ) -> u8 {
        more
    }
}

impl<T> Drop for Thing<T> {
    fn drop(&mut self) {}
}

trait Verb {
    fn declared(&self);
}

#[cfg(test)]
mod tests {
    fn ignored() {}
}
";
    let source = read(text);
    assert_eq!(source.types.into_iter().collect::<Vec<_>>(), ["Thing"]);
    assert_eq!(source.impls.into_iter().collect::<Vec<_>>(), ["Thing"]);
    let found: Vec<_> = source.functions.iter().map(|f| (&*f.name, f.lines, f.of.as_deref())).collect();
    assert_eq!(found, [("short", 1, Some("Thing")), ("long", 6, Some("Thing")), ("drop", 1, None)]);
    let bare: Vec<_> = source.functions.iter().filter(|f| f.takes_bool).map(|f| &*f.call).collect();
    assert_eq!(bare, [".short("]);
    let is_thing = |file, home| is_with("BigThing", file, home);
    assert!(
        is_thing("src/a/b.rs", "src/a.rs")
            && is_thing("src/a/b.rs", "src/a/mod.rs")
            && is_thing("src/a.rs", "src/a.rs")
    );
    assert!(is_thing("src/big_thing/b.rs", "src/big_thing/core.rs"));
    assert!(!is_thing("src/a/b.rs", "src/a/c.rs") && !is_thing("src/ab.rs", "src/a.rs"));
}
