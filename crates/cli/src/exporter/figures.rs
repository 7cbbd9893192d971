//! The figures of a scrape, in the text format of Prometheus.

use redis_dlock::ListedLock;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{Display, Write};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The beginning of each key.
const PREFIX: &str = "DLOCK_";

/// The type of all locks whose types have no series of their own.
const OTHER: &str = "other";

/// For how many locks a scrape asks who waits, and how many waiters of each it remembers. More would take too long, and too much memory.
const MOST_LOCKS: usize = 1000;
const MOST_WAITING: usize = 100;

/// The types that have series of their own. Prometheus keeps each series for long, so their number has a limit. A type that has been seen stays: if
/// its series ended with the last lock, it would have a gap instead of a zero.
pub(super) struct Named {
    most: usize,
    seen: BTreeMap<String, TypeFigures>,
    /// Types that contain `_`, the longest first. A key does not tell where its type ends.
    long: Vec<String>,
}

/// The figures of a type.
#[derive(Clone, Default)]
struct TypeFigures {
    held: u64,
    delayed: u64,
    waiting: u64,
    /// How many of these locks have a known remaining lease.
    telling: u64,
    near_end: u64,
    oldest_hold: Duration,
    /// `None` if nothing is known of the waiters.
    oldest_wait: Option<Duration>,
    least_left: Option<Duration>,
}

/// Lockers, by their hashes, and when each was first seen. A locker is never used twice.
type FirstSeen = HashMap<u64, Instant>;

/// The figures, and what one scrape remembers for the next.
pub(super) struct Figures {
    /// A lease that has no more left than this is near its end.
    near: Duration,
    types: Named,
    hasher: RandomState,
    /// The holders of locks.
    holders: FirstSeen,
    /// The waiters, by the keys of the locks.
    waiting: HashMap<String, FirstSeen>,
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
    fn of(&mut self, key: &str) -> &mut TypeFigures {
        let mut name = self.type_of(key).to_owned();
        if !self.seen.contains_key(&name) && self.seen.len() >= self.most {
            OTHER.clone_into(&mut name);
        }
        self.seen.entry(name).or_default()
    }
}

impl TypeFigures {
    fn add(&mut self, lock: &ListedLock, near: Duration, held: Duration) {
        self.waiting += lock.waiting;
        if lock.locker.is_none() {
            return;
        }
        if lock.lock_delay.is_some() || lock.delayed_release.is_some() {
            self.delayed += 1;
            return;
        }
        self.held += 1;
        self.oldest_hold = self.oldest_hold.max(held);
        if let Some(left) = lock.remaining {
            self.telling += 1;
            self.near_end += u64::from(left <= near);
            self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        }
    }
}

impl Figures {
    pub(super) fn new(near: Duration, types: Named) -> Self {
        let (holders, waiting) = (FirstSeen::new(), HashMap::new());
        Self { near, types, hasher: RandomState::new(), holders, waiting }
    }

    /// The page of a scrape. If the scrape has failed, the page has no figures of locks.
    pub(super) fn page(&self, is_up: bool, took: Duration, failures: u64) -> String {
        let mut page = Page::default();
        page.single("up", "gauge", "Whether the store has told of its locks.", u8::from(is_up));
        page.single("scrape_seconds", "gauge", "How long the store took to tell.", took.as_secs_f64());
        page.single("scrape_failures_total", "counter", "How often it did not tell.", failures);
        if is_up {
            self.write(&mut page);
        }
        page.0
    }

    /// Counts the locks that were found. `ask` returns the lockers that wait for a key, the longest wait first, or `None` if the store has no time
    /// to tell.
    pub(super) fn count(&mut self, locks: &[ListedLock], ask: impl FnMut(&str) -> Option<Vec<String>>, now: Instant) {
        self.types.seen.values_mut().for_each(|figures| *figures = TypeFigures::default());
        let mut seen = HashSet::new();
        // A server may tell of a lock twice.
        let locks: Vec<_> = locks.iter().filter(|lock| seen.insert(&lock.key)).collect();
        let mut holders = FirstSeen::new();
        for lock in &locks {
            let locker = self.hasher.hash_one((&lock.key, &lock.locker));
            let since = *holders.entry(locker).or_insert(self.holders.get(&locker).map_or(now, |since| *since));
            self.types.of(&lock.key).add(lock, self.near, now.saturating_duration_since(since));
        }
        self.holders = holders;
        self.count_waits(locks, ask, now);
    }

