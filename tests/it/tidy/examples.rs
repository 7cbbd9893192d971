//! The page of the lock: each public method has an example, and `lock` comes first.

use super::{files, is_comment};
use std::collections::BTreeMap;

/// The files of a folder in the order of the modules, as rustdoc shows their impl blocks.
fn in_order<'a>(files: &'a BTreeMap<String, String>, folder: &str) -> Vec<&'a str> {
    let mut found = vec![files[&format!("{folder}/mod.rs")].as_str()];
    let modules: Vec<_> = found[0].lines().filter_map(|line| line.strip_suffix(';')?.split_once("mod ")).collect();
    for (_, module) in modules {
        match files.get(&format!("{folder}/{module}.rs")) {
            Some(text) => found.push(text),
            None => found.extend(in_order(files, &format!("{folder}/{module}"))),
        }
    }
    found
}

/// The public methods of a type, in the order of rustdoc's page, with their comments.
fn methods(of: &str) -> Vec<(String, String)> {
    let files = files();
    let head = format!("impl {of} {{");
    let mut found = Vec::new();
    for text in in_order(&files, "src/lock") {
        let mut lines = text.lines().skip_while(|line| *line != head).skip(1);
        let mut comment = String::new();
        for line in lines.by_ref().take_while(|line| *line != "}") {
            if let Some(name) = line.strip_prefix("    pub fn ") {
                let name = name.split(['(', '<']).next().unwrap_or(name).to_owned();
                found.push((name, std::mem::take(&mut comment)));
            } else if line.starts_with("    ") && is_comment(line) {
                comment.extend([line, "\n"]);
            } else if line.is_empty() {
                comment.clear();
            }
        }
    }
    found
}

#[test]
fn every_method_of_the_lock_has_an_example_and_lock_comes_first() {
    let methods = methods("DistributedReentrantLock");
    assert_eq!(methods[0].0, "lock");
    assert!(methods.len() > 25, "not all are read: {methods:?}");
    let without: Vec<_> = methods.iter().filter(|(_, comment)| !comment.contains("```")).collect();
    assert!(without.is_empty(), "no example: {without:?}");
}

#[test]
fn every_main_type_has_an_example() {
    for (file, name) in [
        ("config.rs", "DLockConfig"),
        ("lock/generator/mod.rs", "DLockGenerator"),
        ("lock/generator/builder.rs", "GeneratorBuilder"),
        ("lock/reentrant/mod.rs", "DistributedReentrantLock"),
        ("lock/guard.rs", "DLockGuard"),
        ("lock/owned_guard.rs", "OwnedDLockGuard"),
        ("lock/unguarded.rs", "UnguardedLock"),
        ("client/wait_limit.rs", "CancelToken"),
        ("store/memory/processor.rs", "MemoryLockProcessor"),
        ("store/redis/processor.rs", "RedisLockProcessor"),
    ] {
        let text = &files()[&format!("src/{file}")];
        let (above, _) = text.split_once(&format!("\npub struct {name}")).expect("the type");
        let comment = above.lines().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
        assert!(comment.into_iter().any(|line| line == "/// ```"), "{name} has no example that runs");
    }
}
