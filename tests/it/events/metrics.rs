//! The figures, by the recorder of the crate `metrics-util`, and the table of their names. The recorder belongs to the whole process, so
//! each test has a process of its own.

use super::page;
use crate::support::RedisServer;
use crate::support::allocations::allocations_of_this_thread;
use crate::support::crew::{answered, eventually, spawn, wait_for};
use crate::support::lab::{Lab, alone_on_both_stores, config};
use crate::support::process::alone;
use crossbeam_channel::bounded;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redis_dlock::{
    CancelToken, DLockGenerator, DistributedReentrantLock, Error, GeneratorBuilder, ManualClock, MemoryLockProcessor,
    RedisLockProcessor,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

alone_on_both_stores!(
    each_series_is_there_before_its_first_event,
    calls_that_get_nothing_are_counted_by_reason,
    what_is_held_and_known_is_counted,
    recording_allocates_nothing,
    each_figure_is_recorded_by_lock_type_and_never_by_key,
    threads_that_wait_in_several_clients_are_added_up,
    nothing_is_recorded_unless_the_builder_is_told_so,
    a_recorder_that_panics_disturbs_no_lock,
);

/// The figures since the last look: by name and labels, `dlock_lost_total{lock_type=TEST,cause=deleted}`.
struct Figures {
    snapshotter: Snapshotter,
    counts: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    samples: BTreeMap<String, Vec<f64>>,
    units: BTreeMap<String, Option<&'static str>>,
}

impl Figures {
    /// Adds what was recorded since: a snapshot takes the samples and the counts out, and sets the gauges to zero.
    fn look(&mut self) {
        for (key, unit, description, value) in self.snapshotter.snapshot().into_vec() {
            assert!(description.is_some(), "{key:?} is described");
            let labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
            self.units.insert(key.key().name().to_owned(), unit.map(|unit| unit.as_str()));
            match (key.kind(), value) {
                (MetricKind::Counter, DebugValue::Counter(count)) => {
                    *self.counts.entry(name).or_default() += count;
                }
                (MetricKind::Gauge, DebugValue::Gauge(change)) => {
                    *self.gauges.entry(name).or_default() += change.into_inner();
                }
                (MetricKind::Histogram, DebugValue::Histogram(values)) => {
                    self.samples.entry(name).or_default().extend(values.into_iter().map(|value| value.into_inner()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// The count of one name with any labels.
    fn sum(&self, name: &str) -> u64 {
        self.counts.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, count)| count).sum()
    }

    fn samples(&self, name: &str) -> &[f64] {
        self.samples.get(name).map_or(&[], |samples| samples)
    }
}

fn metered() -> (GeneratorBuilder, Figures) {
    let recorder = DebuggingRecorder::new();
    let (counts, gauges, samples, units) = Default::default();
    let figures = Figures { snapshotter: recorder.snapshotter(), counts, gauges, samples, units };
    recorder.install().unwrap();
    (DLockGenerator::builder().metrics(true), figures)
}

/// Shows: G6.
fn each_figure_is_recorded_by_lock_type_and_never_by_key(lab: &Lab) {
    let (builder, mut figures) = metered();
    let generator = lab.time.set(builder).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();

    // When the inbox opens, the holder assumes that others wait, and may not pass the lock on.
    let mut rounds = 0;
    while figures.count("dlock_acquired_total{lock_type=TEST,how=passed_on}") == 0 {
        let guard = lock.lock().unwrap();
        let waiter = wait_for(&lock);
        eventually("it is counted as waiting", || {
            figures.look();
            figures.gauges.get("dlock_waiting_threads{lock_type=TEST}") == Some(&1.0)
        });
        lab.time.pass(Duration::from_millis(20));
        guard.unlock().unwrap();
        waiter.join();
        figures.look();
        rounds += 1;
    }

    let victim = generator.generate_with(config("victim", 300).with_renew_at(0.1)).unwrap();
    let guard = victim.lock().unwrap();
    lab.time.until("a lease is extended", || {
        figures.look();
        figures.count("dlock_renewals_total{lock_type=TEST,result=in_time}") > 1
    });
    lab.delete(victim.key());
    lab.time.until("it is lost", || !guard.is_valid());
    assert!(guard.unlock().is_err());
    generator.close();

    figures.look();
    assert_eq!(figures.gauges["dlock_waiting_threads{lock_type=TEST}"], 0.0);
    assert_eq!(figures.sum("dlock_acquired_total"), 2 * rounds + 1);
    assert_eq!(figures.sum("dlock_released_total"), 2 * rounds + 1);
    assert_eq!(figures.count("dlock_acquired_total{lock_type=TEST,how=free}"), rounds + 1);
    assert_eq!(figures.count("dlock_released_total{lock_type=TEST,end=passed_on}"), 1);
    assert_eq!(figures.count("dlock_released_total{lock_type=TEST,end=sent}"), rounds);
    assert_eq!(figures.count("dlock_released_total{lock_type=TEST,end=lost}"), 1);
    assert_eq!(figures.count("dlock_lost_total{lock_type=TEST,cause=deleted}"), 1);
    for name in ["dlock_wait_seconds", "dlock_hold_seconds"] {
        let samples = figures.samples(&format!("{name}{{lock_type=TEST}}"));
        assert_eq!(samples.len() as u64, 2 * rounds + 1, "{name}: {samples:?}");
        // Each round has a thread that holds, and one that waits, for 20 ms.
        assert!(samples.iter().filter(|sample| **sample >= 0.02).count() as u64 >= rounds, "{name}: {samples:?}");
    }
    for call in ["acquire", "release", "batch"] {
        let calls = figures.samples(&format!("dlock_store_seconds{{call={call},result=answered}}"));
        assert!(!calls.is_empty() && calls.iter().all(|took| *took >= 0.0), "{call}: {calls:?}");
    }
    let renewed = ["in_time", "late"]
        .map(|result| figures.count(&format!("dlock_renewals_total{{lock_type=TEST,result={result}}}")));
    let left = figures.samples("dlock_lease_left_seconds{lock_type=TEST}");
    assert_eq!(left.len() as u64, renewed.iter().sum::<u64>(), "{left:?}");
    assert!(left.iter().all(|left| (0.0..0.3).contains(left)), "{left:?}");
    for (name, unit) in &figures.units {
        assert_eq!(*unit, Some(if name.ends_with("_seconds") { "seconds" } else { "count" }), "{name}");
    }
    for name in figures.counts.keys().chain(figures.gauges.keys()).chain(figures.samples.keys()) {
        assert!(!name.contains("victim") && !name.contains("DLOCK_"), "labelled with a key: {name}");
    }
    has_its_name_twice();
}

/// The manual's table names each series, with each value of its labels.
fn each_series_is_there_before_its_first_event(lab: &Lab) {
    let (builder, mut figures) = metered();
    let generator = lab.time.set(builder).build(lab.processor()).unwrap();
    let _lock = generator.generate_with(config("x", 3000)).unwrap();
    figures.look();
    assert!(figures.counts.values().all(|count| *count == 0), "{:?}", figures.counts);
    assert!(figures.samples.values().all(Vec::is_empty), "{:?}", figures.samples);
    let zero = |gauge: &&String| figures.gauges[*gauge] == 0.0;
    let moved: Vec<_> = figures.gauges.keys().filter(|gauge| !zero(gauge)).collect();
    assert_eq!(moved, ["dlock_known_keys{lock_type=TEST}"]);
    let there: BTreeSet<_> =
        figures.counts.keys().chain(figures.gauges.keys()).chain(figures.samples.keys()).cloned().collect();
    assert_eq!(there, page::series("TEST"));
}

fn calls_that_get_nothing_are_counted_by_reason(lab: &Lab) {
    let (builder, mut figures) = metered();
    let generator = lab.time.set(builder).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 60_000)).unwrap();
    let guard = lab.generator().generate_with(config("x", 60_000)).unwrap().lock_owned().unwrap();
    // On a busy machine the store may not answer in time: such a call is counted, and repeated.
    let failed = Cell::new(0);
    let noted = |result: Result<_, Error>| result.inspect_err(|_| failed.set(failed.get() + 1));
    assert!(answered(|| noted(lock.try_lock())).is_none());
    for _ in 0..2 {
        assert!(lab.time.during(|| answered(|| noted(lock.try_lock_for(Duration::from_millis(50))))).is_none());
    }
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(lock.lock_cancellable(&cancel).unwrap().is_none());
    let cancelled = 1 + give_up(&lock, || {
        figures.look();
        figures.gauges["dlock_waiting_threads{lock_type=TEST}"]
    });
    guard.unlock().unwrap();
    // A reentry is no attempt.
    let guard = lock.lock().unwrap();
    lock.try_lock().unwrap().unwrap().unlock().unwrap();
    guard.unlock().unwrap();
    generator.close();
    assert!(lock.lock().is_err());
    figures.look();
    let failed = failed.get();
    for (why, count) in [
        ("busy", 1),
        ("limit_over", 2),
        ("cancelled", cancelled),
        ("closed", 1),
        ("store_failed", failed),
        ("refused", 0),
    ] {
        assert_eq!(figures.count(&format!("dlock_not_acquired_total{{lock_type=TEST,why={why}}}")), count, "{why}");
    }
    assert_eq!(figures.sum("dlock_acquired_total"), 1);
}

/// Drops futures that wait for the lock, and returns how many. While they wait, they are counted.
fn give_up(lock: &DistributedReentrantLock, mut waiting: impl FnMut() -> f64) -> u64 {
    #[cfg(feature = "async")]
    {
        use futures_lite::future::{block_on, poll_once};
        let mut one = Box::pin(lock.hold_async());
        assert!(block_on(poll_once(&mut one)).is_none());
        assert_eq!(waiting(), 1.0);
        // This one has not begun to wait.
        drop((one, lock.hold_async()));
        assert_eq!(waiting(), 0.0);
        1
    }
    #[cfg(not(feature = "async"))]
    {
        let _ = (lock, waiting());
        0
    }
}

/// Shows: L6.
fn what_is_held_and_known_is_counted(lab: &Lab) {
    let (builder, mut figures) = metered();
    let mut gauges = || {
        figures.look();
        ["held_locks", "known_keys"].map(|name| figures.gauges[&format!("dlock_{name}{{lock_type=TEST}}")])
    };
    let generator = lab.time.set(builder).build(lab.processor()).unwrap();
    let [x, y] = ["x", "y"].map(|target| generator.generate_with(config(target, 60_000)).unwrap());
    let again = generator.generate_with(config("x", 30_000)).unwrap();
    assert_eq!(gauges(), [0.0, 2.0]);
    let (first, second) = (x.lock().unwrap(), y.lock_owned().unwrap());
    let reentry = again.lock().unwrap();
    assert_eq!(gauges(), [2.0, 2.0]);
    drop((reentry, second, y));
    assert_eq!(gauges(), [1.0, 1.0]);
    first.unlock().unwrap();
    assert_eq!(gauges(), [0.0, 1.0]);
    // Holds of no thread.
    let hold = x.hold().unwrap();
    assert_eq!(gauges()[0], 1.0);
    hold.release().unwrap();
    assert_eq!(gauges()[0], 0.0);
    #[cfg(feature = "async")]
    futures_lite::future::block_on(async {
        let hold = x.hold_async().await.unwrap();
        assert_eq!(gauges()[0], 1.0);
        hold.release_async().await.unwrap();
        assert_eq!(gauges()[0], 0.0);
    });
    // A hold that ends with its client.
    generator.generate_with(config("z", 60_000)).unwrap().unguarded().lock().unwrap();
    assert_eq!(gauges()[0], 1.0);
    drop((x, again, generator));
    assert_eq!(gauges(), [0.0, 0.0]);
}

fn recording_allocates_nothing(lab: &Lab) {
    let allocations = |builder: GeneratorBuilder| {
        let generator = lab.time.set(builder).build(lab.processor()).unwrap();
        let lock = generator.generate_with(config("x", 60_000)).unwrap();
        let pairs = |count: usize| (0..count).for_each(|_| lock.lock().unwrap().unlock().unwrap());
        pairs(100);
        let before = allocations_of_this_thread();
        pairs(1000);
        allocations_of_this_thread() - before
    };
    // Without a recorder, what is recorded goes nowhere.
    let [without, with] = [false, true].map(|is_on| allocations(DLockGenerator::builder().metrics(is_on)));
    assert!(with.abs_diff(without) < 50, "of 1,000 locks: {without} without metrics, {with} with them");
}

#[test]
fn a_store_that_fails_and_events_that_are_dropped_are_recorded() {
    alone("it::events::metrics::a_store_that_fails_and_events_that_are_dropped_are_recorded", || {
        let (builder, mut figures) = metered();
        let store = MemoryLockProcessor::new();
        let (leave, left) = bounded::<()>(0);
        let builder = builder.on_event(move |_| left.recv().unwrap_or_default());
        let generator = builder.build(store.clone()).unwrap();
        let lock = generator.generate_with(config("x", 60_000)).unwrap();
        let mut failing = || {
            figures.look();
            ["dlock_store_failing{}", "dlock_store_failing_since_timestamp_seconds{}"].map(|name| figures.gauges[name])
        };
        assert_eq!(failing(), [0.0, 0.0]);
        store.set_reachable(false);
        let earliest = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as f64;
        (0..3).for_each(|_| assert!(lock.try_lock().is_err()));
        let [is_failing, since] = failing();
        assert_eq!(is_failing, 1.0);
        assert!((earliest..earliest + 60.0).contains(&since), "{since}");
        // Of two clients whose stores fail, the time is the earlier one.
        let also = DLockGenerator::builder().metrics(true).build(store.clone()).unwrap();
        assert!(also.generate_with(config("x", 60_000)).unwrap().try_lock().is_err());
        assert_eq!(failing(), [2.0, since]);
        drop(also);
        assert_eq!(failing(), [1.0, since]);
        store.set_reachable(true);
        lock.lock().unwrap().unlock().unwrap();
        assert_eq!(failing(), [0.0, 0.0]);
        (0..4096).for_each(|_| lock.lock().unwrap().unlock().unwrap());
        // A client that ends no longer fails.
        store.set_reachable(false);
        assert!(lock.try_lock().is_err());
        assert_eq!(failing()[0], 1.0);
        let dropped = generator.dropped_events();
        assert!(dropped >= 4096, "{dropped}");
        drop((lock, generator, leave));
        assert_eq!(failing(), [0.0, 0.0]);
        assert_eq!(figures.count("dlock_dropped_events_total{}"), dropped);
        assert_eq!(figures.count("dlock_not_acquired_total{lock_type=TEST,why=store_failed}"), 5);
        assert_eq!(figures.samples("dlock_store_seconds{call=acquire,result=failed}").len(), 5);
    });
}

/// An extension is due at three quarters of the lease, and is late from 87 % on: `times.rs`.
#[test]
fn a_renewal_is_in_time_late_or_failed_and_tells_how_near_a_loss_was() {
    alone("it::events::metrics::a_renewal_is_in_time_late_or_failed_and_tells_how_near_a_loss_was", || {
        let (builder, mut figures) = metered();
        let clock = Arc::new(ManualClock::new());
        let store = MemoryLockProcessor::with_clock(clock.clone());
        let generator = builder.clock(clock.clone()).build(store.clone()).unwrap();
        let lock = generator.generate_with(config("x", 1_000_000)).unwrap();
        let _guard = lock.lock().unwrap();
        let mut left = Vec::new();
        for (after, result) in [(760, "in_time"), (880, "late"), (760, "failed")] {
            store.set_reachable(result != "failed");
            left.extend((result != "failed").then_some((990 - after) as f64));
            clock.advance(Duration::from_secs(after));
            let samples = "dlock_lease_left_seconds{lock_type=TEST}";
            // A snapshot may have the one and not yet the other.
            eventually(result, || {
                figures.look();
                figures.count(&format!("dlock_renewals_total{{lock_type=TEST,result={result}}}")) == 1
                    && figures.samples(samples).len() == left.len()
            });
            assert_eq!(figures.samples(samples), left);
        }
        assert_eq!(figures.sum("dlock_renewals_total"), 3);
    });
}

#[test]
fn another_server_is_counted_and_a_refusal() {
    alone("it::events::metrics::another_server_is_counted_and_a_refusal", || {
        let mut server = RedisServer::start();
        let (builder, mut figures) = metered();
        let generator = builder.build(RedisLockProcessor::connect(&server.url()).unwrap()).unwrap();
        let lock = generator.generate_with(config("x", 60_000)).unwrap();
        let mut answers = || {
            let pair = || lock.try_lock().is_ok_and(|guard| guard.is_some_and(|guard| guard.unlock().is_ok()));
            eventually("it answers", pair);
            figures.look();
            figures.count("dlock_new_servers_total{}")
        };
        assert_eq!(answers(), 0);
        server.kill();
        server.restart();
        assert_eq!(answers(), 1);
        // The key is somebody else's.
        server.run::<()>(&["RPUSH", lock.key(), "x"]);
        assert!(lock.try_lock().is_err());
        figures.look();
        // A first call after the restart may have failed.
        let others = figures.count("dlock_not_acquired_total{lock_type=TEST,why=store_failed}");
        assert_eq!(figures.sum("dlock_not_acquired_total") - others, 1);
        assert_eq!(figures.count("dlock_not_acquired_total{lock_type=TEST,why=refused}"), 1);
    });
}

fn threads_that_wait_in_several_clients_are_added_up(lab: &Lab) {
    let (builder, mut figures) = metered();
    let mut waiting = || {
        figures.look();
        figures.gauges.get("dlock_waiting_threads{lock_type=TEST}").copied()
    };
    let one = lab.time.set(builder).build(lab.processor()).unwrap();
    let two = lab.time.builder().metrics(true).build(lab.processor()).unwrap();
    let [here, there] = [&one, &two].map(|generator| generator.generate_with(config("x", 60_000)).unwrap());
    let guard = lab.generator().generate_with(config("x", 60_000)).unwrap().lock_owned().unwrap();
    let waiters = [&here, &here, &there].map(wait_for);
    eventually("all are counted", || waiting() == Some(3.0));
    // One that gives up leaves the others, and so does a client that is closed.
    assert!(lab.time.during(|| answered(|| there.try_lock_for(Duration::from_millis(50))).is_none()));
    assert_eq!(waiting(), Some(3.0));
    let third = lab.time.builder().metrics(true).build(lab.processor()).unwrap();
    let closed = third.generate_with(config("x", 60_000)).unwrap();
    let waiter = spawn(move || assert!(closed.lock().is_err()));
    eventually("it is counted", || waiting() == Some(4.0));
    third.close();
    waiter.join();
    assert_eq!(waiting(), Some(3.0));
    guard.unlock().unwrap();
    waiters.into_iter().for_each(|waiter| waiter.join());
    assert_eq!(waiting(), Some(0.0));
}

/// Each figure is recorded, and described.
fn has_its_name_twice() {
    let source = include_str!("../../../src/client/events/metrics/meters.rs");
    for name in page::names() {
        assert_eq!(source.matches(&format!("\"{name}\"")).count(), 2, "{name}");
    }
}

fn nothing_is_recorded_unless_the_builder_is_told_so(lab: &Lab) {
    let (_, figures) = metered();
    let builder = DLockGenerator::builder().on_event(|_| {}).on_lost(|_| {});
    let lock = lab.time.set(builder).build(lab.processor()).unwrap().generate_with(config("x", 3000)).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let recorded = figures.snapshotter.snapshot().into_vec();
    assert!(recorded.is_empty(), "{recorded:?}");
}

/// Panics whenever it is asked for anything.
struct Panicking;

impl metrics::Recorder for Panicking {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {
        panic!("the test wants it so");
    }

    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {
        panic!("the test wants it so");
    }

    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {
        panic!("the test wants it so");
    }

    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        panic!("the test wants it so");
    }

    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        panic!("the test wants it so");
    }

    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        panic!("the test wants it so");
    }
}

/// Shows: L3.
fn a_recorder_that_panics_disturbs_no_lock(lab: &Lab) {
    metrics::set_global_recorder(Panicking).unwrap();
    let generator = lab.time.builder().metrics(true).build(lab.processor()).unwrap();
    let lock = generator.generate_with(config("x", 3000)).unwrap();
    let guard = lock.lock().unwrap();
    let waiter = wait_for(&lock);
    guard.unlock().unwrap();
    waiter.join();
    generator.close();
    assert!(!lab.leftovers().iter().any(|key| key == lock.key()));
}
