//! Three commands of ten fail, in every way in which one can fail, and threads of two clients do all that a lock can do.
//!
//! Whatever fails, what is true of the lock is true: no two are inside with valid holds, tokens rise, the counts are right,
//! everybody returns, and nothing is left: not in the store (nor left to its lease there), and not in the process.

use super::faulty::{Faults, FaultyStore};
use crate::support::crew::{HANG, eventually};
use crate::support::dice::{Dice, seed};
use crate::support::is_long;
use crate::support::lab::{Lab, alone_on_both_stores, config};
use crate::support::process::{descriptors, threads, threads_named};
use crate::support::time::Time;
use parking_lot::Mutex;
use redis_dlock::processor::Operations;
use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, LossCause, Moment};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

alone_on_both_stores!(nothing_breaks_where_three_commands_of_ten_fail);

const LEASE_MS: u64 = 1000;

/// How many of a hundred commands fail.
const PART: u64 = 30;

const THREADS: usize = 8;

/// Shows: G1, G7, G11, L2, L3, L6.
fn nothing_breaks_where_three_commands_of_ten_fail(lab: &Lab) {
    let seed = seed();
    let operations = if is_long() { 10_000 } else { 200 };
    // What the process opens once and for all is opened now.
    drop(lab.generator().generate_with(config("to begin with", LEASE_MS)).unwrap().lock().unwrap());
    eventually("its end", || threads_named("dlock-") == 0);
    let (open, running, expired) = (descriptors(), threads(), lab.expirations());

    let run = Arc::new(Run::default());
    let clients: Vec<_> = (0..2).map(|n| Client::new(lab, seed ^ (n << 48))).collect();
    let workers: Vec<_> = (0..THREADS)
        .map(|n| {
            let locks = clients[n % clients.len()].locks.clone();
            let (run, dice) = (Arc::clone(&run), Dice::new(seed ^ (n as u64 + 1) << 32));
            let time = lab.time.clone();
            thread::spawn(move || Worker { number: n, locks, run, dice, time }.work(operations))
        })
        .collect();
    let impatient = run.cancel_now_and_then(seed);
    lab.time.during(|| run.wait_for_the_end(seed, &workers));
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    run.is_over.store(true, Ordering::SeqCst);
    impatient.join().unwrap();

    // What was to be executed late is; then, while commands still fail, all of it is given back.
    clients.iter().for_each(|client| eventually("nothing is late any more", || client.faults.none_is_late()));
    lab.time.until("nothing is left in the store", || lab.leftovers().is_empty());
    let tallies: Vec<_> = clients.iter().map(|client| client.faults.tally.counts()).collect();
    lab.time.during(|| clients.into_iter().for_each(Client::close));
    run.tell(lab, operations, &tallies, seed);
    let found = run.found.lock();
    assert!(found.is_empty(), "seed {seed}: {}", found.join("\n"));
    let lost = run.lost.load(Ordering::SeqCst);
    let left_to_leases = usize::try_from(lab.expirations() - expired).unwrap();
    assert_eq!(lost, 0, "seed {seed}: leases were lost");
    // A hold begins with half a lease at least, but for such a thread.
    let (late, holds) = (run.late.load(Ordering::SeqCst), run.holds.load(Ordering::SeqCst));
    assert!(late <= 1 + holds / 1000, "seed {seed}: {late} of {holds} holds began when their leases were nearly over");
    assert!(left_to_leases <= late, "seed {seed}: {left_to_leases} keys were left to their leases");
    eventually("the end of all threads", || threads() == running);
    assert_eq!(descriptors(), open, "seed {seed}");
    assert_eq!(lab.leftovers(), [""; 0], "seed {seed}");
}

/// One client, on a store that fails.
struct Client {
    generator: DLockGenerator,
    locks: Vec<DistributedReentrantLock>,
    faults: Faults,
}

impl Client {
    fn new(lab: &Lab, seed: u64) -> Self {
        let inner = lab.processor();
        // A store that never answered is no store that fails: there `lock()` tells the first error.
        inner.inspect("DLOCK_none", inner.limits().command).unwrap();
        let (store, faults) = FaultyStore::new(inner, PART, seed);
        let generator = lab.builder().build(store).unwrap();
        let settings: [fn(DLockConfig) -> DLockConfig; 4] = [
            |plain| plain,
            |config| config.with_linger(Duration::from_millis(3)),
            |config| config.with_local_passes(0),
            |config| config.with_local_passes(2).with_lease(Duration::from_millis(2 * LEASE_MS)),
        ];
        let locks = settings
            .iter()
            .enumerate()
            .map(|(n, settings)| generator.generate_with(settings(config(&format!("x{n}"), LEASE_MS))).unwrap());
        let locks = locks.collect();
        Self { generator, locks, faults }
    }

