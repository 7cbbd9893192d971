//! Waits that end without the lock, a hundred thousand of them: they leave nothing behind, keep their time, and do not
//! disturb the holder.

use crate::support::allocations::bytes_in_use;
use crate::support::is_long;
use crate::support::lab::{Lab, alone_on_both_stores, config};
use crate::support::process::{descriptors, threads_named};
use crate::support::time::Time;
use parking_lot::{Condvar, Mutex};
use redis_dlock::{DistributedReentrantLock, Error};
use std::thread;
use std::time::{Duration, Instant};

alone_on_both_stores!(crate::support::lab::on_redis_in_real_time: waits_that_fail_leave_nothing_and_keep_their_time);

/// How long each wait is.
const WAIT: Duration = Duration::from_millis(1);

/// Threads of the holder's own client, of another one, and of some that have one each: there, every wait that ends is one
/// given up in the store, too.
const THREADS: [usize; 6] = [4, 12, 1, 1, 1, 1];

/// The lease in milliseconds of those who wait. A request that arrives after its locker was given up leaves a place in the store's queue, for two of
/// these leases at most: the test waits longer for the end of all places.
const LEASE: u64 = 6000;

/// The holder's lease in milliseconds. It is long enough for a machine on which many other threads want to run, and extended early, so that it is
/// extended in the run.
const HOLDERS_LEASE: u64 = 15_000;

/// So many bytes for each wait may be left: a table that was large once keeps its size, but whatever a wait leaves for good is
/// larger.
const GROWTH: usize = 8;

