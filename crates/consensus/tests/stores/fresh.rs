//! [`Store`] for a consensus store: one server for all cases, a prefix for each.

use crate::consensus::{ConsensusStore, Counter, counted_url};
use dlock_conformance::Store;
use redis_dlock::port::LockProcessor;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A fresh store.
pub(crate) struct Fresh<V> {
    pub(crate) servers: Arc<V>,
    prefix: String,
}

type Shared = Weak<dyn Any + Send + Sync>;

/// The servers of the cases that run now.
static SERVERS: LazyLock<Mutex<HashMap<TypeId, Shared>>> = LazyLock::new(Mutex::default);
static CASES: AtomicUsize = AtomicUsize::new(0);

impl<V: ConsensusStore> Fresh<V> {
    pub(crate) fn start() -> Self {
        // Servers of one store that could not start are no failure of the other store's cases.
        let mut shared = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        let running = shared.get(&TypeId::of::<V>()).and_then(Weak::upgrade);
        let servers = running.and_then(|servers| servers.downcast().ok()).unwrap_or_else(|| Arc::new(V::start(1)));
        let any: Arc<dyn Any + Send + Sync> = servers.clone();
        shared.insert(TypeId::of::<V>(), Arc::downgrade(&any));
        Self { servers, prefix: format!("case{}", CASES.fetch_add(1, Ordering::SeqCst)) }
    }

    /// The path of the lock's entry.
    pub(crate) fn lock(&self, key: &str) -> String {
        let key = encoded(key);
        format!("{}/{key}/.lock", self.prefix)
    }

    /// A processor whose requests go by a counter.
    pub(crate) fn counted(&self, counter: &Counter) -> Arc<dyn LockProcessor> {
        V::processor(&counted_url(&*self.servers, counter, &self.prefix))
    }
}

impl<V: ConsensusStore> Store for Fresh<V> {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        V::processor(&self.servers.url(&self.prefix))
    }

    fn delete(&self, key: &str) -> bool {
        self.servers.delete(&self.lock(key))
    }

    /// An entry without a text has the name of its session as its holder. So an empty name stands in the entry as one of ours would.
    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        let value = if holder.is_empty() { "{\"who\":\"\"}" } else { holder };
        self.servers.hold(&self.lock(key), value, lease);
    }

    fn flush(&self) {
        for path in self.servers.list(&format!("{}/", self.prefix)) {
            self.servers.delete(&path);
        }
    }

    fn pass_time(&self, time: Duration) {
        std::thread::sleep(V::longest(time));
    }

    fn leftovers(&self) -> Vec<String> {
        let all = self.servers.list(&format!("{}/", self.prefix));
        let stays = |path: &String| ["/.inbox/", "/.session/", "/.broken/"].iter().any(|part| path.contains(part));
        all.into_iter().filter(|path| !stays(path)).collect()
    }

    fn name(&self) -> &'static str {
        V::NAME
    }
}

/// A key in a path: what is not plain is written as in a URL.
fn encoded(key: &str) -> String {
    let is_plain = |at: usize, c: char| match c {
        '/' | '%' => false,
        '.' => at > 0,
        _ => c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric(),
    };
    let mut text = String::new();
    for (at, c) in key.char_indices() {
        if is_plain(at, c) {
            text.push(c);
        } else {
            c.to_string().bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        }
    }
    text
}