    fn close(self) {
        self.faults.end();
        self.generator.close();
    }
}

/// What all threads share.
#[derive(Default)]
struct Run {
    keys: [Mutex<Inside>; 4],
    found: Mutex<Vec<String>>,
    /// How many operations each thread has done.
    done: [AtomicUsize; THREADS],
    waiting: [Mutex<Option<CancelToken>>; THREADS],
    holds: AtomicUsize,
    reentries: AtomicUsize,
    refusals: AtomicUsize,
    failures: AtomicUsize,
    lost: AtomicUsize,
    /// How many leases were nearly over already when a thread got its hold, and then lost. The time that is moved by hand does not wait
    /// for a thread in `lock()`, from which the machine takes the core.
    late: AtomicUsize,
    is_over: AtomicBool,
}

/// Who is inside of one lock.
#[derive(Default)]
struct Inside {
    /// A thread, and until when it certainly holds the lock.
    holder: Option<(usize, Moment)>,
    token: u64,
}

impl Run {
    fn blame(&self, story: String) {
        self.found.lock().push(story);
    }

    /// Cancels a waiting thread now and then.
    fn cancel_now_and_then(self: &Arc<Self>, seed: u64) -> thread::JoinHandle<()> {
        let (run, mut dice) = (Arc::clone(self), Dice::new(!seed));
        thread::spawn(move || {
            while !run.is_over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(2));
                let slot = usize::try_from(dice.up_to(THREADS as u64 - 1)).unwrap();
                if let Some(token) = run.waiting[slot].lock().take() {
                    token.cancel();
                }
            }
        })
    }

    /// Waits as long as every thread gets on.
    fn wait_for_the_end(&self, seed: u64, workers: &[thread::JoinHandle<()>]) {
        let mut seen = [(0, Instant::now()); THREADS];
        while !workers.iter().all(thread::JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(5));
            for (n, worker) in workers.iter().enumerate() {
                let done = self.done[n].load(Ordering::Relaxed);
                if done > seen[n].0 || worker.is_finished() {
                    seen[n] = (done, Instant::now());
                }
                assert!(seen[n].1.elapsed() < HANG, "seed {seed}: thread {n} hangs in its operation {done}");
            }
        }
    }

    fn tell(&self, lab: &Lab, operations: usize, tallies: &[[usize; 4]], seed: u64) {
        let sum = |n: usize| tallies.iter().map(|counts| counts[n]).sum::<usize>();
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        eprintln!(
            "endurance, 30 % errors, {}: {} operations, {} holds, {} reentries, {} refused, {} failed; {} commands, {} failed, {} of \
             them executed late, {} inboxes broken; {} lost, {} late, {} violations, seed {seed}",
            lab.name(),
            operations * THREADS,
            count(&self.holds),
            count(&self.reentries),
            count(&self.refusals),
            count(&self.failures),
            sum(0),
            sum(1),
            sum(2),
            sum(3),
            count(&self.lost),
            count(&self.late),
            self.found.lock().len(),
        );
    }
}

struct Worker {
    number: usize,
    locks: Vec<DistributedReentrantLock>,
    run: Arc<Run>,
    dice: Dice,
    time: Time,
}

