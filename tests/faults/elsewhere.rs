//! Locks of a Cluster's other nodes. A fault of one node must not show there: nothing is lost, and nobody waits longer than usual.
//!
//! Each of these nodes has a lock that all processes want. It also has one that only the first process wants, and holds nearly all the time. That
//! process renews it together with its locks at the hurt node: the scene's own, and as many further ones as the scene wants, which nobody judges.

use crate::checker::lateness::{Late, Lateness};
use crate::checker::tokens::check_updates;
use crate::checker::windows::Lossy;
use crate::checker::{self, Absence, Property, Violation, store, waits};
use crate::fenced::Fenced;
use crate::history::{Event, Nanos};
use crate::report::Bounds;
use crate::servers::Servers;
use crate::setup::lease;
use crate::support::monitor::Monitor;
use crate::work::Other;
use std::fmt;
use std::time::Duration;

/// How long a hold is at least and at most, in leases: of a lock that goes from hand to hand, and of one that is extended several times while
/// it is held.
const KINDS: [[f64; 2]; 2] = [[0.02, 0.06], [1.5, 3.0]];

/// One of these locks.
pub(crate) struct Elsewhere {
    order: Other,
    /// The place of the node.
    node: usize,
    /// Whether the node may lose it.
    is_hurt: bool,
    fenced: Fenced,
    monitor: Option<Monitor>,
    pub(crate) events: Vec<Event>,
}

impl Elsewhere {
    /// Two locks of each master but the owner of the scene's own lock; two of the owner, too, where that is to serve all other slots. And so
    /// many of the owner that the first process holds there.
    pub(crate) fn all(servers: &Servers, is_owner_well: bool, with_it: usize) -> Vec<Self> {
        let Servers::Cluster(cluster, owner) = servers else { return Vec::new() };
        let keys = |node| cluster.keys_on(node, |n| format!("DLOCK_FAULTS_elsewhere{n}"));
        let nodes = cluster.masters().into_iter().filter(|node| is_owner_well || node != owner);
        let well =
            nodes.flat_map(|node| keys(node).zip(KINDS).map(move |(key, kind)| (node, key, kind)).collect::<Vec<_>>());
        let hurt = keys(*owner).skip(KINDS.len()).take(with_it).map(|key| (*owner, key, KINDS[1]));
        let open = |(node, key, kind): (usize, String, [f64; 2]), is_hurt: bool| {
            let fenced = Fenced::start();
            let millis = |leases: f64| (lease() as f64 * leases) as u64;
            let order = Other {
                target: key.strip_prefix("DLOCK_FAULTS_").unwrap().to_owned(),
                fenced: fenced.port(),
                lease: lease(),
                hold: kind.map(millis).into(),
                is_for_all: kind[1] < 1.0,
            };
            let monitor = (!is_hurt).then(|| Monitor::start(cluster.nodes[node].server()));
            Self { order, node, is_hurt, fenced, monitor, events: Vec::new() }
        };
        well.map(|lock| open(lock, false)).chain(hurt.map(|lock| open(lock, true))).collect()
    }

    /// What the workers are told of it.
    pub(crate) fn order(&self) -> Other {
        self.order.clone()
    }

    pub(crate) fn key(&self) -> String {
        format!("DLOCK_FAULTS_{}", self.order.target)
    }
}

/// What is known of the machine and of the processes.
pub(crate) struct Circumstances<'a> {
    pub(crate) servers: &'a Servers,
    /// Times in which processes did not run, on purpose and otherwise.
    pub(crate) absences: &'a [Absence],
    /// On purpose.
    pub(crate) stopped: &'a [Absence],
    pub(crate) lates: &'a [Late],
    pub(crate) fault_at: Nanos,
}

/// What was found on the other nodes, of all locks together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) operations: usize,
    pub(crate) holds: usize,
    pub(crate) lost: usize,
    /// How many of these could not be kept, because the machine was busy, or the process was stopped on purpose.
    pub(crate) excused: usize,
    pub(crate) told: Duration,
    pub(crate) waited: Duration,
    pub(crate) violations: Vec<Violation>,
}

impl Found {
    pub(crate) fn of(locks: Vec<Elsewhere>, now: &Circumstances<'_>) -> Self {
        let mut found = Self::default();
        locks.into_iter().filter(|lock| !lock.is_hurt).for_each(|lock| found.add(lock, now));
        found
    }

    fn add(&mut self, lock: Elsewhere, now: &Circumstances<'_>) {
        let (key, nanos) = (lock.key(), lock.order.lease * 1_000_000);
        let seen = lock.monitor.map(|monitor| store::check(&monitor.stop(now.servers.node(lock.node).server()), &key));
        if now.servers.cluster().owner_of_key(&key) != lock.node {
            // The machine was so busy that the others took this node for dead.
            eprintln!("  {key}: the node has failed, too: not judged");
            return;
        }
        let verdict = checker::judge(lock.events, &mut now.absences.to_vec(), Lossy::Never);
        let lateness = Lateness::new(now.lates.to_vec(), now.stopped, nanos);
        let mut violations = verdict.violations;
        violations.extend(check_updates(&lock.fenced.updates().0));
        violations.extend(seen.into_iter().flat_map(|seen| seen.violations));
        let told = waits::latest_news(&verdict.holds, now.absences, &lateness, None);
        let waited = waits::longest_wait(&verdict.holds, now.absences, &lateness, &[], now.fault_at);
        // The bounds are those of one server. A hold of a stopped process is left to its lease.
        let bounds = Bounds::default();
        let left = if now.stopped.is_empty() { Duration::ZERO } else { Duration::from_nanos(nanos) };
        if told > bounds.told {
            violations.push(Violation::of(Property::T, format!("a holder knew of its loss only after {told:?}")));
        }
        if waited > bounds.waited + left {
            violations.push(Violation::of(Property::V, format!("waiters waited for a free lock for {waited:?}")));
        }
        let at_the_node = |violation: Violation| Violation {
            story: format!("{key}, on a node that nothing was done to: {}", violation.story),
            ..violation
        };
        self.violations.extend(violations.into_iter().map(at_the_node));
        for hold in verdict.holds.iter().filter(|hold| hold.lost.is_some()) {
            let (process, over) = (hold.actor.process, hold.over());
            let was_stopped = now.stopped.iter().any(|away| away.meets(process, hold.since, over));
            let is_excused = was_stopped || lateness.excuses(Some(process), over);
            self.lost += 1;
            self.excused += usize::from(is_excused);
            eprintln!("  lost on another node{}: {key}: {hold:?}", if is_excused { ", excused" } else { "" });
        }
        self.operations += verdict.operations;
        self.holds += verdict.holds.len();
        (self.told, self.waited) = (self.told.max(told), self.waited.max(waited));
    }
}

/// Nothing where there are no other nodes.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, holds, lost, excused, told, waited, .. } = self;
        if *holds == 0 {
            return Ok(());
        }
        write!(
            f,
            ", on other nodes: {operations} operations, {holds} holds, {lost} lost ({excused} excused), T {told:.0?}, V {waited:.0?}"
        )
    }
}
