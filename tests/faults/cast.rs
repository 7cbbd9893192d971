//! The worker processes of a scene, each with its connections to the store and its histories.

use crate::beside::BESIDE;
use crate::elsewhere::Elsewhere;
use crate::fenced::Fenced;
use crate::history::Event;
use crate::scene::Process;
use crate::servers::Servers;
use crate::setup::Setup;
use crate::support::Proxy;
use crate::support::worker::Worker;
use crate::ways::Ways;
use crate::work::Work;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// One worker process.
pub(crate) struct Cast {
    pub(crate) worker: Worker,
    /// `None` when it talks to the server itself.
    pub(crate) proxy: Option<Proxy>,
    /// Its ways to the Sentinels, to the nodes of a Cluster, or to the servers of a consensus store, if it does not talk to them directly.
    pub(crate) ways: Vec<Proxy>,
    /// What it does to the lock.
    pub(crate) history: Tail,
    /// What it does to the locks that it takes together with that one.
    pub(crate) beside: Vec<Tail>,
    /// What it does to the locks elsewhere.
    pub(crate) elsewhere: Vec<Tail>,
}

impl Cast {
    /// Starts the process. It writes its histories to this directory.
    pub(crate) fn start(
        setup: &Setup,
        process: Process,
        server: &Servers,
        fenced: &Fenced,
        elsewhere: &[Elsewhere],
        dir: &Path,
    ) -> Self {
        let Ways { proxy, ways, url, ports } = Ways::of(setup, process, server);
        let file = dir.join(process.to_string());
        let work = Work {
            url,
            ports,
            file: file.to_str().unwrap().to_owned(),
            fenced: fenced.port(),
            process,
            hold: setup.first_holds.filter(|_| process == 0).unwrap_or(setup.work.hold),
            elsewhere: elsewhere.iter().map(Elsewhere::order).collect(),
            ..setup.work.clone()
        };
        let history = Tail::of(&work.file);
        let beside = BESIDE.iter().filter(|_| work.together).map(|(target, _)| Tail::of(&work.file_beside(target)));
        let beside = beside.collect();
        let elsewhere = (0..elsewhere.len()).map(|n| Tail::of(&work.file_of_other(n))).collect();
        let variables: Vec<_> = setup.mutant.iter().map(|mutant| ("DLOCK_MUTANT", *mutant)).collect();
        let worker = Worker::start_with("worker::process", &work.to_string(), &variables);
        Self { worker, proxy, ways, history, beside, elsewhere }
    }
}

/// The end of a history that is being written.
pub(crate) struct Tail {
    file: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    rest: String,
}

impl Tail {
    fn of(file: &str) -> Self {
        fs::write(file, "").unwrap();
        Self { file: BufReader::new(File::open(file).unwrap()), rest: String::new() }
    }
}

/// What was recorded since the last look.
impl Iterator for Tail {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.file.read_line(&mut self.rest).unwrap() == 0 || !self.rest.ends_with('\n') {
            return None;
        }
        let event = self.rest.trim_end().parse().unwrap();
        self.rest.clear();
        Some(event)
    }
}
