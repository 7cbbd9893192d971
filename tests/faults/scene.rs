//! A server or a service, worker processes that want one lock of it, a network for each of them, and their faults.

use crate::beside::Beside;
use crate::cast::Cast;
use crate::checker::lateness::Late;
use crate::checker::waits::Kept;
use crate::checker::windows::Window;
use crate::checker::{Absence, store};
use crate::elsewhere::Elsewhere;
use crate::fenced::Fenced;
use crate::history::{Actor, Event, Nanos, What};
use crate::observer::Observer;
use crate::servers::Servers;
use crate::setup::Setup;
use crate::support::Proxy;
use crate::support::crew::eventually;
use crate::support::monitor::{Executed, Monitor};
use crate::watch::Watch;
use crate::work::KEY;
use crate::worker::now;
use rustix::process::Signal;
use std::collections::{BTreeMap, HashSet};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// The place of a worker process in its scene.
pub(crate) type Process = u32;

/// A scene: see the module. All that a scenario starts ends with it.
pub(crate) struct Scene {
    pub(crate) server: Servers,
    pub(crate) cast: Vec<Cast>,
    /// What the server sees; in a Cluster, what each master does.
    pub(crate) monitors: Vec<(usize, Monitor)>,
    /// The observer of the lock in a consensus store.
    pub(crate) observer: Option<Observer>,
    pub(crate) fenced: Fenced,
    pub(crate) events: Vec<Event>,
    /// The locks that are taken together with the scene's own.
    pub(crate) beside: Vec<Beside>,
    /// The locks on other nodes, in a Cluster.
    pub(crate) elsewhere: Vec<Elsewhere>,
    /// The present holds of the lock, as far as the histories have been read.
    inside: BTreeMap<Actor, u32>,
    acquired: usize,
    pub(crate) absences: Vec<Absence>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) dead: HashSet<Process>,
    /// When the fault began: waits are measured from here on.
    pub(crate) fault_at: Nanos,
    /// When the store lost its keys.
    pub(crate) gone_at: Option<Nanos>,
    /// When it may have given the lock to two.
    pub(crate) windows: Vec<Window>,
    pub(crate) lease: u64,
    /// By how many replicas a hold is acknowledged.
    pub(crate) acks: u8,
    /// When the server refused, on purpose.
    pub(crate) refused: Option<(Nanos, Nanos)>,
    /// What was late beside the workers.
    pub(crate) lates: Vec<Late>,
    watch: Watch,
    _dir: TempDir,
}

impl Scene {
    pub(crate) fn open(setup: &Setup, mut server: Servers) -> Self {
        let watched = if setup.monitored { server.masters() } else { Vec::new() };
        let monitors = watched.into_iter().map(|place| (place, Monitor::start(server.at(place)))).collect();
        let observer = match &server {
            Servers::Consensus(consensus) => Some(Observer::start(consensus.quorum.look_at(&consensus.lock_path()))),
            _ => None,
        };
        let fenced = Fenced::start();
        let watch = Watch::start(&server.pids());
        let dir = tempfile::Builder::new().prefix("redis-dlock-").tempdir().unwrap();
        let elsewhere = Elsewhere::all(&server, setup.is_owner_well, setup.held_with_it);
        let start = |process| Cast::start(setup, process, &server, &fenced, &elsewhere, dir.path());
        let mut cast: Vec<_> = (0..setup.processes).map(start).collect();
        cast.iter_mut().for_each(|cast| drop(cast.worker.answer_about("runs")));
        Self {
            cast,
            server,
            monitors,
            observer,
            fenced,
            events: Vec::new(),
            beside: Beside::all(setup),
            elsewhere,
            inside: BTreeMap::new(),
            acquired: 0,
            absences: Vec::new(),
            kept: Vec::new(),
            dead: HashSet::new(),
            fault_at: 0,
            gone_at: None,
            windows: Vec::new(),
            lease: setup.work.lease,
            acks: setup.work.acks,
            refused: None,
            lates: Vec::new(),
            watch,
            _dir: dir,
        }
    }

    /// Reads what was recorded since.
    pub(crate) fn refresh(&mut self) {
        for cast in &mut self.cast {
            for (lock, history) in self.beside.iter_mut().zip(&mut cast.beside) {
                lock.events.extend(history);
            }
            for (lock, history) in self.elsewhere.iter_mut().zip(&mut cast.elsewhere) {
                lock.events.extend(history);
            }
            for event in &mut cast.history {
                let depth = self.inside.entry(event.actor).or_default();
                match &event.what {
                    What::Got { count, .. } => {
                        self.acquired += usize::from(*count == 1);
                        *depth = *count;
                    }
                    What::Left { count } | What::Fail { count, .. } | What::Unknown { count, .. } => *depth = *count,
                    // It gives up the lock as soon as it can.
                    What::Begin(crate::history::Op::Unlock) if *depth == 1 => *depth = 0,
                    _ => {}
                }
                self.events.push(event);
            }
        }
    }

    /// How many holds there have been.
    pub(crate) fn acquired(&mut self) -> usize {
        self.refresh();
        self.acquired
    }

