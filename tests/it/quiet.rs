//! An orderly life of a generator, from connect to close, logs no line above DEBUG, but for one of INFO at each term of a leader.

use crate::support::RedisServer;
use crate::support::crew::{HANG, eventually, spawn, spawn_with, wait_by};
use crate::support::lab::wait_with;
use crate::support::process::alone;
use futures_lite::future::block_on;
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use redis_dlock::processor::Operations;
use redis_dlock::{
    CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, GeneratorBuilder, LockProcessor,
    MemoryLockProcessor, RedisBuilder, RedisLockProcessor,
};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Long enough for an answer on a busy machine; each store waits that long once.
const A_WHILE: Duration = Duration::from_secs(1);

static LOG: Counting = Counting { loud: Mutex::new(Vec::new()), quiet: AtomicUsize::new(0) };

/// Keeps the lines above DEBUG, and counts the others.
struct Counting {
    loud: Mutex<Vec<String>>,
    quiet: AtomicUsize,
}

impl Log for Counting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redis_dlock")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = format!("{} {}: {}", record.level(), record.target(), record.args());
        if record.level() <= Level::Info {
            self.loud.lock().push(line);
        } else {
            self.quiet.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// A connection on which a busy machine is never too slow.
fn patient(builder: RedisBuilder) -> RedisLockProcessor {
    builder.connect_timeout(HANG).io_timeout(HANG).connect().unwrap()
}

/// A store, and the ways to it.
struct TestedStore {
    name: &'static str,
    build: Box<dyn Fn(GeneratorBuilder) -> DLockGenerator + Send>,
    /// How many wait for a key in the store's queue.
    waiting: Box<dyn Fn(&str) -> u64 + Send>,
}

impl TestedStore {
    fn new<P: LockProcessor>(name: &'static str, processor: impl Fn() -> P + Clone + Send + 'static) -> Self {
        let observer = Mutex::new(None);
        let make = processor.clone();
        Self {
            name,
            build: Box::new(move |builder| builder.build(make()).unwrap()),
            waiting: Box::new(move |key| {
                let mut observer = observer.lock();
                observer.get_or_insert_with(&processor).inspect(key, HANG).unwrap().waiting
            }),
        }
    }

    fn redis(name: &'static str, url: &str) -> Self {
        let builder = RedisLockProcessor::builder(url).unwrap();
        Self::new(name, move || patient(builder.clone()))
    }

    /// A client with a connection, and its lock of that name.
    fn client(&self, target: &str) -> (DLockGenerator, DistributedReentrantLock) {
        self.client_with(target, |config| config)
    }

    fn client_with(
        &self,
        target: &str,
        settings: impl Fn(DLockConfig) -> DLockConfig,
    ) -> (DLockGenerator, DistributedReentrantLock) {
        let generator = (self.build)(DLockGenerator::builder());
        let lock = generator.generate_with(settings(DLockConfig::new("QUIET", target))).unwrap();
        (generator, lock)
    }

    /// Waits until so many stand in the store's queue: their clients are subscribed then.
    fn until_waiting(&self, lock: &DistributedReentrantLock, count: u64) {
        eventually("others wait in the store's queue", || (self.waiting)(lock.key()) == count);
    }
}

fn alone_and_reentrant(store: &TestedStore) {
    let (generator, lock) = store.client("alone");
    let guard = lock.lock().unwrap();
    drop(lock.lock().unwrap());
    assert!(lock.is_locked().unwrap());
    guard.unlock().unwrap();
    drop(lock.try_lock().unwrap().unwrap());
    generator.close();
    assert!(matches!(lock.lock(), Err(Error::ShutDown)));
}

fn a_drop_just_before_the_end(store: &TestedStore) {
    let (generator, lock) = store.client("dropped");
    drop(lock.lock().unwrap());
    generator.close();
    let (generator, lock) = store.client("dropped");
    drop(lock.lock().unwrap());
    drop(generator);
    drop(lock);
}

fn threads_that_wait_for_one_another(store: &TestedStore) {
    let (generator, lock) = store.client("threads");
    let (_elsewhere, held) = store.client("threads");
    let elsewhere = held.lock().unwrap();
    let crew: Vec<_> =
        (0..4).map(|_| spawn_with(&lock, move |lock| (0..10).for_each(|_| drop(lock.lock().unwrap())))).collect();
    store.until_waiting(&lock, 1);
    elsewhere.unlock().unwrap();
    crew.into_iter().for_each(|member| member.join());
    generator.close();
}

fn clients_that_hand_over_to_one_another(store: &TestedStore) {
    let clients: Vec<_> = (0..3).map(|_| store.client("clients")).collect();
    let guard = clients[0].1.lock().unwrap();
    let crew: Vec<_> = clients[1..]
        .iter()
        .map(|(_, lock)| spawn_with(lock, move |lock| (0..10).for_each(|_| lock.lock().unwrap().unlock().unwrap())))
        .collect();
    store.until_waiting(&clients[0].1, 2);
    guard.unlock().unwrap();
    crew.into_iter().for_each(|member| member.join());
    // Each ends in another way: closed, closed twice, dropped.
    clients[0].0.close();
    clients[1].0.close();
    clients[1].0.close();
}

fn waits_that_end_without_the_lock(store: &TestedStore) {
    let (_holding, held) = store.client("in vain");
    let (generator, lock) = store.client("in vain");
    let guard = held.lock().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    let cancel = CancelToken::new();
    let waiter = wait_with(&lock, &cancel, 1);
    store.until_waiting(&lock, 1);
    cancel.cancel();
    assert!(!waiter.join());
    assert!(lock.try_lock_for(A_WHILE).unwrap().is_none());
    guard.unlock().unwrap();
    generator.close();
}

fn a_close_beside_holds_and_waiters(store: &TestedStore) {
    let (_holding, held) = store.client("closing");
    let (generator, lock) = store.client("closing");
    let (guard, own) = (held.lock().unwrap(), generator.generate("QUIET", "own").unwrap());
    let own_guard = own.lock().unwrap();
    let waiter = spawn_with(&lock, |lock| matches!(lock.lock(), Err(Error::ShutDown)));
    store.until_waiting(&lock, 1);
    generator.close();
    assert!(waiter.join());
    guard.unlock().unwrap();
    // The last hold ends the rest.
    own_guard.unlock().unwrap();
}

fn a_close_at_once_after_a_wait_that_ended(store: &TestedStore) {
    let (_holding, held) = store.client("left");
    let guard = held.lock().unwrap();
    for _ in 0..5 {
        let (generator, lock) = store.client("left");
        let (waiter, cancel) = (lock.clone(), CancelToken::new());
        let waiter =
            spawn_with(&cancel, move |token| waiter.lock_cancellable(token).is_ok_and(|guard| guard.is_some()));
        store.until_waiting(&lock, 1);
        cancel.cancel();
        // Perhaps before its retry thread has released what stood in the queue.
        generator.close();
        assert!(!waiter.join());
    }
    guard.unlock().unwrap();
}

fn the_last_handle_goes_on_a_thread_that_waited(store: &TestedStore) {
    let (holding, held) = store.client("last");
    let (generator, lock) = store.client("last");
    let guard = held.lock().unwrap();
    let waiter = spawn(move || lock.lock().unwrap().unlock().unwrap());
    store.until_waiting(&held, 1);
    drop(generator);
    guard.unlock().unwrap();
    waiter.join();
    drop((holding, held));
}

fn lingering(store: &TestedStore) {
    let linger = |config: DLockConfig| config.with_linger(HANG);
    let (generator, lock) = store.client_with("linger", linger);
    let (other, wanted) = store.client_with("linger", linger);
    // A lock lingers only in a client that is subscribed.
    let guard = wanted.lock().unwrap();
    let waiter = spawn_with(&lock, |lock| lock.lock().unwrap().unlock().unwrap());
    store.until_waiting(&lock, 1);
    guard.unlock().unwrap();
    waiter.join();
    (0..5).for_each(|_| drop(lock.lock().unwrap()));
    // It is recalled, and lingers there until the end.
    drop(wanted.lock().unwrap());
    other.close();
    drop(lock.lock().unwrap());
    generator.close();
}

fn a_hold_that_is_renewed(store: &TestedStore) {
    // The first extension is due after a second.
    let settings = |config: DLockConfig| config.with_lease(Duration::from_secs(10)).with_renew_at(0.1);
    let (generator, lock) = store.client_with("renewed", settings);
    let guard = lock.lock().unwrap();
    let mut left = guard.remaining();
    eventually("it is extended", || {
        let before = std::mem::replace(&mut left, guard.remaining());
        left > before
    });
    guard.unlock().unwrap();
    generator.close();
}

fn without_messages(store: &TestedStore) {
    let generator = (store.build)(DLockGenerator::builder().listener(false));
    let lock = generator.generate("QUIET", "deaf").unwrap();
    let guard = lock.lock().unwrap();
    let waiter = wait_by(&lock, move |waiter| waiter.lock().unwrap().unlock().unwrap());
    guard.unlock().unwrap();
    waiter.join();
    generator.close();
}

fn a_lock_that_is_kept_for_a_while_after_its_hold(store: &TestedStore) {
    let (_elsewhere, wanted) = store.client("kept");
    let (generator, lock) = store.client("kept");
    lock.lock().unwrap().unlock_after(A_WHILE / 10).unwrap();
    wanted.lock().unwrap().unlock().unwrap();
    generator.close();
}

fn tasks(store: &TestedStore) {
    let (_holding, held) = store.client("tasks");
    let (generator, lock) = store.client("tasks");
    block_on(block_on(lock.hold_async()).unwrap().release_async()).unwrap();
    let hold = held.hold().unwrap();
    assert!(block_on(lock.try_hold_async()).unwrap().is_none());
    let waiter = spawn_with(&lock, |lock| drop(block_on(lock.hold_async()).unwrap()));
    store.until_waiting(&lock, 1);
    hold.release().unwrap();
    waiter.join();
    generator.close();
}

const TERMS: usize = 3;

fn a_leader(store: &TestedStore) {
    let (generator, _) = store.client("leader");
    let leader = generator.leader("QUIET", "led").unwrap();
    let mut terms = 0;
    let lead = |_| {
        terms += 1;
        if terms == TERMS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    leader.run(lead).unwrap();
    generator.close();
}

const LIVES: &[fn(&TestedStore)] = &[
    alone_and_reentrant,
    a_drop_just_before_the_end,
    threads_that_wait_for_one_another,
    clients_that_hand_over_to_one_another,
    waits_that_end_without_the_lock,
    a_close_beside_holds_and_waiters,
    a_close_at_once_after_a_wait_that_ended,
    the_last_handle_goes_on_a_thread_that_waited,
    lingering,
    a_hold_that_is_renewed,
    without_messages,
    a_lock_that_is_kept_for_a_while_after_its_hold,
    tasks,
    a_leader,
];

#[test]
fn an_orderly_life_logs_nothing_above_debug() {
    alone("it::quiet::an_orderly_life_logs_nothing_above_debug", || {
        log::set_logger(&LOG).expect("no other logger in this process");
        log::set_max_level(LevelFilter::Trace);
        let server = RedisServer::start_with(&["--unixsocket", "socket"]);
        let memory = MemoryLockProcessor::new();
        let mut places = vec![
            TestedStore::new("embedded", move || memory.clone()),
            TestedStore::redis("TCP", &server.url()),
            // Another database: the same server, and keys of its own.
            TestedStore::redis("local socket", &format!("unix://{}?db=1", server.file("socket").display())),
        ];
        #[cfg(feature = "tls")]
        let tls = crate::tls::TlsServer::start("localhost");
        #[cfg(feature = "tls")]
        places.push({
            let client = tls.client_of_its_authority();
            TestedStore::new("TLS", move || patient(client.clone()))
        });
        let count = places.len();
        let crew: Vec<_> = places
            .drain(..)
            .map(|store| {
                spawn(move || {
                    for life in LIVES {
                        let before = LOG.quiet.load(Ordering::Relaxed);
                        life(&store);
                        assert!(LOG.quiet.load(Ordering::Relaxed) > before, "{}: the log is written to", store.name);
                    }
                })
            })
            .collect();
        crew.into_iter().for_each(|member| member.join());
        let is_of_a_term = |line: &String| line.starts_with("INFO") && line.contains(": leads, term ");
        let (terms, loud): (Vec<_>, Vec<_>) = LOG.loud.lock().drain(..).partition(is_of_a_term);
        assert!(loud.is_empty(), "{} lines:\n{}", loud.len(), loud.join("\n"));
        assert_eq!(terms.len(), count * TERMS, "{terms:#?}");
    });
}

#[test]
fn a_subscription_that_breaks_in_life_is_logged() {
    alone("it::quiet::a_subscription_that_breaks_in_life_is_logged", || {
        log::set_logger(&LOG).expect("no other logger in this process");
        log::set_max_level(LevelFilter::Trace);
        let server = RedisServer::start();
        let store = TestedStore::redis("TCP", &server.url());
        let (_holding, held) = store.client("broken");
        let (generator, lock) = store.client("broken");
        let guard = held.lock().unwrap();
        let waiting = spawn_with(&lock, |lock| lock.lock().unwrap().unlock().unwrap());
        store.until_waiting(&lock, 1);
        server.run::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        eventually("it is logged", || LOG.loud.lock().iter().any(|line| line.contains("subscrib")));
        guard.unlock().unwrap();
        waiting.join();
        generator.close();
    });
}
