//! The moments at which tasks are to be woken: the ends of their limits and pauses. A task has no timer of its own, because the client does not
//! know the program's runtime.
//!
//! The thread `dlock-alarm` does nothing else, so no limit ends late because the store answers late. It is started for the first such moment.

use super::worker::{Schedule, Worker};
use crate::clock::Moment;
use crate::error::Error;
use crate::state::task::wake;
use crate::sync::Mutex;
use std::task::Waker;

pub(super) struct Alarms {
    /// By the number of the hold that the task waits for.
    wakers: Mutex<Schedule<Waker>>,
    pub(super) thread: Worker,
}

impl Alarms {
    pub(super) fn new(thread: Worker) -> Self {
        Self { wakers: Mutex::new(Schedule::new()), thread }
    }

    /// Sets the moment at which the task of this number is woken, in place of an earlier one. Fails as [`Worker::start`] does. Call it with no mutex
    /// held.
    pub(super) fn set(&self, number: u64, at: Moment, waker: &Waker) -> Result<(), Error> {
        self.thread.start()?;
        let waker = waker.clone();
        let mut wakers = self.wakers.lock();
        let old = wakers.remove(number);
        wakers.put(number, at, waker);
        drop(wakers);
        // Dropping it may drop a task, which removes its own alarm.
        drop(old);
        self.thread.wake_by(at);
        Ok(())
    }

    /// Forgets the task of this number. Call it with no mutex held.
    pub(super) fn remove(&self, number: u64) {
        let old = self.wakers.lock().remove(number);
        drop(old);
    }

    /// Wakes the tasks whose moments have come. Returns when the next one comes.
    pub(super) fn ring(&self, now: Moment) -> Moment {
        let due = self.wakers.lock().take_due(now, usize::MAX);
        due.into_iter().for_each(wake);
        self.wakers.lock().next()
    }
}
