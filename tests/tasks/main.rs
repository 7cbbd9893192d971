//! Tasks that await the lock, on a real Redis server: on three runtimes and on a bare executor, ten thousand at once, dropped at random moments,
//! and in a web service.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

#[allow(dead_code, reason = "a part of the kit of all tests")]
#[path = "../support/crew.rs"]
mod crew;
#[allow(dead_code, reason = "a part of the kit of all tests")]
#[path = "../support/ports.rs"]
mod ports;
#[allow(dead_code, reason = "a part of the kit of all tests")]
#[path = "../support/process.rs"]
mod process;
#[allow(dead_code, reason = "a part of the kit of all tests")]
#[path = "../support/redis_server.rs"]
mod redis_server;

use crew::{eventually, slowly};
use futures_lite::future;
use process::{alone, example, threads};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock};
use redis_server::RedisServer;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

/// A server of one test.
struct Server(RedisServer);

impl Server {
    fn start() -> Self {
        Self(RedisServer::start())
    }

    fn generator(&self) -> DLockGenerator {
        DLockGenerator::connect(&self.0.url()).unwrap()
    }

    /// What is in the store, but for the fence and the clients' records.
    fn leftovers(&self) -> Vec<String> {
        let keys: Vec<String> = self.0.run(&["KEYS", "*DLOCK_*"]);
        keys.into_iter().filter(|key| key.contains("TASKS")).collect()
    }

    #[track_caller]
    fn expect_empty(&self) {
        slowly("nothing is left", || self.leftovers().is_empty());
    }
}

/// Two threads, and all that a runtime has.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// What the tasks of a test have seen, by the order in which they were inside.
#[derive(Default)]
struct Book {
    inside: AtomicBool,
    tokens: Mutex<Vec<u64>>,
}

/// Is inside for as long as a task takes for nothing else, `rounds` times.
async fn visit(lock: DistributedReentrantLock, book: Arc<Book>, rounds: usize) {
    for round in 0..rounds {
        let hold = lock.hold_async().await.unwrap();
        assert!(!book.inside.swap(true, Ordering::SeqCst), "two are inside at once");
        book.tokens.lock().unwrap().push(hold.fencing_token());
        future::yield_now().await;
        hold.ensure_valid().unwrap();
        book.inside.store(false, Ordering::SeqCst);
        if round % 2 == 0 {
            hold.release_async().await.unwrap();
        }
    }
}

/// Plays two clients with 16 tasks each on one key, and on a key for each task. `run` runs all of them to their ends.
fn exclude_one_another(run: impl Fn(Vec<Pin<Box<dyn Future<Output = ()> + Send>>>)) {
    const ROUNDS: usize = 20;
    let server = Server::start();
    let clients = [(); 2].map(|()| server.generator());
    let book = Arc::new(Book::default());
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for n in 0..32 {
        let client = &clients[n % 2];
        tasks.push(Box::pin(visit(client.generate("TASKS", "one").unwrap(), Arc::clone(&book), ROUNDS)));
        let alone = client.generate("TASKS", format!("own{n}")).unwrap();
        tasks.push(Box::pin(visit(alone, Arc::default(), ROUNDS)));
    }
    run(tasks);
    let tokens = book.tokens.lock().unwrap();
    assert_eq!(tokens.len(), 32 * ROUNDS);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "each token is greater than all before it");
    server.expect_empty();
}

fn exclude_one_another_on(runtime: &Runtime) {
    exclude_one_another(|tasks| {
        let running: Vec<_> = tasks.into_iter().map(|task| runtime.spawn(task)).collect();
        runtime.block_on(async {
            for task in running {
                task.await.unwrap();
            }
        });
    });
}

/// Shows: G1, G2.
#[test]
fn on_tokio() {
    exclude_one_another_on(&runtime());
}

/// The thread that polls all of the tasks must never wait for one of them.
/// Shows: G1, G2.
#[test]
fn on_one_thread_of_tokio() {
    exclude_one_another_on(&Builder::new_current_thread().build().unwrap());
}

/// Shows: G1, G2.
#[test]
fn on_smol() {
    exclude_one_another(|tasks| {
        let running: Vec<_> = tasks.into_iter().map(smol::spawn).collect();
        smol::block_on(async {
            for task in running {
                task.await;
            }
        });
    });
}

