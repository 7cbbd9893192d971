//! Giving back what a client has in the store: immediately, or through the clean-up list.

use super::core::Core;
use super::ticket::Ticket;
use crate::backoff::Backoff;
use crate::client::announce::tell;
use crate::client::cleanup::{Cleanup, Ending};
use crate::client::metrics::Sample;
use crate::client::observer::Observer;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error, LeaseLoss, LossCause};
use crate::log;
use crate::state::tenure::{Tenure, Unsettled};
use crate::store::processor::{NotOurs, Operations, ReleaseOutcome, Request};
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
    observer: Option<Arc<Observer>>,
    /// When it was posted, if metrics are recorded.
    posted_at: Option<Moment>,
    key: String,
    /// Makes the end of the main thread wait for this release.
    ticket: Ticket,
}

impl Posted {
    /// Handles the reply. Runs on whichever thread receives it, and must not block.
    fn answered(self, mut tenure: Tenure, watchers: Vec<Sender<()>>, answer: Result<ReleaseOutcome, Error>) {
        self.observe(&answer);
        match answer {
            Ok(ReleaseOutcome::NotOurs(other)) => {
                let now = self.clock.now();
                if now < tenure.deadline() && tenure.lose(LossCause::from(other), now) {
                    tell(self.observer.as_deref(), &self.key, &tenure, watchers);
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
                    core.wake_cleanup();
                    core.drop_elsewhere();
                }
            }
        }
    }
}

impl Posted {
    /// Notes how the release ended.
    fn observe(&self, answer: &Result<ReleaseOutcome, Error>) {
        let Some(observer) = &self.observer else { return };
        if let Some(posted_at) = self.posted_at {
            let took = self.clock.now().since(posted_at);
            observer.record(Sample::Call { name: "release", took, is_answered: answer.is_ok() });
        }
        observer.note_answer(&self.key, answer.as_ref().err(), || self.clock.now());
    }
}

impl Core {
    /// Drops a core where nothing may block. Clients can share a store and hear each other's answers. So the client may have ended meanwhile,
    /// and this be the last pointer to its store, whose end waits for the threads that tell of answers.
    pub(super) fn drop_elsewhere(self: Arc<Self>) {
        if let Some(last) = Arc::into_inner(self) {
            // Without a thread it ends here.
            let _ = thread::Builder::new().name("dlock-end".to_owned()).spawn(move || drop(last));
        }
    }

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
        if !self.is_ours(&tenure.locker) {
            // It is of an identity that a twin has, too: see `twin.rs`.
            return Ok(());
        }
        let release = Request::Release(self.ending(key, tenure));
        let mut failures = 0;
        loop {
            // After the lease's end the key is gone by itself, and there is nothing left to wait for.
            let left = tenure.deadline().since(self.clock.now());
            match self.run(&release, self.release_limit(left)).and_then(ReleaseOutcome::try_from) {
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

    /// Returns how long one try of a release may take if `left` of the lease remains.
    fn release_limit(&self, left: Duration) -> Duration {
        left.max(timing::SHORTEST_RELEASE).min(self.limits.command)
    }

    /// Releases a tenure without waiting for the reply, which is handled when it arrives.
    pub(crate) fn post_release(&self, key: &str, tenure: Tenure, watchers: Vec<Sender<()>>) {
        self.note_use();
        let (locker, kept, gap) = (Arc::clone(&tenure.locker), tenure.kept(), tenure.gap);
        let claim = self.claim(key, &locker, kept).with_poller_gap(gap);
        let limit = self.release_limit(tenure.deadline().since(self.clock.now()));
        let posted = Posted {
            core: Weak::clone(&self.this),
            clock: self.clock.clone(),
            cleanup: Arc::clone(&self.cleanup),
            observer: self.observer.clone(),
            posted_at: self.observer.as_ref().filter(|observer| observer.is_metered()).map(|_| self.clock.now()),
            key: key.to_owned(),
            ticket: self.unanswered.ticket(),
        };
        match self.processor.posting() {
            Some(posting) => {
                let done = Box::new(move |answer| posted.answered(tenure, watchers, answer));
                if posting.post_release(&claim, limit, done) {
                    self.collect_soon();
                }
            }
            None => posted.answered(tenure, watchers, self.processor.release(&claim, limit)),
        }
    }

    /// Interprets `NotOurs` for a release of a tenure whose hold ended in time: a loss, unless the lease, which
    /// nobody renews after the hold, has run out by now.
    pub(crate) fn not_ours(&self, key: &str, tenure: &Tenure, other: NotOurs) -> Result<(), Error> {
        if let Some(holder) = other.holder.as_deref().filter(|holder| self.id().is_of_twin(holder)) {
            self.meet_twin(key, holder);
        }
        if self.clock.now() >= tenure.deadline() {
            return Ok(());
        }
        let cause = self.broken(key, tenure, self.limits.command).unwrap_or_else(|| LossCause::from(other));
        let locker = tenure.locker.to_string();
        Err(Error::LeaseLost(Box::new(LeaseLoss { key: key.to_owned(), locker, cause, ago: Duration::ZERO })))
    }

    /// Leaves the release of a tenure to the clean-up list.
    pub(crate) fn release_later(&self, key: &str, tenure: &Tenure) {
        if !self.is_ours(&tenure.locker) {
            return;
        }
        let (ending, ticket) = (Ending::ReleaseUnanswered(tenure.deadline()), self.unanswered.ticket());
        self.cleanup.add_awaited(key, &tenure.locker, tenure.kept(), ending, Some(ticket));
        self.wake_cleanup();
    }

    /// Gives up a locker that was sent. The clean-up list releases it, and begins at once.
    pub(crate) fn abandon(&self, key: &str, unsettled: Option<Unsettled>) {
        if let Some(Unsettled { locker, settings, answered, .. }) = unsettled {
            if !self.is_ours(&locker) || mutant!(ForgetsGivenUp) {
                return;
            }
            let ending = if answered || mutant!(CleansUpOnce) { Ending::GivenUp } else { Ending::AcquireUnanswered };
            self.cleanup.add(key, &locker, settings.kept(), ending);
            self.wake_cleanup();
        }
    }

    /// Releases a locker that was granted a key and that nobody here wants.
    pub(crate) fn give_up_grant(&self, key: &str, locker: &Arc<str>) {
        if !self.is_ours(locker) {
            return;
        }
        self.cleanup.add(key, locker, self.limits.shortest_lease, Ending::GivenUp);
        self.wake_cleanup();
    }
}
