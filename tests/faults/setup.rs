//! A scenario: its servers and processes, its fault, and how it is judged.

use crate::checker::holds::Hold;
use crate::checker::lateness::Lateness;
use crate::checker::store::Expired;
use crate::checker::tokens::check_updates;
use crate::checker::waits::Kept;
use crate::checker::windows::Lossy;
use crate::checker::{self, Property, Verdict, Violation, entry, store, waits};
use crate::elsewhere::{Circumstances, Found};
use crate::history::{Event, Op};
use crate::observer::Observer;
use crate::report::{Bounds, Report};
use crate::scene::{Process, Scene};
use crate::servers::Servers;
use crate::support::RedisServer;
use crate::support::crew::eventually;
use crate::support::dice::seed;
use crate::work::{KEY, Others, PortMap, Work};
use redis_dlock::DelayedRelease;
use std::time::Duration;

/// The servers and processes of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) processes: u32,
    /// Arguments of the server.
    pub(crate) server: &'static [&'static str],
    /// `user:password`, for a server that wants them.
    pub(crate) login: Option<&'static str>,
    /// Whether each process has a network of its own between it and the server, or the Sentinels.
    pub(crate) proxied: bool,
    /// A process that goes by the networks of a service's servers no more than the servers themselves do.
    pub(crate) apart: Option<Process>,
    /// Whether the node of a Cluster that owns the lock's slot is to serve all other slots as ever.
    pub(crate) is_owner_well: bool,
    /// How many further locks of that node the first process holds.
    pub(crate) held_with_it: usize,
    /// Whether the server's side is judged as well: not where it goes down.
    pub(crate) monitored: bool,
    pub(crate) work: Work,
    /// The shortest and the longest hold of the first process, if it is not like the others.
    pub(crate) first_holds: Option<(u64, u64)>,
    /// How many holds there are to be before the fault, and after it.
    pub(crate) holds: usize,
    /// A mistake that is built into the library.
    pub(crate) mutant: Option<&'static str>,
}

/// The lease of all scenarios in milliseconds, but where they say otherwise: a second, or `DLOCK_TEST_LEASE`.
pub(crate) fn lease() -> u64 {
    std::env::var("DLOCK_TEST_LEASE").map_or(1000, |lease| lease.parse().expect("milliseconds"))
}

/// So many leases.
pub(crate) fn leases(count: f64) -> Duration {
    Duration::from_millis(lease()).mul_f64(count)
}

