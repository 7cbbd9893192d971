//! Waits that end without the lock, a hundred thousand of them: they leave nothing behind, none ends before its limit, and they do not
//! disturb the holder. That they end at their limit is shown in `manual_clock/on_redis.rs`, where the clock stands.

use crate::support::allocations::bytes_in_use;
use crate::support::is_long;
use crate::support::lab::{Lab, alone_on_both_stores, config};
use crate::support::process::{descriptors, threads_named};
use crate::support::time::Time;
use redis_dlock::{DistributedReentrantLock, Error};
use std::thread;
use std::time::Duration;

alone_on_both_stores!(waits_that_fail_leave_nothing_and_last_for_their_time);

/// How long each wait is.
const WAIT: Duration = Duration::from_millis(1);

/// Threads of the holder's own client, of another one, and of some that have one each: there, every wait that ends is one
/// given up in the store, too.
const THREADS: [usize; 6] = [4, 12, 1, 1, 1, 1];

/// The lease in milliseconds of those who wait. A request that arrives after its locker was given up leaves a place in the store's queue, for two of
/// these leases at most: the test waits longer for the end of all places.
const LEASE: u64 = 6000;

/// The holder's lease in milliseconds. It is extended several times in the run.
const HOLDERS_LEASE: u64 = 1000;

/// So many bytes for each wait may be left: a table that was large once keeps its size, but whatever a wait leaves for good is
/// larger.
const GROWTH: usize = 8;

/// Shows: G12, L2.
fn waits_that_fail_leave_nothing_and_last_for_their_time(lab: &Lab) {
    let waits = if is_long() { 1_000_000 } else { 100_000 };
    let clients = THREADS.map(|_| lab.generator());
    let wanted = clients.each_ref().map(|client| client.generate_with(config("x", LEASE)).unwrap());
    let lock = clients[0].generate_with(config("x", HOLDERS_LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();

    // Whatever there is once for all is there after the first waits.
    let mut ends = lab.time.during(|| wait_in_vain(lab, &wanted, waits / 10));
    let before = Rest::of(lab, lock.key());
    ends.extend(&lab.time.during(|| wait_in_vain(lab, &wanted, waits - waits / 10)));
    let after = Rest::of(lab, lock.key());
    let most = before.bytes + isize::try_from(waits * GROWTH).unwrap();
    // What was given up without an answer is given back again and again, for a lease.
    lab.time.until("memory is given back", || bytes_in_use() < most);

    eprintln!(
        "endurance, time-outs, {}: {waits} waits of {WAIT:?}: {ends:?}, {} bytes left",
        lab.name(),
        bytes_in_use() - before.bytes
    );
    assert_eq!(ends.got, 0, "nobody got what was held");
    assert_eq!(ends.early, 0, "no wait ends before its limit");
    // A fifth of the waits stand in it once. If none was taken out before the end, all of these would stand in it together. How many do says how
    // late the thread was that takes them out: on a busy machine half of them.
    assert!(ends.queue < waits as u64 * 3 / 20, "{} stood in the store's queue", ends.queue);
    assert_eq!((guard.is_valid(), guard.fencing_token()), (true, token));
    // Each client has three threads, of which one starts when it has work. Any other one connects, and ends with that.
    lab.time.until("no thread is left", || threads_named("dlock-") <= 3 * THREADS.len());
    // Threads that happen to call at the same time open up to three connections more for their client.
    let most = before.descriptors + 3 * THREADS.len();
    assert!(after.descriptors <= most, "{} descriptors, and {}", before.descriptors, after.descriptors);
    assert_eq!(after.keys, [lock.key()], "the holder's key and nothing else");
    guard.unlock().unwrap();
    assert_eq!(lab.leftovers(), [""; 0]);
}

/// What there is while nobody waits.
struct Rest {
    bytes: isize,
    descriptors: usize,
    keys: Vec<String>,
}

impl Rest {
    fn of(lab: &Lab, key: &str) -> Self {
        lab.time.until("those who gave up are forgotten", || lab.waiting(key) == 0);
        // A look at the store of its own, which ends with it.
        let (descriptors, keys) = (descriptors().len(), lab.leftovers());
        Self { bytes: bytes_in_use(), descriptors, keys }
    }
}

/// How waits have ended.
#[derive(Debug, Default)]
struct Ends {
    /// The time ended before the store's answer.
    failed: usize,
    got: usize,
    early: usize,
    /// The longest queue in the store that was seen.
    queue: u64,
}

impl Ends {
    fn extend(&mut self, more: &Self) {
        self.failed += more.failed;
        self.got += more.got;
        self.early += more.early;
        self.queue = self.queue.max(more.queue);
    }
}

/// Lets threads wait so often, all together.
fn wait_in_vain(lab: &Lab, wanted: &[DistributedReentrantLock; 6], waits: usize) -> Ends {
    let each = waits / THREADS.iter().sum::<usize>();
    let mut ends = Ends::default();
    thread::scope(|scope| {
        let workers: Vec<_> = wanted
            .iter()
            .zip(THREADS)
            .flat_map(|(lock, threads)| (0..threads).map(move |_| lock))
            .map(|lock| scope.spawn(move || wait_alone(&lab.time, lock, each)))
            .collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            ends.queue = ends.queue.max(lab.waiting(wanted[0].key()));
            thread::sleep(Duration::from_millis(20));
        }
        workers.into_iter().for_each(|worker| ends.extend(&worker.join().unwrap()));
    });
    ends
}

fn wait_alone(time: &Time, lock: &DistributedReentrantLock, waits: usize) -> Ends {
    let mut ends = Ends::default();
    for _ in 0..waits {
        let begin = time.now();
        match lock.try_lock_for(WAIT) {
            // The clock is moved while a thread is about to look at it, so a wait may seem longer than it was, but never shorter.
            Ok(None) => ends.early += usize::from(time.now().since(begin) < WAIT),
            Ok(Some(_)) => ends.got += 1,
            Err(Error::Backend { .. }) => ends.failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    ends
}
