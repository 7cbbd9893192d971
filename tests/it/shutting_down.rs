//! Programs that are told to end while twenty of their threads or tasks hold locks or wait for them.

use crate::support::RedisServer;
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::lab::STALL;
use crate::support::process::{Killed, example, signal};
use crate::support::stalls::on_a_running_machine;
use redis_dlock::DLockGenerator;
use rustix::process::Signal;
use std::process::{Command, Stdio};

const WORKERS: usize = 20;

/// Two workers of a program share one.
const LOCKS: usize = WORKERS / 2;

/// Plays each scene with programs whose workers are threads, and with ones whose workers are tasks.
macro_rules! with_threads_and_tasks {
    ($($name:ident),+ $(,)?) => {
        mod threads {
            $(#[test] fn $name() { super::$name("threads"); })+
        }
        mod tasks {
            $(#[test] fn $name() { super::$name("tasks"); })+
        }
    };
}

with_threads_and_tasks!(
    those_that_hold_or_wait_leave_nothing_behind,
    waiters_that_end_give_their_places_up_in_few_writes,
    the_next_process_has_the_locks_when_the_holder_ends,
    programs_that_end_together_leave_nothing_behind,
);

/// Programs of one server, and an observer.
struct Scene {
    server: RedisServer,
    generator: DLockGenerator,
    /// What the workers are: the word for the example.
    workers: &'static str,
}

/// A program, which is killed if the test fails.
struct Program(Killed);

impl Program {
    fn terminate(&self) {
        signal(&self.0.0, Signal::TERM);
    }

    #[track_caller]
    fn end(self) {
        self.terminate();
        self.expect_orderly_end();
    }

    #[track_caller]
    fn expect_orderly_end(mut self) {
        let mut status = None;
        eventually("the program ends", || {
            status = self.0.0.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0));
    }
}

impl Scene {
    /// The server knows the scripts.
    fn new(workers: &'static str) -> Self {
        let scene = Self::with_a_fresh_server(workers);
        scene.start(true).end();
        scene
    }

    fn with_a_fresh_server(workers: &'static str) -> Self {
        let server = RedisServer::start();
        let generator = DLockGenerator::builder()
            .client_record(false)
            .build(redis_dlock::RedisLockProcessor::connect(&server.url()).unwrap())
            .unwrap();
        Self { server, generator, workers }
    }

    /// Starts a program. Returns when each of its workers holds a lock or waits for one: as the first program, or with all behind one.
    fn start(&self, is_first: bool) -> Program {
        let program = Command::new(example("shutdown"))
            .args([&*self.server.url(), &WORKERS.to_string(), self.workers])
            .stdout(Stdio::null())
            .spawn()
            .map(|child| Program(Killed(child)))
            .unwrap();
        for n in 0..LOCKS {
            eventually("all hold or wait", || {
                let seen = self.generator.describe("SHIFT", n.to_string()).unwrap();
                let party = if is_first { seen.holder.as_ref() } else { seen.waiting.first() };
                let waiting = if is_first { 1 } else { 2 };
                party.and_then(|party| party.told.as_ref()).is_some_and(|told| told.waiting_threads == waiting)
            });
        }
        program
    }

    /// How many hold a lock, and how many stand in a queue.
    fn holders_and_waiters(&self) -> (usize, usize) {
        let seen = (0..LOCKS).map(|n| self.generator.generate("SHIFT", n.to_string()).unwrap().inspect().unwrap());
        seen.fold((0, 0), |(held, waiting), seen| {
            (held + usize::from(seen.holder.is_some()), waiting + usize::try_from(seen.waiting).unwrap())
        })
    }

    /// What the store still has of locks, but for the counter of tokens.
    fn leftovers(&self) -> Vec<String> {
        let keys: Vec<String> = self.server.run(&["KEYS", "*"]);
        keys.into_iter().filter(|key| !key.contains("fence")).collect()
    }

    /// Since the counts were reset, there were hardly more scripts than releases, and hardly more pieces of data to read.
    #[track_caller]
    fn assert_few_writes(&self) {
        let commands = Commands::of(&self.server);
        let [scripts, reads] =
            [commands.count("evalsha") + commands.count("eval"), self.server.stat("total_reads_processed")];
        assert!((LOCKS..=WORKERS + OF_RECORD).contains(&(scripts as usize)), "{scripts}");
        assert!(reads as usize <= WORKERS + OF_RECORD + OTHERS, "{reads}");
    }
}

/// The scripts beside the releases: the record is written, or removed.
const OF_RECORD: usize = 2;

/// The reads beside those of scripts: the end of the subscription, and what this test asks.
const OTHERS: usize = 10;

/// There is a release for each lock, and at most one for each worker: a hold may still be given to a worker that ends. There are hardly more writes
/// than releases. On a machine that stands still, probes are counted with them.
/// Shows: L2, L6.
fn those_that_hold_or_wait_leave_nothing_behind(workers: &'static str) {
    on_a_running_machine(STALL, || {
        let scene = Scene::new(workers);
        let program = scene.start(true);
        assert_eq!(scene.holders_and_waiters(), (LOCKS, 0));
        Commands::forget(&scene.server);
        program.end();
        scene.assert_few_writes();
        assert_eq!(scene.leftovers(), [""; 0]);
    });
}

/// Shows: L2.
fn waiters_that_end_give_their_places_up_in_few_writes(workers: &'static str) {
    on_a_running_machine(STALL, || {
        let scene = Scene::new(workers);
        let (first, second) = (scene.start(true), scene.start(false));
        Commands::forget(&scene.server);
        second.end();
        scene.assert_few_writes();
        assert_eq!(scene.holders_and_waiters(), (LOCKS, 0));
        first.end();
        assert_eq!(scene.leftovers(), [""; 0]);
    });
}

/// Shows: L1, L2.
fn the_next_process_has_the_locks_when_the_holder_ends(workers: &'static str) {
    let scene = Scene::new(workers);
    let (first, second) = (scene.start(true), scene.start(false));
    assert_eq!(scene.holders_and_waiters(), (LOCKS, LOCKS));
    first.end();
    assert_eq!(scene.holders_and_waiters(), (LOCKS, 0));
    second.end();
    assert_eq!(scene.leftovers(), [""; 0]);
}

/// Shows: L2.
fn programs_that_end_together_leave_nothing_behind(workers: &'static str) {
    let scene = Scene::new(workers);
    let (first, second) = (scene.start(true), scene.start(false));
    first.terminate();
    second.terminate();
    first.expect_orderly_end();
    second.expect_orderly_end();
    assert_eq!(scene.leftovers(), [""; 0]);
}
