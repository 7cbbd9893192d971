//! Completions and manual pages, as shells and `man` read them.

use super::kit::{Kit, Start, is_there};
use std::fs;
use std::process::Command;

/// The completions of a shell, in a file of this name.
fn completions(shell: &str, file: &str) -> Kit {
    let kit = Kit::new();
    fs::write(kit.path(file), kit.dlock(&["completions", shell]).end().expect(0).out).unwrap();
    kit
}

/// What a shell makes of a script.
fn says(kit: &Kit, program: &str, words: &[&str], script: &str) -> String {
    let mut shell = Command::new("timeout");
    shell.args(["25", program]).args(words).arg(script).current_dir(kit.home.path()).env("TERM", "xterm");
    shell.env("HOME", kit.home.path()).end().expect(0).out
}

#[test]
fn shells_read_the_completions_and_complete() {
    let bash = completions("bash", "completions");
    let script =
        "set -e; . ./completions; COMP_WORDS=(dlock do); COMP_CWORD=1; _dlock dlock do dlock; echo ${COMPREPLY[@]}";
    assert_eq!(says(&bash, "bash", &["--norc", "-c"], script), "doctor\n");

    if is_there("fish") {
        let fish = completions("fish", "completions");
        says(&fish, "fish", &["--no-config", "--no-execute"], "completions");
        let completed = says(&fish, "fish", &["--no-config", "-c"], "source completions; complete -C 'dlock do'");
        assert!(completed.starts_with("doctor\t") && completed.lines().count() == 1, "{completed}");
    }
    if is_there("zsh") {
        let zsh = completions("zsh", "_dlock");
        says(&zsh, "zsh", &["-n"], "_dlock");
        // It completes on a terminal alone.
        let script = r"zmodload zsh/zpty
            zpty shell zsh -f -i
            zpty -w shell 'PROMPT=; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy'
            zpty -r shell said '*ready*'
            zpty -w -n shell $'dlock do\t'
            zpty -r shell said '*dlock doctor*'";
        says(&zsh, "zsh", &["-f", "-c"], script);
    }
    let kit = Kit::new();
    for shell in ["elvish", "powershell"] {
        assert!(kit.dlock(&["completions", shell]).end().expect(0).out.contains("no-wait"), "{shell}");
    }
    kit.dlock(&["completions", "cmd"]).end().expect(64);
}

/// The names of options and arguments below a heading.
fn below<'a>(help: &'a str, heading: &str) -> &'a str {
    let (_, rest) = help.split_once(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("{heading}: {help}"));
    rest.split("\n\n").take_while(|part| part.starts_with(' ')).last().map_or("", |last| {
        let end = last.as_ptr() as usize - rest.as_ptr() as usize + last.len();
        &rest[..end]
    })
}

#[test]
fn help_says_of_each_subcommand_what_is_its_own() {
    let kit = Kit::new();
    let help = |words: &[&str]| kit.dlock(&[words, &["--help"]].concat()).end().expect(0).out;
    for (name, status, is_there) in [
        ("ls", "\n  1 ", false),
        ("watch", "\n  1 ", false),
        ("show", "\n  1 ", true),
        ("ls", "\n  67 ", true),
        ("show", "\n  67 ", true),
        ("watch", "\n  67 ", false),
    ] {
        let help = help(&[name]);
        assert_eq!(help.contains(status), is_there, "{name} {status}: {help}");
        assert_eq!(help.contains("--quiet"), name == "show", "{help}");
    }
    // One backslash takes the meaning away, as in the pattern itself.
    assert!(help(&["ls"]).contains("`\\` takes"), "{}", help(&["ls"]));
    // What stands below the headings of the configuration file is a setting of it.
    for words in [&[][..], &["ls"], &["run"]] {
        let help = help(words);
        for heading in ["The server (also in the configuration file)", "The lock (also in the configuration file)"] {
            if !help.contains(heading) {
                continue;
            }
            let part = below(&help, heading);
            assert!(part.contains("--"), "{part}");
            assert!(!part.contains("--log-format") && !part.contains("COMMAND"), "{part}");
        }
        assert!(below(&help, "Options").contains("--log-format"), "{help}");
    }
    assert!(below(&help(&["run"]), "Arguments").contains("<COMMAND>"));
}

#[test]
fn a_manual_page_names_what_help_names() {
    let kit = Kit::new();
    kit.dlock(&["man"]).end().expect(0).shows([".TH dlock", "doctor"]);
    kit.dlock(&["man", "run"]).end().expect(0).shows(["no\\-wait", "on\\-lost", "DLOCK_TOKEN", "126"]);
    kit.dlock(&["man", "fly"]).end().expect(64).says(["there is no subcommand"]);
}
