//! Other lock crates, in the same run. They are built on their own: see benches/peers.

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
    let mut section = Section::new("Other lock crates");
    section.paragraph(
        "Pairs a second of lock + unlock, a key for each thread or task. One connection for all tasks where a crate shares it; tasks run on two workers. What `drop` leaves to be read, \
         the next call reads.",
    );
    for (setting, server_place, client_place) in SETTINGS {
        let server = Server::start(server_place);
        let lines = pin::at(client_place, || measure(plan, &server));
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
        section.table(&["crate", "threads or tasks", "pairs a second", "relative to raw"], &rows);
    }
    section.paragraph(format!("Versions: {}.", versions()));
    section
}

/// The peers' versions.
fn versions() -> String {
    let lock = fs::read_to_string(directory().join("Cargo.lock")).unwrap();
    let version = |name: &str| {
        let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap_or("unknown");
        format!("{name} {}", after.split('"').next().unwrap_or_default())
    };
    ["redlock", "rslock", "redis-lock", "distributed-lock-redis"].map(version).join(", ")
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

fn measure(plan: &Plan, server: &Server) -> Vec<Line> {
    let target = plan.directory.parent().unwrap().join("peers");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--manifest-path"])
        .arg(directory().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .arg("--")
        .args([u64::from(server.port()), plan.rounds as u64, plan.size(400, 30)].map(|number| number.to_string()))
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
