//! The time of a store and its clients: real, or moved by hand while a test waits for an effect.

#[path = "at_work.rs"]
mod at_work;

use super::crew::{Member, eventually, hang};
use at_work::{AtWork, Noting};
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use redis_dlock::{
    Clock, DLockGenerator, DistributedReentrantLock, GeneratorBuilder, LockProcessor, ManualClock, Moment, SystemClock,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A pause between two looks at threads that are at work.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// How far time passes at once while no client sleeps until a moment.
const TICK: Duration = Duration::from_millis(10);

/// The time of a store and its clients. Where it is moved by hand, it moves only within the calls of this type, from one wake-up
/// to the next, and no busy machine can end a lease that a client renews.
#[derive(Clone, Debug, Default)]
pub(crate) struct Time {
    by_hand: Option<Arc<ManualClock>>,
    /// Until when calls of a silent store wait.
    silent: Arc<Mutex<Vec<Moment>>>,
    at_work: Arc<AtWork>,
}

impl Time {
    /// A time that is moved by hand.
    pub(crate) fn by_hand(clock: Arc<ManualClock>) -> Self {
        Self { by_hand: Some(clock), ..Self::default() }
    }

    pub(crate) fn is_by_hand(&self) -> bool {
        self.by_hand.is_some()
    }

    pub(crate) fn now(&self) -> Moment {
        self.by_hand.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now())
    }

    /// Builds clients that go by this time.
    pub(crate) fn set(&self, builder: GeneratorBuilder) -> GeneratorBuilder {
        match &self.by_hand {
            Some(clock) => builder.clock(clock.clone()),
            None => builder,
        }
    }

    /// A client that goes by this time.
    pub(crate) fn builder(&self) -> GeneratorBuilder {
        self.set(DLockGenerator::builder())
    }

    /// Returns the store in a wrapper that notes its callers, so that time does not run ahead of them.
    pub(crate) fn keep_up(&self, store: Arc<dyn LockProcessor>) -> Arc<dyn LockProcessor> {
        if self.is_by_hand() { Arc::new(Noting { store, at_work: Arc::clone(&self.at_work) }) } else { store }
    }

    /// Runs `work` as work on the store: time does not run ahead of it. From then on, time does not run ahead of the calling thread either.
    #[allow(dead_code, reason = "not all that include this file use it")]
    pub(crate) fn keep_up_with<T>(&self, work: impl FnOnce() -> T) -> T {
        self.at_work.call(work)
    }

    /// Moves a clock that is moved by hand to the next wake-up, and by `at_most`. Pauses while a thread is at work.
    fn step(&self, clock: &ManualClock, at_most: Duration) {
        let (now, mut next) = (clock.now(), clock.next_wake());
        // The thread whose call a silent store does not answer is at work, and waits for the time to pass.
        if let Some(&silent) = self.silent.lock().iter().min() {
            next = if next <= now { silent } else { next.min(silent) };
        }
        if next == Moment::NEVER {
            // No client sleeps until a moment; the store has leases that end.
            thread::sleep(LOOK_AGAIN);
            next = now + TICK;
        }
        let allowed = self.at_work.allows(next.since(now).min(at_most));
        if allowed.is_zero() {
            thread::sleep(LOOK_AGAIN);
        } else {
            clock.advance(allowed);
        }
    }

    /// Lets time pass until something is so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        self.until_by_steps(what, Duration::MAX, is_so);
    }

    /// Lets a little time pass until something is so: what is due in hours does not become due meanwhile.
    #[track_caller]
    pub(crate) fn until_soon(&self, what: &str, is_so: impl FnMut() -> bool) {
        self.until_by_steps(what, TICK, is_so);
    }

    /// As [`until_soon`](Self::until_soon). It sleeps for a millisecond of real time before each look, so that threads get on whose work this clock does
    /// not see.
    #[track_caller]
    pub(crate) fn until_slowly(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        self.until_soon(what, || {
            thread::sleep(Duration::from_millis(1));
            is_so()
        });
    }

    #[track_caller]
    fn until_by_steps(&self, what: &str, step: Duration, mut is_so: impl FnMut() -> bool) {
        let Some(clock) = &self.by_hand else { return eventually(what, is_so) };
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < hang(), "waited in vain: {what}");
            self.step(clock, step);
        }
    }

    /// Lets so much time pass. What becomes due on the way is done.
    pub(crate) fn pass(&self, time: Duration) {
        let Some(clock) = &self.by_hand else { return thread::sleep(time) };
        let end = clock.now() + time;
        while clock.now() < end || clock.next_wake() <= clock.now() {
            self.step(clock, end.since(clock.now()));
        }
    }

    /// Sleeps for so long, while another thread lets time pass.
    pub(crate) fn sleep(&self, time: Duration) {
        if self.by_hand.is_none() {
            return thread::sleep(time);
        }
        let end = self.now() + time;
        eventually("time passes", || self.now() >= end);
    }

    /// Lets so much time pass at once, as on a machine that stands still, and while threads are kept at work.
    pub(crate) fn jump(&self, time: Duration) {
        match &self.by_hand {
            Some(clock) => clock.advance(time),
            None => thread::sleep(time),
        }
    }

    /// Lets time pass during a call.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.during_when(|| true, call)
    }

    /// Lets time pass during a call that waits for a lock, from when it waits.
    pub(crate) fn during_wait<T>(&self, lock: &DistributedReentrantLock, call: impl FnOnce() -> T) -> T {
        self.during_when(|| lock.queue_length() > 0, call)
    }

    fn during_when<T>(&self, may_begin: impl Fn() -> bool + Send, call: impl FnOnce() -> T) -> T {
        let Some(clock) = &self.by_hand else { return call() };
        let is_over = AtomicBool::new(false);
        let over = Over(&is_over);
        thread::scope(|scope| {
            let is_over = &is_over;
            let mover = scope.spawn(move || {
                while !may_begin() && !is_over.load(Ordering::SeqCst) {
                    thread::sleep(LOOK_AGAIN);
                }
                while !is_over.load(Ordering::SeqCst) {
                    self.step(clock, Duration::MAX);
                }
            });
            let result = call();
            drop(over);
            // The end of the scope alone does not wait until the thread is gone, and some tests count threads.
            mover.join().expect("it only moves the clock");
            result
        })
    }

    /// Lets time pass until a message comes.
    #[track_caller]
    pub(crate) fn recv<T>(&self, messages: &Receiver<T>) -> T {
        let mut message = None;
        self.until("a message", || {
            message = messages.try_recv().ok();
            message.is_some()
        });
        message.expect("it has come")
    }

    /// Lets time pass until a thread ends.
    #[track_caller]
    pub(crate) fn join<T>(&self, member: Member<T>) -> T {
        self.until("the end of a thread", || member.is_finished());
        member.join()
    }

    /// Waits on a thread of a client for so long, or until it is woken: for a store that does not answer.
    pub(crate) fn be_silent(&self, limit: Duration, mut is_over: impl FnMut() -> bool) {
        let end = self.now() + limit;
        self.silent.lock().push(end);
        while !is_over() && self.now() < end {
            thread::sleep(LOOK_AGAIN);
        }
        let mut silent = self.silent.lock();
        let place = silent.iter().position(|at| *at == end).expect("it was noted");
        silent.swap_remove(place);
    }
}

/// Ends the moving of the clock when a call ends, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
