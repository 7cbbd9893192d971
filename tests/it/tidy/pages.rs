//! The pages are read as files, on a forge, and those of the manual in the crate's documentation, too: links and examples work in both.
//!
//! A page of the manual links by labels: `[with_lease][DLockConfig::with_lease]`. The definitions at its end lead to files. In the documentation,
//! those of `src/manual/links.md` come before them, and of several definitions of a label the first counts.

use super::package;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const MANUAL: &str = "src/manual/";

/// Each manual, and what leads its labels to items. No person reads that as a page, nor what shows pictures in the documentation.
const MANUALS: [(&str, &str); 2] =
    [(MANUAL, "src/manual/links.md"), ("crates/consensus/src/manual.md", "crates/consensus/src/links.md")];

const PICTURES: &str = "src/manual/pictures.md";

/// The files of the repository that are pages, by their paths, with their texts.
fn pages() -> BTreeMap<String, String> {
    fn walk(directory: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            if entry.is_dir() && name != "target" && name != ".git" {
                walk(&entry, found);
            } else if name.ends_with(".md") {
                let path = entry.strip_prefix(package()).expect("below").to_str().expect("a name").replace('\\', "/");
                found.insert(path, fs::read_to_string(&entry).expect("a text"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(package(), &mut found);
    found.retain(|path, _| path != PICTURES && MANUALS.iter().all(|(_, links)| links != path));
    assert!(found.len() > 20, "the search finds too little");
    found
}

/// The lines of a page outside its blocks of code, and inside them with the word that begins the block.
fn lines(text: &str) -> (Vec<&str>, Vec<(&str, &str)>) {
    let (mut prose, mut code, mut kind) = (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), kind) {
            (Some(begins), None) => kind = Some(begins),
            (Some(_), Some(_)) => kind = None,
            (None, Some(kind)) => code.push((kind, line)),
            (None, None) => prose.push(line),
        }
    }
    (prose, code)
}

/// The text outside blocks and pieces of code, and the pieces.
fn without_code(text: &str) -> (String, Vec<String>) {
    let (mut rest, mut pieces) = (String::new(), Vec::new());
    for paragraph in lines(text).0.join("\n").split("\n\n") {
        let parts: Vec<_> = paragraph.split('`').collect();
        for (n, part) in parts.iter().enumerate() {
            if n % 2 == 0 {
                rest.push_str(part);
            } else {
                pieces.push((*part).to_owned());
            }
        }
        rest.push_str("\n\n");
    }
    (rest, pieces)
}

/// What stands between two texts, again and again.
fn between<'a>(text: &'a str, begins: &str, ends: char) -> Vec<&'a str> {
    text.split(begins).skip(1).filter_map(|rest| rest.split_once(ends)).map(|(inner, _)| inner).collect()
}

/// The definitions of labels: `[label]: target`.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    let (prose, _) = lines(text);
    prose.into_iter().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
}

/// The anchors of the headings, as forges and rustdoc make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (prose, _) = lines(text);
    let headings =
        prose.into_iter().filter(|line| line.starts_with('#') && line.trim_start_matches('#').starts_with(' '));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Why a link of a page leads nowhere.
fn is_dead(page: &str, target: &str, pages: &BTreeMap<String, String>) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return None;
    }
    let (path, fragment) = target.split_once('#').map_or((target, None), |(path, fragment)| (path, Some(fragment)));
    let file = if path.is_empty() {
        page.to_owned()
    } else {
        let mut parts: Vec<_> = page.split('/').collect();
        parts.pop();
        for part in path.split('/').filter(|part| *part != ".") {
            if part == ".." {
                parts.pop()?;
            } else {
                parts.push(part);
            }
        }
        parts.join("/")
    };
    if !package().join(&file).exists() {
        return Some(format!("{target} is not there"));
    }
    let fragment = fragment?;
    let has_it = pages.get(&file).is_some_and(|text| anchors(text).contains(fragment));
    (!has_it).then(|| format!("{target}: no heading has this anchor"))
}

#[test]
fn every_link_between_files_leads_somewhere() {
    let pages = pages();
    let (mut dead, mut count) = (Vec::new(), 0);
    for (page, text) in &pages {
        let (rest, _) = without_code(text);
        let defined = definitions(text);
        let targets = between(&rest, "](", ')').into_iter().chain(defined.values().copied());
        for target in targets {
            count += 1;
            dead.extend(is_dead(page, target, &pages).map(|why| format!("{page}: {why}")));
        }
        let used: BTreeSet<_> = between(&rest, "][", ']').into_iter().collect();
        dead.extend(
            used.iter().filter(|label| !defined.contains_key(*label)).map(|label| format!("{page}: no [{label}]: …")),
        );
        dead.extend(
            defined
                .keys()
                .filter(|label| !used.contains(*label))
                .map(|label| format!("{page}: nothing uses [{label}]")),
        );
    }
    assert!(count > 300, "the search finds too little: {count}");
    assert!(dead.is_empty(), "{dead:#?}");
}

