//! Giving back what a client has in the store: immediately, or through the clean-up list.

use super::at_exit;
use super::core::Core;
use super::ticket::Ticket;
use crate::backoff::Backoff;
use crate::client::cleanup::{Cleanup, Ending};
use crate::client::events::Events;
use crate::client::loss;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error, LeaseLoss, LossCause};
use crate::log;
use crate::state::tenure::{Tenure, Unsettled};
use crate::store::processor::{Claim, NotOurs, ReleaseOutcome};
use crate::sync::{mutant, thread};
use crate::timer::Timer;
use crate::timing;
use crossbeam_channel::Sender;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A release whose reply nobody waits for.
struct Posted {
    core: Weak<Core>,
    // These outlive the client, whose last replies arrive in its last moments.
    clock: Timer,
    cleanup: Arc<Cleanup>,
    events: Arc<Events>,
    /// When it was posted, if metrics are recorded.
    posted_at: Option<Moment>,
    key: String,
    /// Makes the end of the main thread wait for this release.
    ticket: Ticket,
}

impl Posted {
    /// Handles the reply. Runs on whichever thread receives it, and must not block.
    fn answered(self, mut tenure: Tenure, watchers: Vec<Sender<()>>, answer: Result<ReleaseOutcome, Error>) {
        self.events.note_posted(&self.key, self.posted_at, &answer);
        match answer {
            Ok(ReleaseOutcome::NotOurs(other)) => {
                let now = self.clock.now();
                if now < tenure.deadline() && tenure.lose(LossCause::from(other), now) {
                    self.events.tell_lost(&self.key, &tenure, watchers);
                }
            }
            Ok(_) => {}
            Err(error) => {
                log::info!(
                    RELEASE,
                    "lock {:?}: release of {:?} not confirmed, retrying in background: {error}",
                    self.key,
                    tenure.locker
                );
                let ending = Ending::ReleaseUnanswered(tenure.deadline());
                self.cleanup.add_awaited(&self.key, &tenure.locker, tenure.kept(), ending, Some(self.ticket));
                if let Some(core) = self.core.upgrade() {
                    core.retries.wake_for_cleanup();
                    drop_elsewhere(core);
                }
            }
        }
    }
}

/// Drops a core where nothing may block. Clients can share a store and hear each other's answers. So the client may have ended meanwhile,
/// and this be the last pointer to its store, whose end waits for the threads that tell of answers.
fn drop_elsewhere(core: Arc<Core>) {
    if let Some(last) = Arc::into_inner(core) {
        // Without a thread it ends here.
        let _ = thread::Builder::new().name("dlock-end".to_owned()).spawn(move || drop(last));
    }
}

impl Core {
    /// Releases a tenure. After three failed tries, leaves it to the clean-up list.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] if the key was no longer ours; otherwise the error of the last try.
    pub(crate) fn give_back(&self, key: &str, tenure: &Tenure) -> Result<(), Error> {
        self.release(key, tenure, false)
    }

    /// Releases a tenure. `perhaps_done` says that an earlier release of it may have been executed.
    ///
    /// # Errors
    ///
    /// As [`give_back`](Self::give_back).
    pub(crate) fn release(&self, key: &str, tenure: &Tenure, mut perhaps_done: bool) -> Result<(), Error> {
        if tenure.is_cloned() {
            // The caller is told of the loss.
            return Ok(());
        }
        let claim = self.ending(key, tenure);
        let mut failures = 0;
        loop {
            // After the lease's end the key is gone by itself, and there is nothing left to wait for.
            let left = tenure.deadline().since(self.clock.now());
            match self.release_once(&claim, self.release_limit(left)) {
                // After a try without a reply, "not ours" may be the effect of that try.
                Ok(ReleaseOutcome::NotOurs(other)) if !perhaps_done => return self.not_ours(key, tenure, other),
                Ok(_) => return Ok(()),
                Err(error) => {
                    failures += 1;
                    perhaps_done |= matches!(error, Error::Backend { failure: BackendFailure::Unknown, .. });
                    if failures >= timing::RELEASE_TRIES || left.is_zero() || !matches!(error, Error::Backend { .. }) {
                        log::warn!(
                            RELEASE,
                            "lock {key:?}: release of {:?} failed, retrying in background: {error}",
                            tenure.locker
                        );
                        self.release_later(key, tenure);
                        return Err(error);
                    }
                    thread::sleep(Backoff::capped(timing::longest_release_pause(tenure.lease())).after(failures));
                }
            }
        }
    }

