//! What the thread `dlock-retry` has to do: the keys that threads of this client wait for, by when the store must be asked, and the clean-up
//! list.

use super::cleanup::{Cleanup, PendingCleanup};
use super::context::Context;
use super::schedule::Schedule;
use super::worker::Worker;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::port::Operations;
use crate::state::key::Key;
use crate::sync::Mutex;
use crate::timing::CLOSING_TRIES;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
#[derive(Debug)]
pub(crate) struct Retries {
    context: Arc<Context>,
    waiting: Mutex<Schedule<Arc<Key>>>,
    pub(crate) cleanup: Arc<Cleanup>,
    pub(super) thread: Worker,
}

impl Retries {
    pub(super) fn new(context: &Arc<Context>, thread: Worker) -> Self {
        Self {
            waiting: Mutex::new(Schedule::new()),
            cleanup: Arc::new(Cleanup::new(context.clock.clone())),
            context: Arc::clone(context),
            thread,
        }
    }

    /// Makes sure that the thread wakes when something is due.
    pub(super) fn wake(&self) {
        self.thread.wake_by(self.next());
    }

    /// Returns when something is due next.
    pub(super) fn next(&self) -> Moment {
        self.waiting.lock().next().min(self.cleanup.next())
    }
}

/// The keys that threads wait for.
impl Retries {
    /// Sets when the store must be asked for a key.
    pub(super) fn ask_at(&self, key: &Arc<Key>, at: Moment) {
        self.waiting.lock().put(key.id, at, Arc::clone(key));
        self.thread.wake_by(at);
    }

    /// Removes a key for which nobody waits any more. Call it with the key's mutex held.
    pub(super) fn forget(&self, key: &Key) {
        let removed = self.waiting.lock().remove(key.id);
        drop(removed);
    }

    /// Makes every waited-for key due now.
    pub(super) fn hasten(&self, now: Moment) {
        self.waiting.lock().hasten(now);
        self.thread.wake_by(now);
    }

    /// Makes every waited-for key due now, and makes holders assume that others wait: messages about that are lost.
    pub(super) fn ask_about_all(&self) {
        let now = self.context.clock.now();
        for key in self.context.keys.all() {
            key.state.lock().note_change(now);
        }
        self.hasten(now);
    }

    pub(super) fn take_due(&self, now: Moment) -> Vec<Arc<Key>> {
        self.waiting.lock().take_due(now, usize::MAX)
    }
}

/// The clean-up list.
impl Retries {
    /// Wakes the thread for the clean-up list.
    pub(super) fn wake_for_cleanup(&self) {
        match self.thread.start() {
            Ok(_) => self.thread.wake_by(self.cleanup.next()),
            Err(Error::ShutDown) => {}
            Err(error) => log::error!(CLIENT, "cannot start the retry thread, clean-up is delayed: {error}"),
        }
    }

    /// Takes the pending clean-ups that are due. Those of an identity that this client has given up are left to the twin that has it, too: a release of
    /// one may have been under way, or posted, when the list was forgotten.
    pub(super) fn take_cleanups(&self, now: Moment) -> Vec<PendingCleanup> {
        loop {
            let mut due = self.cleanup.take_due(now);
            let are_all_taken = due.is_empty();
            due.retain(|cleanup| self.context.is_ours(cleanup.locker()));
            if are_all_taken || !due.is_empty() {
                return due;
            }
        }
    }

    /// Ends lockers for certain, for at most the time of one command: others wait for the next round. Only for a store
    /// that can.
    pub(super) fn settle(&self, cleanups: Vec<PendingCleanup>) {
        let (client, until) = (self.context.id().as_str(), Instant::now() + self.context.limits.command);
        // Once the store has not answered, the others of this round are not tried: each could take as long again.
        let mut failure = None;
        for cleanup in cleanups {
            let (sent_at, left) = (self.context.clock.now(), until.saturating_duration_since(Instant::now()));
            let result = match &failure {
                None if left.is_zero() => {
                    Err(Error::backend(BackendFailure::NotExecuted, "no time left in this round"))
                }
                None => self.context.processor.settle(&cleanup.claim(client), left),
                Some(error) => Err(Error::clone(error)),
            };
            failure = result.as_ref().err().filter(|error| matches!(error, Error::Backend { .. })).cloned();
            self.cleanup.put_back(cleanup, &result, true, sent_at);
        }
    }

    /// Releases what is on the clean-up list, as long as the store replies. For the end of the client.
    pub(super) fn release_cleanups(&self) {
        let (mut released, mut unanswered) = (0, 0);
        while unanswered == 0 {
            let mut cleanups = self.take_cleanups(Moment::NEVER);
            if cleanups.is_empty() {
                break;
            }
            for _ in 0..CLOSING_TRIES {
                let mut results = self.release_all(&cleanups).into_iter();
                cleanups.retain(|_| {
                    let is_released = results.next().unwrap_or_default();
                    released += usize::from(is_released);
                    !is_released
                });
            }
            unanswered = cleanups.len();
        }
        if unanswered > 0 {
            log::info!(
                RELEASE,
                "closing: {released} pending clean-ups released, {unanswered} not confirmed; their leases will end"
            );
        } else if released > 0 {
            log::debug!(RELEASE, "closing: {released} pending clean-ups released");
        }
    }

    /// Releases these lockers, or ends them for certain where the store can. Returns for each whether the store has
    /// answered.
    fn release_all(&self, cleanups: &[PendingCleanup]) -> Vec<bool> {
        let (client, limit) = (self.context.id().as_str(), self.context.limits.command);
        if !self.context.limits.settles {
            let requests: Vec<_> = cleanups.iter().map(|cleanup| cleanup.request(client)).collect();
            return self.context.batch(&requests, limit).iter().map(Result::is_ok).collect();
        }
        let until = Instant::now() + limit;
        let settle = |cleanup: &PendingCleanup| {
            let left = until.saturating_duration_since(Instant::now());
            !left.is_zero() && self.context.processor.settle(&cleanup.claim(client), left).is_ok()
        };
        cleanups.iter().map(settle).collect()
    }
}
