//! The keys and the inboxes of a store, behind one mutex.

use super::entry::{KeyEntry, Scene};
use super::inboxes::Inboxes;
use crate::clock::{Clock, Moment};
use crate::port::Broken;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The store does not sweep keys whose leases ended while it has fewer keys than this.
pub(super) const SWEEP_FROM: usize = 64;

/// The state that the clones of one processor and their inboxes share.
pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Mutex<Store>,
}

/// Everything behind the mutex.
pub(super) struct Store {
    /// The keys that are held, waited for or remembered for a gap, and those for which all of this ended after the last sweep.
    pub(super) keys: HashMap<String, KeyEntry>,
    /// The number of keys that starts the next sweep: twice as many as the last one left. So sweeping costs constant time for each new
    /// key, and the ended leases of dead clients at most double the memory.
    pub(super) sweep_at: usize,
    pub(super) inboxes: Inboxes,
    /// The lockers whose holds were broken, for a minute at least, and until their leases would have ended.
    pub(super) broken: HashMap<String, (Broken, Moment)>,
    /// What each client says of itself, and until when it is kept.
    pub(super) records: HashMap<String, (String, Moment)>,
    /// The operations that are denied, by their Redis commands.
    pub(super) denied: Vec<&'static str>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            keys: HashMap::new(),
            sweep_at: SWEEP_FROM,
            inboxes: Inboxes::default(),
            broken: HashMap::new(),
            records: HashMap::new(),
            denied: Vec::new(),
        }
    }

    /// Runs one atomic operation on one key: forgets what has expired, acts, and removes an entry that has become empty.
    pub(super) fn on_key<R>(
        &mut self,
        now: Moment,
        key: &str,
        act: impl FnOnce(&mut KeyEntry, &mut Scene<'_>) -> R,
    ) -> R {
        let mut scene = Scene { key, now, inboxes: &mut self.inboxes, denied: &self.denied };
        if let Some(entry) = self.keys.get_mut(key) {
            entry.expire(now);
            let result = act(entry, &mut scene);
            if entry.is_empty() {
                self.keys.remove(key);
            }
            result
        } else {
            let mut entry = KeyEntry::default();
            let result = act(&mut entry, &mut scene);
            if !entry.is_empty() {
                self.insert(now, key, entry);
            }
            result
        }
    }

    fn insert(&mut self, now: Moment, key: &str, entry: KeyEntry) {
        if self.keys.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.keys.insert(key.to_owned(), entry);
    }

    /// Drops every key for which everything has ended, and shrinks a map that has become too large.
    pub(super) fn sweep(&mut self, now: Moment) {
        self.keys.retain(|_, entry| {
            entry.expire(now);
            !entry.is_empty()
        });
        self.sweep_at = SWEEP_FROM.max(2 * self.keys.len());
        self.keys.shrink_to(self.sweep_at);
    }
}