/// Shows: G1, G2.
#[test]
fn on_bare_threads() {
    exclude_one_another(|tasks| {
        let running: Vec<_> = tasks.into_iter().map(|task| thread::spawn(|| future::block_on(task))).collect();
        running.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Counts the bytes that the threads which count have taken and not given back.
struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);

std::thread_local! {
    static COUNTS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn count(bytes: usize, sign: i64) {
    if COUNTS.try_with(std::cell::Cell::get).unwrap_or(false) {
        BYTES.fetch_add(sign * i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

// SAFETY: it forwards every call to the system's allocator, and counts.
#[allow(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Ten thousand tasks wait for one key: with the threads of one, in less than a kilobyte each, and all are served in their order.
/// Shows: G7, G8.
#[test]
fn ten_thousand_tasks_wait_in_order() {
    alone(concat!(module_path!(), "::ten_thousand_tasks_wait_in_order"), wait_in_order);
}

fn wait_in_order() {
    const TASKS: usize = 10_000;
    let server = Server::start();
    let generator = server.generator();
    let lock = generator.generate("TASKS", "many").unwrap();
    let held = future::block_on(lock.hold_async()).unwrap();
    let poll = |waits: &mut Pin<Box<redis_dlock::HoldFuture>>| future::block_on(future::poll_once(waits));
    let mut first = Box::pin(lock.hold_async());
    assert!(poll(&mut first).is_none());
    // The last of the threads that a waiter needs is the listener.
    slowly("the client listens", || server.0.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "*inbox*"]).len() == 1);
    let (before, began) = (threads(), BYTES.load(Ordering::Relaxed));
    COUNTS.set(true);
    let mut waiting: Vec<_> = (1..TASKS).map(|_| Box::pin(lock.hold_async())).collect();
    assert!(waiting.iter_mut().all(|waits| poll(waits).is_none()));
    COUNTS.set(false);
    let bytes = (BYTES.load(Ordering::Relaxed) - began) / i64::try_from(TASKS).unwrap();
    eprintln!("endurance: {bytes} bytes for each task that waits");
    assert!(bytes < 1024, "{bytes} bytes a task");
    assert_eq!(lock.queue_length(), TASKS);
    assert!(threads() <= before, "{} threads, {before} before", threads());
    // Each is woken when its turn comes, and none before.
    let (served, mut last) = (AtomicU64::new(0), held.fencing_token());
    drop(held);
    for waits in std::iter::once(first).chain(waiting) {
        let hold = future::block_on(waits).unwrap();
        assert!(hold.fencing_token() > last);
        last = hold.fencing_token();
        served.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(served.into_inner(), u64::try_from(TASKS).unwrap());
    server.expect_empty();
}

/// Ten thousand futures are dropped at random moments of their waits, while others use the same keys.
/// Shows: L2, L3.
#[test]
fn dropped_futures_leave_nothing() {
    const TASKS: u64 = 10_000;
    let server = Server::start();
    let clients = [(); 2].map(|()| server.generator());
    let runtime = runtime();
    let (got, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let insides: Vec<_> = (0..4).map(|_| Arc::new(AtomicBool::new(false))).collect();
    let mut running = Vec::new();
    for n in 0..TASKS {
        let key = usize::try_from(n % 4).unwrap();
        let lock = clients[usize::try_from(n / 4 % 2).unwrap()].generate("TASKS", format!("key{key}")).unwrap();
        let (got, dropped, inside) = (Arc::clone(&got), Arc::clone(&dropped), Arc::clone(&insides[key]));
        // From nothing to some milliseconds, drawn by a multiplication.
        let patience = Duration::from_micros(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51);
        let work = async move {
            let held = tokio::time::timeout(patience, lock.hold_async()).await;
            match held {
                Ok(hold) => {
                    let hold = hold.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside at once");
                    inside.store(false, Ordering::SeqCst);
                    drop(hold);
                    got.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => _ = dropped.fetch_add(1, Ordering::Relaxed),
            }
        };
        running.push(runtime.spawn(work));
        if n % 64 == 63 {
            thread::sleep(Duration::from_micros(500));
        }
    }
    runtime.block_on(async {
        for task in running {
            task.await.unwrap();
        }
    });
    let (got, dropped) = (got.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed));
    println!("{got} had the lock, {dropped} were dropped");
    assert!(got > 0 && dropped > 0 && got + dropped == TASKS, "{got} {dropped}");
    server.expect_empty();
    // Each key works as before, in both clients.
    for client in &clients {
        for key in 0..4 {
            let lock = client.generate("TASKS", format!("key{key}")).unwrap();
            assert_eq!(lock.queue_length(), 0);
            future::block_on(async { lock.hold_async().await.unwrap().release_async().await.unwrap() });
        }
    }
}

/// The lines of the facade `log` are events of the span that the thread is in, and each hold has a span of its own.
#[test]
fn a_program_that_traces_sees_its_locks_in_spans() {
    let output = Command::new(example("traced")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let has = |words: [&str; 3]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(has(["TRACE order{number=4711}: ", "redis_dlock::acquire: ", "held, token "]), "{text}");
    assert!(has(["INFO hold{key=\"DLOCK_ORDER_4711\" token=", "how=\"free\"", "released held="]), "{text}");
}

/// How many requests there are at once.
const REQUESTS: usize = 1000;

/// How long a request waits for the lock.
const PATIENCE: Duration = Duration::from_millis(200);

/// Sends a request after a pause: how long the answer took, with the pause, and the answer.
async fn ask(address: String, line: String, pause: Duration) -> (Duration, String) {
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let begin = Instant::now();
    tokio::time::sleep(pause).await;
    let head = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    (begin.elapsed(), answer)
}

/// The median time, in seconds, of as many requests at once. None is answered before its time is over, and each as `is_right` wants.
fn median(
    runtime: &Runtime,
    address: &str,
    line: impl Fn(usize) -> String,
    pause: Duration,
    is_right: impl Fn(&str) -> bool,
) -> f64 {
    let running: Vec<_> = (0..REQUESTS).map(|n| runtime.spawn(ask(address.to_owned(), line(n), pause))).collect();
    let mut waits: Vec<_> = running
        .into_iter()
        .map(|running| {
            let (wait, answer) = runtime.block_on(running).unwrap();
            assert!(is_right(&answer), "{answer}");
            assert!(wait >= PATIENCE, "{wait:?}");
            wait
        })
        .collect();
    waits.sort();
    waits[REQUESTS / 2].as_secs_f64()
}

/// A thousand requests for one order at once: one works, and all others are told by whom. They take hardly longer than as many that wait for a timer
/// and then ask who works on it. Both are compared by their best rounds, since a busy machine makes any of them longer.
#[test]
fn a_web_service_answers_409_with_the_holder() {
    const ROUNDS: std::ops::RangeInclusive<usize> = 2..=10;
    let server = Server::start();
    let service =
        Command::new(example("web")).args([&*server.0.url(), "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut service = process::Killed(service);
    let mut address = String::new();
    BufReader::new(service.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim().strip_prefix("http://").unwrap();
    let runtime = runtime();
    let (mut working, mut best) = (Vec::new(), [f64::INFINITY; 2]);
    while !ROUNDS.contains(&working.len()) || best[0] > 1.2 * best[1] {
        assert!(working.len() < *ROUNDS.end(), "the waits are too long: {best:?}");
        let order = format!("TASKS{}", working.len());
        let of = |user: String| format!("POST /orders/{order}/from/{user}");
        working.push(runtime.spawn(ask(address.to_owned(), of("anna".to_owned()), Duration::ZERO)));
        eventually("she works on it", || server.leftovers().iter().any(|key| key.ends_with(&order)));
        let is_told = |answer: &str| answer.starts_with("HTTP/1.1 409") && answer.ends_with("anna works on it");
        let wait = median(&runtime, address, |n| of(format!("user{n}")), Duration::ZERO, is_told);
        // On a very busy machine, her work may be done by now.
        let is_answered = |answer: &str| answer.starts_with("HTTP/1.1 200");
        let of_timers = median(&runtime, address, |_| format!("GET /orders/{order}"), PATIENCE, is_answered);
        println!("the median of {REQUESTS} waits is {:.0} ms, of timers {:.0} ms", 1e3 * wait, 1e3 * of_timers);
        best = [best[0].min(wait), best[1].min(of_timers)];
    }
    for anna in working {
        let (_, answer) = runtime.block_on(anna).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    }
}

/// A config is needed for nothing else: its lease is the default.
#[test]
fn the_owner_has_the_name_that_the_program_gives_it() {
    let server = Server::start();
    let generator = server.generator();
    let lock = generator.generate_with(DLockConfig::new("TASKS", "named").with_holder_name("anna")).unwrap();
    let hold = future::block_on(lock.hold_async()).unwrap();
    let described = generator.describe("TASKS", "named").unwrap();
    assert_eq!(described.holder.unwrap().told.unwrap().thread.as_deref(), Some("anna"));
    future::block_on(hold.release_async()).unwrap();
}
