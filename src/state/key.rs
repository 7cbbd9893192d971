//! One lock key in one client, as data: its hold, its state and its local queue. All handles of a key made by one generator share one `Key`.
//!
//! The operations on a key stand in the module [`client`](crate::client).

use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::process::Process;
use crate::state::hold::CurrentHold;
use crate::state::machine::{Phase, State, Waiter};
use crate::state::owner;
use crate::state::task::{TaskReply, Watcher};
use crate::sync::{Mutex, MutexGuard, before_notifying};
use crossbeam_channel::{Receiver, bounded};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Key {
    /// Identifies this key in the schedules.
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) hold: CurrentHold,
    pub(crate) state: Mutex<State>,
    /// Counts the key as known, for the metrics, until it is dropped. Empty if nothing is recorded.
    pub(crate) known: OnceLock<Box<dyn Any + Send + Sync>>,
    table: Weak<KeyTable>,
    process: Process,
}

impl Key {
    fn new(id: u64, name: Arc<str>, table: Weak<KeyTable>) -> Self {
        Self {
            id,
            name,
            hold: CurrentHold::none(),
            state: Mutex::new(State::new()),
            known: OnceLock::new(),
            table,
            process: Process::this(),
        }
    }

    /// Returns the state, for a caller that may be in a forked child, where there is none.
    fn state_here(&self) -> Option<MutexGuard<'_, State>> {
        (!self.process.is_forked()).then(|| self.state.lock())
    }

    pub(crate) fn queue_length(&self) -> usize {
        self.state_here().map_or(0, |state| state.queue.len())
    }

    /// Wakes a parked thread so that it checks again whether its wait is over or the client is closed.
    pub(crate) fn nudge(&self, waiter: &Waiter) {
        before_notifying(&self.state);
        waiter.wake();
    }

    pub(crate) fn nudge_all(&self) {
        let waiters: Vec<_> = self.state.lock().queue.iter().map(Arc::clone).collect();
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Returns a channel that receives a message when the hold with this token is lost.
    pub(crate) fn watch(&self, token: u64) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        self.watch_by(token, Watcher::Channel(sender));
        receiver
    }

    /// Has this reply come when the hold with this token is lost.
    pub(crate) fn watch_by_reply(&self, token: u64, reply: &Arc<TaskReply<()>>) {
        self.watch_by(token, Watcher::Task(Arc::downgrade(reply)));
    }

    /// Tells this watcher when the hold with this token is lost.
    pub(crate) fn watch_by(&self, token: u64, watcher: Watcher) {
        let Some(mut state) = self.state_here() else { return };
        if self.hold.token() == token && matches!(state.phase, Phase::Held(_)) {
            if self.hold.is_lost() {
                drop(state);
                return watcher.tell();
            }
            state.watchers.retain(|watcher| !watcher.is_gone());
            state.watchers.push(watcher);
        }
    }

    /// Returns when the hold with this token began, if it has not ended.
    pub(crate) fn held_since(&self, token: u64) -> Option<Moment> {
        match &self.state_here()?.phase {
            Phase::Held(tenure) if self.hold.token() == token => Some(tenure.hold.since),
            _ => None,
        }
    }

    /// Notes that nobody is to get the key until `at_least` has passed since the hold of this owner with this token began. Returns the moment at
    /// which that is over, if the hold has not ended. The settings are those of the hold, which the mark names.
    pub(crate) fn delay_release(
        &self,
        owner: u64,
        token: u64,
        at_least: Duration,
        settings: &Arc<DLockConfig>,
    ) -> Option<Moment> {
        match &mut self.state_here()?.phase {
            Phase::Held(tenure) if self.hold.is_owned_by(owner) && self.hold.token() == token => {
                tenure.of_hold.get_or_insert_with(|| Arc::clone(settings));
                tenure.hold.delay_release(at_least);
                tenure.hold.delayed_until(tenure.hold.since)
            }
            _ => None,
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if self.process.is_forked() {
            return;
        }
        if let Some(table) = self.table.upgrade() {
            table.forget(&self.name);
        }
        let owner = self.hold.owner();
        if owner != owner::NOBODY {
            owner::hold_is_gone(owner);
        }
    }
}

/// The keys of a client that are in use. A key lives as long as one of its handles or a thread that works on it.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    keys: Mutex<Keys>,
    process: Process,
}

#[derive(Debug, Default)]
struct Keys {
    by_name: HashMap<Arc<str>, Weak<Key>>,
    next_id: u64,
}

impl KeyTable {
    /// Returns the key of that name, which all its handles share. In a forked child, the key is in no table, and nobody holds it.
    pub(crate) fn key(self: &Arc<Self>, name: &Arc<str>) -> Arc<Key> {
        if self.process.is_forked() {
            return Arc::new(Key::new(0, Arc::clone(name), Weak::new()));
        }
        let mut keys = self.keys.lock();
        if let Some(key) = keys.by_name.get(&**name).and_then(Weak::upgrade) {
            return key;
        }
        let key = Arc::new(Key::new(keys.next_id, Arc::clone(name), Arc::downgrade(self)));
        keys.next_id += 1;
        keys.by_name.insert(Arc::clone(name), Arc::downgrade(&key));
        key
    }

    /// Returns the key of that name if it is in use.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Key>> {
        self.keys.lock().by_name.get(name).and_then(Weak::upgrade)
    }

    /// Returns all keys in use.
    pub(crate) fn all(&self) -> Vec<Arc<Key>> {
        self.keys.lock().by_name.values().filter_map(Weak::upgrade).collect()
    }

    /// Removes a key whose last handle is gone, unless a new key of the same name was made since.
    fn forget(&self, name: &str) {
        let mut keys = self.keys.lock();
        if keys.by_name.get(name).is_some_and(|key| key.strong_count() == 0) {
            keys.by_name.remove(name);
        }
    }
}