/// Shows: G12, L2.
fn waits_that_fail_leave_nothing_and_keep_their_time(lab: &Lab) {
    let waits = if is_long() { 1_000_000 } else { 100_000 };
    let clients = THREADS.map(|_| lab.generator());
    let wanted = clients.each_ref().map(|client| client.generate_with(config("x", LEASE)).unwrap());
    let lock = clients[0].generate_with(config("x", HOLDERS_LEASE).with_renew_at(0.25)).unwrap();
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();

    // Whatever there is once for all is there after the first waits; the times themselves from the beginning.
    let mut times = Times { waits: Vec::with_capacity(waits), naps: Vec::with_capacity(waits / 2), ..Times::default() };
    times.extend(lab.time.during(|| wait_in_vain(lab, &wanted, waits / 10)));
    let before = Rest::of(lab, lock.key());
    times.extend(lab.time.during(|| wait_in_vain(lab, &wanted, waits - waits / 10)));
    let after = Rest::of(lab, lock.key());
    let most = before.bytes + isize::try_from(waits * GROWTH).unwrap();
    // What was given up without an answer is given back again and again, for a lease.
    lab.time.until("memory is given back", || bytes_in_use() < most);

    times.tell(lab, bytes_in_use() - before.bytes);
    assert_eq!(times.got, 0, "nobody got what was held");
    // A fifth of the waits stand in it once. If none was taken out before the end, all of these would stand in it together. How many do says how
    // late the thread was that takes them out: on a busy machine half of them.
    assert!(times.queue < waits as u64 * 3 / 20, "{} stood in the store's queue", times.queue);
    assert_eq!((guard.is_valid(), guard.fencing_token()), (true, token));
    // Each client has three threads, of which one starts when it has work. Any other one connects, and ends with that.
    lab.time.until("no thread is left", || threads_named("dlock-") <= 3 * THREADS.len());
    // Threads that happen to call at the same time open up to three connections more for their client.
    let most = before.descriptors + 3 * THREADS.len();
    assert!(after.descriptors <= most, "{} descriptors, and {}", before.descriptors, after.descriptors);
    assert_eq!(after.keys, [lock.key()], "the holder's key and nothing else");
    if lab.time.is_by_hand() {
        // It is moved while a thread is about to look at it, so a wait may seem longer than it was, but never shorter.
        assert!(times.waits.iter().all(|wait| *wait >= WAIT), "{:?}", Times::quantile(&times.waits, 0));
    } else {
        times.are_kept();
    }
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

/// How long things took.
#[derive(Default)]
struct Times {
    waits: Vec<Duration>,
    /// The same threads wait as long for something that never happens, with one mutex for all of them, as threads do that
    /// wait for a lock in one process: what the machine makes of it.
    naps: Vec<Duration>,
    /// The longest look at the store beside them: what the machine makes of a few questions and answers.
    look: Duration,
    got: usize,
    failed: usize,
    /// The longest queue in the store that was seen.
    queue: u64,
}

impl Times {
    fn extend(&mut self, more: Self) {
        self.waits.extend(more.waits);
        self.naps.extend(more.naps);
        self.got += more.got;
        self.failed += more.failed;
        self.queue = self.queue.max(more.queue);
        self.look = self.look.max(more.look);
    }

    /// The duration that so many of a thousand do not reach.
    fn quantile(times: &[Duration], of_a_thousand: usize) -> Duration {
        let mut times = times.to_vec();
        times.sort();
        times.get(times.len().saturating_sub(1) * of_a_thousand / 1000).copied().unwrap_or_default()
    }

    fn tell(&self, lab: &Lab, grown: isize) {
        let figures = |times: &[Duration]| [500, 990, 999, 1000].map(|part| Self::quantile(times, part));
        eprintln!(
            "endurance, time-outs, {}: {} waits of {WAIT:?} failed, {} of them by name; median, 99 %, 99.9 %, longest {:.1?}, of naps {:.1?}, longest look {:.1?}; \
             queue up to {}, {grown} bytes left",
            lab.name(),
            self.waits.len(),
            self.failed,
            figures(&self.waits),
            figures(&self.naps),
            self.look,
            self.queue,
        );
    }

    /// A wait takes no longer than it should, but for what the machine adds to any wait. The longest ones were met by
    /// some bad moments in a row: their own, those of the thread that reads for them, and those of the server.
    fn are_kept(&self) {
        for (part, times, look, more) in [(500, 2, 0, 0), (990, 3, 0, 0), (1000, 5, 5, 100)] {
            let [waits, naps] = [&self.waits, &self.naps].map(|times| Self::quantile(times, part));
            let most = naps * times + self.look * look + WAIT * more;
            assert!(waits <= most, "{part} of 1000 waits: {waits:?}, naps: {naps:?}, look: {:?}", self.look);
        }
    }
}

/// Lets threads wait so often, all together.
fn wait_in_vain(lab: &Lab, wanted: &[DistributedReentrantLock; 6], waits: usize) -> Times {
    let common = Mutex::new(());
    let each = waits / THREADS.iter().sum::<usize>();
    let mut times = Times::default();
    thread::scope(|scope| {
        let workers: Vec<_> = wanted
            .iter()
            .zip(THREADS)
            .flat_map(|(lock, threads)| (0..threads).map(move |_| lock))
            .map(|lock| {
                let common = &common;
                scope.spawn(move || wait_alone(&lab.time, lock, common, each))
            })
            .collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            let begin = Instant::now();
            times.queue = times.queue.max(lab.waiting(wanted[0].key()));
            times.look = times.look.max(begin.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
        workers.into_iter().for_each(|worker| times.extend(worker.join().unwrap()));
    });
    times
}

fn wait_alone(time: &Time, lock: &DistributedReentrantLock, common: &Mutex<()>, waits: usize) -> Times {
    let mut times =
        Times { waits: Vec::with_capacity(waits), naps: Vec::with_capacity(waits / 4 + 1), ..Times::default() };
    let never = Condvar::new();
    for n in 0..waits {
        let begin = time.now();
        match lock.try_lock_for(WAIT) {
            Ok(None) => {}
            Ok(Some(_)) => times.got += 1,
            // The time ended before the store's answer.
            Err(Error::Backend { .. }) => times.failed += 1,
            Err(error) => panic!("{error}"),
        }
        times.waits.push(time.now().since(begin));
        if n % 4 == 0 && !time.is_by_hand() {
            let begin = Instant::now();
            never.wait_for(&mut common.lock(), WAIT);
            times.naps.push(begin.elapsed());
        }
    }
    times
}
