//! A worker is one named thread that works when something is due, and sleeps otherwise. It ends when it is told to, or when its subject is
//! gone. A [`Schedule`] says what is due when. This file knows nothing of locks.

use crate::clock::{AT_WORK, Moment, Registration, Sleeper, Timer};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::process::Process;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, before_notifying, catch_panic, on_own_thread};
use crate::timing::{AWAKE, PAUSE_AFTER_PANIC};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Does what is due on a subject. Returns when there is something to do again.
pub(crate) type Round<S> = fn(&S, Moment) -> Moment;

/// The rounds of a thread. Returns `None` when the subject is gone.
type Work = Arc<dyn Fn(Moment) -> Option<Moment> + Send + Sync>;

/// A worker thread, started when it is first needed.
pub(crate) struct Worker {
    name: &'static str,
    clock: Timer,
    process: Process,
    work: Work,
    bell: Arc<Bell>,
    // ORDERING: Relaxed: it saves taking the mutex of the alarm, under which it changes, and nothing is read through it.
    started: AtomicBool,
    _woken: Option<Registration>,
}

struct Bell {
    alarm: Mutex<Alarm>,
    /// While the thread works, the moment until which it counts as sleeping.
    at_work: Moment,
    rung: Condvar,
}

struct Alarm {
    at: Moment,
    stopped: bool,
    phase: WorkPhase,
    /// Whether more work may come so soon that a sleep does not pay.
    expects_more: bool,
    /// The thread, from its start until another thread waits for its end.
    thread: Option<JoinHandle<()>>,
}

/// What the thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkPhase {
    /// It was not started yet, or has ended.
    Absent,
    Sleeping,
    Working,
}

impl Sleeper for Bell {
    fn wake(&self) {
        before_notifying(&self.alarm);
        self.rung.notify_one();
    }

    fn sleeps_until(&self) -> Moment {
        let alarm = self.alarm.lock();
        match alarm.phase {
            WorkPhase::Sleeping if !alarm.stopped => alarm.at,
            WorkPhase::Working => self.at_work,
            WorkPhase::Absent | WorkPhase::Sleeping => Moment::NEVER,
        }
    }
}

impl Worker {
    /// Prepares a thread that works on a subject. It holds its subject weakly, so no worker keeps its subject alive.
    pub(crate) fn new<S: Send + Sync + 'static>(
        name: &'static str,
        clock: &Timer,
        process: &Process,
        subject: &Weak<S>,
        round: Round<S>,
    ) -> Self {
        let subject = Weak::clone(subject);
        // The strong pointer may be the last one when the round ends, and the subject is then dropped on this thread. The owner of the client
        // has told this worker to stop before.
        let work = move |now| subject.upgrade().map(|strong| round(&strong, now));
        Self::with(name, clock, process, AT_WORK, work)
    }

    /// Prepares a thread whose work is to wait for messages. The store sends them in real time, so the thread waits in real time, and a
    /// clock that is moved by hand does not wait for the thread. `work` returns `None` when its subject is gone.
    pub(super) fn listening(
        name: &'static str,
        clock: &Timer,
        process: &Process,
        work: impl Fn(Moment) -> Option<Moment> + Send + Sync + 'static,
    ) -> Self {
        Self::with(name, clock, process, Moment::NEVER, work)
    }

    fn with(
        name: &'static str,
        clock: &Timer,
        process: &Process,
        at_work: Moment,
        work: impl Fn(Moment) -> Option<Moment> + Send + Sync + 'static,
    ) -> Self {
        let alarm =
            Alarm { at: Moment::NEVER, stopped: false, phase: WorkPhase::Absent, expects_more: false, thread: None };
        let bell = Arc::new(Bell { alarm: Mutex::new(alarm), at_work, rung: Condvar::new() });
        Self {
            name,
            _woken: clock.register(|| Arc::clone(&bell) as Arc<dyn Sleeper>),
            clock: clock.clone(),
            process: process.clone(),
            work: Arc::new(work),
            bell,
            started: AtomicBool::new(false),
        }
    }

    /// Starts the thread unless it was started before. Returns whether this call has. Fails with [`Error::Backend`] if the operating system
    /// refuses a thread, with [`Error::ShutDown`] after [`stop`](Self::stop), and with [`Error::Forked`] in a child of the process that may
    /// start it.
    pub(crate) fn start(&self) -> Result<bool, Error> {
        // ORDERING: a hint: see `started`.
        if self.started.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.process.check()?;
        let mut alarm = self.bell.alarm.lock();
        if alarm.stopped {
            return Err(Error::ShutDown);
        }
        let is_new = alarm.thread.is_none();
        if is_new {
            let name = self.name;
            let (bell, clock, round) = (Arc::clone(&self.bell), self.clock.clone(), Arc::clone(&self.work));
            let spawned = thread::Builder::new()
                .name(self.name.to_owned())
                .spawn(move || on_own_thread(|| work(name, &bell, &clock, &*round)))
                .map_err(|e| {
                    let message = format!("the operating system refused the thread {}: {e}", self.name);
                    Error::backend_caused_by(BackendFailure::NotExecuted, message, e)
                })?;
            (alarm.thread, alarm.phase) = (Some(spawned), WorkPhase::Sleeping);
            self.started.store(true, Ordering::Relaxed); // ORDERING: under the mutex of the alarm: see `started`.
        }
        Ok(is_new)
    }

    /// Returns whether the thread was started, and not stopped since.
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed) // ORDERING: a hint: see `started`.
    }

    /// Makes sure that the thread wakes no later than `at`.
    pub(crate) fn wake_by(&self, at: Moment) {
        let mut alarm = self.bell.alarm.lock();
        if at < alarm.at {
            alarm.at = at;
            drop(alarm);
            self.bell.rung.notify_one();
        }
    }

    /// As [`wake_by`](Self::wake_by), for work after which more may follow at once: the thread yields for a moment before it sleeps again.
    pub(crate) fn wake_and_expect_more(&self, at: Moment) {
        self.bell.alarm.lock().expects_more = true;
        self.wake_by(at);
    }

    /// Ends the thread and waits for it. On that thread itself, only tells it to end, and leaves the waiting to
    /// others.
    pub(crate) fn stop(&self) {
        // A concurrent `start` has either finished or will find the worker stopped.
        let mut alarm = self.bell.alarm.lock();
        self.started.store(false, Ordering::Relaxed); // ORDERING: under the mutex of the alarm: see `started`.
        alarm.stopped = true;
        let handle = alarm.thread.take_if(|handle| handle.thread().id() != thread::current().id());
        drop(alarm);
        self.bell.rung.notify_one();
        if handle.is_some_and(|handle| handle.join().is_err()) {
            log::error!(CLIENT, "the thread {} ended by a panic; please report it", self.name);
        }
    }
}

