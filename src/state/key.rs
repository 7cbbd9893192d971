//! One lock key in one client, as data: its hold, its state and its local queue. All handles of a key made by one generator share one `Key`.
//!
//! What is done with a key is in the room [`client`](crate::client): methods of its `Core`.

use crate::state::hold::{Hold, Reentry};
use crate::state::machine::{Phase, State};
use crate::state::owner::{self, current_thread};
use crate::state::queue::Waiter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, mutant};
use crossbeam_channel::{Receiver, bounded};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(crate) struct Key {
    /// Tells this key from others in the schedules.
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) hold: Hold,
    state: Mutex<State>,
    table: Weak<Table>,
}

impl Key {
    fn new(id: u64, name: Arc<str>, table: Weak<Table>) -> Self {
        Self { id, name, hold: Hold::none(), state: Mutex::new(State::new()), table }
    }

    /// The state, with its mutex.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn queue_length(&self) -> usize {
        self.state().queue.len()
    }

    /// Holds once more, if the calling thread holds already and nothing is to be told to it: a few steps, of which the hot
    /// loops of callers are made. `None`: [`lock`](Self::lock) sees to it.
    #[inline]
    pub(crate) fn lock_again(&self) -> Option<u64> {
        if !self.hold.is_owned_by(current_thread()) || self.hold.reenter() != Reentry::Entered {
            return None;
        }
        Some(self.hold.token())
    }

    /// Holds once less, if this is the calling thread's hold with that token and neither its last nor lost. `false`:
    /// [`unlock`](Self::unlock) sees to it.
    #[inline]
    pub(crate) fn unlock_inner(&self, token: u64) -> bool {
        self.hold.is_owned_by(current_thread())
            && self.hold.token() == token
            && !self.hold.is_lost()
            && self.hold.leave_inner()
    }

    /// Wakes a parked thread so that it looks at its patience, or at whether the client is closed, again.
    pub(crate) fn nudge(&self, waiter: &Waiter) {
        // With the mutex: between its look and its parking, the thread would not hear this.
        if !mutant!(NudgesWithoutMutex) {
            drop(self.state());
        }
        waiter.parked.notify_one();
    }

    pub(crate) fn nudge_all(&self) {
        let waiters: Vec<_> = self.state().queue.iter().map(Arc::clone).collect();
        for waiter in waiters {
            waiter.parked.notify_one();
        }
    }

    /// A channel that tells the loss of the hold with this token.
    pub(crate) fn watch(&self, token: u64) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        let mut state = self.state();
        if self.hold.token() == token && matches!(state.phase, Phase::Held(_)) {
            if self.hold.is_lost() {
                let _ = sender.try_send(());
            } else {
                state.watchers.push(sender);
            }
        }
        receiver
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.forget(&self.name);
        }
        let owner = self.hold.owner();
        if owner != owner::NOBODY {
            owner::hold_is_gone(owner);
        }
    }
}

/// The keys of a client that are in use. A key lives as long as a handle of it, or a thread that is about it.
#[derive(Debug)]
pub(crate) struct Table {
    keys: Mutex<HashMap<Arc<str>, Weak<Key>>>,
    last: AtomicU64,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { keys: Mutex::new(HashMap::new()), last: AtomicU64::new(0) }
    }

    /// The key of that name, shared by all its handles.
    pub(crate) fn key(self: &Arc<Self>, name: &Arc<str>) -> Arc<Key> {
        let mut keys = self.keys.lock();
        if let Some(key) = keys.get(&**name).and_then(Weak::upgrade) {
            return key;
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let key = Arc::new(Key::new(id, Arc::clone(name), Arc::downgrade(self)));
        keys.insert(Arc::clone(name), Arc::downgrade(&key));
        key
    }

    /// The key of that name, if it is in use.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Key>> {
        self.keys.lock().get(name).and_then(Weak::upgrade)
    }

    /// All keys in use.
    pub(crate) fn all(&self) -> Vec<Arc<Key>> {
        self.keys.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Forgets a key whose last handle went, unless a new one of the same name was made since.
    fn forget(&self, name: &str) {
        let mut keys = self.keys.lock();
        if keys.get(name).is_some_and(|key| key.strong_count() == 0) {
            keys.remove(name);
        }
    }
}
