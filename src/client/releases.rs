//! The releases of a client. A release is sent and its reply awaited, or it is posted without waiting for the reply, or it is left to the
//! clean-up list.
//!
//! The reply to a posted release is handled on the thread that reads it. If no thread calls the store any more, the retry thread collects
//! the replies. Releases that fail go on the clean-up list. The end of the main thread waits for the outcome of all releases that were
//! posted before.
//!
//! # The end of the main thread
//!
//! The end of a program ends its threads, too. Then no thread is left to repeat a release that has failed, because the server did not know
//! the script or because the connection broke. So when the main thread ends (`main` returns or panics, or it calls `exit`), it waits until
//! each release posted before is answered or cleaned up, for all clients that it has used. It does so in the destructor of a thread-local.
//! With the GNU C library and on macOS that destructor runs in these cases, while the other threads still run.

use super::cleanup::{Ending, InFlight};
use super::core::Core;
use super::delayed::Delayed;
use super::events::Events;
use super::loss;
use super::orders::EndedTenure;
use super::parts::Parts;
use super::retries::Retries;
use super::twin;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error, LeaseLoss, LossCause};
use crate::log;
use crate::port::{
    Claim, DelayReleaseOutcome, NotOurs, Operations, Outcome, Posting, ReleaseDone, ReleaseOutcome, Request,
};
use crate::state::task::Watcher;
use crate::state::tenure::Tenure;
use crate::sync::thread;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// The tries of one release.
pub(super) struct ReleaseTries {
    failures: u32,
    /// Whether a failed try, or an earlier release, may have been executed.
    pub(super) perhaps_done: bool,
    /// What delays the release, if something does.
    delayed: Option<Delayed>,
}

impl ReleaseTries {
    /// Begins the release of a tenure whose hold has ended.
    pub(super) fn of(core: &Core, tenure: &Tenure, now: Moment) -> Self {
        Self { failures: 0, perhaps_done: false, delayed: Delayed::of(core, tenure, now) }
    }

    pub(super) fn is_delayed(&self) -> bool {
        self.delayed.is_some()
    }

    /// Releases the tenure, or delays its release if nobody is to get the key yet. After three failed tries, leaves it to the clean-up list.
    /// Fails with [`Error::LeaseLost`] if the key was no longer ours, and otherwise with the error of the last try.
    pub(super) fn send(mut self, parts: &Parts, key: &str, tenure: &Tenure) -> Result<(), Error> {
        if !parts.core.is_ours(&tenure.locker) {
            // The locker has an identity that a twin has, too: see `twin.rs`.
            return Ok(());
        }
        let claim = parts.core.ending(key, tenure);
        loop {
            let now = parts.core.clock.now();
            let left = tenure.deadline().since(now);
            let outcome = parts.core.run(&self.request(claim, now), release_limit(&parts.core, left));
            match self.end(parts, key, tenure, left, outcome) {
                Some(released) => return released,
                None => thread::sleep(self.pause(tenure)),
            }
        }
    }

    /// Returns the request for a try now.
    pub(super) fn request<'a>(&'a self, claim: Claim<'a>, now: Moment) -> Request<'a> {
        Delayed::ending(self.delayed.as_ref(), claim, now)
    }

    /// Interprets the reply to a try that was sent when so much of the lease was `left`. Returns `None` if there is to be another try, after a
    /// [pause](Self::pause). If there is none, leaves the release to the clean-up list.
    pub(super) fn end(
        &mut self,
        parts: &Parts,
        key: &str,
        tenure: &Tenure,
        left: Duration,
        outcome: Result<Outcome, Error>,
    ) -> Option<Result<(), Error>> {
        match outcome.and_then(whose) {
            Ok(Whose::Ours) => Some(Ok(())),
            Ok(Whose::NotDelayed(other)) => Some(Err(not_delayed(parts, key, tenure, other, self.perhaps_done))),
            // After a try without a reply, "not ours" may be the effect of that try.
            Ok(Whose::NotOurs(_)) if self.perhaps_done => Some(Ok(())),
            Ok(Whose::NotOurs(other)) => Some(not_ours(parts, key, tenure, other)),
            Err(error) => {
                self.failures += 1;
                self.perhaps_done |= error.is_unknown();
                // After the lease's end the key is gone by itself, and there is nothing left to wait for.
                let is_last = self.failures >= timing::RELEASE_TRIES || left.is_zero();
                if !is_last && matches!(error, Error::Backend { .. }) {
                    return None;
                }
                log::warn!(
                    RELEASE,
                    "lock {key:?}: release of {:?} failed, retrying in background: {error}",
                    tenure.locker
                );
                let error = if self.perhaps_done { error.of_perhaps_executed() } else { error };
                let error = if self.is_delayed() { unconfirmed(error) } else { error };
                parts.retries.end_later(key, tenure, self.delayed.take());
                Some(Err(error))
            }
        }
    }

