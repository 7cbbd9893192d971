//! The rooms of `src`, and of the crates beside it: which may use which stands in ARCHITECTURE.md, and nothing else is true.

mod beside;
mod citations;
mod examples;
mod mistakes;
mod pages;
mod pictures;
mod shape;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A room, by its path below the package's directory.
struct Room {
    name: String,
    path: String,
    may_use: BTreeSet<String>,
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The table under "Rooms".
fn rooms() -> Vec<Room> {
    let page = fs::read_to_string(package().join("ARCHITECTURE.md")).expect("the page");
    let rows = page.lines().skip_while(|line| *line != "| room | path | may use | guarded by |").skip(2);
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<_> = row.split('|').collect();
            Room {
                name: words(cells[1]).remove(0),
                path: words(cells[2]).remove(0),
                may_use: words(cells[3]).into_iter().collect(),
            }
        })
        .collect()
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, files);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
}

/// Where the sources of products are.
const SOURCES: [&str; 3] = ["src", "crates/cli/src", "crates/consensus/src"];

/// The sources of products, by their paths below the package's directory.
fn files() -> BTreeMap<String, String> {
    let mut files = Vec::new();
    for directory in SOURCES {
        sources(&package().join(directory), &mut files);
    }
    let name = |file: &Path| file.strip_prefix(package()).expect("below").to_str().expect("a name").replace('\\', "/");
    files.iter().map(|file| (name(file), fs::read_to_string(file).expect("a text"))).collect()
}

/// The room with the longest path that this path begins with. A room may be one file.
fn room_of<'a>(rooms: &'a [Room], path: &str) -> &'a Room {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let is_in = |room: &&Room| path == room.path || path.strip_prefix(&*room.path).is_some_and(|p| p.starts_with('/'));
    rooms.iter().filter(is_in).max_by_key(|room| room.path.len()).expect("all is below src")
}

fn is_test_only(path: &str, text: &str) -> bool {
    path.contains("/model/") || path == "src/lib.rs" || text.starts_with("//! Tests")
}

/// A file without its module of tests, which comes last.
fn without_tests(text: &str) -> &str {
    text.split_once("\nmod tests {").map_or(text, |(product, _)| product)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The lines that a program has: no comments, and no module of tests.
fn product(text: &str) -> impl Iterator<Item = &str> {
    without_tests(text).lines().filter(|line| !is_comment(line))
}

/// The paths below `src` of what a line names: `crate::store::redis::net` is `src/store/redis/net`.
fn named(line: &str, file: &str) -> Vec<String> {
    let of = |path: &str| {
        let parts = path.split("::").take_while(|part| part.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        parts.filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect::<String>()
    };
    let path = |from: &str| from.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().map(of);
    let own = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs")).expect("a source");
    let mut found = Vec::new();
    let root = &file[..file.find("src/").expect("below a root") + 3];
    for (at, _) in line.match_indices("crate::") {
        found.extend(path(&line[at + 7..]).map(|path| format!("{root}{path}")));
    }
    let mut rest = line;
    while let Some(at) = rest.find("super::") {
        let mut base = own;
        rest = &rest[at..];
        while let Some(next) = rest.strip_prefix("super::") {
            (base, rest) = (base.rsplit_once('/').map_or(root, |(base, _)| base), next);
        }
        found.extend(path(rest).map(|path| format!("{base}{path}")));
    }
    found
}

#[test]
fn every_arrow_between_rooms_is_in_the_table() {
    let rooms = rooms();
    assert!(rooms.len() > 8, "the table is not read");
    let files = files();
    let mut arrows = BTreeSet::new();
    for (file, text) in files.iter().filter(|(file, text)| !is_test_only(file, text)) {
        let from = room_of(&rooms, file);
        for line in product(text) {
            assert!(!line.contains("crate::{"), "{file}: one room a line, so that it can be read here: {line}");
            for target in named(line, file) {
                let to = room_of(&rooms, &target);
                if to.name != from.name && !target.starts_with("src/check") {
                    assert!(from.may_use.contains(&to.name), "{file}: {} uses {}: {line}", from.name, to.name);
                    arrows.insert((from.name.clone(), to.name.clone()));
                }
            }
        }
    }
    // What may be and is not would be a lie on the page.
    for room in &rooms {
        for used in &room.may_use {
            assert!(arrows.contains(&(room.name.clone(), used.clone())), "{} does not use {used}", room.name);
        }
    }
}

#[test]
fn no_arrow_goes_up() {
    let rooms = rooms();
    let mut above = BTreeSet::new();
    // Each room may use those above it in the table.
    for room in &rooms {
        for used in room.may_use.iter().filter(|used| !above.contains(*used)) {
            // For `DLockGenerator::connect`.
            let is_known = room.name == "lock" && used == "redis";
            assert!(is_known, "{} uses {used}, which comes later", room.name);
        }
        above.insert(room.name.clone());
    }
}

/// The file of a module, or of the nearest module above it.
fn file_of<'a>(files: &'a BTreeMap<String, String>, module: &str) -> Option<&'a str> {
    let above = |module: &str| module.rsplit_once('/').map(|(above, _)| above.to_owned());
    std::iter::successors(Some(module.to_owned()), |module| above(module))
        .find_map(|module| {
            files.get_key_value(&format!("{module}.rs")).or_else(|| files.get_key_value(&format!("{module}/mod.rs")))
        })
        .map(|(file, _)| &**file)
}