fn work(name: &str, bell: &Bell, clock: &Timer, round: &dyn Fn(Moment) -> Option<Moment>) {
    loop {
        {
            let mut alarm = bell.alarm.lock();
            // The model of threads has no real time.
            let yields = alarm.expects_more && !cfg!(dlock_shuttle);
            let awake_until = yields.then(|| Instant::now() + AWAKE);
            loop {
                if alarm.stopped {
                    return;
                }
                let now = clock.now();
                if alarm.at <= now {
                    break;
                }
                if awake_until.is_some_and(|until| Instant::now() < until) {
                    drop(alarm);
                    thread::yield_now();
                    alarm = bell.alarm.lock();
                    continue;
                }
                alarm.expects_more = false;
                let sleep = clock.sleep(alarm.at, now);
                bell.rung.wait_for(&mut alarm, sleep);
            }
            (alarm.at, alarm.phase) = (Moment::NEVER, WorkPhase::Working);
        }
        // The store or the log has panicked. The turns were passed on, so work continues.
        let next = catch_panic(|| round(clock.now())).unwrap_or_else(|| {
            log::error!(CLIENT, "a round of the thread {name} ended by a panic; please report it");
            Some(clock.now() + PAUSE_AFTER_PANIC)
        });
        let Some(next) = next else {
            bell.alarm.lock().phase = WorkPhase::Absent;
            return;
        };
        let mut alarm = bell.alarm.lock();
        alarm.at = alarm.at.min(next);
        alarm.phase = WorkPhase::Sleeping;
    }
}

/// Items ordered by the moment when they are due, and indexed by their id.
pub(crate) struct Schedule<T> {
    due: BTreeMap<(Moment, u64), T>,
    // This is no hash map: mostly there are few items, and hashing would take longer than the search.
    places: BTreeMap<u64, Moment>,
}

impl<T> Schedule<T> {
    pub(crate) fn new() -> Self {
        Self { due: BTreeMap::new(), places: BTreeMap::new() }
    }

    /// Adds an item, or moves it.
    pub(crate) fn put(&mut self, id: u64, at: Moment, item: T) {
        if let Some(old) = self.places.insert(id, at) {
            self.due.remove(&(old, id));
        }
        self.due.insert((at, id), item);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let at = self.places.remove(&id)?;
        self.due.remove(&(at, id))
    }

    /// Removes and returns the items that are due, earliest first, but at most `most`.
    pub(crate) fn take_due(&mut self, now: Moment, most: usize) -> Vec<T> {
        let mut taken = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            let (at, id) = *entry.key();
            if at > now || taken.len() >= most {
                break;
            }
            taken.push(entry.remove());
            self.places.remove(&id);
        }
        taken
    }

    /// Makes every item due now at the latest.
    pub(crate) fn hasten(&mut self, now: Moment) {
        let later = self.due.split_off(&(now, u64::MAX));
        for ((_, id), item) in later {
            self.put(id, now, item);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// Returns when the next item is due, or [`Moment::NEVER`] if there is none.
    pub(crate) fn next(&self) -> Moment {
        self.due.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at)
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/worker.rs"]
mod tests;
