//! A scenario: what is there, what is done to it, and what has to hold.

use crate::checker::tokens::check_updates;
use crate::checker::{self, Property, Verdict, Violation, store, waits};
use crate::scene::Scene;
use crate::support::crew::eventually;
use crate::worker::{KEY, Work};
use std::fmt;
use std::time::Duration;

/// What is there.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) processes: u32,
    /// Arguments of the server.
    pub(crate) server: &'static [&'static str],
    /// `user:password`, for a server that wants them.
    pub(crate) login: Option<&'static str>,
    /// Whether each process has a network of its own between it and the server.
    pub(crate) proxied: bool,
    /// Whether the server's side is judged as well: not where it goes down.
    pub(crate) monitored: bool,
    pub(crate) work: Work,
    /// A mistake that is built into the library.
    pub(crate) mutant: Option<&'static str>,
}

/// What has to hold. M, F, X, O, C and Q always, but where `lossy`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The store itself drops live leases: M and F are not judged.
    pub(crate) lossy: bool,
    /// After the end of its lease, or of the store's word, a holder knows within this.
    pub(crate) told: Duration,
    /// A free lock with waiters has a holder within this.
    pub(crate) waited: Duration,
    /// How many tenures may be left to their leases.
    pub(crate) expired: usize,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) operations: usize,
    pub(crate) holds: usize,
    pub(crate) tenures: usize,
    pub(crate) expired: usize,
    pub(crate) refused: usize,
    pub(crate) told: Duration,
    pub(crate) waited: Duration,
    pub(crate) lost: usize,
    pub(crate) violations: Vec<Violation>,
    pub(crate) seed: u64,
}

/// All scenarios have leases of a second, but where they say otherwise.
pub(crate) const LEASE: u64 = 1000;

impl Setup {
    /// Three processes with two threads each, over a good network.
    pub(crate) fn of(name: &'static str) -> Self {
        let work = Work {
            url: String::new(),
            file: String::new(),
            fenced: 0,
            process: 0,
            threads: 2,
            lease: LEASE,
            hold: (20, 60),
            pause: 10,
            tries: 20,
            reentries: 30,
            io: 300,
            listener: true,
            seed: seed(),
        };
        Self { name, processes: 3, server: &[], login: None, proxied: true, monitored: true, work, mutant: None }
    }

    pub(crate) fn server(mut self, args: &'static [&'static str]) -> Self {
        self.server = args;
        self
    }

    /// The processes talk to the server itself, which goes down.
    pub(crate) fn unwatched(mut self) -> Self {
        (self.proxied, self.monitored) = (false, false);
        self
    }

    pub(crate) fn work(mut self, change: impl FnOnce(&mut Work)) -> Self {
        change(&mut self.work);
        self
    }

    /// Plays it: warms up, does the fault, lets the lock go on, and judges everything.
    pub(crate) fn play(self, bounds: Bounds, fault: impl FnOnce(&mut Scene)) -> Report {
        let mut scene = Scene::open(&self);
        scene.go_on(4 * self.processes as usize);
        scene.fault();
        fault(&mut scene);
        scene.go_on(4 * self.processes as usize);
        let mut violations = quiet(&mut scene);
        let Verdict { violations: broken, operations, holds } =
            checker::judge(std::mem::take(&mut scene.events), &scene.absences);
        violations.extend(broken);
        let (updates, refused) = scene.fenced.updates();
        violations.extend(check_updates(&updates));
        let seen = match scene.monitor.take() {
            Some(monitor) => store::check(&monitor.stop(&scene.server), KEY.2),
            None => store::Seen::default(),
        };
        violations.extend(seen.violations);
        if bounds.lossy {
            violations.retain(|violation| !matches!(violation.property, Property::M | Property::F | Property::X));
        }
        if seen.expired.len() > bounds.expired {
            let story = format!("tenures were left to their leases: {:?}", seen.expired);
            violations.push(Violation::of(Property::X, story));
        }
        let told = waits::latest_news(&holds, &scene.absences);
        if told > bounds.told {
            violations.push(Violation::of(Property::T, format!("a holder knew of its loss only after {told:?}")));
        }
        let waited = waits::longest_wait(&holds, &scene.absences, &scene.kept, scene.fault_at);
        if waited > bounds.waited {
            violations.push(Violation::of(Property::V, format!("waiters waited for a free lock for {waited:?}")));
        }
        let report = Report {
            name: self.name,
            operations,
            holds: holds.len(),
            tenures: seen.tenures,
            expired: seen.expired.len(),
            refused,
            told,
            waited,
            lost: holds.iter().filter(|hold| hold.lost.is_some()).count(),
            violations,
            seed: self.work.seed,
        };
        eprintln!("{report}");
        report
    }
}

/// Q: when all have ended, nothing is left: no thread and no socket of the library, no key but the fence.
fn quiet(scene: &mut Scene) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (process, rest) in scene.end_work() {
        if rest != "true 0 0" {
            let story = format!("process {process}: threads ended, threads left, sockets left: {rest}");
            violations.push(Violation::of(Property::Q, story));
        }
    }
    let left = || {
        let mut keys: Vec<String> = scene.server.run(&["KEYS", "*"]);
        keys.retain(|key| key != "DLOCK:1:fence");
        keys
    };
    // What a killed process had is there until its lease is over, a place in the queue for twice as long.
    if scene.dead.is_empty() {
        let keys = left();
        if !keys.is_empty() {
            violations.push(Violation::of(Property::Q, format!("keys are left: {keys:?}")));
        }
    }
    eventually("all leases are over", || left().is_empty());
    violations
}

impl Default for Bounds {
    /// Messages come, and nothing is lost: as much as a busy machine may take, and far less than a lease.
    fn default() -> Self {
        let slack = Duration::from_millis(LEASE / 3);
        Self { lossy: false, told: slack, waited: slack, expired: 0 }
    }
}

impl Report {
    /// Fails with the counterexamples if there are any.
    #[track_caller]
    pub(crate) fn is_clean(self) -> Self {
        assert!(self.violations.is_empty(), "{self}\n{}", self.stories());
        self
    }

    /// The counterexamples.
    pub(crate) fn stories(&self) -> String {
        self.violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, operations, holds, tenures, expired, refused, told, waited, lost, violations, seed } = self;
        let of = |property| violations.iter().filter(|violation| violation.property == property).count();
        let broken: Vec<_> = [
            Property::M,
            Property::F,
            Property::X,
            Property::O,
            Property::C,
            Property::T,
            Property::V,
            Property::Q,
        ]
        .into_iter()
        .filter(|property| of(*property) > 0)
        .map(|property| format!("{property:?} {}", of(property)))
        .collect();
        let broken = if broken.is_empty() { "none".to_owned() } else { broken.join(", ") };
        write!(
            f,
            "scenario {name}: {operations} operations, {holds} holds, {tenures} tenures ({expired} left to their leases), \
             {lost} lost, {refused} refused by token, violations: {broken}, T {told:.0?}, V {waited:.0?}, seed {seed}"
        )
    }
}

/// `DLOCK_TEST_SEED`, or one that differs from run to run.
fn seed() -> u64 {
    match std::env::var("DLOCK_TEST_SEED") {
        Ok(seed) => seed.parse().expect("a number in DLOCK_TEST_SEED"),
        Err(_) => crate::worker::now() % 1_000_000_007,
    }
}