/// What a file takes from its own modules (`self::`) is not counted: the two are one thing.
#[test]
fn no_file_uses_itself_through_others() {
    let files = files();
    let mut uses = BTreeMap::new();
    for (file, text) in files.iter().filter(|(file, text)| !is_test_only(file, text)) {
        let named = product(text).flat_map(|line| named(line, file)).collect::<Vec<_>>();
        let used = named.iter().filter_map(|module| file_of(&files, module)).filter(|used| used != file);
        uses.insert(&**file, used.collect::<BTreeSet<_>>());
    }
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > 500, "the search finds too little");
    // What uses nothing that is left is in no circle.
    let mut before = 0;
    while before != uses.len() {
        before = uses.len();
        let left: BTreeSet<_> = uses.keys().copied().collect();
        uses.retain(|_, used| !used.is_disjoint(&left));
    }
    assert!(uses.is_empty(), "files use one another in a circle, or use one of these: {uses:#?}");
}

#[test]
fn every_directory_is_in_a_room() {
    let rooms = rooms();
    let in_ground = ["src/clock/", "src/config/", "src/store/mod.rs"];
    for file in files().keys() {
        let is_ground = room_of(&rooms, file).name == "ground";
        let is_file = file.matches('/').count() == 1;
        assert!(!is_ground || is_file || in_ground.iter().any(|known| file.starts_with(known)), "{file} is in no room");
    }
}

/// The lines of `tests/run.sh list`: a rung or a file, and its parts.
fn listed(files: &[String]) -> Vec<(String, Vec<String>)> {
    let list = Command::new(package().join("tests/run.sh")).arg("list").args(files).output().expect("the script");
    assert!(list.status.success(), "tests/run.sh list: {}", list.status);
    let lines = String::from_utf8(list.stdout).expect("a text");
    let line = |line: &str| {
        let (of, parts) = line.split_once(": ").expect("a name");
        (of.to_owned(), parts.split_whitespace().map(str::to_owned).collect())
    };
    lines.lines().map(line).collect()
}

/// `tests/run.sh changed` runs something after any change of these, and tests/README.md has each part, by the lowest of its rungs.
#[test]
fn every_source_is_guarded_by_parts_that_the_page_of_the_tests_has() {
    let mut parts = BTreeMap::new();
    for ((_, of), rung) in listed(&[]).into_iter().zip(["developer", "CI", "all"]) {
        for part in of {
            parts.entry(part).or_insert_with(|| rung.to_owned());
        }
    }
    let page = fs::read_to_string(package().join("tests/README.md")).expect("the page");
    let rows = page.lines().skip_while(|line| *line != "| part | rung | what | why there |").skip(2);
    let told = rows.take_while(|line| line.starts_with('|')).flat_map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        cells[1].split('`').skip(1).step_by(2).map(move |part| (part.to_owned(), cells[2].to_owned()))
    });
    assert_eq!(told.collect::<BTreeMap<_, _>>(), parts, "the table of tests/README.md, and tests/run.sh");
    let mut files = Vec::new();
    ["src", "crates"].iter().for_each(|root| sources(&package().join(root), &mut files));
    files
        .extend(fs::read_dir(package().join("scripts")).expect("scripts").map(|entry| entry.expect("an entry").path()));
    let path = |file: &PathBuf| file.strip_prefix(package()).expect("below").display().to_string();
    let guarded = listed(&files.iter().map(path).collect::<Vec<_>>());
    assert_eq!(guarded.len(), files.len(), "a line for each file");
    for (file, of) in guarded {
        assert!(!of.is_empty(), "{file}: tests/run.sh knows no part that guards it");
        of.iter().for_each(|part| assert!(parts.contains_key(part), "{file}: there is no part {part}"));
    }
}

