//! A logger that panics: no caller sees it, and nothing stays behind that others wait for.

use crate::support::RedisServer;
use crate::support::crew::{HANG, eventually};
use crate::support::lab::{builder, config};
use crate::support::process::alone;
use log::{Level, LevelFilter, Log, Metadata, Record};
use redis_dlock::{DLockGenerator, RedisLockProcessor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const HOUR: u64 = 3_600_000;

/// How many of the next lines panic, and how many did, by level.
static ARMED: AtomicUsize = AtomicUsize::new(0);
static PANICS: [AtomicUsize; 6] = [const { AtomicUsize::new(0) }; 6];

struct Broken;

impl Log for Broken {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redis_dlock")
    }

    fn log(&self, record: &Record<'_>) {
        // What `println!` does behind a closed pipe.
        if ARMED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            PANICS[record.level() as usize].fetch_add(1, Ordering::SeqCst);
            panic!("failed printing: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Cuts all connections but the one that says so.
fn cut(server: &RedisServer) {
    server.run::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
}

/// Every thread gets a lock of its own and gives it back, and so it is for each connection.
fn works(generator: &DLockGenerator) {
    thread::scope(|scope| {
        for n in 0..8 {
            let lock = generator.generate_with(config(&format!("own-{n}"), HOUR)).unwrap();
            scope.spawn(move || {
                for _ in 0..20 {
                    drop(lock.try_lock_for(HANG).unwrap().expect("nobody else wants it"));
                }
            });
        }
    });
}

/// A lock that is taken, lost, taken again over cut connections, dropped and cleaned up; with so many panics at each step.
fn live(server: &RedisServer, generator: &DLockGenerator, panics: usize) {
    let lock = generator.generate_with(config("x", HOUR)).unwrap();
    let arm = || ARMED.store(panics, Ordering::SeqCst);
    for _ in 0..3 {
        arm();
        drop(lock.try_lock_for(HANG).unwrap().expect("nobody else wants it"));
        cut(server);
        arm();
        // The connection is found cut by who writes, or by who reads. The attempt may fail; the next one does not.
        let _ = lock.try_lock();
        let guard = lock.try_lock_for(HANG).unwrap().expect("nobody else wants it");
        cut(server);
        arm();
        drop(guard);
        eventually("it is released", || server.run::<u64>(&["EXISTS", lock.key()]) == 0);
        // A release whose connection turns out to be cut is sent again, and what the second one finds tells nothing of the first.
        // Every try finds one of the cut connections, until none is left.
        eventually("a loss is told", || {
            let guard = lock.lock().unwrap();
            server.run::<()>(&["DEL", lock.key()]);
            arm();
            guard.unlock().is_err()
        });
        ARMED.store(0, Ordering::SeqCst);
        works(generator);
    }
}

#[test]
fn a_log_that_panics_is_noticed_by_nobody() {
    alone(concat!(module_path!(), "::a_log_that_panics_is_noticed_by_nobody"), || {
        log::set_logger(&Broken).expect("no other logger in this process");
        let server = RedisServer::start();
        for level in [LevelFilter::Warn, LevelFilter::Info, LevelFilter::Debug, LevelFilter::Trace] {
            log::set_max_level(level);
            for panics in [1, 1000] {
                let store = RedisLockProcessor::connect(&server.url()).unwrap();
                let generator = builder().on_lost(|_| panic!("of the program's own")).build(store).unwrap();
                let lived = catch_unwind(AssertUnwindSafe(|| live(&server, &generator, panics)));
                assert!(lived.is_ok(), "{level}, {panics}");
                ARMED.store(panics, Ordering::SeqCst);
                generator.close();
                drop(generator);
                ARMED.store(0, Ordering::SeqCst);
            }
        }
        for level in [Level::Warn, Level::Info, Level::Debug, Level::Trace] {
            assert!(PANICS[level as usize].load(Ordering::SeqCst) > 0, "no line of {level} panicked");
        }
    });
}