/// A label is the path of an item in its crate or in `redis_dlock`, or a page with its anchor. Its file has the item.
#[test]
fn the_manuals_labels_lead_to_items_and_to_their_files() {
    let pages = pages();
    for (manual, file) in MANUALS {
        let links = fs::read_to_string(package().join(file)).expect("the links");
        let links = definitions(&links);
        let mut used = BTreeSet::new();
        for (page, text) in pages.iter().filter(|(page, _)| page.starts_with(manual)) {
            for (label, target) in definitions(text).into_iter().filter(|(label, _)| !label.ends_with(".svg")) {
                used.insert(label.to_owned());
                let item = leads_to(page, label, target, &pages);
                assert_eq!(links.get(label), Some(&item.as_str()), "{file}: the documentation needs [{label}]");
            }
        }
        let vain: Vec<_> = links.keys().filter(|label| !used.contains(**label)).collect();
        assert!(vain.is_empty() && used.len() > 10, "{file}: no page uses {vain:?}");
    }
}

/// The item that a label names. Fails if the file is not that of the item.
fn leads_to(page: &str, label: &str, target: &str, pages: &BTreeMap<String, String>) -> String {
    let (path, fragment) = label.split_at(label.find('#').unwrap_or(label.len()));
    if pages.contains_key(&format!("{MANUAL}{path}.md")) {
        assert_eq!(target, format!("{path}.md{fragment}"), "{page}: [{label}]");
        return format!("crate::manual::{label}");
    }
    if target.ends_with(".json") {
        // No item has it.
        return format!("https://docs.rs/crate/redis-dlock/latest/source/{MANUAL}{target}");
    }
    let file = package().join(page).with_file_name(target);
    let source = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{page}: [{label}]: {error}"));
    let name = path.rsplit("::").next().expect("a name");
    let has_it = source.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name);
    assert!(has_it || target.contains(&format!("/{name}/")), "{page}: {target} has no {name}");
    if label.starts_with("redis_dlock::") { label.to_owned() } else { format!("crate::{label}") }
}

/// Whoever reads an example as a file sees what rustdoc hides.
#[test]
fn no_example_has_a_hidden_line() {
    let mut hidden = Vec::new();
    for (page, text) in pages() {
        let is_rust = |kind: &str| matches!(kind, "" | "no_run" | "rust" | "rust,no_run" | "rust,ignore" | "ignore");
        let (_, code) = lines(&text);
        let found = code
            .into_iter()
            .filter(|(kind, line)| is_rust(kind) && (line.trim() == "#" || line.trim_start().starts_with("# ")));
        hidden.extend(found.map(|(_, line)| format!("{page}: {line}")));
    }
    assert!(hidden.is_empty(), "{hidden:#?}");
}

/// A page names a test as `path/of/file.rs::name`.
#[test]
fn each_test_that_a_page_names_exists() {
    let mut count = 0;
    for (page, text) in pages() {
        for piece in without_code(&text).1 {
            let Some((file, name)) = piece.split_once(".rs::") else { continue };
            count += 1;
            let file = package().join(format!("{file}.rs"));
            let source = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{page}: {piece}: {error}"));
            assert!(source.contains(&format!("fn {name}(")), "{page}: there is no {piece}");
        }
    }
    assert!(count > 5, "the search finds too little");
}

/// Each page of the manual has a row with a test, in the order of the pages' names.
#[test]
fn every_page_of_the_manual_has_a_test() {
    let pages = pages();
    let rows = pages[".github/CONTRIBUTING.md"].lines().filter_map(|line| {
        let (name, tests) = line.strip_prefix("| [")?.split_once("](../src/manual/")?;
        assert!(tests.contains(".rs::"), "no test of {name}");
        Some(name)
    });
    let rows: Vec<_> = rows.collect();
    let names = pages.keys().filter_map(|page| page.strip_prefix(MANUAL)?.strip_suffix(".md"));
    assert_eq!(rows, names.filter(|name| *name != "index").collect::<Vec<_>>());
}