impl Setup {
    /// Three processes with two threads each, over a good network.
    pub(crate) fn of(name: &'static str) -> Self {
        let work = Work {
            url: String::new(),
            ports: PortMap::default(),
            acks: 0,
            file: String::new(),
            fenced: 0,
            elsewhere: Others::default(),
            process: 0,
            threads: 2,
            lease: lease(),
            hold: (20, 60),
            pause: 10,
            tries: 20,
            leads: 25,
            reentries: 30,
            together: false,
            delays: (4, 250),
            io: 300,
            listener: true,
            seed: seed(),
        };
        Self {
            name,
            processes: 3,
            server: &[],
            login: None,
            proxied: true,
            apart: None,
            is_owner_well: false,
            held_with_it: 0,
            monitored: true,
            work,
            first_holds: None,
            holds: 12,
            mutant: None,
        }
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

    /// The processes talk to a service that Sentinels watch, with leases that outlive a failover. A hold is acknowledged by so many replicas.
    pub(crate) fn behind_sentinels(mut self, lease: Duration, acks: u8) -> Self {
        (self.proxied, self.monitored) = (false, false);
        self.work.lease = u64::try_from(lease.as_millis()).unwrap();
        self.acknowledged(acks)
    }

    /// The processes talk to a Cluster, with a lease of this length.
    pub(crate) fn in_cluster(mut self, lease: Duration) -> Self {
        (self.proxied, self.monitored) = (false, false);
        self.work.lease = u64::try_from(lease.as_millis()).unwrap();
        self
    }

    /// The processes talk to servers of a consensus store, each by a network of its own to each server, with a lease of this length. No release is
    /// delayed: etcd keeps a lock for two seconds at least, and Consul for ten.
    pub(crate) fn on_consensus(mut self, lease: Duration) -> Self {
        (self.monitored, self.work.delays) = (false, (0, 0));
        self.work.lease = u64::try_from(lease.as_millis()).unwrap();
        self
    }

    /// A hold is acknowledged by so many replicas.
    pub(crate) fn acknowledged(mut self, acks: u8) -> Self {
        self.work.acks = acks;
        if acks > 0 {
            // If a replica does not run for a moment, the next holder loses its place.
            self.work.io = 1000;
            self.name = format!("{}, {acks} {}", self.name, if acks == 1 { "ack" } else { "acks" }).leak();
        }
        self
    }

    /// All that the processes do is to campaign and to lead.
    pub(crate) fn leading(self) -> Self {
        self.work(|work| (work.tries, work.leads, work.reentries) = (0, 100, 0))
    }

    /// The processes only take several locks at once. Such holds keep no lock after their end.
    pub(crate) fn together(self) -> Self {
        self.work(|work| {
            (work.together, work.tries, work.leads, work.reentries, work.delays) = (true, 50, 0, 0, (0, 0));
        })
    }

    /// With a mistake built into the library, or none.
    pub(crate) fn with(mut self, mutant: Option<&'static str>) -> Self {
        self.mutant = mutant;
        self
    }

    /// The first process holds the lock for so many leases at a time.
    pub(crate) fn first_holds(mut self, leases: f64) -> Self {
        let length = Duration::from_millis(self.work.lease).mul_f64(leases).as_millis();
        let length = u64::try_from(length).unwrap();
        self.first_holds = Some((length, length));
        self.holds = 6;
        self
    }

    pub(crate) fn work(mut self, change: impl FnOnce(&mut Work)) -> Self {
        change(&mut self.work);
        self
    }

    /// Plays it: warms up, does the fault, lets the lock go on, and judges everything.
    pub(crate) fn play(self, bounds: Bounds, fault: impl FnOnce(&mut Scene)) -> Report {
        let server = RedisServer::start_with(self.server);
        self.play_on(Servers::One(Box::new(server)), bounds, fault).0
    }

    /// The same on servers that run already; they are returned.
    pub(crate) fn play_on(self, on: Servers, bounds: Bounds, fault: impl FnOnce(&mut Scene)) -> (Report, Servers) {
        let mut scene = Scene::open(&self, on);
        scene.go_on(self.holds);
        scene.fault();
        fault(&mut scene);
        scene.go_on(self.holds);
        scene.assert_hears();
        (self.judge(&mut scene, &bounds), scene.server)
    }

    /// Ends the work of all processes, and judges what they recorded and what the server saw.
    fn judge(&self, scene: &mut Scene, bounds: &Bounds) -> Report {
        // So far, only on purpose.
        let stopped = scene.absences.clone();
        let mut violations = quiet(scene);
        let events = std::mem::take(&mut scene.events);
        let elsewhere = std::mem::take(&mut scene.elsewhere);
        let windows = std::mem::take(&mut scene.windows);
        let lossy = if bounds.lossy && !windows.is_empty() { Lossy::In(windows.clone()) } else { bounds.lossy.into() };
        let Verdict { violations: broken, mut operations, mut holds, mut lates, mut both } =
            checker::judge(events.clone(), &mut scene.absences, lossy.clone());
        lates.append(&mut scene.lates);
        let elsewhere = Found::of(
            elsewhere,
            &Circumstances {
                servers: &scene.server,
                absences: &scene.absences,
                stopped: &stopped,
                lates: &lates,
                fault_at: scene.fault_at,
            },
        );
        violations.extend(elsewhere.violations.iter().cloned());
        let lateness = Lateness::new(lates, &stopped, scene.lease * 1_000_000).refused(scene.refused);
        violations.extend(broken);
        let (updates, refused) = scene.fenced.updates();
        violations.extend(check_updates(&updates));
        let sightings = scene.observer.take().map_or_else(Vec::new, Observer::end);
        violations.extend(entry::check(&sightings, &holds, &windows, |locker| scene.process_of(locker)));
        let mut tenures = if sightings.is_empty() { 0 } else { entry::tenures(&holds) };
        // Each lock is judged by itself.
        let beside = std::mem::take(&mut scene.beside);
        let keys: Vec<_> = beside.iter().map(|lock| lock.key).chain([KEY.2]).collect();
        for lock in beside {
            let verdict = lock.judge(&mut scene.absences, lossy.clone());
            violations.extend(verdict.violations);
            operations += verdict.operations;
            both.extend(verdict.both);
            holds.extend(verdict.holds);
        }
        // For waits and losses, locks that were taken together count as one hold.
        let locks = holds.len();
        holds.sort_by_key(|hold| (hold.since, hold.actor));
        holds.dedup_by_key(|hold| (hold.since, hold.actor));
        let (executed, at) = (scene.executed(), scene.server_clock());
        let (mut excused, mut expired) = (Vec::new(), 0);
        for seen in keys.into_iter().map(|key| store::check(&executed, key)) {
            violations.extend(seen.violations);
            tenures += seen.tenures;
            // A machine that does not let a process run ends a lease, too.
            let is_excused = |over: &Expired| lateness.excuses(scene.process_of(&over.locker), at(over.at));
            let (by_machine, left): (Vec<_>, Vec<_>) = seen.expired.into_iter().partition(is_excused);
            if left.len() > bounds.expired {
                let story = format!("tenures were left to their leases: {left:?}, excused: {by_machine:?}");
                violations.push(Violation::of(Property::X, story));
            }
            expired += left.len();
            excused.extend(by_machine);
        }
        let lost = || holds.iter().filter(|hold| hold.lost.is_some());
        // Where the machine was late, all that it did between was slow by the same share.
        let late = lateness.share(scene.processes());
        let stretched = |bound: Duration| bound.div_f64(1.0 - late.min(0.75));
        let told = waits::latest_news(&holds, &scene.absences, &lateness, scene.gone_at);
        if told > stretched(bounds.told) {
            violations.push(Violation::of(Property::T, format!("a holder knew of its loss only after {told:?}")));
        }
        // Nobody could have the key until the end of a lease that ended because of the machine.
        let excused_until = excused.iter().map(|over| Kept { at: at(over.at), until: at(over.at) });
        // A waiter asks every sixth of a lease, and no message says when a time is over.
        let lease = scene.lease * 1_000_000;
        let delayed = holds.iter().filter_map(|hold| Some(Kept { at: hold.unlock?, until: hold.kept? + lease / 6 }));
        let kept: Vec<_> = scene.kept.iter().copied().chain(excused_until).chain(delayed).collect();
        let waited = waits::longest_wait(&holds, &scene.absences, &lateness, &kept, scene.fault_at);
        if waited > stretched(bounds.waited) {
            violations.push(Violation::of(Property::V, format!("waiters waited for a free lock for {waited:?}")));
        }
        let report = Report {
            name: self.name,
            operations,
            holds: holds.len(),
            terms: holds.iter().filter(|hold| hold.op == Op::Lead).count(),
            locks,
            tenures,
            expired,
            refused,
            told,
            waited,
            both: both.len(),
            lost: lost().count(),
            excused: lost().filter(|hold| lateness.excuses(Some(hold.actor.process), hold.over())).count(),
            late,
            violations,
            elsewhere,
            seed: self.work.seed,
        };
        tell(&report, &holds, &lateness, &events);
        report
    }
}

/// The line of the report, and the lost holds; with violations and `DLOCK_TEST_HISTORY` set, all events.
fn tell(report: &Report, holds: &[Hold], lateness: &Lateness, events: &[Event]) {
    eprintln!("{report}");
    for hold in holds.iter().filter(|hold| hold.lost.is_some()) {
        let late = Duration::from_nanos(lateness.before(Some(hold.actor.process), hold.over()));
        eprintln!("  lost: {hold:?}, the machine late for {late:.0?} before");
    }
    if !report.violations.is_empty() && std::env::var_os("DLOCK_TEST_HISTORY").is_some() {
        events.iter().for_each(|event| eprintln!("  {event}"));
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
    // A delayed release keeps the lock when all have ended.
    let is_kept = scene.server.holder().is_some_and(|holder| DelayedRelease::of_locker(&holder).is_some());
    let left = || {
        let mut keys = scene.server.keys();
        // In a Cluster, each slot has one.
        let is_fence = |key: &str| key == "DLOCK:1:fence" || (key.starts_with("DLOCK:1:{") && key.ends_with("}:fence"));
        // The record of a client that was killed stays for 90 s.
        let stays = |key: &str| is_fence(key) || (!scene.dead.is_empty() && key.starts_with("DLOCK:1:client:"));
        keys.retain(|key| !stays(key));
        keys
    };
    let is_left = |key: &String| !is_kept || key != KEY.2;
    // What a killed process had is there until its lease is over, a place in the queue for twice as long.
    if scene.dead.is_empty() {
        let keys: Vec<_> = left().into_iter().filter(is_left).collect();
        if !keys.is_empty() {
            violations.push(Violation::of(Property::Q, format!("keys are left: {keys:?}")));
        }
    }
    eventually("all leases are over", || left().is_empty());
    if let Servers::Consensus(consensus) = &scene.server {
        // A session that was opened or ended without an answer stays for its whole life. That of a record is longer than any lease here.
        let record = Duration::from_secs(90);
        let is_of_lock = |life: &Duration| *life < record;
        eventually("all sessions of locks are over", || !consensus.quorum.session_lives().iter().any(is_of_lock));
    }
    violations
}
