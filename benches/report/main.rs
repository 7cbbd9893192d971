//! The figures of this crate, each beside what it is measured against in the same run.
//!
//! `cargo bench` runs all experiments, `cargo bench --bench report -- round-trip held` those that are named, and `--smoke` a short round of each.
//! The report is printed, and written to `target/bench/report.md` with its pictures. Servers and further processes are started by the run itself, and end
//! with it.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod cluster;
mod hand_over;
mod held;
mod hooks;
mod jvm_trip;
mod local;
mod many_keys;
mod pair_cost;
mod peers;
mod replicas;
mod round_trip;
mod server_cost;
mod stores;
mod support;
mod tasks;

use clap::{Parser, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs};
use support::pin;
use support::report::{Report, Section};
use support::server::Server;

/// Measures what this crate's locks cost, beside what they are to be measured against.
#[derive(Parser)]
struct Arguments {
    /// Which experiments to run; all, if none is named (in a short run all but `peers`).
    experiments: Vec<Experiment>,
    /// Run a short round of each, to see that it works: its figures mean little.
    #[arg(long)]
    smoke: bool,
    /// How many interleaved rounds a median is taken of.
    #[arg(long)]
    rounds: Option<usize>,
    /// `cargo bench` gives it, `cargo test` does not: without it, a short round is run.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Experiment {
    RoundTrip,
    ManyKeys,
    PairCost,
    Local,
    Hooks,
    JvmTrip,
    HandOver,
    Held,
    Tasks,
    ServerCost,
    Replicas,
    Cluster,
    Stores,
    Peers,
}

/// How long and where to.
pub(crate) struct Plan {
    pub(crate) smoke: bool,
    pub(crate) rounds: usize,
    /// Where pictures go.
    pub(crate) directory: PathBuf,
}

impl Plan {
    /// A size of the full run, or that of a short one.
    pub(crate) fn size<T>(&self, full: T, smoke: T) -> T {
        if self.smoke { smoke } else { full }
    }
}

impl Experiment {
    fn run(self, plan: &Plan) -> Section {
        match self {
            Self::RoundTrip => round_trip::run(plan),
            Self::ManyKeys => many_keys::run(plan),
            Self::PairCost => pair_cost::run(plan),
            Self::Local => local::run(plan),
            Self::Hooks => hooks::run(plan),
            Self::JvmTrip => jvm_trip::run(plan),
            Self::HandOver => hand_over::run(plan),
            Self::Held => held::run(plan),
            Self::Tasks => tasks::run(plan),
            Self::ServerCost => server_cost::run(plan),
            Self::Replicas => replicas::run(plan),
            Self::Cluster => cluster::run(plan),
            Self::Stores => stores::run(plan),
            Self::Peers => peers::run(plan),
        }
    }
}

fn main() {
    match support::worker::job().as_deref() {
        None => {}
        Some("trips") => return jvm_trip::make_trips(),
        Some("hand-over") => return hand_over::lock_in_turn(),
        Some("talk") => return hand_over::talk(),
        Some("pairs") => return cluster::make_pairs(),
        Some("hold") => return held::hold(),
        Some("turns") => stores::take_turns(),
        Some("compute") => pair_cost::compute(),
        Some(job) => panic!("no worker does {job}"),
    }
    let arguments = Arguments::parse();
    let smoke = arguments.smoke || !arguments.bench;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let rounds = arguments.rounds.unwrap_or(if smoke { 1 } else { 9 });
    let plan = Plan { smoke, rounds, directory: target.join("bench") };
    let mut report = Report::new(&plan.directory, head(&plan));
    for experiment in chosen(&arguments, smoke) {
        let (load, begin) = (field("/proc/loadavg", ""), Instant::now());
        let mut section = experiment.run(&plan);
        let seconds = begin.elapsed().as_secs();
        section.paragraph(format!("The machine's load before this: {load}. It took {seconds} s."));
        report.add(section);
    }
    println!("\nWritten to {}", plan.directory.join("report.md").display());
}

/// Those that are named, else all; but the others' crates take minutes to build, which is no short round.
fn chosen(arguments: &Arguments, smoke: bool) -> Vec<Experiment> {
    if !arguments.experiments.is_empty() {
        return arguments.experiments.clone();
    }
    let all = Experiment::value_variants().iter().copied();
    all.filter(|experiment| !smoke || *experiment != Experiment::Peers).collect()
}

/// What follows `start` in a file of the system.
fn field(file: &str, start: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(start)).map(|rest| rest.trim_matches([' ', '\t', ':']));
    found.unwrap_or("unknown").to_owned()
}

/// What was measured, with what, and where.
fn head(plan: &Plan) -> String {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.map_or_else(|e| e.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    format!(
        "# Benchmarks of redis-dlock {}\n\n{}{} rounds. {}, {} cores for this process, {} of memory, Linux {}. redis {}, {}, {}. {} build.",
        env!("CARGO_PKG_VERSION"),
        if plan.smoke { "**A short round: the figures mean little.** " } else { "" },
        plan.rounds,
        field("/proc/cpuinfo", "model name"),
        pin::cores().len(),
        field("/proc/meminfo", "MemTotal"),
        field("/proc/sys/kernel/osrelease", ""),
        Server::start(pin::Place::Anywhere).admin().version(),
        version(&rustc),
        env::consts::ARCH,
        if cfg!(debug_assertions) { "A debug" } else { "An optimised" },
    )
}
