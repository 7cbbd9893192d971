//! The series of a client, with their handles.
//!
//! * *Each series is registered before its first event*, at zero: those of a lock type when the program first names the type, the others
//!   when the client is built. A rate misses the first event of a series that begins with it.
//! * *Recording takes no mutex and no memory*, unless a store begins or ceases to fail: the handles are kept, and the table of the types only grows.
//!   Its entries are [`OnceLock`]s, because each event looks its type up. A type is named by a program's text, so there are few of them.
//! * The gauges are process-wide, so each client adds to them, and takes away what it has added when it ends. The time since which a store fails
//!   is the earliest one: who changes it adds the difference.

use super::{CALLS, CAUSES, Sample, WHY};
use crate::event::{HoldEnd, How};
use crate::log;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, catch_panic};
use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use metrics::{describe_counter, describe_gauge, describe_histogram};
use std::any::Any;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

const HOW: [&str; 4] = [How::Free.as_str(), How::Granted.as_str(), How::PassedOn.as_str(), How::TakenUp.as_str()];
const ENDS: [&str; 6] = [
    HoldEnd::PassedOn.as_str(),
    HoldEnd::Lingers.as_str(),
    HoldEnd::GivenBack.as_str(),
    HoldEnd::Sent.as_str(),
    HoldEnd::Unconfirmed.as_str(),
    HoldEnd::Lost.as_str(),
];
const RENEWALS: [&str; 3] = ["in_time", "late", "failed"];

/// How many chains the table of the types has.
const CHAINS: usize = 64;

/// Since when stores of this process fail, in seconds of the unix time, and how many for each.
static FAILING_SINCE: Mutex<BTreeMap<u64, i64>> = Mutex::new(BTreeMap::new());

/// What a client records.
pub(in crate::client::events) struct Meters {
    /// How long calls took that were answered, and calls that failed.
    calls: [[Histogram; 2]; CALLS.len()],
    new_servers: Counter,
    failing: Gauge,
    failing_since: Gauge,
    dropped_events: Counter,
    types: [OnceLock<Box<OfType>>; CHAINS],
}

/// The counters of one name, which differ in one label.
struct Counters<const N: usize> {
    words: [&'static str; N],
    counters: [Counter; N],
}

/// The series of one lock type.
struct OfType {
    lock_type: Box<str>,
    wait: Histogram,
    hold: Histogram,
    lease_left: Histogram,
    acquired: Counters<{ HOW.len() }>,
    not_acquired: Counters<{ WHY.len() }>,
    released: Counters<{ ENDS.len() }>,
    lost: Counters<{ CAUSES.len() }>,
    renewals: Counters<{ RENEWALS.len() }>,
    waiting: Gauge,
    held: Gauge,
    known_keys: Gauge,
    /// What this client has added to `held`.
    holds: AtomicI64,
    /// The next type of the chain.
    next: OnceLock<Box<OfType>>,
}

/// A key that is counted as known until this is dropped.
struct KnownKey {
    meters: Arc<Meters>,
    lock_type: Box<str>,
}

impl Meters {
    /// Registers the series that have no lock type. Returns `None` if the recorder of the program panics.
    pub(in crate::client::events) fn new() -> Option<Arc<Self>> {
        guarded(|| {
            describe();
            let call = |call| {
                ["answered", "failed"]
                    .map(|result| histogram!("dlock_store_seconds", "call" => call, "result" => result))
            };
            Arc::new(Self {
                calls: CALLS.map(call),
                new_servers: counter!("dlock_new_servers_total"),
                failing: gauge!("dlock_store_failing"),
                failing_since: gauge!("dlock_store_failing_since_timestamp_seconds"),
                dropped_events: counter!("dlock_dropped_events_total"),
                types: [const { OnceLock::new() }; CHAINS],
            })
        })
    }

    /// Hands the figure to the recorder that the program has installed.
    pub(in crate::client::events) fn record(&self, sample: Sample) {
        let _ = guarded(|| self.give(sample));
    }

    /// Registers the series of a lock type.
    pub(in crate::client::events) fn see(&self, lock_type: &str) {
        let _ = guarded(|| self.of(lock_type));
    }

