//! The scripts on nodes of a Cluster: which keys they touch, and what becomes of one while its slot moves.
//!
//! The steps are those of `denied`: every operation, on every state of key and queue that leads another way through its script.

use crate::denied::scene::{KEY, LEASE};
use crate::denied::steps::{Came, Step, What};
use crate::support::cluster::{Cluster, Plan, slot_of};
use crate::support::monitor::{Executed, Monitor};
use redis_dlock::{Error, RedisLockProcessor};
use std::collections::BTreeSet;

const LEASE_MS: &str = "30000";

/// Two masters, of which one owns the key's slot, and two clients that are heard there.
struct Scene {
    cluster: Cluster,
    store: RedisLockProcessor,
    source: usize,
    target: usize,
    slot: String,
    queue: String,
    gapped: String,
    fence: String,
    turn: u32,
    /// To the source, and to both.
    admin: redis::Connection,
    all: Vec<redis::Connection>,
    _inboxes: [redis::Connection; 2],
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::start_as(&Plan { masters: 2, replicas: 0, ..Plan::steady() });
        let source = cluster.owner_of_key(KEY);
        let store = RedisLockProcessor::connect(&cluster.url(0)).unwrap();
        let slot = slot_of(KEY);
        // The tag is the least number whose slot is that of the key.
        let tag = (0_u32..).find(|tag| slot_of(&tag.to_string()) == slot).unwrap();
        let name = |what: &str| format!("DLOCK:1:{{{tag}}}:{what}");
        let inboxes = ["b", "d"].map(|client| {
            let mut inbox = cluster.connection(source);
            let channel = name(&format!("inbox:{client}"));
            inbox.send_packed_command(&redis::cmd("SSUBSCRIBE").arg(channel).get_packed_command()).unwrap();
            inbox.recv_response().unwrap();
            inbox
        });
        Self {
            source,
            target: 1 - source,
            slot: slot.to_string(),
            queue: name(&format!("queue:{KEY}")),
            gapped: name(&format!("gapped:{KEY}")),
            fence: name("fence"),
            turn: 0,
            admin: cluster.connection(source),
            all: (0..2).map(|node| cluster.connection(node)).collect(),
            _inboxes: inboxes,
            store,
            cluster,
        }
    }

    fn locker(&self, name: &str) -> String {
        format!("{name}-{}", self.turn)
    }

    /// Sets the stage for a step. The slot stands still then.
    fn prepare(&mut self, step: &Step) {
        self.turn += 1;
        for admin in &mut self.all {
            redis::cmd("CLUSTER").arg(&["SETSLOT", &self.slot, "STABLE"]).exec(admin).unwrap();
            redis::cmd("FLUSHALL").exec(admin).unwrap();
        }
        let mut script = redis::pipe();
        script.cmd("SET").arg(&self.fence).arg(if step.broken_fence { "9007199254740991" } else { "1" });
        if step.held {
            script.cmd("SET").arg(KEY).arg(self.locker("a")).arg("PX").arg(LEASE_MS);
        }
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.admin).unwrap();
        for entry in step.queue {
            let entry = entry.text(|name| self.locker(name), (seconds, micros));
            script.cmd("RPUSH").arg(&self.queue).arg(entry);
            script.cmd("PEXPIRE").arg(&self.queue).arg("60000");
        }
        script.exec(&mut self.admin).unwrap();
    }

    fn run(&self, step: &Step) -> Result<Came, Error> {
        step.run(&self.store, |name| self.locker(name))
    }

    /// Lets the slot move, half-way: the source has all keys, or the target has.
    fn set_in_motion(&mut self, target_has_all: bool) {
        let [source, target] = [self.source, self.target].map(|node| self.cluster.nodes[node].id().to_owned());
        let tell = |admin: &mut redis::Connection, what, id: &str| {
            redis::cmd("CLUSTER").arg(&["SETSLOT", &self.slot, what, id]).exec(admin).unwrap();
        };
        tell(&mut self.all[self.target], "IMPORTING", &source);
        tell(&mut self.all[self.source], "MIGRATING", &target);
        if target_has_all {
            let mut call = redis::cmd("MIGRATE");
            call.arg("127.0.0.1").arg(self.cluster.nodes[self.target].port()).arg("").arg(0).arg(20_000);
            call.arg("KEYS").arg(&[KEY, &self.queue, &self.gapped, &self.fence]).exec(&mut self.admin).unwrap();
        }
    }
}