    /// Counts the waiters of the locks, and how long they have waited.
    fn count_waits(
        &mut self,
        mut locks: Vec<&ListedLock>,
        mut ask: impl FnMut(&str) -> Option<Vec<String>>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.waiting);
        locks.retain(|lock| lock.waiting > 0);
        // Locks that had waiters before come first, because their waits are longer.
        locks.sort_by_key(|lock| !before.contains_key(&lock.key));
        for lock in locks.into_iter().take(MOST_LOCKS) {
            let earlier = before.remove(&lock.key);
            let waiting = match ask(&lock.key) {
                Some(lockers) => {
                    let since = |locker| *earlier.as_ref().and_then(|seen| seen.get(&locker)).unwrap_or(&now);
                    let lockers = lockers.iter().take(MOST_WAITING).map(|locker| self.hasher.hash_one(locker));
                    lockers.map(|locker| (locker, since(locker))).collect()
                }
                // The store does not tell, or no time is left: the earlier waiters count.
                None => earlier.unwrap_or_default(),
            };
            if let Some(first) = waiting.values().min() {
                let waited = now.saturating_duration_since(*first);
                let of = self.types.of(&lock.key);
                of.oldest_wait = of.oldest_wait.max(Some(waited));
            }
            self.waiting.insert(lock.key.clone(), waiting);
        }
    }

    fn write(&self, page: &mut Page) {
        let types = &self.types.seen;
        page.of_types("held_locks", "Locks that a process holds.", types, |of| Some(of.held));
        page.of_types("delayed_locks", "Locks that nobody holds, and that the store keeps.", types, |of| {
            Some(of.delayed)
        });
        page.of_types("waiting_processes", "Processes in the queues of the locks.", types, |of| Some(of.waiting));
        page.of_types("oldest_hold_seconds", "How long a process has been seen to hold a lock.", types, |of| {
            Some(of.oldest_hold.as_secs_f64())
        });
        page.of_types("oldest_wait_seconds", "How long a process has been seen in the queue of a lock.", types, |of| {
            let none = (of.waiting == 0).then_some(Duration::ZERO);
            of.oldest_wait.or(none).map(|waited| waited.as_secs_f64())
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
        types: &BTreeMap<String, TypeFigures>,
        value: impl Fn(&TypeFigures) -> Option<T>,
    ) {
        self.head(name, "gauge", help);
        for (lock_type, figures) in types {
            if let Some(value) = value(figures) {
                let _ = writeln!(self.0, "dlock_store_{name}{{lock_type=\"{}\"}} {value}", escaped(lock_type));
            }
        }
    }
}

/// A label's value, escaped as the format requires.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis_dlock::{CancelToken, DLockGenerator, MemoryLockProcessor};
    use std::thread;

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

    #[test]
    fn what_is_remembered_is_bounded_and_goes_with_the_lock() {
        let store = MemoryLockProcessor::new();
        let [generator, other] = [(); 2].map(|()| DLockGenerator::new(store.clone()).expect("a client"));
        let [lock, waiter] = [&generator, &other].map(|client| client.generate("JOB", "x").expect("a lock"));
        let held = lock.lock_owned().expect("it is free");
        let list = || generator.list("*").collect::<Result<Vec<_>, _>>().expect("a list");
        let mut figures = Figures::new(Duration::ZERO, Named::new(10, Vec::new()));
        let begun = Instant::now();
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            scope.spawn(|| waiter.lock_cancellable(&cancel).map(drop));
            while list()[0].waiting == 0 {
                thread::yield_now();
            }
            let mut count = |lockers: Option<usize>, now| {
                figures.count(&list(), |_| lockers.map(|most| (0..most).map(|n| n.to_string()).collect()), now);
                let remembered = figures.waiting.values().map(HashMap::len).sum::<usize>() + figures.holders.len();
                (remembered, figures.types.seen["JOB"].oldest_wait)
            };
            // The store does not tell which locker waits.
            assert_eq!(count(None, begun), (1, None));
            assert_eq!(count(Some(1000), begun), (1 + MOST_WAITING, Some(Duration::ZERO)));
            // The earlier waiters count as long as the store tells nothing else.
            let later = Duration::from_secs(60);
            assert_eq!(count(None, begun + later), (1 + MOST_WAITING, Some(later)));
            assert_eq!(count(Some(1), begun + later), (2, Some(later)));
            cancel.cancel();
        });
        drop(held);
        figures.count(&[], |_| None, begun);
        assert!(figures.waiting.is_empty() && figures.holders.is_empty());
    }
}
