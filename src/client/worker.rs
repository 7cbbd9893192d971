//! One named thread that works when something is due, sleeps otherwise, and ends when it is told to or its subject is
//! gone.

use super::context::Process;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, before_notifying, catch_panic};
use crate::timer::{AT_WORK, Registration, Sleeper, Timer};
use crate::timing::PAUSE_AFTER_PANIC;
use std::fmt;
use std::sync::{Arc, Weak};

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
    // ORDERING: Relaxed would do: it saves taking the mutex of the alarm, under which it changes, and nothing is read
    // through it.
    started: AtomicBool,
    _woken: Option<Registration>,
}

#[derive(Debug)]
struct Bell {
    alarm: Mutex<Alarm>,
    rung: Condvar,
}

#[derive(Debug)]
struct Alarm {
    at: Moment,
    stopped: bool,
    phase: WorkPhase,
    /// The thread, from its start until somebody waits for its end.
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
            WorkPhase::Working => AT_WORK,
            WorkPhase::Absent | WorkPhase::Sleeping => Moment::NEVER,
        }
    }
}

impl Worker {
    /// Prepares a thread that works on a subject. It holds its subject weakly, so no worker keeps its subject alive.
    pub(crate) fn new<S: Send + Sync + 'static>(
        name: &'static str,
        clock: &Timer,
        process: Process,
        subject: &Weak<S>,
        round: Round<S>,
    ) -> Self {
        let (clock, subject) = (clock.clone(), Weak::clone(subject));
        // The strong pointer may be the last one when the round ends. The subject's drop then runs on this thread, and stops this worker.
        let work = Arc::new(move |now| subject.upgrade().map(|strong| round(&strong, now)));
        let alarm = Alarm { at: Moment::NEVER, stopped: false, phase: WorkPhase::Absent, thread: None };
        let bell = Arc::new(Bell { alarm: Mutex::new(alarm), rung: Condvar::new() });
        Self {
            name,
            _woken: clock.register(|| Arc::clone(&bell) as Arc<dyn Sleeper>),
            clock,
            process,
            work,
            bell,
            started: AtomicBool::new(false),
        }
    }

    /// Starts the thread unless it was started before. Returns whether this call has.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the operating system refuses a thread; [`Error::ShutDown`] after [`stop`](Self::stop); [`Error::Forked`] in a
    /// child of the process that may start it.
    pub(crate) fn start(&self) -> Result<bool, Error> {
        // ORDERING: a hint: see `started`.
        if self.started.load(Ordering::Acquire) {
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
                .spawn(move || work(name, &bell, &clock, &*round))
                .map_err(|e| {
                    let message = format!("the operating system refused the thread {}: {e}", self.name);
                    Error::backend_caused_by(BackendFailure::NotExecuted, message, e)
                })?;
            (alarm.thread, alarm.phase) = (Some(spawned), WorkPhase::Sleeping);
            self.started.store(true, Ordering::Release); // ORDERING: under the mutex of the alarm: see `started`.
        }
        Ok(is_new)
    }

    /// Returns whether the thread was started, and not stopped since.
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire) // ORDERING: a hint: see `started`.
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

    /// Ends the thread and waits for it. On that thread itself, only tells it to end, and leaves the waiting to
    /// others.
    pub(crate) fn stop(&self) {
        // A concurrent `start` has either finished or will find the worker stopped.
        let mut alarm = self.bell.alarm.lock();
        self.started.store(false, Ordering::Release); // ORDERING: under the mutex of the alarm: see `started`.
        alarm.stopped = true;
        let handle = alarm.thread.take_if(|handle| handle.thread().id() != thread::current().id());
        drop(alarm);
        self.bell.rung.notify_one();
        if handle.is_some_and(|handle| handle.join().is_err()) {
            log::error!(CLIENT, "the thread {} ended by a panic; please report it", self.name);
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).field("bell", &self.bell).finish_non_exhaustive()
    }
}

fn work(name: &str, bell: &Bell, clock: &Timer, round: &dyn Fn(Moment) -> Option<Moment>) {
    loop {
        {
            let mut alarm = bell.alarm.lock();
            loop {
                if alarm.stopped {
                    return;
                }
                let now = clock.now();
                if alarm.at <= now {
                    break;
                }
                let sleep = clock.sleep(alarm.at, now);
                bell.rung.wait_for(&mut alarm, sleep);
            }
            (alarm.at, alarm.phase) = (Moment::NEVER, WorkPhase::Working);
        }
        // A panic of a store or of the log. The turns are passed on and held keys are back in the schedule, so work
        // continues.
        let next = catch_panic(|| round(clock.now())).unwrap_or_else(|_| {
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

#[cfg(test)]
#[path = "../../tests/white_box/client/worker.rs"]
mod tests;
