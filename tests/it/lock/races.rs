//! Races of an extension with the release of the same hold: whoever is first, the release wins.
//!
//! A referee stands between the generator and the store. When enough extensions go by at once, it gives a sign; the
//! threads unlock those very locks, and the extensions go on a moment later, among the releases or after them.

use crate::support::crew::{Member, spawn};
use crate::support::is_long;
use crate::support::lab::{Lab, config, on_both_stores};
use parking_lot::Mutex;
use redis_dlock::processor::Limit;
use redis_dlock::{DistributedReentrantLock, Error, ExtendOutcome, LockProcessor, Outcome, Request};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

on_both_stores!(no_extension_outlives_the_release_it_races_with);

/// How many races there are on each of the two stores.
fn races() -> usize {
    if is_long() { 50_000 } else { 2_500 }
}

const THREADS: usize = 4;
const LOCKS_PER_THREAD: usize = 48;
/// A batch of so many extensions is worth a sign.
const MANY: usize = 16;

/// Shows: G2, S3.
fn no_extension_outlives_the_release_it_races_with(lab: &Lab) {
    let book = Arc::new(Book::default());
    let generator = lab.time.builder().build(Referee { store: lab.processor(), book: Arc::clone(&book) }).unwrap();
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let crew: Vec<_> = (0..THREADS)
        .map(|thread| {
            // Extended after a tenth of the lease.
            let settings = |n| config(&format!("{thread}-{n}"), 20).with_renew_at(0.1).with_probe(false);
            let locks: Vec<_> = (0..LOCKS_PER_THREAD).map(|n| generator.generate_with(settings(n)).unwrap()).collect();
            let (book, barrier) = (Arc::clone(&book), Arc::clone(&barrier));
            spawn(move || race(&locks, &book, &barrier))
        })
        .collect();
    let mut left_alive = Vec::new();
    // Time passes all the while.
    lab.time.during(|| {
        loop {
            barrier.wait();
            // Everybody has unlocked. A key is alive now only if a busy machine kept its release from being answered.
            barrier.wait();
            for key in lab.leftovers() {
                let holder = lab.holder(&key).map(|busy| busy.holder);
                left_alive.extend(holder.filter(|locker| book.ended.lock().contains(locker)));
            }
            let failed = !(left_alive.is_empty() && book.revived.lock().is_empty() && book.surprises.lock().is_empty());
            let raced = book.raced.load(Ordering::SeqCst);
            // A busy machine may let the releases win again and again.
            let done = failed || raced >= races() && book.both_have_won() || raced >= 20 * races();
            book.over.store(done, Ordering::SeqCst);
            barrier.wait();
            if done {
                break;
            }
        }
    });
    crew.into_iter().for_each(Member::join);
    assert_eq!(*book.surprises.lock(), [""; 0]);
    assert_eq!(left_alive, [""; 0], "alive after their release");
    assert_eq!(*book.revived.lock(), [""; 0], "extended after their release");
    assert!(book.both_have_won(), "{:?} of {:?} extensions came too late", book.refused, book.raced);
}

fn race(locks: &[DistributedReentrantLock], book: &Book, barrier: &Barrier) {
    // A panic here would leave the others at the barrier.
    let surprise = |error: Error| book.surprises.lock().push(error.to_string());
    while !book.over.load(Ordering::SeqCst) {
        barrier.wait();
        let signs = book.signs.load(Ordering::SeqCst);
        let guards: Vec<_> = locks.iter().filter_map(|lock| lock.lock().map_err(surprise).ok()).collect();
        let (start, longest) = (Instant::now(), locks[0].config().lease().mul_f64(0.3));
        while book.signs.load(Ordering::SeqCst) == signs && start.elapsed() < longest {
            std::thread::sleep(Duration::from_micros(50));
        }
        for guard in guards {
            // On a busy machine a lease of 20 ms may be over, or an answer late: that is no matter here.
            match guard.unlock() {
                Ok(()) | Err(Error::LeaseLost(_) | Error::Backend { .. }) => {}
                Err(error) => surprise(error),
            }
        }
        barrier.wait();
        barrier.wait();
    }
}

/// What the referee has seen.
#[derive(Debug, Default)]
struct Book {
    signs: AtomicUsize,
    batches: AtomicUsize,
    over: AtomicBool,
    /// Lockers whose release has begun, and lockers whose release was answered.
    ending: Mutex<HashSet<String>>,
    ended: Mutex<HashSet<String>>,
    /// Extensions that were answered after the release of the same locker had begun.
    raced: AtomicUsize,
    /// Those of them that came too late.
    refused: AtomicUsize,
    /// What no thread should have been told.
    surprises: Mutex<Vec<String>>,
    /// Lockers that were extended although their release had been answered before the extension was sent.
    revived: Mutex<Vec<String>>,
}

impl Book {
    /// Returns whether both sides have won. Otherwise there was no race.
    fn both_have_won(&self) -> bool {
        let (raced, late) = (self.raced.load(Ordering::SeqCst), self.refused.load(Ordering::SeqCst));
        late > raced / 100 && late < raced
    }
}

#[derive(Debug)]
struct Referee {
    store: Arc<dyn LockProcessor>,
    book: Arc<Book>,
}

impl LockProcessor for Referee {
    fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        match (requests, limit) {
            ([Request::Release(claim)], _) => {
                self.book.ending.lock().insert(claim.locker.to_owned());
                let results = self.store.run(requests, limit);
                if results[0].is_ok() {
                    self.book.ended.lock().insert(claim.locker.to_owned());
                }
                results
            }
            (_, Limit::Call(_)) => self.store.run(requests, limit),
            (_, Limit::Attempt(_)) => self.run_many(requests, limit),
        }
    }

    fn close(&self) {
        self.store.close();
    }
}

impl Referee {
    fn run_many(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
        if requests.len() >= MANY {
            self.book.signs.fetch_add(1, Ordering::SeqCst);
        }
        // Small batches wait too, so that the next ones are larger.
        let turn = self.book.batches.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros([300, 0, 50, 100, 200][turn % 5]));

        let ended: Vec<bool> = {
            let ended = self.book.ended.lock();
            requests.iter().map(|request| ended.contains(locker(request))).collect()
        };
        let results = self.store.run(requests, limit);
        let ending = self.book.ending.lock();
        for ((request, result), ended) in requests.iter().zip(&results).zip(ended) {
            if !matches!(request, Request::Extend(_)) || !ending.contains(locker(request)) {
                continue;
            }
            self.book.raced.fetch_add(1, Ordering::SeqCst);
            match result {
                Ok(Outcome::Extend(ExtendOutcome::NotOurs(_))) => _ = self.book.refused.fetch_add(1, Ordering::SeqCst),
                Ok(_) if ended => self.book.revived.lock().push(locker(request).to_owned()),
                _ => {}
            }
        }
        results
    }
}

fn locker<'a>(request: &Request<'a>) -> &'a str {
    request.claim().expect("a claim").locker
}
