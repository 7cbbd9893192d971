//! The manual's recipes for cron, systemd and shell scripts: each file is run as it stands on the page. `tests/recipes` runs the others.

#[path = "../../../../tests/recipes/page.rs"]
mod page;

use super::kit::{Ended, Kit, Start, is_there, with_default_signals};
use page::file;
use rustix::process::Signal;
use std::fs;
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
        run().expect(65).says(["done at "]).prints("");
    }
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

/// The value of a line of the service.
fn of_service(name: &str) -> &'static str {
    let lines = file("# /etc/systemd/system/export.service").lines();
    lines.filter_map(|line| line.split_once('=')).find(|(is, _)| *is == name).expect(name).1
}

#[test]
fn the_service_and_its_timer() {
    let machine = Machine::new();
    let words: Vec<_> = of_service("ExecStart").split(' ').collect();
    machine.is_exported_once(|| machine.starts(words[0], &words[1..]).end());
    assert_eq!(of_service("SuccessExitStatus"), "65");

    if !is_there("systemd-analyze") {
        return;
    }
    // A root directory with what systemd looks for: the program, and its own targets.
    let root = machine.kit.path("root");
    let [units, programs] = ["etc/systemd/system", "usr/local/bin"].map(|path| root.join(path));
    [&units, &programs].iter().for_each(|path| fs::create_dir_all(path).unwrap());
    fs::copy(env!("CARGO_BIN_EXE_dlock"), programs.join("dlock")).unwrap();
    for unit in fs::read_dir("/usr/lib/systemd/system").unwrap().map(|unit| unit.unwrap().path()) {
        if unit.extension().is_some_and(|is| is == "target") {
            fs::copy(&unit, units.join(unit.file_name().unwrap())).unwrap();
        }
    }
    let complaints = |service: &str| {
        let [service, timer] =
            [("export.service", service), ("export.timer", file("# /etc/systemd/system/export.timer"))].map(
                |(name, text)| {
                    fs::write(units.join(name), text).map(|()| format!("/etc/systemd/system/{name}")).unwrap()
                },
            );
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["verify", "--man=no", "--root"]).arg(&root).args([service, timer]).end().err
    };
    let service = file("# /etc/systemd/system/export.service");
    assert_eq!(complaints(service), "");
    // It sees mistakes.
    for (right, wrong) in [
        ("KillMode=mixed", "KillMode=mixd"),
        ("TimeoutStopSec=30", "TimeoutStop=30"),
        ("EnvironmentFile=/", "EnvironmentFile="),
        ("ExecStart=dlock ", "ExecStart=dlok "),
    ] {
        assert!(service.contains(right), "{right}");
        assert_ne!(complaints(&service.replacen(right, wrong, 1)), "", "{wrong}");
    }
}

/// With this way of killing, systemd sends TERM to `dlock` alone, waits for `TimeoutStopSec`, and then kills all that is left.
#[test]
fn the_service_is_stopped() {
    assert_eq!(of_service("KillMode"), "mixed");
    let machine = Machine::new();
    let job = "#!/bin/sh\ntrap 'echo TERM >>got; exit 1' TERM\necho in >in\nwhile :; do sleep 0.01; done\n";
    machine.program("bin/export-orders", job);
    let words: Vec<_> = of_service("ExecStart").split(' ').collect();
    let service = machine.starts(words[0], &words[1..]).start();
    machine.kit.line_of("in");
    service.signal(Signal::TERM);
    service.end().expect(1);
    assert_eq!(fs::read_to_string(machine.kit.path("got")).unwrap(), "TERM\n");
    // It has released the lock.
    machine.starts("dlock", &["show", "EXPORT", "nightly", "--quiet"]).end().expect(1);

    let help = machine.starts("dlock", &["run", "--help"]).end().expect(0).out;
    let (_, grace) = help.split_once("SIGKILL: ").expect("the grace");
    let grace: u32 = grace.split('s').next().unwrap().parse().unwrap();
    assert!(of_service("TimeoutStopSec").parse::<u32>().unwrap() > grace);
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

/// A second call inside the script waits for itself, or fails.
#[test]
fn a_second_call_inside_the_script_does_not_get_the_lock() {
    let machine = Machine::new();
    for limit in [&["--no-wait"][..], &["--wait", "100ms"]] {
        let inner = [&["dlock", "run"], limit, &["BACKUP", "orders", "--", "true"]].concat();
        machine.starts("dlock", &[&["run", "BACKUP", "orders", "--"], &inner[..]].concat()).end().expect(65);
    }
    if is_there("flock") {
        for limit in [&["-n"][..], &["-w", "0.1"]] {
            let inner = [&["flock"], limit, &["lock", "true"]].concat();
            machine.starts("flock", &[&["lock"], &inner[..]].concat()).end().expect(1);
        }
    }
}
