//! Unit tests of `src/log.rs`.

use std::fs;
use std::path::{Path, PathBuf};

/// Collects the source files below a directory, except those of the models, which are tests.
fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() && !entry.ends_with("model") {
            sources(&entry, files);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
}

#[test]
fn every_target_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/operations.md");
    let text = fs::read_to_string(page).expect("a text");
    for target in super::target::ALL {
        let name = target.strip_prefix("redis_dlock::").expect("a target of this crate");
        assert!(text.contains(&format!("`{name}`")), "the page does not name {target}");
    }
}

#[test]
fn every_module_logs_by_the_macros_that_contain_a_panic() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let logs = |text: &str| {
        let macros = ["error", "warn", "info", "debug", "trace", "log"];
        macros.iter().any(|name| text.contains(&format!("log::{name}!(")))
    };
    let own = files.iter().filter(|file| !file.ends_with("log.rs"));
    let texts: Vec<_> = own.map(|file| (file, fs::read_to_string(file).expect("a text"))).collect();
    let loud: Vec<_> = texts.iter().filter(|(_, text)| logs(text)).collect();
    assert!(loud.len() > 10, "the search finds too little");
    for (file, text) in loud {
        assert!(text.contains("use crate::log;") && !text.contains("::log::"), "{}", file.display());
    }
}