impl Worker {
    fn work(mut self, operations: usize) {
        for _ in 0..operations {
            let key = usize::try_from(self.dice.up_to(3)).unwrap();
            let lock = self.locks[key].clone();
            self.operate(key, &lock);
            if lock.hold_count() != 0 || lock.is_held_by_current_thread() {
                self.run.blame(format!(
                    "thread {} still holds {} {} times",
                    self.number,
                    lock.key(),
                    lock.hold_count()
                ));
            }
            self.run.done[self.number].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn operate(&mut self, key: usize, lock: &DistributedReentrantLock) {
        let limit = Duration::from_millis(1 + self.dice.up_to(20));
        let got = match self.dice.up_to(99) {
            0..30 => match lock.lock() {
                Ok(guard) => Ok(Some(guard)),
                Err(error) => return self.run.blame(format!("lock() does not wait an outage out: {error}")),
            },
            30..50 => lock.try_lock(),
            50..70 => lock.try_lock_for(limit),
            70..85 => {
                let cancel = CancelToken::new();
                *self.run.waiting[self.number].lock() = Some(cancel.clone());
                let got = lock.lock_cancellable(&cancel);
                *self.run.waiting[self.number].lock() = None;
                if let Err(error) = got {
                    return self.run.blame(format!("a cancelled wait is no error: {error}"));
                }
                got
            }
            _ => return self.pair(key, lock, limit),
        };
        if let Some(guard) = self.got(got) {
            let left = guard.remaining();
            self.inside(key, lock, guard.fencing_token(), &|| (guard.is_valid(), guard.remaining()));
            self.unlocked(lock, left, guard.unlock());
        }
    }

    /// An operation of ported code.
    fn pair(&mut self, key: usize, lock: &DistributedReentrantLock, limit: Duration) {
        let pair = lock.unguarded();
        let got = if self.dice.percent(50) { pair.try_lock_for(limit) } else { pair.try_lock() };
        if self.got(got.map(|got| got.then_some(()))).is_some() {
            let left = pair.remaining();
            let token = pair.fencing_token().unwrap();
            self.inside(key, lock, token, &|| (pair.is_valid(), pair.remaining()));
            self.unlocked(lock, left, pair.unlock());
        }
    }

    fn got<T>(&self, got: Result<Option<T>, Error>) -> Option<T> {
        match got {
            Ok(Some(hold)) => {
                self.run.holds.fetch_add(1, Ordering::Relaxed);
                return Some(hold);
            }
            Ok(None) => drop(self.run.refusals.fetch_add(1, Ordering::Relaxed)),
            Err(Error::Backend { .. }) => drop(self.run.failures.fetch_add(1, Ordering::Relaxed)),
            Err(error) => self.run.blame(format!("an acquire failed with {error:?}")),
        }
        None
    }

    /// Holds the lock for a while.
    fn inside(&mut self, key: usize, lock: &DistributedReentrantLock, token: u64, look: &dyn Fn() -> (bool, Duration)) {
        self.enter(key, token, look);
        let depth = if self.dice.percent(25) { self.dice.up_to(3) } else { 0 };
        self.reenter(lock, token, 1, usize::try_from(depth).unwrap());
        match self.dice.up_to(299) {
            // So that leases are extended.
            0 => self.time.sleep(Duration::from_millis(LEASE_MS * 9 / 10)),
            1..100 => thread::sleep(Duration::from_micros(self.dice.up_to(1000))),
            _ => {}
        }
        if self.dice.percent(10) {
            // One attempt blocks nobody, so it is no deadlock.
            let other = (key + 1) % self.locks.len();
            if let Ok(Some(second)) = self.locks[other].clone().try_lock() {
                self.enter(other, second.fencing_token(), &|| (second.is_valid(), second.remaining()));
                self.leave(other);
            }
        }
        self.leave(key);
    }

    fn enter(&self, key: usize, token: u64, look: &dyn Fn() -> (bool, Duration)) {
        let mut inside = self.run.keys[key].lock();
        // Under the mutex: whoever came before had its hold before this look.
        let before = self.time.now();
        let (is_valid, left) = look();
        let now = self.time.now();
        if !is_valid {
            return;
        }
        if let Some((other, until)) = inside.holder
            && now < until
        {
            self.run.blame(format!("threads {other} and {} are inside of x{key}", self.number));
        }
        if token <= inside.token {
            self.run.blame(format!("token {token} of x{key} comes after {}", inside.token));
        }
        *inside = Inside { holder: Some((self.number, before + left)), token };
    }

    fn leave(&self, key: usize) {
        self.run.keys[key].lock().holder.take_if(|(holder, _)| *holder == self.number);
    }

    fn reenter(&self, lock: &DistributedReentrantLock, token: u64, count: usize, depth: usize) {
        if lock.hold_count() != count {
            self.run.blame(format!("a hold counts {} times, not {count}", lock.hold_count()));
        }
        if depth == 0 {
            return;
        }
        match lock.lock() {
            Ok(inner) => {
                self.run.reentries.fetch_add(1, Ordering::Relaxed);
                if inner.fencing_token() != token {
                    self.run.blame(format!("reentry changed token {token} to {}", inner.fencing_token()));
                }
                self.reenter(lock, token, count + 1, depth - 1);
                if let Err(error) = inner.unlock()
                    && !matches!(error, Error::LeaseLost(_))
                {
                    self.run.blame(format!("an inner unlock asks nobody, and failed: {error}"));
                }
                if lock.hold_count() != count {
                    self.run.blame(format!("after an inner unlock it counts {} times, not {count}", lock.hold_count()));
                }
            }
            Err(Error::LeaseLost(_)) => {}
            Err(error) => self.run.blame(format!("reentry failed: {error}")),
        }
    }

    /// Judges the end of a hold that had so much of its lease left when this thread got it.
    fn unlocked(&self, lock: &DistributedReentrantLock, left: Duration, unlocked: Result<(), Error>) {
        match unlocked {
            Ok(()) | Err(Error::Backend { .. }) => {}
            Err(Error::LeaseLost(loss)) if loss.cause == LossCause::Deadline => {
                let is_late = left < lock.config().lease() / 4;
                let count = if is_late { &self.run.late } else { &self.run.lost };
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.run.blame(format!("unlocking {} failed with {error:?}", lock.key())),
        }
    }
}
