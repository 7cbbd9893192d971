//! Virtual time. It stands still until a thread of the model moves it on, to the end of the next sleep or further.
//!
//! All threads of an execution run on one thread of the operating system. So state that they share without a scheduling point is a
//! thread-local of that thread.

use crate::clock::{Clock, Moment};
use once_cell::sync::Lazy;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread that sleeps this long sleeps for ever. Whatever must be checked sooner or later has a wake-up of its own, and a lost
/// wake-up must be found, not slept through.
pub(crate) const FOR_GOOD: Duration = Duration::from_secs(30);

struct Time {
    now: Moment,
    sleepers: BTreeMap<(Moment, u64), Arc<shuttle::sync::Condvar>>,
    last: u64,
    timer: Option<shuttle::thread::Thread>,
    stop: bool,
}

std::thread_local! {
    static TIME: RefCell<Time> = const {
        RefCell::new(Time { now: START, sleepers: BTreeMap::new(), last: 0, timer: None, stop: false })
    };
}

const START: Moment = Moment::from_nanos(1_000_000_000);

/// The clock of the clients. Each reading is a step of its own.
#[derive(Debug)]
pub(crate) struct ClientClock;

impl Clock for ClientClock {
    fn now(&self) -> Moment {
        step();
        now()
    }
}

/// The clock of the store. Reading it is no step, because an operation of the store is one step.
#[derive(Debug)]
pub(crate) struct StoreClock;

impl Clock for StoreClock {
    fn now(&self) -> Moment {
        now()
    }
}

/// A scheduling point.
pub(crate) fn step() {
    // Shuttle's yield would also ask it to run other threads first; it has no call that is only a scheduling point.
    shuttle::sync::atomic::AtomicBool::new(false).load(shuttle::sync::atomic::Ordering::SeqCst);
}

/// The virtual time.
pub(crate) fn now() -> Moment {
    TIME.with_borrow(|time| time.now)
}

/// The virtual time as an `Instant`.
pub(crate) fn instant() -> Instant {
    static BEGIN: Lazy<Instant> = Lazy::new(Instant::now);
    *BEGIN + now().since(START)
}

/// Begins an execution.
pub(crate) fn reset() {
    TIME.with_borrow_mut(|time| {
        *time = Time { now: START, sleepers: BTreeMap::new(), last: 0, timer: None, stop: false };
    });
}

/// An entry in the list of sleepers, removed when it is dropped.
pub(crate) struct Sleeper(Option<(Moment, u64)>);

/// Has the condition variable notified when `limit` has passed.
pub(crate) fn wake_after(condvar: &Arc<shuttle::sync::Condvar>, limit: Duration) -> Sleeper {
    if limit >= FOR_GOOD {
        return Sleeper(None);
    }
    let (place, timer) = TIME.with_borrow_mut(|time| {
        time.last += 1;
        let place = (time.now + limit, time.last);
        time.sleepers.insert(place, Arc::clone(condvar));
        (place, time.timer.clone())
    });
    let sleeper = Sleeper(Some(place));
    if let Some(timer) = timer {
        timer.unpark();
    }
    sleeper
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            TIME.with_borrow_mut(|time| time.sleepers.remove(&place));
        }
    }
}

/// How the time of an execution passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many steps the timer lets pass between two moves.
    pub(crate) steps: u32,
    /// How often it may leap, which makes every thread late as if the process had been stopped.
    pub(crate) leaps: u32,
    /// The unit of a leap: each leap is from half of it to twice as long.
    pub(crate) leap: Duration,
}

/// Moves the time on until [`stop`] is called, on the calling thread. Calls `look` before each move.
pub(crate) fn run(pace: Pace, mut look: impl FnMut()) {
    use shuttle::rand::Rng;
    let mut rng = shuttle::rand::thread_rng();
    TIME.with_borrow_mut(|time| time.timer = Some(shuttle::thread::current()));
    let mut leaps = pace.leaps;
    loop {
        for _ in 0..pace.steps {
            shuttle::thread::yield_now();
        }
        let (stop, first) = TIME.with_borrow(|time| (time.stop, time.sleepers.first_key_value().map(|(at, _)| at.0)));
        if stop {
            return;
        }
        let Some(first) = first else {
            shuttle::thread::park();
            continue;
        };
        look();
        let mut to = first;
        if leaps > 0 && rng.gen_ratio(1, 4) {
            leaps -= 1;
            to = now() + pace.leap.mul_f64(f64::from(rng.gen_range(1..=4)) / 2.0);
        }
        let due: Vec<_> = TIME.with_borrow_mut(|time| {
            time.now = time.now.max(to);
            time.sleepers.range(..=(time.now, u64::MAX)).map(|(_, condvar)| Arc::clone(condvar)).collect()
        });
        // A thread that is about to wait misses this, but it is still due at the next move.
        for condvar in due {
            condvar.notify_all();
        }
        shuttle::thread::yield_now();
    }
}

/// Ends [`run`].
pub(crate) fn stop() {
    let timer = TIME.with_borrow_mut(|time| {
        time.stop = true;
        time.timer.clone()
    });
    if let Some(timer) = timer {
        timer.unpark();
    }
}
