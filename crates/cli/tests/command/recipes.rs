//! The manual's recipes for cron, systemd and shell scripts: each file is run as it stands on the page. `tests/recipes` runs the others.

#[path = "../../../../tests/recipes/page.rs"]
mod page;

use super::kit::{Ended, Kit, Start, with_default_signals};
use page::file;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// A machine with `dlock` and the job, in place of `/usr/local/bin`.
struct Machine {
    kit: Kit,
    path: String,
}

impl Machine {
    fn new() -> Self {
        let kit = Kit::new();
        let bin = kit.path("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_dlock"), bin.join("dlock")).unwrap();
        let machine = Self { path: format!("{}:/usr/bin:/bin", bin.display()), kit };
        machine.program("bin/export-orders", "#!/bin/sh\necho \"exported $DLOCK_KEY $*\"\n");
        machine
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.kit.path(name), text).unwrap();
        fs::set_permissions(self.kit.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A program with these words, as the system starts it.
    fn starts(&self, program: &str, words: &[&str]) -> Command {
        let mut command = with_default_signals(program);
        command.args(words).env("PATH", &self.path).env("DLOCK_URL", self.kit.server.url());
        command.env("HOME", self.kit.home.path()).current_dir(self.kit.home.path());
        command
    }

    /// Runs the job of two machines, one after the other: the second finds it done.
    fn is_exported_once(&self, run: impl Fn() -> Ended) {
        assert_eq!(run().expect(0).out, "exported DLOCK_EXPORT_nightly --all\n");
        let second = run().expect(65);
        assert!(second.out.is_empty() && second.err.contains("done at "), "{second:?}");
    }
}

/// Whether a tool is there. Says so if it is not.
fn is_there(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success());
    if !is_there {
        // Not by `eprintln!`: what a test that passes has printed is not shown.
        let _ = writeln!(io::stderr(), "SKIPPED: {tool} is not there");
    }
    is_there
}

#[test]
fn the_crontab() {
    let machine = Machine::new();
    let lines = file("# /etc/cron.d/export").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (variables, jobs): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.split_once('=').is_some_and(|(name, _)| !name.contains(' ')));
    assert!(variables.contains(&"PATH=/usr/local/bin:/usr/bin:/bin"), "{variables:?}");
    assert!(variables.iter().any(|line| line.starts_with("DLOCK_URL=redis://")), "{variables:?}");
    let [job] = jobs[..] else { panic!("{jobs:?}") };
    let mut rest = job;
    let fields: Vec<_> = std::iter::from_fn(|| {
        let (field, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(field)
    })
    .take(6)
    .collect();
    assert_eq!(fields, ["0", "3", "*", "*", "*", "root"]);
    machine.is_exported_once(|| machine.starts("sh", &["-c", rest]).end());
}

#[test]
fn the_service_and_its_timer() {
    let machine = Machine::new();
    let service = file("# /etc/systemd/system/export.service");
    let line = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    machine.is_exported_once(|| machine.starts(words[0], &words[1..]).end());
    assert!(service.contains("\nSuccessExitStatus=65\n"));

    if !is_there("systemd-analyze") {
        return;
    }
    // It looks for the program below /usr, unless it has a whole path.
    let path = format!("ExecStart={}/", machine.kit.path("bin").display());
    fs::write(machine.kit.path("export.service"), service.replace("ExecStart=", &path)).unwrap();
    fs::write(machine.kit.path("export.timer"), file("# /etc/systemd/system/export.timer")).unwrap();
    for unit in ["export.service", "export.timer"] {
        let unit = machine.kit.path(unit);
        let judged = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).end().expect(0);
        assert_eq!(judged.err, "");
    }
}

#[test]
fn the_script_that_used_flock() {
    let machine = Machine::new();
    for (script, holder) in [("before.sh", "flock"), ("after.sh", "dlock")] {
        if holder == "flock" && !is_there(holder) {
            continue;
        }
        machine.program(script, file(&format!("# {script} DIRECTORY FILE: backs a directory up.")));
        let backup = || machine.starts(&format!("./{script}"), &["bin", "backup.tar"]).end().expect(0);
        let is_made = || fs::remove_file(machine.kit.path("backup.tar")).is_ok();
        backup();
        assert!(is_made(), "{script} makes a backup");
        // While another one runs, it does nothing, and that is no failure.
        let waits = ["sh", "-c", "echo in > in; while ! test -e go; do sleep 0.01; done"];
        let options = if holder == "flock" { &["./before.sh"][..] } else { &["run", "BACKUP", "orders", "--"] };
        let other = machine.starts(holder, &[options, &waits].concat()).start();
        machine.kit.line_of("in");
        backup();
        assert!(!is_made(), "{script} runs beside another one");
        fs::write(machine.kit.path("go"), "").unwrap();
        other.end().expect(0);
        ["in", "go"].iter().for_each(|name| fs::remove_file(machine.kit.path(name)).unwrap());
    }
}
