//! Completions and manual pages, as shells and `man` read them.

use super::kit::{Kit, Start};
use std::fs;
use std::process::Command;

#[test]
fn bash_reads_the_completions_and_completes() {
    let kit = Kit::new();
    let ended = kit.dlock(&["completions", "bash"]).end().expect(0);
    fs::write(kit.path("completions"), &ended.out).unwrap();
    let script =
        "set -e; . ./completions; COMP_WORDS=(dlock do); COMP_CWORD=1; _dlock dlock do dlock; echo ${COMPREPLY[@]}";
    let bash = Command::new("bash").args(["--norc", "-c", script]).current_dir(kit.home.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "doctor", "{bash:?}");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(kit.dlock(&["completions", shell]).end().expect(0).out.contains("no-wait"), "{shell}");
    }
    kit.dlock(&["completions", "cmd"]).end().expect(64);
}

#[test]
fn a_manual_page_names_what_help_names() {
    let kit = Kit::new();
    let page = kit.dlock(&["man"]).end().expect(0).out;
    assert!(page.contains(".TH dlock") && page.contains("doctor"), "{page}");
    let run = kit.dlock(&["man", "run"]).end().expect(0).out;
    for word in ["no\\-wait", "on\\-lost", "DLOCK_TOKEN", "126"] {
        assert!(run.contains(word), "{word}: {run}");
    }
    assert!(kit.dlock(&["man", "fly"]).end().expect(64).err.contains("there is no subcommand"));
}
