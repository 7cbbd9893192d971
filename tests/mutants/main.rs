//! Mutants: mistakes that the tests must find. The sources have none. Each file below `patches/` adds those of one source file, as points
//! `mutant!(Name)` where a check is missing while the test has switched that mistake on.
//!
//! ```text
//! cargo run -p dlock-mutants           # makes target/mutants, a copy of the workspace with all patches applied
//! cargo run -p dlock-mutants -- save   # makes the patches anew from what differs between the sources and the copy
//! ```
//!
//! tests/run.sh runs the models (`schedules`) and the scenarios with mistakes (`mutants`) in the copy, with `--cfg dlock_mutants`. A file of
//! the copy is written only if it is not as it should be, so a build there compiles what has changed, and nothing else.
//!
//! A patch applies as long as the lines around its points are the same, wherever they are in the file. If one no longer applies, the first
//! command fails and names it: put its points into the copy of the file by hand, and save.

use diffy::{DiffOptions, Patch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

/// How many lines around a change a patch names. With more, neighbours would break it; with fewer, it could apply elsewhere.
const CONTEXT: usize = 2;

/// What the copy contains, below the workspace's directory.
const COPIED: [&str; 8] = ["Cargo.toml", "Cargo.lock", "README.md", "src", "scripts", "crates", "tests", "benches"];

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn main() -> ExitCode {
    let workspace = workspace();
    let copy = workspace.join("target/mutants");
    let done = match env::args().nth(1).as_deref() {
        None => make(&workspace, &copy),
        Some("save") => save(&workspace, &copy),
        Some(other) => Err(io::Error::other(format!("{other:?} is neither nothing nor `save`"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dlock-mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patches_of(workspace: &Path) -> PathBuf {
    workspace.join("tests/mutants/patches")
}

/// Makes the copy. A file whose patch does not apply is copied as it is, and is an error.
fn make(workspace: &Path, copy: &Path) -> io::Result<()> {
    let mut files = sources(workspace)?;
    let failures = patch(&mut files, &read(&patches_of(workspace))?);
    for (file, content) in &files {
        write(&copy.join(file), content)?;
    }
    // What is in the copy and no longer in the workspace.
    for file in sources(copy)?.keys().filter(|file| !files.contains_key(*file)) {
        fs::remove_file(copy.join(file))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(io::Error::other(failures.join("\n"))) }
}

/// Applies the patches. Returns what is wrong with those that do not apply.
fn patch(files: &mut Files, patches: &Files) -> Vec<String> {
    let mut failures = Vec::new();
    for (patch, text) in patches {
        let file = patch.with_extension("");
        let text = String::from_utf8_lossy(text);
        let patched = match files.get(&file) {
            None => Err("there is no such file".to_owned()),
            Some(content) => Patch::from_str(&text).map_err(|error| error.to_string()).and_then(|patch| {
                diffy::apply(&String::from_utf8_lossy(content), &patch).map_err(|error| error.to_string())
            }),
        };
        match patched {
            Ok(patched) => _ = files.insert(file, patched.into_bytes()),
            Err(error) => failures.push(format!(
                "tests/mutants/patches/{} no longer applies to {}: {error}. Its mutants are {:?}: put them into target/mutants/{1}, and \
                 save (tests/mutants/main.rs)",
                patch.display(),
                file.display(),
                mutants(&text),
            )),
        }
    }
    failures
}

/// The names of the mutants in a text.
fn mutants(text: &str) -> BTreeSet<&str> {
    text.split("mutant!(")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
        .filter(|name| is_name(name))
        .collect()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Writes the patches anew: what the copy of each file has, and the file has not.
fn save(workspace: &Path, copy: &Path) -> io::Result<()> {
    let (files, copied) = (sources(workspace)?, sources(copy)?);
    let patches = patches_of(workspace);
    for (file, content) in &files {
        let Some(changed) = copied.get(file) else { continue };
        let patch = patches.join(format!("{}.patch", file.display()));
        if changed == content {
            if patch.exists() {
                eprintln!("{} has no mutants any more", file.display());
                fs::remove_file(patch)?;
            }
            continue;
        }
        let (content, changed) = (String::from_utf8_lossy(content), String::from_utf8_lossy(changed));
        let mut options = DiffOptions::new();
        options.set_context_len(CONTEXT);
        options.set_original_filename(file.display().to_string()).set_modified_filename(file.display().to_string());
        write(&patch, options.create_patch(&content, &changed).to_string().as_bytes())?;
    }
    Ok(())
}

/// What the copy is made from, and what it has: all but the patches.
fn sources(workspace: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    for name in COPIED {
        add(workspace, Path::new(name), &mut files)?;
    }
    files.retain(|file, _| !file.starts_with("tests/mutants/patches"));
    Ok(files)
}

/// All files below a directory.
fn read(directory: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    add(directory, Path::new(""), &mut files)?;
    Ok(files)
}

/// Adds the files at and below a path. What is built somewhere is in directories with the name `target`.
fn add(root: &Path, path: &Path, files: &mut Files) -> io::Result<()> {
    let full = root.join(path);
    if full.is_dir() {
        for entry in fs::read_dir(full)? {
            let name = entry?.file_name();
            if name != "target" {
                add(root, &path.join(name), files)?;
            }
        }
    } else if full.is_file() {
        files.insert(path.to_owned(), fs::read(full)?);
    }
    Ok(())
}

/// Writes a file in one step, unless it is so already.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("a file is in a directory"))?;
    let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
    fs::write(&unfinished, content)?;
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patches() -> Files {
        read(&patches_of(&workspace())).expect("the patches are there")
    }

    #[test]
    fn every_patch_applies() {
        let mut files = sources(&workspace()).expect("the sources are there");
        let failures = patch(&mut files, &patches());
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
