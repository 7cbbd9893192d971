//! Failovers of a scene's service or Cluster: the fault of the master, and the waits until processes follow the next one.

use crate::checker::waits::Kept;
use crate::checker::windows::Window;
use crate::history::Nanos;
use crate::scene::{Process, Scene};
use crate::servers::Servers;
use crate::support::crew::eventually;
use crate::support::sentinels::{SERVICE, is_master};
use crate::worker::now;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

/// A failover under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failover {
    /// The place of the master that is left.
    pub(crate) old: usize,
    /// When it began.
    pub(crate) from: Nanos,
}

impl Failover {
    /// How long ago it began.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_nanos(now() - self.from)
    }
}

/// The pause between two looks for an event that takes seconds.
const LOOK: Duration = Duration::from_millis(5);

/// What is done to the master.
impl Scene {
    fn begin(&self) -> Failover {
        Failover { old: self.server.master(), from: now() }
    }

    /// Begins a failover that the Sentinels, or the other nodes, start by themselves.
    fn begin_unasked(&self) -> Failover {
        if let Servers::Service(service, _) = &self.server {
            service.is_down_after(500);
        }
        self.begin()
    }

    pub(crate) fn kill_master(&mut self) -> Failover {
        let failover = self.begin_unasked();
        self.server.kill_master();
        failover
    }

    /// Stops the master, until it is [woken](Self::wake).
    pub(crate) fn stop_master(&mut self) -> Failover {
        let failover = self.begin_unasked();
        match &mut self.server {
            Servers::Cluster(cluster, owner) => cluster.nodes[*owner].stop(),
            server => server.signal(Signal::STOP),
        }
        failover
    }

    /// Lets the master that was stopped go on. With Sentinels, it takes itself for the master for ten seconds more; in a Cluster, for some
    /// hundredths of a second.
    pub(crate) fn wake(&mut self, failover: &Failover) {
        match &mut self.server {
            Servers::Cluster(cluster, _) => cluster.nodes[failover.old].go_on(),
            server => server.service().servers[failover.old].signal(Signal::CONT),
        }
    }

    /// An operator asks a Sentinel for a failover, or the replica itself in a Cluster. With Sentinels, the old master takes writes for eleven
    /// seconds more; in a Cluster, none from the moment on in which the replica has everything.
    pub(crate) fn plan_failover(&mut self, leader: usize) -> Failover {
        let failover = self.begin();
        if let Servers::Cluster(cluster, owner) = &self.server {
            let replica = *cluster.replicas_of(*owner).first().expect("a replica");
            cluster.fail_over_to(replica);
            return failover;
        }
        let sentinel = &self.server.service().sentinels[leader];
        // The Sentinel refuses while it knows no suitable replica.
        eventually("the Sentinel begins a failover", || {
            sentinel.run::<String>(&["SENTINEL", "FAILOVER", SERVICE]).is_some() || {
                thread::sleep(20 * LOOK);
                false
            }
        });
        failover
    }

    /// Cuts the master off from all that use its network. Cuts the process that does not use it off from the Sentinels.
    pub(crate) fn cut_off_master_with(&mut self, process: Process) -> Failover {
        let failover = self.begin_unasked();
        self.ways(process).iter().for_each(|way| way.cut_off());
        self.server.service().ways[failover.old].cut_off();
        failover
    }

    /// An operator makes the old master a replica of the new one. Where all replicas must acknowledge a hold, nobody gets the lock before.
    pub(crate) fn mend_for_acks(&mut self, failover: &Failover) {
        if self.acks == 0 || usize::from(self.acks) < self.server.replicas() {
            return;
        }
        let (old, new) = (failover.old, self.server.master());
        if let Servers::Cluster(cluster, _) = &mut self.server {
            cluster.heal();
            self.kept.push(Kept { at: failover.from, until: now() });
            return;
        }
        let service = self.server.service_mut();
        service.ways.get(old).iter().for_each(|way| way.heal());
        if !service.servers[old].is_running() {
            service.servers[old].restart();
        }
        service.follow(old, new);
        service.wait_for_replicas(service.servers[new].port());
        self.kept.push(Kept { at: failover.from, until: now() });
    }

    /// Lets a process reach the Sentinels again.
    pub(crate) fn let_ask(&self, process: Process) {
        self.ways(process).iter().for_each(|way| way.heal());
    }
}

/// Waits until processes follow.
impl Scene {
    /// The processes but for some.
    pub(crate) fn all_but(&self, few: &[Process]) -> Vec<Process> {
        self.processes().filter(|process| !few.contains(process)).collect()
    }

