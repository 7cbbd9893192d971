//! Other lock crates, and locks for Go, Node and the JVM where these are, in the same run. They are built on their own: see benches/peers.

use crate::Plan;
use crate::support::pin::{self, SETTINGS};
use crate::support::report::{Limit, Section, number};
use crate::support::server::Server;
use crate::support::stats::{median, ratio};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name, threads, and pairs a second of each round.
type Line = (String, String, Vec<f64>);

pub(crate) fn run(plan: &Plan) -> Section {
    let mut section = Section::new("Other locks");
    let (programs, left_out) = programs(plan);
    section.paragraph(
        "Pairs a second of lock + unlock, a key for each thread or task. One connection for all tasks where a crate shares it; tasks run on two workers; goroutines and promises are tasks. What `drop` leaves to be read, \
         the next call reads.",
    );
    for (setting, server_place, client_place) in SETTINGS {
        let server = Server::start(server_place);
        let lines = pin::at(client_place, || measure(plan, &server, &programs));
        let mut rows = Vec::new();
        for threads in ["1", "16"] {
            let of_so_many: Vec<&Line> = lines.iter().filter(|(_, n, _)| n == threads).collect();
            let raw = &of_so_many[0].2;
            for (name, _, figures) in &of_so_many {
                rows.push(vec![name.clone(), threads.to_owned(), number(median(figures)), number(ratio(figures, raw))]);
            }
            let (ours, peers): (Vec<&Line>, Vec<&Line>) =
                of_so_many[1..].iter().partition(|(name, ..)| name.starts_with("redis-dlock"));
            let best = peers.iter().max_by(|a, b| median(&a.2).total_cmp(&median(&b.2))).unwrap();
            for ours in ours {
                let what = format!("{setting}, {threads} threads: {} against the best peer, {}", ours.0, best.0);
                section.target(what, Limit::AtLeast(1.0), ratio(&ours.2, &best.2));
            }
        }
        section.paragraph(format!("**{setting}**"));
        section.table(&["lock", "threads or tasks", "pairs a second", "relative to raw"], &rows);
    }
    section.paragraph(format!("Versions: {}.", versions()));
    if !left_out.is_empty() {
        section.paragraph(format!("Left out: {}.", left_out.join("; ")));
    }
    section
}

/// The peers' versions.
fn versions() -> String {
    let lock = fs::read_to_string(directory().join("Cargo.lock")).unwrap();
    let version = |name: &str| {
        let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap_or("unknown");
        format!("{name} {}", after.split('"').next().unwrap_or_default())
    };
    let crates = ["redlock", "rslock", "redis-lock", "distributed-lock-redis"].map(version).join(", ");
    format!("{crates}; of others, go.mod, package-lock.json and pom.xml in benches/peers")
}

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// The directory where the peers are built.
pub(crate) fn target(plan: &Plan) -> PathBuf {
    plan.directory.parent().unwrap().join("peers")
}

/// The programs of other languages: names and commands. What this machine lacks is left out, with the reason.
fn programs(plan: &Plan) -> (Vec<[String; 2]>, Vec<String>) {
    let target = target(plan);
    let built =
        [("redislock (Go)", go(&target)), ("redis-semaphore (Node)", node(&target)), ("Redisson (JVM)", java(&target))];
    let (mut programs, mut left_out) = (Vec::new(), Vec::new());
    for (name, command) in built {
        match command {
            Ok(words) => programs.push([name.to_owned(), words.join("\t")]),
            Err(why) => left_out.push(format!("{name}, because {why}")),
        }
    }
    (programs, left_out)
}

fn go(target: &Path) -> Result<Vec<String>, String> {
    let program = target.join("redislock");
    let mut build = Command::new("go");
    succeed(build.current_dir(directory().join("go")).args(["build", "-o"]).arg(&program).arg("."))?;
    Ok(vec![program.display().to_string()])
}

fn node(target: &Path) -> Result<Vec<String>, String> {
    let (from, to) = (directory().join("node"), target.join("node"));
    fs::create_dir_all(&to).map_err(|e| e.to_string())?;
    for file in ["main.js", "package.json", "package-lock.json"] {
        fs::copy(from.join(file), to.join(file)).map_err(|e| format!("{file}: {e}"))?;
    }
    succeed(Command::new("npm").current_dir(&to).args(["ci", "--no-audit", "--no-fund", "--silent"]))?;
    Ok(vec!["node".to_owned(), to.join("main.js").display().to_string()])
}

fn java(target: &Path) -> Result<Vec<String>, String> {
    let (from, to) = (directory().join("java"), target.join("java"));
    fs::create_dir_all(&to).map_err(|e| e.to_string())?;
    let class_path = to.join("class_path");
    let into = format!("-Dmdep.outputFile={}", class_path.display());
    succeed(Command::new("mvn").current_dir(&from).args(["-q", "-B", "dependency:build-classpath"]).arg(into))?;
    let class_path = fs::read_to_string(class_path).map_err(|e| e.to_string())?;
    let class_path = format!("{}:{}", to.display(), class_path.trim());
    succeed(Command::new("javac").arg("-d").arg(&to).args(["-cp", &class_path]).arg(from.join("src/Main.java")))?;
    Ok(["java", "-cp", &class_path, "Main"].map(str::to_owned).into())
}

/// Runs a command to its end. Fails with one line.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program} cannot be started: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().next_back().unwrap_or_default();
    if output.status.success() { Ok(()) } else { Err(format!("{program} failed: {last}")) }
}

fn measure(plan: &Plan, server: &Server, programs: &[[String; 2]]) -> Vec<Line> {
    let target = target(plan);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--manifest-path"])
        .arg(directory().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .arg("--")
        .args([u64::from(server.port()), plan.rounds as u64, plan.size(400, 30)].map(|number| number.to_string()))
        .args(programs.iter().flatten())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let mut words = line.split('\t').map(str::to_owned);
        let (name, threads) = (words.next().unwrap(), words.next().unwrap());
        (name, threads, words.map(|word| word.parse().unwrap()).collect())
    };
    text.lines().map(line).collect()
}
