//! The locks of Go's packages on the same servers: `concurrency.Mutex` of etcd's client and `api.Lock` of Consul's. They are left out where Go
//! cannot build them: see `benches/peers/stores`.

use super::turns::{OURS, variant, window};
use super::{Peer, ours, pair};
use crate::Plan;
use crate::hand_over::hand_overs;
use crate::peers::{directory, succeed, target};
use crate::support::crew::micros_each;
use crate::support::report::{Limit, Section, number};
use crate::support::stats::{Variant, interleave, median, ratio};
use crate::support::worker::now;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) fn run<V: Peer>(plan: &Plan, section: &mut Section) {
    let program = match build(plan) {
        Ok(program) => program,
        Err(why) => return section.paragraph(format!("{} is left out, because {why}.", V::GO)),
    };
    let counts: &[usize] = plan.size(&[1, 3], &[1]);
    let mut rows = Vec::new();
    for count in counts {
        let servers = V::start(*count);
        let url = servers.url("bench");
        let start = |name: &str, me: &str| Locker::start(&program, &[V::NAME, servers.address(), name, me]);
        let pairs = {
            let times = plan.size(100, 5);
            let (mut ours, mut peer) = (ours::<V>(&url, "pair"), start("pair", "0"));
            let variants: [Variant<'_>; 2] = [
                Box::new(|| micros_each(times, || pair(&mut ours))),
                Box::new(move || peer.ask("pairs", times as u64)[0]),
            ];
            interleave(plan.rounds, &mut Vec::from(variants))
        };
        let turns = {
            let window = window(plan);
            let peers = RefCell::new(["0", "1"].map(|me| start("turns", me)));
            let theirs = || {
                let until = now() + window;
                let mut peers = peers.borrow_mut();
                peers.iter_mut().for_each(|peer| peer.tell("turns", until));
                let holds: Vec<_> = peers.iter_mut().flat_map(Locker::hear).map(|number| number as u64).collect();
                median(&hand_overs(&holds))
            };
            interleave(plan.rounds, &mut Vec::from([variant(plan, &servers, OURS), Box::new(theirs)]))
        };
        let name = if *count == 1 { "1 server".to_owned() } else { format!("{count} servers") };
        for (what, most, figures) in [("lock + unlock", 1.0, &pairs), ("hand-over", 0.5, &turns)] {
            let what = format!("{}, {name}: {what} against {}", V::NAME, V::GO);
            section.target(what, Limit::AtMost(most), ratio(&figures[0], &figures[1]));
        }
        let figures = [pairs, turns].map(|both| [median(&both[0]), median(&both[1]), ratio(&both[0], &both[1])]);
        rows.push([name].into_iter().chain(figures.concat().into_iter().map(number)).collect());
    }
    section.paragraph(format!(
        "{} for Go, a process of its own, as its documentation uses it, in turns on the same servers.",
        V::GO
    ));
    section.table(&["microseconds", "lock, `unlock()`", "Go", "relative", "hand-over", "Go", "relative"], &rows);
}

fn build(plan: &Plan) -> Result<PathBuf, String> {
    let program = target(plan).join("stores");
    let mut build = Command::new("go");
    succeed(build.current_dir(directory().join("stores")).args(["build", "-o"]).arg(&program).arg("."))?;
    Ok(program)
}

/// A process that locks with a package for Go. Dropping it ends its input, and so the process.
struct Locker {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    child: Child,
}

impl Locker {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { input, output: BufReader::new(output), child }
    }

    fn tell(&mut self, what: &str, number: u64) {
        writeln!(self.input.as_ref().expect("it was not dropped"), "{what} {number}").unwrap();
    }

    fn hear(&mut self) -> Vec<f64> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    fn ask(&mut self, what: &str, number: u64) -> Vec<f64> {
        self.tell(what, number);
        self.hear()
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