    /// Waits until another server is the master.
    pub(crate) fn promoted(&mut self, failover: &Failover) {
        self.server.follow_promotion(failover.old);
    }

    /// Waits until these processes follow the new master.
    pub(crate) fn followed(&mut self, failover: &Failover, by: &[Process]) {
        self.named(failover);
        let named_after = failover.age();
        self.wait_until_heard(by);
        eprintln!("  named after {named_after:.1?}, followed by {by:?} after {:.1?}", failover.age());
        self.close_window(failover.from);
    }

    /// Waits until these processes follow, if a release may have been lost: the key then stays with an ended tenure for the rest of its lease.
    pub(crate) fn followed_past_lost_releases(&mut self, failover: &Failover, by: &[Process]) {
        self.followed(failover, by);
        if self.process_in_store().is_some_and(|holder| !self.is_inside(holder)) {
            self.note_ttl();
        }
    }

    /// Waits until a Sentinel names the new master. Before that nobody could find it. The nodes of a Cluster name it when it is promoted.
    pub(crate) fn named(&mut self, failover: &Failover) {
        let new = self.server.master();
        if let Servers::Service(service, _) = &self.server {
            eventually("a Sentinel names the new master", || {
                (0..service.sentinels.len()).any(|sentinel| service.named(sentinel) == Some(new)) || {
                    thread::sleep(LOOK);
                    false
                }
            });
        }
        self.kept.push(Kept { at: failover.from, until: now() });
    }

    /// Waits until the master has the inboxes of these processes.
    pub(crate) fn wait_until_heard(&self, processes: &[Process]) {
        eventually("the processes follow", || {
            let heard = self.heard();
            processes.iter().all(|process| heard.contains(process)) || {
                thread::sleep(LOOK);
                false
            }
        });
    }

    /// The time ends in which two may have the lock. Who has lost it is told at once, or at the next probe at the latest. What was acknowledged
    /// is not lost; its holder may be told by the deadline alone.
    pub(crate) fn close_window(&mut self, from: Nanos) {
        let to = now();
        self.gone_at = (self.acks == 0).then_some(to);
        self.windows.push(Window { from, to: to + self.lease * 1_000_000 / 6 });
    }

    /// The processes whose inboxes the master has.
    pub(crate) fn heard(&self) -> BTreeSet<Process> {
        // A client's lockers have its name and a number.
        self.server.inboxes().iter().filter_map(|client| self.process_of(&format!("{client}-0"))).collect()
    }

    /// Whether any process is connected to the old master.
    pub(crate) fn old_has_clients(&self, failover: &Failover) -> bool {
        let clients: String = self.server.at(failover.old).run(&["CLIENT", "LIST"]);
        clients.lines().any(|line| line.contains("name=redis-dlock "))
    }

    /// Whether the old master says that it is one.
    pub(crate) fn old_is_master(&self, failover: &Failover) -> bool {
        is_master(self.server.at(failover.old))
    }

    /// Waits until no process is connected to the old master. That must happen before the old master becomes a replica, and ends all connections
    /// itself.
    pub(crate) fn wait_until_old_is_left(&self, failover: &Failover) {
        eventually("the old master is left before it is a replica", || {
            (!self.old_has_clients(failover) && self.old_is_master(failover)) || {
                thread::sleep(LOOK);
                false
            }
        });
    }
}

/// Orders of holders and waiters.
impl Scene {
    /// Lets a process hold the lock, until it is let go, while all others wait. Returns these in their order. The replicas know all of it.
    pub(crate) fn held_and_waited_for(&mut self, holder: Process) -> Vec<Process> {
        self.ask_to_hold_on(holder);
        self.wait_until_it_holds_on(holder);
        let others = self.processes().len() - 1;
        eventually("all others wait", || self.queue().len() == others);
        self.server.wait_for_replicas();
        self.queue()
    }

    /// Lets a process hold the lock with this process as its first waiter. Returns the holder.
    pub(crate) fn held_before(&mut self, first: Process) -> Process {
        // The processes hold the lock in turn, so `first` comes next after one of them.
        for holder in self.all_but(&[first]).into_iter().cycle() {
            if self.held_and_waited_for(holder)[0] == first {
                return holder;
            }
            self.let_go(holder);
        }
        unreachable!("there are others")
    }

    /// Stops the process that is the next to hold the lock, and gives the lock to it. That process does not know.
    pub(crate) fn stop_in_hand_over(&mut self, holder: Process, next: Process) {
        self.stop(next);
        self.let_go(holder);
        self.wait_for_grant(next);
    }
}