    /// How many holds of a process began since then.
    pub(crate) fn got_since(&mut self, process: Process, from: Nanos) -> usize {
        self.refresh();
        let is_hold = |event: &&Event| matches!(event.what, What::Got { count: 1, .. });
        let of = self.events.iter().filter(|event| event.actor.process == process && event.at > from);
        of.filter(is_hold).count()
    }

    /// Whether a process has been told since then that it has lost its hold.
    pub(crate) fn is_told_since(&mut self, process: Process, from: Nanos) -> bool {
        self.refresh();
        self.events.iter().any(|event| event.actor.process == process && event.at > from && event.what == What::Lost)
    }

    /// Returns the processes whose requests failed at that moment or later, each with its last error.
    pub(crate) fn failures_since(&mut self, from: Nanos) -> BTreeMap<Process, String> {
        self.refresh();
        let mut failing = BTreeMap::new();
        for Event { at, actor, what } in &self.events {
            match what {
                What::StoreFails { why } => _ = failing.insert(actor.process, why.clone()),
                What::StoreAnswers if *at < from => _ = failing.remove(&actor.process),
                _ => {}
            }
        }
        failing
    }

    /// Waits until the lock went from hand to hand so many times more.
    #[track_caller]
    pub(crate) fn go_on(&mut self, holds: usize) {
        let target = self.acquired() + holds;
        eventually("the lock goes on", || self.acquired() >= target);
    }

    /// The fault begins now.
    pub(crate) fn fault(&mut self) {
        self.fault_at = now();
    }

    pub(crate) fn sleep(&self, leases: f64) {
        thread::sleep(Duration::from_millis(self.lease).mul_f64(leases));
    }

    /// The process that holds the lock, with a good part of its hold before it.
    pub(crate) fn holder(&mut self) -> Process {
        let mut holder = None;
        let before = self.acquired();
        eventually("a fresh hold", || {
            holder = if self.acquired() > before { self.inside() } else { None };
            holder.is_some()
        });
        holder.unwrap()
    }

    /// Waits until this process has just got the lock.
    pub(crate) fn wait_inside(&mut self, process: Process) {
        eventually("the process has left", || !self.is_inside(process));
        eventually("the process holds the lock", || self.is_inside(process));
    }

    fn inside(&self) -> Option<Process> {
        self.inside.iter().find(|(_, depth)| **depth > 0).map(|(actor, _)| actor.process)
    }

    /// Whether a process holds the lock.
    pub(crate) fn is_inside(&mut self, process: Process) -> bool {
        self.refresh();
        self.inside.iter().any(|(actor, depth)| actor.process == process && *depth > 0)
    }

    /// The ways of a process to the Sentinels, or to the nodes in their order.
    pub(crate) fn ways(&self, process: Process) -> &[Proxy] {
        &self.cast[process as usize].ways
    }

    /// Lets the next hold of a process go on until [`let_go`](Self::let_go), unless it is lost. Returns when the process knows that.
    pub(crate) fn ask_to_hold_on(&mut self, process: Process) {
        let worker = &mut self.cast[process as usize].worker;
        worker.tell("hold on");
        worker.answer_about("told");
    }

    /// Waits until the process that was asked to holds the lock.
    pub(crate) fn wait_until_it_holds_on(&mut self, process: Process) {
        self.cast[process as usize].worker.answer_about("holds on");
    }

    /// Ends the hold that goes on. Returns when the process gives the lock back.
    pub(crate) fn let_go(&mut self, process: Process) {
        let worker = &mut self.cast[process as usize].worker;
        worker.tell("let go");
        worker.answer_about("told");
        eventually("the hold ends", || !self.is_inside(process));
    }

    pub(crate) fn proxy(&self, process: Process) -> &Proxy {
        self.cast[process as usize].proxy.as_ref().expect("a scene with proxies")
    }

    pub(crate) fn processes(&self) -> std::ops::Range<Process> {
        0..Process::try_from(self.cast.len()).unwrap()
    }

    fn signal(&self, process: Process, signal: Signal) {
        self.cast[process as usize].worker.signal(signal);
    }

    /// Stops a process (SIGSTOP), and waits until all its threads stand still.
    pub(crate) fn stop(&mut self, process: Process) {
        self.signal(process, Signal::STOP);
        self.absences.push(Absence { process, from: now(), to: Nanos::MAX });
    }

    /// Lets a stopped process go on.
    pub(crate) fn resume(&mut self, process: Process) {
        let absence = self.absences.iter_mut().rev().find(|absence| absence.process == process).unwrap();
        absence.to = now();
        self.signal(process, Signal::CONT);
    }

    /// Nobody can get or give back the lock for so many leases, whatever the reason.
    pub(crate) fn close_for(&mut self, leases: f64) {
        let length = Duration::from_millis(self.lease).mul_f64(leases).as_nanos();
        let at = now();
        self.kept.push(Kept { at, until: at + u64::try_from(length).unwrap() });
    }

