//! Threads of a test, and waiting for what they do: with hang guards, far longer than anything takes.

use redis_dlock::{DistributedReentrantLock, Error};
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Whether tests that take chances are to take many.
#[allow(dead_code, reason = "other tests use it")]
pub(crate) fn is_long() -> bool {
    std::env::var_os("DLOCK_TEST_LONG").is_some()
}

/// After so long a test hangs. A parked thread of the library looks around by itself after 30 s: a wake-up that got lost is
/// to be seen before that.
pub(crate) const HANG: Duration = Duration::from_secs(25);

/// The same for longer leases than a second, which `DLOCK_TEST_LEASE` gives to the scenarios of faults.
pub(crate) fn hang() -> Duration {
    let lease = std::env::var("DLOCK_TEST_LEASE").ok().and_then(|ms| ms.parse().ok()).unwrap_or(0);
    HANG + 10 * Duration::from_millis(lease)
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < hang(), "waited in vain: {what}");
        thread::sleep(Duration::from_micros(500));
    }
}

/// Waits until something is so that takes seconds, and that is found out by a connection each time.
#[track_caller]
pub(crate) fn slowly(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || {
        let is_so = is_so();
        if !is_so {
            thread::sleep(Duration::from_millis(10));
        }
        is_so
    });
}

/// What an attempt with a brief limit says that the store has answered within it, which it does not each time on a busy machine.
#[track_caller]
pub(crate) fn answered<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    let mut answer = None;
    eventually("an answer in time", || {
        answer = match attempt() {
            Err(Error::Backend { .. }) => None,
            other => Some(other.unwrap()),
        };
        answer.is_some()
    });
    answer.unwrap()
}

/// A thread whose end is waited for with a hang guard.
#[must_use]
pub(crate) struct Member<T>(JoinHandle<T>);

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Member<T> {
    Member(thread::spawn(work))
}

/// Starts a thread that works with a clone of something, such as a lock.
#[allow(dead_code, reason = "not all that include this file use it")]
pub(crate) fn spawn_with<S, T>(shared: &S, work: impl FnOnce(&S) -> T + Send + 'static) -> Member<T>
where
    S: Clone + Send + 'static,
    T: Send + 'static,
{
    let clone = shared.clone();
    spawn(move || work(&clone))
}

/// Starts a thread with a name.
#[allow(dead_code, reason = "not all that include this file use it")]
pub(crate) fn spawn_named<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Member<T> {
    Member(thread::Builder::new().name(name.to_owned()).spawn(work).unwrap())
}

/// Starts a thread that does something with a lock for which it must wait, and returns when one more waits for it in this client.
#[allow(dead_code, reason = "not all that include this file use it")]
#[track_caller]
pub(crate) fn wait_by<T: Send + 'static>(
    lock: &DistributedReentrantLock,
    work: impl FnOnce(&DistributedReentrantLock) -> T + Send + 'static,
) -> Member<T> {
    let before = lock.queue_length();
    let member = spawn_with(lock, work);
    eventually("it waits", || lock.queue_length() > before);
    member
}

/// Starts a thread that takes a lock and gives it back, and returns when it waits for that.
#[allow(dead_code, reason = "not all that include this file use it")]
#[track_caller]
pub(crate) fn wait_for(lock: &DistributedReentrantLock) -> Member<()> {
    wait_by(lock, |lock| drop(lock.lock().unwrap()))
}

/// Starts a thread that does something with a lock for which it must wait, and returns when it stands in the store's queue, alone.
#[allow(dead_code, reason = "not all that include this file use it")]
#[track_caller]
pub(crate) fn queue_by<T: Send + 'static>(
    lock: &DistributedReentrantLock,
    work: impl FnOnce(&DistributedReentrantLock) -> T + Send + 'static,
) -> Member<T> {
    let member = spawn_with(lock, work);
    eventually("it waits in the store's queue", || lock.inspect().unwrap().waiting == 1);
    member
}

impl<T> Member<T> {
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the thread's end; its panic is the caller's.
    #[track_caller]
    pub(crate) fn join(self) -> T {
        eventually("the end of a thread", || self.0.is_finished());
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}