#[test]
fn the_least_compiler_is_the_same_everywhere() {
    let of = |manifest: &str| {
        let text = fs::read_to_string(package().join(manifest)).expect("a manifest");
        let line = text.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
        line.trim_matches('"').to_owned()
    };
    let least = of("Cargo.toml");
    for name in ["cli", "conformance", "consensus", "mongodb"] {
        assert_eq!(of(&format!("crates/{name}/Cargo.toml")), least, "{name}");
    }
    for page in ["README.md", "src/lib.rs", "src/manual/upgrading.md"] {
        let text = fs::read_to_string(package().join(page)).expect("a page");
        assert!(text.contains(&format!("Rust {least} or newer")), "{page} does not say {least}");
    }
    let examples = format!("The examples need Rust {},", of("tests/examples/Cargo.toml"));
    let page = fs::read_to_string(package().join("src/manual/upgrading.md")).expect("the page");
    assert!(page.contains(&examples), "{examples}");
}

/// The first page of the documentation has a line for each feature.
#[test]
fn the_crates_page_names_every_feature() {
    let manifest = fs::read_to_string(package().join("Cargo.toml")).expect("a manifest");
    let page = fs::read_to_string(package().join("src/lib.rs")).expect("the page");
    let (_, features) = manifest.split_once("[features]\n").expect("features");
    let names = features.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    let told = |name: &&str| page.contains(&format!("//! | `{name}` | "));
    let untold: Vec<_> = names.map(|(name, _)| name).filter(|name| *name != "default" && !told(name)).collect();
    assert!(untold.is_empty(), "src/lib.rs has no line for {untold:?}");
}

/// `cargo update` alone brings the larger ones back.
#[test]
fn the_lock_file_has_the_smaller_crates_for_domain_names() {
    let lock = fs::read_to_string(package().join("Cargo.lock")).expect("the lock file");
    assert!(!lock.contains("name = \"icu_"), "run `cargo update -p idna_adapter --precise 1.1.0`");
}

/// A window of 1,000 pixels has room for so many characters, beside what stands between columns.
const WIDEST: usize = 110;

/// A text without what stands between these: of a link, its text is shown, and neither its address nor its label.
fn without(text: &str, begin: &str, end: char) -> String {
    let (first, links) = text.split_once(begin).unwrap_or((text, ""));
    let rests = links.split(begin).map(|link| link.split_once(end).map_or("", |(_, rest)| rest));
    [first].into_iter().chain(rests).collect()
}

/// A table is as narrow as the longest words of its columns, in a forge's window of 1,000 pixels.
#[test]
fn the_tables_of_choices_and_symptoms_fit_a_narrow_window() {
    let manual = ["which_lock", "run_book", "sizing", "stores", "upgrading"].map(|name| format!("{MANUAL}{name}.md"));
    for page in manual.into_iter().chain(["crates/cli/README.md".to_owned()]) {
        let text = fs::read_to_string(package().join(&page)).expect("the page");
        let mut widths: Vec<usize> = Vec::new();
        for line in lines(&text).0.into_iter().chain([""]) {
            let cells = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
            let Some(cells) = cells else {
                assert!(widths.iter().sum::<usize>() <= WIDEST, "{page}: a table is too wide: {widths:?}");
                widths.clear();
                continue;
            };
            for (n, cell) in cells.split('|').enumerate().filter(|(_, cell)| !cell.contains("---")) {
                let shown = without(&without(cell, "](", ')'), "][", ']').replace('[', "");
                let longest = shown.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
                widths.resize(widths.len().max(n + 1), 0);
                widths[n] = widths[n].max(longest);
            }
        }
    }
}

/// Each page of the manual is in the documentation, in the manual's table and in README's.
#[test]
fn every_page_of_the_manual_can_be_found() {
    let text = |path: &str| fs::read_to_string(package().join(path)).expect("a text");
    let (module, index, readme) = (text("src/manual.rs"), text("src/manual/index.md"), text("README.md"));
    for page in pages().keys().filter_map(|page| page.strip_prefix(MANUAL)).filter(|page| *page != "index.md") {
        let name = page.strip_suffix(".md").expect("a page");
        assert!(module.contains(&format!("\"manual/{page}\"")), "src/manual.rs does not include {page}");
        assert!(index.contains(&format!("][{name}]")), "the manual's table does not name {page}");
        assert!(readme.contains(&format!("src/manual/{page}")), "README does not name {page}");
    }
}

/// What is longer is no map and no first page any more: the rest stands at the head of its room, or in the manual.
#[test]
fn the_map_and_the_first_page_stay_short() {
    let pages = pages();
    for (page, most) in [("ARCHITECTURE.md", 350), ("README.md", 150)] {
        let lines = pages[page].lines().count();
        assert!(lines <= most, "{page} has {lines} lines");
    }
}