/// The keys that a call of a script declares, if it is one.
fn declared(call: &Executed) -> Option<&[String]> {
    let is_call = !call.by_script && ["evalsha", "eval"].contains(&call.words[0].as_str());
    is_call.then(|| &call.words[3..3 + call.words[2].parse::<usize>().unwrap()])
}

/// Some services refuse a script that touches another key, and a slot that moves would let it miss one that is elsewhere.
#[test]
fn scripts_touch_the_keys_that_they_declare_and_no_others() {
    const WITHOUT_KEY: [&str; 3] = ["time", "pubsub", "spublish"];
    let mut scene = Scene::new();
    let slot = slot_of(KEY);
    let (mut shas, mut touched, mut told) = (BTreeSet::new(), BTreeSet::new(), 0);
    for step in Step::all() {
        scene.prepare(&step);
        let node = scene.cluster.nodes[scene.source].server();
        let monitor = Monitor::start(node);
        let came = scene.run(&step);
        let executed = monitor.stop(node);
        assert!(came.is_ok() || step.broken_fence, "{step:?}: {came:?}");
        let mut keys: &[String] = &[];
        for call in &executed {
            if let Some(declared) = declared(call) {
                assert!(declared.iter().all(|key| slot_of(key) == slot), "{step:?}: {call:?}");
                (keys, _) = (declared, shas.insert(call.words[1].clone()));
            } else if call.by_script {
                let name = call.words[0].as_str();
                assert_ne!(name, "publish", "{step:?}");
                if name == "spublish" {
                    assert_eq!(slot_of(&call.words[1]), slot, "{step:?}: {call:?}");
                    told += 1;
                } else if !WITHOUT_KEY.contains(&name) {
                    assert!(keys.contains(&call.words[1]), "{step:?}: {call:?} touches what is not in {keys:?}");
                    // What tells a broken holder has a name for each locker.
                    touched.insert(call.words[1].split(":broken:").next().map(str::to_owned));
                }
            }
        }
    }
    assert_eq!(touched.len(), 5, "key, queue, fence, gap and what tells a broken holder: {touched:?}");
    // Acquire, poll, extend, release, probe and inspect; a script that a node does not know is sent as text.
    assert!(shas.len() >= 6, "{shas:?}");
    assert!(told > 20, "{told} messages");
}

/// Where a slot moves, a key that a script has removed is elsewhere for it: to use it again would end the script in its middle.
/// Shows: S6.
#[test]
fn scripts_go_through_while_their_slot_moves() {
    let mut scene = Scene::new();
    let (mut at_the_source, mut at_the_target) = (0, 0);
    // With all of its keys at one node, a script is executed there. A free key is missing, and its acquires wait for the end of the move.
    let steps: Vec<_> = Step::all().into_iter().filter(|step| step.held && !step.broken_fence).collect();
    for step in &steps {
        let alone = matches!(step.what, What::Probe);
        let with_gap = matches!(step.what, What::Release { gap: true, .. });
        if with_gap || (step.queue.is_empty() && !alone) {
            continue;
        }
        scene.prepare(step);
        let still = scene.run(step).unwrap_or_else(|error| panic!("{step:?}: {error}"));
        scene.prepare(step);
        scene.set_in_motion(false);
        // Behind an `ASKING`, scripts are sent as text.
        let calls = |scene: &Scene, node: usize| {
            ["evalsha", "eval"].map(|name| scene.cluster.nodes[node].calls(name)).iter().sum::<u64>()
        };
        let before = calls(&scene, scene.source);
        let came = scene.run(step).unwrap_or_else(|error| panic!("{step:?}, at the source: {error}"));
        assert_eq!(came, still, "{step:?}");
        at_the_source += u32::from(calls(&scene, scene.source) > before);
        scene.prepare(step);
        scene.set_in_motion(true);
        let before = calls(&scene, scene.target);
        // Nobody is heard at a node that does not own the slot yet.
        scene.run(step).unwrap_or_else(|error| panic!("{step:?}, at the target: {error}"));
        at_the_target += u32::from(calls(&scene, scene.target) > before);
    }
    assert!(at_the_source > 30 && at_the_target > 30, "{at_the_source}, {at_the_target} of {}", steps.len());
    assert!(LEASE.as_millis().to_string() == LEASE_MS);
}