    /// Counts a key as known until the returned value is dropped.
    pub(in crate::client::events) fn count_key(self: &Arc<Self>, lock_type: &str) -> Box<dyn Any + Send + Sync> {
        let _ = guarded(|| self.of(lock_type).known_keys.increment(1.0));
        Box::new(KnownKey { meters: Arc::clone(self), lock_type: lock_type.into() })
    }

    fn give(&self, sample: Sample) {
        match sample {
            Sample::Acquired { lock, waited, how } => {
                let series = self.of(lock.lock_type());
                series.wait.record(waited.as_secs_f64());
                series.acquired.count(how.as_str());
                series.held.increment(1.0);
                series.holds.fetch_add(1, Ordering::SeqCst);
            }
            Sample::NotAcquired { lock, why } => self.of(lock.lock_type()).not_acquired.count(why),
            Sample::Released { lock, held, end } => {
                let series = self.of(lock.lock_type());
                series.hold.record(held.as_secs_f64());
                series.released.count(end.as_str());
                series.held.decrement(1.0);
                series.holds.fetch_sub(1, Ordering::SeqCst);
            }
            Sample::Lost { lock, cause } => self.of(lock.lock_type()).lost.count(cause),
            Sample::Renewed { lock, left, is_late } => {
                let series = self.of(lock.lock_type());
                series.lease_left.record(left.as_secs_f64());
                series.renewals.count(if is_late { "late" } else { "in_time" });
            }
            Sample::NotRenewed { lock } => self.of(lock.lock_type()).renewals.count("failed"),
            Sample::Waiting { lock, more } => change(&self.of(lock.lock_type()).waiting, 1, more),
            Sample::Call { name, took, is_answered } => {
                if let Some(at) = place_of(name, &CALLS) {
                    self.calls[at][usize::from(!is_answered)].record(took.as_secs_f64());
                }
            }
            Sample::NewServer => self.new_servers.increment(1),
            Sample::StoreFailing { since } => self.fails(since, true),
            Sample::StoreBack { since } => self.fails(since, false),
            Sample::Dropped { events } => self.dropped_events.increment(events),
        }
    }

    /// Changes the gauges of a store that fails. Two threads may come here in another order than that of the changes, so the changes are additions,
    /// whose order does not matter.
    fn fails(&self, since: u64, begins: bool) {
        change(&self.failing, 1, begins);
        let mut failing = FAILING_SINCE.lock();
        let earliest =
            |failing: &BTreeMap<u64, i64>| failing.iter().find(|(_, count)| **count > 0).map_or(0, |(since, _)| *since);
        let before = earliest(&failing);
        *failing.entry(since).or_default() += if begins { 1 } else { -1 };
        failing.retain(|_, count| *count != 0);
        let after = earliest(&failing);
        drop(failing);
        change(&self.failing_since, after.abs_diff(before), after > before);
    }

    /// Returns the series of a lock type, and registers them if it is new.
    fn of(&self, lock_type: &str) -> &OfType {
        let mut hasher = DefaultHasher::new();
        lock_type.hash(&mut hasher);
        let mut entry = &self.types[(hasher.finish() % CHAINS as u64) as usize];
        loop {
            let series = match entry.get() {
                Some(series) => series,
                None => {
                    // Another thread may be faster. No thread waits while the recorder of the program is called.
                    let new = Box::new(OfType::new(lock_type));
                    entry.get_or_init(|| new)
                }
            };
            if *series.lock_type == *lock_type {
                return series;
            }
            entry = &series.next;
        }
    }
}

impl Drop for Meters {
    fn drop(&mut self) {
        // A hold that the program has forgotten ends with its client.
        for first in &self.types {
            let mut entry = first;
            while let Some(series) = entry.get() {
                let left = series.holds.load(Ordering::SeqCst);
                if left != 0 {
                    let _ = guarded(|| series.held.decrement(left as f64));
                }
                entry = &series.next;
            }
        }
    }
}

impl<const N: usize> Counters<N> {
    fn new(words: [&'static str; N], counter: impl Fn(&'static str) -> Counter) -> Self {
        Self { words, counters: words.map(counter) }
    }

