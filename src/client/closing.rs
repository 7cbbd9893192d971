//! Closing a client: waiting threads leave, holds continue, and the end of the last hold ends the threads and closes
//! the store.

use super::core::Core;
use crate::client::cleanup::Leftover;
use crate::client::retry;
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::log;
use crate::sync::thread;
use crate::timing::{CLOSING_LOOK, CLOSING_TRIES};
use std::time::Instant;

impl Core {
    /// Turns new and waiting threads away, and waits until they have left. Holds continue, and the last one to end
    /// runs the shutdown.
    pub(crate) fn close(&self) {
        if self.is_forked() {
            return;
        }
        if self.activity.close() {
            for key in self.keys.all() {
                key.nudge_all();
            }
        }
        self.end_lingering();
        if self.activity.wait_until_left() {
            self.shut_down();
        }
    }

    /// Shuts the client down immediately, because its last handle is dropped. In a forked child there is nothing to
    /// end: the threads and what is in the store belong to the parent.
    pub(super) fn end(&self) {
        if !self.is_forked() {
            self.activity.close();
            self.shut_down();
        }
    }

    /// Gives back the tenures that linger. After the closing no tenure begins to linger.
    fn end_lingering(&self) {
        let over: Vec<_> = self.keys.all().iter().filter_map(|key| Turn::of_lingering(self, key, true)).collect();
        retry::release(self, over, self.limits.command);
        // The retry thread handles what could not be released.
        self.retry_thread.wake_by(self.cleanup.next());
    }

    /// Ends the threads and closes the store. Runs only once.
    pub(super) fn shut_down(&self) {
        let mut is_down = self.is_down.lock();
        if std::mem::replace(&mut *is_down, true) {
            return;
        }
        self.end_lingering();
        self.retry_thread.stop();
        let now = self.clock.now();
        self.apart.stop_retrying().into_iter().for_each(|leftover| self.cleanup.return_untried(leftover, now));
        // Before the leftovers are released: a grant that arrives at the last moment becomes one of them.
        self.listener.stop();
        self.await_answers();
        self.release_leftovers();
        self.lease_thread.stop();
        self.apart.stop_renewing();
        self.remove_record();
        if let Some(observer) = &self.observer {
            observer.end();
        }
        self.processor.close();
    }
}

impl Core {
    /// Waits for the replies to posted releases, for at most the limit of one command.
    fn await_answers(&self) {
        let most = self.limits.command.as_nanos() / CLOSING_LOOK.as_nanos();
        let mut looks = 0;
        while self.releases.collect_replies(self) && looks < most {
            looks += 1;
            thread::sleep(CLOSING_LOOK);
        }
    }

    /// Releases these lockers, or ends them for certain where the store can. Returns for each whether the store has
    /// answered.
    fn release_all(&self, leftovers: &[Leftover]) -> Vec<bool> {
        let client = self.id().as_str();
        let Some(settling) = self.processor.settling() else {
            let requests: Vec<_> = leftovers.iter().map(|leftover| leftover.request(client)).collect();
            return self.batch(&requests, self.limits.command).iter().map(Result::is_ok).collect();
        };
        let until = Instant::now() + self.limits.command;
        let settle = |leftover: &Leftover| {
            let left = until.saturating_duration_since(Instant::now());
            !left.is_zero() && settling.settle(&leftover.claim(client), left).is_ok()
        };
        leftovers.iter().map(settle).collect()
    }

    /// Releases what is on the clean-up list, as long as the store replies.
    fn release_leftovers(&self) {
        let (mut released, mut unanswered) = (0, 0);
        while unanswered == 0 {
            let mut leftovers = self.cleanup.take_due(Moment::NEVER);
            if leftovers.is_empty() {
                break;
            }
            for _ in 0..CLOSING_TRIES {
                let mut results = self.release_all(&leftovers).into_iter();
                leftovers.retain(|_| {
                    let is_released = results.next().unwrap_or_default();
                    released += usize::from(is_released);
                    !is_released
                });
            }
            unanswered = leftovers.len();
        }
        if unanswered > 0 {
            log::info!(
                RELEASE,
                "closing: {released} leftovers released, {unanswered} not confirmed; their leases will end"
            );
        } else if released > 0 {
            log::debug!(RELEASE, "closing: {released} leftovers released");
        }
    }
}