    fn release_once(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.events.observe(("release", claim.key), limit, || self.processor.release(claim, limit))
    }

    /// Returns how long one try of a release may take if `left` of the lease remains.
    fn release_limit(&self, left: Duration) -> Duration {
        left.max(timing::SHORTEST_RELEASE).min(self.limits.command)
    }

    /// Releases a tenure without waiting for the reply, which is handled when it arrives.
    pub(crate) fn post_release(&self, key: &str, tenure: Tenure, watchers: Vec<Sender<()>>) {
        at_exit::note_use(self);
        let (locker, kept, gap) = (Arc::clone(&tenure.locker), tenure.kept(), tenure.gap);
        let claim = self.claim(key, &locker, kept).with_poller_gap(gap);
        let limit = self.release_limit(tenure.deadline().since(self.clock.now()));
        let posted = Posted {
            core: Weak::clone(&self.this),
            clock: self.clock.clone(),
            cleanup: Arc::clone(&self.retries.cleanup),
            events: Arc::clone(&self.events),
            posted_at: self.events.metered_now(),
            key: key.to_owned(),
            ticket: self.retries.unanswered.ticket(),
        };
        match self.processor.posting() {
            Some(posting) => {
                let done = Box::new(move |answer| posted.answered(tenure, watchers, answer));
                if posting.post_release(&claim, limit, done) {
                    self.retries.collect_soon();
                }
            }
            None => posted.answered(tenure, watchers, self.processor.release(&claim, limit)),
        }
    }

    /// Interprets `NotOurs` for a release of a tenure whose hold ended in time: a loss, unless the lease, which
    /// nobody renews after the hold, has run out by now.
    pub(crate) fn not_ours(&self, key: &str, tenure: &Tenure, other: NotOurs) -> Result<(), Error> {
        if self.clock.now() >= tenure.deadline() {
            return Ok(());
        }
        let cause = loss::broken(self, key, tenure, self.limits.command).unwrap_or_else(|| LossCause::from(other));
        let locker = tenure.locker.to_string();
        Err(Error::LeaseLost(Box::new(LeaseLoss { key: key.to_owned(), locker, cause, ago: Duration::ZERO })))
    }

    /// Leaves the release of a tenure to the clean-up list.
    pub(crate) fn release_later(&self, key: &str, tenure: &Tenure) {
        if tenure.is_cloned() {
            return;
        }
        let (ending, ticket) = (Ending::ReleaseUnanswered(tenure.deadline()), self.retries.unanswered.ticket());
        self.retries.cleanup.add_awaited(key, &tenure.locker, tenure.kept(), ending, Some(ticket));
        self.retries.wake_for_cleanup();
    }

    /// Gives up a locker that was sent. The clean-up list releases it, and begins at once.
    pub(crate) fn abandon(&self, key: &str, unsettled: Option<Unsettled>) {
        if let Some(Unsettled { locker, settings, answered, .. }) = unsettled {
            if mutant!(ForgetsGivenUp) {
                return;
            }
            let ending = if answered || mutant!(CleansUpOnce) { Ending::GivenUp } else { Ending::AcquireUnanswered };
            self.retries.cleanup.add(key, &locker, settings.kept(), ending);
            self.retries.wake_for_cleanup();
        }
    }

    /// Releases a locker that was granted a key and that nobody here wants.
    pub(crate) fn give_up_grant(&self, key: &str, locker: &Arc<str>) {
        self.retries.cleanup.add(key, locker, self.limits.shortest_lease, Ending::GivenUp);
        self.retries.wake_for_cleanup();
    }
}