    fn count(&self, word: &str) {
        if let Some(at) = place_of(word, &self.words) {
            self.counters[at].increment(1);
        }
    }
}

impl OfType {
    fn new(lock_type: &str) -> Self {
        let lock_type: Box<str> = lock_type.into();
        let of = || lock_type.to_string();
        Self {
            wait: histogram!("dlock_wait_seconds", "lock_type" => of()),
            hold: histogram!("dlock_hold_seconds", "lock_type" => of()),
            lease_left: histogram!("dlock_lease_left_seconds", "lock_type" => of()),
            acquired: Counters::new(HOW, |how| counter!("dlock_acquired_total", "lock_type" => of(), "how" => how)),
            not_acquired: Counters::new(
                WHY,
                |why| counter!("dlock_not_acquired_total", "lock_type" => of(), "why" => why),
            ),
            released: Counters::new(ENDS, |end| counter!("dlock_released_total", "lock_type" => of(), "end" => end)),
            lost: Counters::new(CAUSES, |cause| counter!("dlock_lost_total", "lock_type" => of(), "cause" => cause)),
            renewals: Counters::new(
                RENEWALS,
                |result| counter!("dlock_renewals_total", "lock_type" => of(), "result" => result),
            ),
            waiting: gauge!("dlock_waiting_threads", "lock_type" => of()),
            held: gauge!("dlock_held_locks", "lock_type" => of()),
            known_keys: gauge!("dlock_known_keys", "lock_type" => of()),
            holds: AtomicI64::new(0),
            next: OnceLock::new(),
            lock_type,
        }
    }
}

impl Drop for KnownKey {
    fn drop(&mut self) {
        let _ = guarded(|| self.meters.of(&self.lock_type).known_keys.decrement(1.0));
    }
}

/// Returns where the table of a label has this word.
fn place_of(word: &str, table: &[&str]) -> Option<usize> {
    let place = table.iter().position(|known| *known == word);
    debug_assert!(place.is_some(), "{word} is not registered");
    place
}

/// Adds to a gauge, or takes away.
fn change(gauge: &Gauge, by: u64, more: bool) {
    if more { gauge.increment(by as f64) } else { gauge.decrement(by as f64) }
}

/// Calls the recorder of the program. Logs its panic.
fn guarded<R>(call: impl FnOnce() -> R) -> Option<R> {
    let done = catch_panic(call);
    if done.is_none() {
        log::error!(CLIENT, "the program's recorder of metrics panicked");
    }
    done
}

/// Tells the recorder what the names mean, and in which units.
fn describe() {
    describe_histogram!("dlock_wait_seconds", Unit::Seconds, "How long calls took that got a lock.");
    describe_histogram!("dlock_hold_seconds", Unit::Seconds, "How long threads held a lock.");
    describe_histogram!(
        "dlock_lease_left_seconds",
        Unit::Seconds,
        "How much of a lease was left when it was extended."
    );
    describe_histogram!("dlock_store_seconds", Unit::Seconds, "How long calls of the store took.");
    describe_counter!("dlock_acquired_total", Unit::Count, "Locks that threads got, by how they got them.");
    describe_counter!("dlock_not_acquired_total", Unit::Count, "Calls that got no lock, by the reason.");
    describe_counter!("dlock_released_total", Unit::Count, "Holds that ended, by what became of the lock.");
    describe_counter!("dlock_lost_total", Unit::Count, "Leases that were lost during a hold, by cause.");
    describe_counter!("dlock_renewals_total", Unit::Count, "Attempts to extend a lease, by result.");
    describe_counter!("dlock_new_servers_total", Unit::Count, "How often another server answered than before.");
    describe_counter!(
        "dlock_dropped_events_total",
        Unit::Count,
        "Events for which a function of the program was too slow."
    );
    describe_gauge!("dlock_waiting_threads", Unit::Count, "Threads and tasks of this process that wait for a lock.");
    describe_gauge!("dlock_held_locks", Unit::Count, "Locks that threads and tasks of this process hold.");
    describe_gauge!("dlock_known_keys", Unit::Count, "Keys of which this process has a handle.");
    describe_gauge!("dlock_store_failing", Unit::Count, "Whether the store fails now.");
    describe_gauge!(
        "dlock_store_failing_since_timestamp_seconds",
        Unit::Seconds,
        "Unix time since which the store fails; 0 while it answers."
    );
}
