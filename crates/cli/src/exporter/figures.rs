//! The figures of a scrape, in the text format of Prometheus.

use redis_dlock::ListedLock;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{Display, Write};
use std::time::{Duration, Instant};

/// With this each key begins.
const PREFIX: &str = "DLOCK_";

/// The type of all locks whose types have no series of their own.
const OTHER: &str = "other";

/// The types that have series of their own. Prometheus keeps each series for long, so their number has a limit, and a type that has once been seen
/// stays: a series that ended with the last lock would be a gap, and no zero.
pub(super) struct Named {
    most: usize,
    seen: BTreeMap<String, OfType>,
    /// Types that contain `_`, the longest first. A key does not tell where its type ends.
    long: Vec<String>,
}

/// The figures of a type.
#[derive(Clone, Default)]
struct OfType {
    held: u64,
    delayed: u64,
    waiting: u64,
    /// How many of them tell how much is left of their lease.
    telling: u64,
    near_end: u64,
    oldest_wait: Duration,
    least_left: Option<Duration>,
}

/// A lock for which others wait: who holds it, and since when that was seen.
struct Wait {
    locker: Option<String>,
    since: Instant,
}

/// What is remembered from one scrape to the next.
pub(super) struct Figures {
    /// A lease that has no more left than this is near its end.
    near: Duration,
    types: Named,
    waits: HashMap<String, Wait>,
}

impl Named {
    pub(super) fn new(most: usize, mut long: Vec<String>) -> Self {
        long.sort_by_key(|name| std::cmp::Reverse(name.len()));
        Self { most, seen: BTreeMap::new(), long }
    }

    /// The type of a key.
    fn type_of<'a>(&'a self, key: &'a str) -> &'a str {
        let name = key.strip_prefix(PREFIX).unwrap_or(key);
        let is_long = |long: &&String| name.strip_prefix(&***long).is_some_and(|rest| rest.starts_with('_'));
        self.long.iter().find(is_long).map(String::as_str).unwrap_or_else(|| name.split('_').next().unwrap_or(name))
    }

    /// The figures of the type of a key.
    fn of(&mut self, key: &str) -> &mut OfType {
        let mut name = self.type_of(key).to_owned();
        if !self.seen.contains_key(&name) && self.seen.len() >= self.most {
            OTHER.clone_into(&mut name);
        }
        self.seen.entry(name).or_default()
    }
}

impl OfType {
    fn add(&mut self, lock: &ListedLock, near: Duration, waited: Duration) {
        self.waiting += lock.waiting;
        self.oldest_wait = self.oldest_wait.max(waited);
        if lock.locker.is_none() {
            return;
        }
        if lock.lock_delay.is_some() || lock.delayed_release.is_some() {
            self.delayed += 1;
            return;
        }
        self.held += 1;
        if let Some(left) = lock.remaining {
            self.telling += 1;
            self.near_end += u64::from(left <= near);
            self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        }
    }
}

impl Figures {
    pub(super) fn new(near: Duration, types: Named) -> Self {
        Self { near, types, waits: HashMap::new() }
    }

    /// The page of a scrape that has found these locks, or has failed.
    pub(super) fn page(&mut self, locks: Option<&[ListedLock]>, now: Instant, took: Duration, failures: u64) -> String {
        let mut page = Page::default();
        page.single("up", "gauge", "Whether the store has told of its locks.", u8::from(locks.is_some()));
        page.single("scrape_seconds", "gauge", "How long the store took to tell.", took.as_secs_f64());
        page.single("scrape_failures_total", "counter", "How often it did not tell.", failures);
        if let Some(locks) = locks {
            self.count(locks, now);
            self.write(&mut page);
        }
        page.0
    }

    fn count(&mut self, locks: &[ListedLock], now: Instant) {
        self.types.seen.values_mut().for_each(|figures| *figures = OfType::default());
        let mut seen = HashSet::new();
        let mut waits = HashMap::new();
        // A server may tell of a lock twice.
        for lock in locks.iter().filter(|lock| seen.insert(&lock.key)) {
            let mut waited = Duration::ZERO;
            if lock.waiting > 0 {
                let earlier = self.waits.remove(&lock.key).filter(|wait| wait.locker == lock.locker);
                let since = earlier.map_or(now, |wait| wait.since);
                waited = now.saturating_duration_since(since);
                waits.insert(lock.key.clone(), Wait { locker: lock.locker.clone(), since });
            }
            self.types.of(&lock.key).add(lock, self.near, waited);
        }
        self.waits = waits;
    }

    fn write(&self, page: &mut Page) {
        let types = &self.types.seen;
        page.of_types("held_locks", "Locks that a process holds.", types, |of| Some(of.held));
        page.of_types("delayed_locks", "Locks that nobody holds, and that the store keeps.", types, |of| {
            Some(of.delayed)
        });
        page.of_types("waiting_processes", "Processes in the queues of the locks.", types, |of| Some(of.waiting));
        page.of_types("oldest_wait_seconds", "How long others have waited for one holder.", types, |of| {
            Some(of.oldest_wait.as_secs_f64())
        });
        page.of_types("leases_near_end", "Held locks whose lease ends soon unless it is extended.", types, |of| {
            (of.telling > 0 || of.held == 0).then_some(of.near_end)
        });
        page.of_types("least_lease_left_seconds", "The shortest time that is left of a lease.", types, |of| {
            of.least_left.map(|left| left.as_secs_f64())
        });
    }
}

/// Text in the format of Prometheus.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP dlock_store_{name} {help}\n# TYPE dlock_store_{name} {kind}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "dlock_store_{name} {value}");
    }

    fn of_types<T: Display>(
        &mut self,
        name: &str,
        help: &str,
        types: &BTreeMap<String, OfType>,
        value: impl Fn(&OfType) -> Option<T>,
    ) {
        self.head(name, "gauge", help);
        for (lock_type, figures) in types {
            if let Some(value) = value(figures) {
                let _ = writeln!(self.0, "dlock_store_{name}{{lock_type=\"{}\"}} {value}", escaped(lock_type));
            }
        }
    }
}

/// A label's value, as the format has it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_ends_at_the_first_underscore_unless_it_is_named() {
        let named = Named::new(10, vec!["NIGHTLY".to_owned(), "NIGHTLY_EXPORT".to_owned()]);
        for (key, of) in [
            ("DLOCK_ORDER_4711_a", "ORDER"),
            ("DLOCK_NIGHTLY_EXPORT_x", "NIGHTLY_EXPORT"),
            ("DLOCK_NIGHTLY_EXPORTS", "NIGHTLY"),
            ("DLOCK_x", "x"),
            ("else", "else"),
        ] {
            assert_eq!(named.type_of(key), of, "{key}");
        }
    }
}
