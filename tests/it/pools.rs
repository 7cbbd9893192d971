//! Pools that run another job on a thread whose job waits: what a lock without reentry does to a job that holds it meanwhile.

use crate::support::crew::HANG;
use crossbeam_channel::unbounded;
use redis_dlock::{CancelToken, DLockConfig, DLockGenerator, DistributedReentrantLock, Error, MemoryLockProcessor};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

fn once(target: &str) -> DLockConfig {
    DLockConfig::new("POOL", target).with_reentry(false)
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// How many jobs were inside at once, at most, and how many were refused.
#[derive(Default)]
struct Seen {
    inside: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
    refused: AtomicUsize,
}

impl Seen {
    /// A job that works while it holds the lock.
    fn job(&self, lock: &DistributedReentrantLock, work: impl FnOnce()) {
        let result = lock.with(|_| {
            let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(inside, Ordering::SeqCst);
            work();
            self.inside.fetch_sub(1, Ordering::SeqCst);
        });
        match result {
            Ok(()) => self.done.fetch_add(1, Ordering::SeqCst),
            Err(Error::AlreadyHeld { .. }) => self.refused.fetch_add(1, Ordering::SeqCst),
            Err(other) => panic!("{other:?}"),
        };
    }
}

/// A pool of one thread runs the newest job first: the one that its job inside has spawned, before that one goes on.
/// Shows: G1.
#[test]
fn a_job_on_the_thread_of_a_holder_is_refused_and_never_a_second_one_inside() {
    let lock = DLockGenerator::new(MemoryLockProcessor::new()).unwrap().generate_with(once("one")).unwrap();
    let seen = Seen::default();
    pool(1).scope(|jobs| {
        jobs.spawn(|jobs| {
            seen.job(&lock, || {
                jobs.spawn(|_| seen.job(&lock, || ()));
                rayon::yield_now();
            });
        });
    });
    assert_eq!((seen.done.into_inner(), seen.refused.into_inner(), seen.most.into_inner()), (1, 1, 1));
    assert!(lock.try_lock().unwrap().is_some());
}

/// Jobs hold the lock while they wait inside for smaller ones, on threads that take one another's jobs meanwhile. Whoever is refused tries
/// once more after all others.
/// Shows: G1, L3.
#[test]
fn jobs_that_wait_inside_for_others_exclude_one_another_and_do_not_hang() {
    const JOBS: usize = 200;
    let lock = DLockGenerator::new(MemoryLockProcessor::new()).unwrap().generate_with(once("many")).unwrap();
    let (seen, (say, all_done)) = (Seen::default(), unbounded());
    let split = || {
        rayon::scope(|parts| (0..4).for_each(|_| parts.spawn(|_| thread::yield_now())));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pool(4).scope(|jobs| (0..JOBS).for_each(|_| jobs.spawn(|_| seen.job(&lock, split))));
            let refused = seen.refused.swap(0, Ordering::SeqCst);
            (0..refused).for_each(|_| seen.job(&lock, || ()));
            say.send(()).unwrap();
        });
        all_done.recv_timeout(HANG).expect("a job hangs");
    });
    assert_eq!((seen.done.into_inner(), seen.refused.into_inner(), seen.most.into_inner()), (JOBS, 0, 1));
}

/// Two jobs hold a key each, and each thread runs a job inside that wants the other's.
/// Shows: L3.
#[test]
fn jobs_that_wait_for_one_another_are_told_of_their_circle() {
    let (say, told) = unbounded();
    let builder = DLockGenerator::builder()
        .on_slow_wait(Duration::from_secs(3600), move |wait| say.send(wait.circle.clone()).unwrap());
    let generator = builder.build(MemoryLockProcessor::new()).unwrap();
    let locks = ["left", "right"].map(|target| generator.generate_with(once(target)).unwrap());
    let (held, cancel) = (Barrier::new(2), CancelToken::new());
    let job = |mine: &DistributedReentrantLock, other: &DistributedReentrantLock| {
        mine.with(|_| {
            held.wait();
            rayon::scope(|inside| {
                inside.spawn(|_| {
                    let got = other.lock_cancellable(&cancel).unwrap();
                    assert!(got.is_none() || cancel.is_cancelled(), "nobody lets go");
                });
            });
        })
        .unwrap();
    };
    thread::scope(|scope| {
        let [left, right] = &locks;
        let (job, cancel) = (&job, &cancel);
        let jobs = scope.spawn(move || pool(2).join(|| job(left, right), || job(right, left)));
        let circle = told.recv_timeout(HANG);
        cancel.cancel();
        jobs.join().unwrap();
        let mut circle = circle.expect("somebody is told");
        circle.sort();
        assert_eq!(circle, locks.each_ref().map(|lock| lock.key().to_owned()));
    });
}