const WEAK: [&str; 4] = ["Ordering::Relaxed", "Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel"];

/// The words that begin the argument for an ordering.
const ARGUMENT: &str = "// ORDERING:";

/// How many lines above a use its argument may begin.
const ARGUED_WITHIN: usize = 8;

/// Each use of a memory ordering that is weaker than `SeqCst` has an argument: at the end of its line, or in a comment of the
/// same function that begins at most eight lines above it. One comment may serve several uses. The test cannot tell whether an
/// argument is right; it makes sure that somebody has written one.
#[test]
fn every_weak_ordering_is_argued() {
    let mut uses = 0;
    for (file, text) in files().iter().filter(|(file, text)| !is_test_only(file, text)) {
        let lines: Vec<_> = without_tests(text).lines().collect();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
            let is_named = !line.contains("Ordering::{") && !line.contains("Ordering::*");
            assert!(is_named, "{file}: write `Ordering::Relaxed`, so that it can be found here: {line}");
            if WEAK.iter().any(|weak| line.contains(weak)) {
                uses += 1;
                let above = lines[n.saturating_sub(ARGUED_WITHIN)..n].iter().rev();
                let mut same_function = above.take_while(|line| is_comment(line) || !line.contains("fn "));
                let is_argued =
                    line.contains(ARGUMENT) || same_function.any(|line| line.trim_start().starts_with(ARGUMENT));
                assert!(is_argued, "{file}:{}: no `{ARGUMENT}` says why this ordering is enough: {line}", n + 1);
            }
        }
    }
    assert!(uses > 50, "the search finds too little");
}

/// The name that a line declares as an atomic, or as a list of atomics.
fn declared_atomic(line: &str) -> Option<&str> {
    if line.contains("::new(") && !line.contains("static ") {
        return None;
    }
    let before = &line[..line.find("Atomic")?];
    let declared = match before.rsplit_once(": ") {
        Some((declared, "" | "Arc<" | "[")) => declared,
        _ => before.strip_suffix("(Vec<")?,
    };
    declared.rsplit(' ').next()
}

/// The table under "Atomics" in `src/sync.rs` has a row for each atomic: by its file or directory, and by its name unless the row is for
/// the whole file.
#[test]
fn every_atomic_is_in_the_table() {
    let pages = ["src/sync.rs", "crates/consensus/src/sync.rs"]
        .map(|page| fs::read_to_string(package().join(page)).expect("the page"))
        .concat();
    let rows: Vec<Vec<_>> = pages
        .lines()
        .filter_map(|row| row.strip_prefix("//! | `")?.split(" | ").next())
        .map(|cell| cell.split(['`', ',', ' ']).filter(|word| !word.is_empty()).collect())
        .collect();
    let is_listed = |file: &str, name: &str| {
        rows.iter().any(|row| {
            let (places, names): (Vec<&str>, Vec<&str>) = row.iter().copied().partition(|word| word.contains('/'));
            let is_named = names.iter().any(|word| word.rsplit("::").next() == Some(name));
            places.iter().any(|place| file.contains(place)) && (names.is_empty() || is_named)
        })
    };
    let mut atomics = 0;
    for (file, text) in files().iter().filter(|(file, text)| !is_test_only(file, text)) {
        for name in product(text).filter_map(declared_atomic) {
            atomics += 1;
            assert!(
                is_listed(file, name),
                "{file}: `{name}` is not in the table under \"Atomics\" in the crate's src/sync.rs"
            );
        }
    }
    assert!(atomics > 30, "the search finds too little");
}
