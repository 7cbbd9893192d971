//! Slots that move from one master to another.

use super::saying::{require, tell};
use super::{Cluster, Node};
use redis::Connection;
use std::fmt;
use std::slice::{from_mut, from_ref};

/// How many keys go at once where nobody looks at each.
const KEYS_AT_ONCE: usize = 100;

/// A slot on its way, step by step. It stays where it is until the next step, for as long as a test likes.
pub(crate) struct Migration {
    slot: u16,
    source: Connection,
    target: Connection,
    /// The other masters.
    others: Vec<Connection>,
    source_id: String,
    target_id: String,
    target_port: u16,
    /// The last step.
    last: Option<Step>,
}

/// What was done last to a slot that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The target expects keys (`IMPORTING`).
    TargetImports,
    /// The source sends clients away that ask for what it has not (`MIGRATING`).
    SourceMigrates,
    /// A key has moved.
    KeyMoved(String),
    /// All keys have moved, and the target says that it owns the slot (`NODE`).
    TargetOwns,
    /// The source says so, too, if the target had not told it already.
    SourceKnows,
    /// So do all other masters.
    AllKnow,
}

impl Migration {
    /// Moves a slot one step. `None` when there is none left.
    pub(crate) fn step(&mut self) -> Option<Step> {
        let (source_id, target_id) = (self.source_id.clone(), self.target_id.clone());
        let step = match &self.last {
            None => {
                require(from_mut(&mut self.target), &[self.slot], "IMPORTING", &source_id);
                Step::TargetImports
            }
            Some(Step::TargetImports) => {
                require(from_mut(&mut self.source), &[self.slot], "MIGRATING", &target_id);
                Step::SourceMigrates
            }
            Some(Step::SourceMigrates | Step::KeyMoved(_)) => {
                if let Some(key) = self.keys(1).pop() {
                    self.migrate(from_ref(&key));
                    Step::KeyMoved(key)
                } else {
                    require(from_mut(&mut self.target), &[self.slot], "NODE", &target_id);
                    Step::TargetOwns
                }
            }
            Some(Step::TargetOwns) => {
                tell(from_mut(&mut self.source), &[self.slot], &target_id);
                Step::SourceKnows
            }
            Some(Step::SourceKnows) => {
                self.others.iter_mut().for_each(|other| tell(from_mut(other), &[self.slot], &target_id));
                Step::AllKnow
            }
            Some(Step::AllKnow) => return None,
        };
        self.last = Some(step.clone());
        Some(step)
    }

    /// Moves the slot on until keys can be moved: the next step moves one.
    pub(crate) fn begin(&mut self) {
        while self.last.is_none() || self.last == Some(Step::TargetImports) {
            self.step();
        }
    }

    /// Moves a certain key, if the source has it; after [`begin`](Self::begin).
    pub(crate) fn move_key(&mut self, key: &str) {
        assert!(matches!(self.last, Some(Step::SourceMigrates | Step::KeyMoved(_))), "{self:?}");
        self.migrate(&[key.to_owned()]);
        self.last = Some(Step::KeyMoved(key.to_owned()));
    }

    /// Some of the keys that the source still has.
    pub(crate) fn keys(&mut self, limit: usize) -> Vec<String> {
        keys_of(&mut self.source, self.slot, limit)
    }

    /// Moves all that is left, and hands over the slot.
    pub(crate) fn finish(mut self) {
        self.begin();
        send_slot(&mut self.source, self.target_port, self.slot);
        while self.step().is_some() {}
    }

    fn migrate(&mut self, keys: &[String]) {
        send_keys(&mut self.source, self.target_port, keys);
    }
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} from {} to {} after {:?}", self.slot, self.source_id, self.target_id, self.last)
    }
}

fn keys_of(source: &mut Connection, slot: u16, limit: usize) -> Vec<String> {
    redis::cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(limit).query(source).unwrap()
}

/// Sends certain keys to the node that has this port.
fn send_keys(source: &mut Connection, target: u16, keys: &[String]) {
    let (no_key, database, limit_ms) = ("", 0, 20_000);
    let mut call = redis::cmd("MIGRATE");
    call.arg("127.0.0.1").arg(target).arg(no_key).arg(database).arg(limit_ms).arg("KEYS").arg(keys);
    call.exec(source).unwrap();
}

/// Sends all keys of a slot to the node that has this port.
pub(super) fn send_slot(source: &mut Connection, target: u16, slot: u16) {
    loop {
        let keys = keys_of(source, slot, KEYS_AT_ONCE);
        if keys.is_empty() {
            return;
        }
        send_keys(source, target, &keys);
    }
}

impl Cluster {
    /// Prepares the move of a slot to another master. Nothing is done before the first step.
    pub(crate) fn migration(&self, slot: u16, to: usize) -> Migration {
        let from = self.owner_of(slot);
        assert_ne!(from, to, "slot {slot} is there already");
        let [source, target] = [from, to].map(|place| &self.nodes[place]);
        Migration {
            slot,
            source: source.connection(),
            target: target.connection(),
            others: self.masters_but([from, to]).map(Node::connection).collect(),
            source_id: source.id().to_owned(),
            target_id: target.id().to_owned(),
            target_port: target.port_past_the_network(),
            last: None,
        }
    }

    /// Moves a slot to another master, and waits until all nodes that are up know it.
    pub(crate) fn move_slot(&self, slot: u16, to: usize) {
        self.move_slot_with(slot, to, |_| ());
    }

    /// As [`move_slot`](Self::move_slot), key by key, and tells of each step. The move goes on when `pause` returns.
    pub(crate) fn move_slot_with(&self, slot: u16, to: usize, mut pause: impl FnMut(&Step)) {
        let mut migration = self.migration(slot, to);
        while let Some(step) = migration.step() {
            pause(&step);
        }
        self.wait_for_owner(slot, to);
    }
}