    /// Does as [`end`](Self::end) for the last try.
    pub(super) fn end_last(
        &mut self,
        parts: &Parts,
        key: &str,
        tenure: &Tenure,
        outcome: Result<Outcome, Error>,
    ) -> Result<(), Error> {
        if !parts.core.is_ours(&tenure.locker) {
            // The locker has an identity that a twin has, too: see `twin.rs`.
            return Ok(());
        }
        // The last try always has an outcome. Without one, the release would count as not confirmed.
        let none = || Err(Error::backend(BackendFailure::Unknown, "the last try of the release has no outcome"));
        self.end(parts, key, tenure, Duration::ZERO, outcome).unwrap_or_else(none)
    }

    /// Returns the pause before the next try.
    pub(super) fn pause(&self, tenure: &Tenure) -> Duration {
        timing::retries(timing::longest_release_pause(tenure.lease())).after(self.failures)
    }
}

/// How a store posts releases: at once, or with the requests that the caller runs next. If it runs none, it collects replies.
pub(super) type PostReleases = fn(&dyn Posting, Vec<(Claim<'_>, ReleaseDone)>, Duration) -> bool;

/// Releases a tenure without waiting for the reply, which is handled when it arrives.
pub(super) fn post(parts: &Parts, ended: EndedTenure) {
    let (key, locker, now) = (Arc::clone(&ended.key.name), Arc::clone(&ended.tenure.locker), ended.at);
    let claim = Claim { poller_gap: ended.tenure.gap, ..parts.core.claim(&key, &locker, ended.tenure.store_time()) };
    let limit = release_limit(&parts.core, ended.tenure.deadline().since(now));
    let done = done(parts, ended);
    match parts.core.processor.posting() {
        Some(posting) => {
            if posting.post_release(&claim, limit, done) {
                parts.retries.collect_soon(now);
            }
        }
        None => done(parts.core.processor.release(&claim, limit)),
    }
}

/// Does the same for several tenures, whose releases are sent together.
pub(super) fn post_all(parts: &Parts, posted: Vec<EndedTenure>, now: Moment, send: PostReleases) {
    let limit = |ended: &EndedTenure| release_limit(&parts.core, ended.tenure.deadline().since(now));
    let Some(limit) = posted.iter().map(limit).max() else { return };
    let claimed = |EndedTenure { key, tenure, .. }: &EndedTenure| {
        (Arc::clone(&key.name), Arc::clone(&tenure.locker), tenure.store_time(), tenure.gap)
    };
    let claimed: Vec<_> = posted.iter().map(claimed).collect();
    let claims = claimed
        .iter()
        .map(|(key, locker, kept, gap)| Claim { poller_gap: *gap, ..parts.core.claim(key, locker, *kept) });
    let done = posted.into_iter().map(|ended| done(parts, ended));
    match parts.core.processor.posting() {
        Some(posting) => {
            if send(posting, claims.zip(done).collect(), limit) {
                parts.retries.collect_soon(now);
            }
        }
        None => {
            let requests: Vec<_> = claims.map(Request::Release).collect();
            let results = parts.core.batch(&requests, limit);
            done.zip(results).for_each(|(done, result)| done(result.and_then(ReleaseOutcome::try_from)));
        }
    }
}

/// Returns what receives the reply to a posted release.
fn done(parts: &Parts, ended: EndedTenure) -> ReleaseDone {
    let EndedTenure { key, tenure, watchers, in_flight, .. } = ended;
    let posted = Posted {
        retries: Arc::clone(&parts.retries),
        events: Arc::clone(&parts.core.events),
        posted_at: parts.core.events.metered_now(),
        key: Arc::clone(&key.name),
        in_flight: in_flight.unwrap_or_else(|| parts.retries.unanswered.add()),
    };
    Box::new(move |answer| posted.answered(tenure, watchers, answer))
}

/// Interprets `NotOurs` for a release of a tenure whose hold ended in time: a loss, unless the lease, which
/// nobody renews after the hold, has run out by now.
pub(super) fn not_ours(parts: &Parts, key: &str, tenure: &Tenure, other: NotOurs) -> Result<(), Error> {
    // The loss below is what the caller is told, also of a twin.
    let _ = twin::shown_by(parts, key, None, other.holder.as_deref());
    if parts.core.clock.now() >= tenure.deadline() {
        return Ok(());
    }
    let broken = loss::broken(parts, [(key, tenure)], parts.core.limits.command).pop().flatten();
    let cause = broken.unwrap_or_else(|| LossCause::from(other));
    let locker = tenure.locker.to_string();
    Err(Error::LeaseLost(Box::new(LeaseLoss { key: key.to_owned(), locker, cause, ago: Duration::ZERO })))
}

/// What a reply to a release says.
enum Whose {
    /// The tenure has ended by it.
    Ours,
    /// The key did not contain the locker.
    NotOurs(NotOurs),
    /// The same for a release that was to be delayed.
    NotDelayed(NotOurs),
}

fn whose(outcome: Outcome) -> Result<Whose, Error> {
    match outcome {
        Outcome::Release(ReleaseOutcome::NotOurs(other)) => Ok(Whose::NotOurs(other)),
        Outcome::DelayRelease(DelayReleaseOutcome::NotOurs(other)) => Ok(Whose::NotDelayed(other)),
        Outcome::Release(_) | Outcome::DelayRelease(_) => Ok(Whose::Ours),
        other => Err(other.misplaced()),
    }
}

/// The error for a tenure whose release could not be delayed, because the key did not contain its locker any more.
fn not_delayed(parts: &Parts, key: &str, tenure: &Tenure, other: NotOurs, perhaps_done: bool) -> Error {
    let words = match &other.holder {
        Some(holder) => format!("{holder:?} has the key"),
        None => "the key is free".to_owned(),
    };
    let lost = if perhaps_done { Ok(()) } else { not_ours(parts, key, tenure, other) };
    let unknown = || unconfirmed(Error::backend(BackendFailure::Unknown, words));
    lost.err().unwrap_or_else(unknown)
}

/// Adds to the error of a delayed release what the failure means.
fn unconfirmed(error: Error) -> Error {
    match error {
        Error::Backend { failure, message, source } => {
            let message = format!("the key may not be kept until the time that was asked for: {message}");
            Error::Backend { failure, message, source }
        }
        other => other,
    }
}

/// Returns how long one try of a release may take if `left` of the lease remains.
pub(super) fn release_limit(core: &Core, left: Duration) -> Duration {
    left.max(timing::SHORTEST_RELEASE).min(core.limits.command)
}

/// A posted release: no thread waits for its reply.
struct Posted {
    // This has parts of the client, and not the client. The last replies may arrive while the client ends, and the parts outlive it
    // without owning the store. The thread that receives a reply must not drop a store, because the end of the store waits for that thread.
    retries: Arc<Retries>,
    events: Arc<Events>,
    /// When it was posted, if metrics are recorded.
    posted_at: Option<Moment>,
    key: Arc<str>,
    /// Makes the end of the main thread wait for this release.
    in_flight: InFlight,
}

impl Posted {
    /// Handles the reply. Runs on whichever thread receives it, and must not block.
    fn answered(self, mut tenure: Box<Tenure>, watchers: Vec<Watcher>, answer: Result<ReleaseOutcome, Error>) {
        self.events.note_posted(&self.key, self.posted_at, &answer);
        match answer {
            Ok(ReleaseOutcome::NotOurs(other)) => {
                let now = self.retries.clock.now();
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
                self.retries.clean_up(&self.key, &tenure.locker, tenure.store_time(), ending, Some(self.in_flight));
            }
        }
    }
}

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
mod at_exit {
    use super::Parts;
    use crate::sync::catch_panic;
    use crate::timing::{EXIT_LOOK, exit_wait};
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Weak};
    use std::thread;
    use std::time::Instant;

    /// The clients that the main thread has used. Other threads record none.
    struct Used {
        is_main: bool,
        last: Cell<*const Parts>,
        clients: RefCell<Vec<Weak<Parts>>>,
    }

    std::thread_local! {
        static USED: Used = Used {
            is_main: thread::current().name() == Some("main"),
            last: Cell::new(std::ptr::null()),
            clients: RefCell::new(Vec::new()),
        };
    }

    impl Drop for Used {
        fn drop(&mut self) {
            let clients = self.clients.get_mut().drain(..).filter_map(|parts| parts.upgrade());
            let clients: Vec<_> = clients.filter(|parts| !parts.core.process.is_forked()).collect();
            // A panic here would abort the program.
            let _ = catch_panic(|| await_answers(&clients));
            for parts in clients {
                let _ = catch_panic(|| drop(parts));
            }
        }
    }

    /// Waits for the replies of all clients at the same time, so that a server that does not reply takes no time from
    /// the others.
    fn await_answers(clients: &[Arc<Parts>]) {
        let limit = clients.iter().map(|parts| parts.core.limits.command).max().unwrap_or_default();
        let until = Instant::now() + exit_wait(limit);
        let mut waits: Vec<_> = clients.iter().map(|parts| (parts, parts.retries.unanswered.turn_over())).collect();
        loop {
            waits.retain(|(_, unanswered)| unanswered.load(Ordering::SeqCst) > 0);
            if waits.is_empty() || Instant::now() >= until {
                return;
            }
            for (parts, _) in &waits {
                let _ = catch_panic(|| parts.retries.collect_replies(&parts.core));
            }
            thread::sleep(EXIT_LOOK);
        }
    }

    /// Records that the calling thread has used this client.
    pub(in crate::client) fn note_use(parts: &Parts) {
        // When the thread-locals of the thread are already gone, this fails, and it is too late to note anything.
        let _ = USED.try_with(|used| {
            if used.is_main && used.last.replace(parts) != std::ptr::from_ref(parts) {
                let mut clients = used.clients.borrow_mut();
                clients.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), parts));
                clients.push(Weak::clone(&parts.this));
            }
        });
    }
}

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
pub(super) use self::at_exit::note_use;

/// Does nothing: on this platform the end of the main thread waits for no replies. See the module.
#[cfg(not(all(unix, not(all(test, dlock_shuttle)))))]
pub(super) fn note_use(_parts: &Parts) {}