    /// Kills a process (SIGKILL).
    pub(crate) fn kill(&mut self, process: Process) {
        self.cast[process as usize].worker.kill();
        self.dead.insert(process);
        self.absences.push(Absence { process, from: now(), to: Nanos::MAX });
    }

    /// Stops a process while it holds the lock, and notes how long the store will keep it.
    pub(crate) fn stop_holder(&mut self) -> Process {
        loop {
            let holder = self.holder();
            self.stop(holder);
            if self.is_inside(holder) && self.process_in_store() == Some(holder) {
                self.fault();
                self.note_ttl();
                return holder;
            }
            self.resume(holder);
        }
    }

    /// The first process in the store's queue, when there is one.
    pub(crate) fn next(&self) -> Process {
        let mut next = None;
        eventually("somebody waits", || {
            next = self.first_in_queue();
            next.is_some()
        });
        next.unwrap()
    }

    /// Stops a process that is the first in the store's queue.
    pub(crate) fn stop_next(&mut self) -> Process {
        loop {
            let next = self.next();
            self.stop(next);
            if self.first_in_queue() == Some(next) && self.process_in_store() != Some(next) {
                self.fault();
                return next;
            }
            self.resume(next);
        }
    }

    /// The process whose locker the store has.
    pub(crate) fn process_in_store(&self) -> Option<Process> {
        self.process_of(&self.server.holder()?)
    }

    /// The process that is to get the lock next.
    pub(crate) fn first_in_queue(&self) -> Option<Process> {
        self.process_of(self.server.waiters_of(KEY.2).first()?)
    }

    /// The processes that stand in the queue, first to last.
    pub(crate) fn queue(&self) -> Vec<Process> {
        self.server.waiters_of(KEY.2).iter().filter_map(|locker| self.process_of(locker)).collect()
    }

    /// Waits until the store has given the lock to a process.
    pub(crate) fn wait_for_grant(&self, process: Process) {
        eventually("the lock is given", || self.process_in_store() == Some(process));
    }

    pub(crate) fn process_of(&self, locker: &str) -> Option<Process> {
        let pid = store::process_of(locker)?;
        self.processes().find(|process| self.cast[*process as usize].worker.pid() == pid)
    }

    /// The server's clock's microseconds at a moment of ours; a good guess, for what is milliseconds long.
    pub(crate) fn server_clock(&self) -> impl Fn(u64) -> Nanos {
        let (seconds, micros): (u64, u64) = match self.server {
            // It tells no times.
            Servers::Consensus(_) => (0, 0),
            _ => self.server.run(&["TIME"]),
        };
        let (there, here) = (seconds * 1_000_000 + micros, now());
        move |at| here.saturating_add_signed((at as i64 - there as i64).saturating_mul(1000))
    }

    /// Notes that a fault that should have ended at `planned` has ended now: the machine was busy.
    pub(crate) fn is_over_late(&mut self, planned: Nanos) {
        self.lates.push(Late { process: None, from: planned.min(now()), to: now() });
    }

    /// Notes until when the store keeps the key, and those that are taken together with it, if nobody extends them.
    pub(crate) fn note_ttl(&mut self) {
        let keys = self.beside.iter().map(|lock| lock.key).chain([KEY.2]);
        let ttl = keys.map(|key| self.server.ttl_of(key)).max().unwrap_or(0);
        let at = now();
        self.kept.push(Kept { at, until: at + u64::try_from(ttl.max(0)).unwrap() * 1_000_000 });
    }

    /// What was executed, in its order, as far as the clocks of a Cluster's nodes tell: they are those of this machine. What a script did stays together.
    pub(crate) fn executed(&mut self) -> Vec<Executed> {
        let logs = std::mem::take(&mut self.monitors).into_iter();
        let all = logs.flat_map(|(place, monitor)| monitor.stop(self.server.at(place)));
        let mut calls: Vec<Vec<Executed>> = Vec::new();
        for command in all {
            match calls.last_mut() {
                Some(call) if command.by_script => call.push(command),
                _ => calls.push(vec![command]),
            }
        }
        calls.sort_by_key(|call| call[0].at);
        calls.into_iter().flatten().collect()
    }

    /// Ends the work of all processes that live: how many threads and sockets of the library each of them has left.
    pub(crate) fn end_work(&mut self) -> Vec<(Process, String)> {
        let dead = self.dead.clone();
        let alive = |process: &usize| !dead.contains(&Process::try_from(*process).unwrap());
        let living: Vec<_> = (0..self.cast.len()).filter(alive).collect();
        living.iter().for_each(|process| self.cast[*process].worker.tell("stop"));
        let rests: Vec<_> = living
            .iter()
            .map(|process| (Process::try_from(*process).unwrap(), self.cast[*process].worker.answer_about("rests")))
            .collect();
        self.refresh();
        for (from, to) in std::mem::take(&mut *self.watch.away.lock()) {
            self.absences.extend(self.processes().filter_map(|process| Absence::seen(process, from, to)));
        }
        self.lates.append(&mut self.watch.server_late.lock());
        rests
    }
}
