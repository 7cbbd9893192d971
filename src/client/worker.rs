//! One named thread that works when something is due, sleeps otherwise, and ends when it is told to or its subject is
//! gone.

use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, before_notifying, catch_panic, mutant};
use crate::timer::{AT_WORK, Registration, Sleeper, Timer};
use crate::timing::PAUSE_AFTER_PANIC;
use std::sync::{Arc, Weak};

/// Does what is due on a subject. Returns when there is something to do again.
pub(crate) type Round<S> = fn(&S, Moment) -> Moment;

/// A worker thread, started when it is first needed.
#[derive(Debug)]
pub(crate) struct Worker {
    name: &'static str,
    clock: Timer,
    bell: Arc<Bell>,
    // ORDERING: Relaxed would do: it saves taking the mutex of `thread`, under which it changes, and nothing is read
    // through it.
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
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
    pub(crate) fn new(name: &'static str, clock: Timer) -> Self {
        let alarm = Alarm { at: Moment::NEVER, stopped: false, phase: WorkPhase::Absent };
        let bell = Arc::new(Bell { alarm: Mutex::new(alarm), rung: Condvar::new() });
        Self {
            name,
            _woken: clock.register(|| Arc::clone(&bell) as Arc<dyn Sleeper>),
            clock,
            bell,
            started: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    /// Starts the thread unless it was started before. It holds its subject weakly, so no worker keeps its subject
    /// alive.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the operating system refuses a thread; [`Error::ShutDown`] after [`stop`](Self::stop).
    pub(crate) fn start<S: Send + Sync + 'static>(&self, subject: &Weak<S>, round: Round<S>) -> Result<(), Error> {
        // ORDERING: a hint: see `started`.
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if self.bell.alarm.lock().stopped {
            return Err(Error::ShutDown);
        }
        if thread.is_none() {
            let name = self.name;
            self.bell.alarm.lock().phase = WorkPhase::Sleeping;
            let (bell, clock, subject) = (Arc::clone(&self.bell), self.clock.clone(), Weak::clone(subject));
            let spawned = thread::Builder::new()
                .name(self.name.to_owned())
                .spawn(move || work(name, &bell, &clock, &subject, round))
                .map_err(|e| {
                    self.bell.alarm.lock().phase = WorkPhase::Absent;
                    let message = format!("the operating system refused the thread {}: {e}", self.name);
                    Error::backend_caused_by(BackendFailure::NotExecuted, message, e)
                })?;
            *thread = Some(spawned);
            self.started.store(true, Ordering::Release); // ORDERING: under the mutex of `thread`: see `started`.
        }
        Ok(())
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
        // Lock the thread's slot first: a concurrent `start` has either finished or will find the worker stopped.
        let mut thread = self.thread.lock();
        self.started.store(false, Ordering::Release); // ORDERING: under the mutex of `thread`: see `started`.
        self.bell.alarm.lock().stopped = true;
        self.bell.rung.notify_one();
        let handle = thread.take_if(|handle| handle.thread().id() != thread::current().id());
        drop(thread);
        if handle.is_some_and(|handle| handle.join().is_err()) {
            log::error!(CLIENT, "the thread {} ended by a panic; please report it", self.name);
        }
    }
}

fn work<S>(name: &str, bell: &Bell, clock: &Timer, subject: &Weak<S>, round: Round<S>) {
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
        let Some(strong) = subject.upgrade() else {
            bell.alarm.lock().phase = WorkPhase::Absent;
            return;
        };
        // A panic of a store or of the log. The turns are passed on and held keys are back in the schedule, so work
        // continues.
        let next = catch_panic(|| round(&strong, clock.now())).unwrap_or_else(|_| {
            log::error!(CLIENT, "a round of the thread {name} ended by a panic; please report it");
            clock.now() + PAUSE_AFTER_PANIC
        });
        // This may be the last handle. The subject's drop then runs here, and stops this worker from its own thread.
        drop(strong);
        let mut alarm = bell.alarm.lock();
        alarm.at = if mutant!(MissesBell) { next } else { alarm.at.min(next) };
        alarm.phase = WorkPhase::Sleeping;
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/worker.rs"]
mod tests;
