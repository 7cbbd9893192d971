//! What the thread `dlock-retry` has to do: the keys for which threads wait, the clean-up list, and the replies to posted releases. The work of
//! the thread stands in [`retry_thread`](super::retry_thread).

use super::cleanup::{Cleanup, CleanupStep, Ending, InFlight, PendingCleanup, Unanswered};
use super::core::Core;
use super::worker::{Schedule, Worker};
use crate::client::delayed::Delayed;
use crate::clock::{Moment, Timer};
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::port::Posting;
use crate::state::key::{Key, KeyTable};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use crate::timing;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Retries {
    pub(super) clock: Timer,
    /// The keys for which threads wait, ordered by when the store must be asked.
    waiting: Mutex<Schedule<Arc<Key>>>,
    pub(crate) cleanup: Cleanup,
    /// The shortest lease that the store keeps.
    shortest_lease: Duration,
    /// When to collect the replies to posted releases; zero if none is known to be outstanding.
    // ORDERING: the value alone matters. `collect_soon` loads it after a release was posted; `collect` stores zero and
    // then asks the store. The store's mutex, which both take in between, orders the two: either `collect` finds the
    // post, or `collect_soon` sees the zero and sets a new moment. Neither Acquire nor Release decides this.
    collect_at: AtomicU64,
    /// The posted releases that the end of the main thread waits for.
    pub(super) unanswered: Arc<Unanswered>,
    pub(super) thread: Worker,
}

impl Retries {
    pub(super) fn new(core: &Core, thread: Worker) -> Self {
        Self {
            clock: core.clock.clone(),
            waiting: Mutex::new(Schedule::new()),
            cleanup: Cleanup::new(core.clock.clone(), Arc::clone(&core.id)),
            shortest_lease: core.limits.shortest_lease,
            collect_at: AtomicU64::new(0),
            unanswered: Arc::default(),
            thread,
        }
    }

    /// Makes sure that the thread wakes when something is due.
    pub(super) fn wake(&self) {
        self.thread.wake_by(self.next());
    }

    /// Returns when something is due next.
    pub(super) fn next(&self) -> Moment {
        self.waiting.lock().next().min(self.cleanup.next()).min(self.next_collection())
    }
}

/// The keys that threads wait for.
impl Retries {
    /// Sets when the store must be asked for a key.
    pub(super) fn ask_at(&self, key: &Arc<Key>, at: Moment) {
        self.waiting.lock().put(key.id, at, Arc::clone(key));
        self.thread.wake_by(at);
    }

    /// Removes a key for which no thread waits any more. Call it with the key's mutex held.
    pub(super) fn forget(&self, key: &Key) {
        let removed = self.waiting.lock().remove(key.id);
        drop(removed);
    }

    /// Makes every waited-for key due now.
    pub(super) fn hasten(&self, now: Moment) {
        self.waiting.lock().hasten(now);
        self.thread.wake_by(now);
    }

    /// Makes every waited-for key and every pending clean-up due now.
    pub(super) fn hasten_all(&self, now: Moment) {
        self.cleanup.hasten(now);
        self.hasten(now);
    }

    /// Marks the replies in flight as outdated, for all keys, and makes every waited-for key due now.
    pub(super) fn ask_about_all(&self, keys: &KeyTable) {
        for key in keys.all() {
            key.state.lock().note_change();
        }
        self.hasten(self.clock.now());
    }

    pub(super) fn take_due(&self, now: Moment) -> Vec<Arc<Key>> {
        self.waiting.lock().take_due(now, usize::MAX)
    }
}

/// The clean-up list.
impl Retries {
    /// Adds a locker to the list, and wakes the thread.
    pub(super) fn clean_up(
        &self,
        key: &str,
        locker: &Arc<str>,
        kept: Duration,
        ending: Ending,
        in_flight: Option<InFlight>,
    ) {
        self.cleanup.add(key, locker, kept, ending, in_flight);
        match self.thread.start() {
            Ok(_) => self.thread.wake_by(self.cleanup.next()),
            Err(Error::ShutDown) => {}
            Err(error) => log::error!(CLIENT, "cannot start the retry thread, clean-up is delayed: {error}"),
        }
    }

    /// Leaves the release of a tenure to the list.
    pub(crate) fn release_later(&self, key: &str, tenure: &Tenure) {
        self.end_later(key, tenure, None);
    }

    /// Leaves the release of a tenure, which may be delayed, to the list.
    pub(super) fn end_later(&self, key: &str, tenure: &Tenure, delayed: Option<Delayed>) {
        let deadline = tenure.deadline();
        let ending = match delayed {
            Some(delayed) => Ending::DelayUnanswered(deadline, delayed),
            None => Ending::ReleaseUnanswered(deadline),
        };
        self.clean_up(key, &tenure.locker, tenure.store_time(), ending, Some(self.unanswered.add()));
    }

    /// Gives up a locker that was sent. The thread releases it, and begins at once.
    pub(crate) fn abandon(&self, key: &str, unsettled: Option<Unsettled>) {
        if let Some(Unsettled { locker, settings, answered, .. }) = unsettled {
            let ending = if answered { Ending::GivenUp } else { Ending::AcquireUnanswered };
            self.clean_up(key, &locker, settings.store_time(), ending, None);
        }
    }

    /// Releases a locker that was granted a key, and that no thread of this client wants.
    pub(crate) fn give_up_grant(&self, key: &str, locker: &Arc<str>) {
        self.clean_up(key, locker, self.shortest_lease, Ending::GivenUp, None);
    }

    /// Ends lockers for certain, for at most the time of one command: others wait for the next round. Only for a store
    /// that can.
    pub(super) fn settle(&self, core: &Core, cleanups: Vec<PendingCleanup>) {
        let until = Instant::now() + core.limits.command;
        // After a request without an answer, the other lockers of this round are not tried: each request could take as long.
        let mut failure = None;
        for cleanup in cleanups {
            let (sent_at, left) = (self.clock.now(), until.saturating_duration_since(Instant::now()));
            let result = match &failure {
                None if left.is_zero() => {
                    Err(Error::backend(BackendFailure::NotExecuted, "no time left in this round"))
                }
                None => cleanup.settle(core, left),
                Some(error) => Err(Error::clone(error)),
            };
            failure = result.as_ref().err().filter(|error| matches!(error, Error::Backend { .. })).cloned();
            self.cleanup.put_back(cleanup, &result, CleanupStep::Settle, sent_at);
        }
    }

    /// Releases what is on the clean-up list, as long as the store replies. For the end of the client.
    pub(super) fn release_cleanups(&self, core: &Core) {
        let (mut released, mut unanswered) = (0, 0);
        while unanswered == 0 {
            let mut cleanups = self.cleanup.take_due(Moment::NEVER);
            if cleanups.is_empty() {
                break;
            }
            for _ in 0..timing::CLOSING_TRIES {
                let mut results = release_all(core, &cleanups).into_iter();
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
}

/// The replies to posted releases.
impl Retries {
    /// Makes sure that the replies to releases posted by `now` are collected, even if no thread calls the store any more.
    pub(super) fn collect_soon(&self, now: Moment) {
        // ORDERING: the value alone matters: see `collect_at`. The store's mutex orders this after the post.
        if self.collect_at.load(Ordering::Acquire) != 0 {
            return;
        }
        if let Err(error) = self.thread.start() {
            log::debug!(RELEASE, "cannot start the retry thread, replies to releases are read later: {error}");
            return;
        }
        let at = now + timing::COLLECT_PAUSE;
        // ORDERING: as above. The exchange lets one of several posters wake the retry thread.
        if self.collect_at.compare_exchange(0, at.as_nanos(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.thread.wake_by(at);
        }
    }

    /// Returns when to collect the replies to posted releases.
    fn next_collection(&self) -> Moment {
        // ORDERING: the value alone matters: see `collect_at`.
        match self.collect_at.load(Ordering::Acquire) {
            0 => Moment::NEVER,
            at => Moment::from_nanos(at),
        }
    }

    /// Collects the replies to posted releases, if that is due. Called by the retry thread.
    pub(super) fn collect(&self, core: &Core, now: Moment) {
        if now < self.next_collection() {
            return;
        }
        // Reset first: a release that is posted after this may be missed by the call below.
        self.collect_at.store(0, Ordering::Release); // ORDERING: the value alone matters: see `collect_at`.
        if self.collect_replies(core) {
            self.collect_soon(now);
        }
    }

    /// Processes the replies to posted releases that have arrived. Returns `true` if some are still outstanding.
    pub(super) fn collect_replies(&self, core: &Core) -> bool {
        core.processor.posting().is_some_and(Posting::collect)
    }

    /// Waits for the replies to posted releases, for at most the limit of one command.
    pub(super) fn await_replies(&self, core: &Core) {
        let most = core.limits.command.as_nanos() / timing::CLOSING_LOOK.as_nanos();
        let mut looks = 0;
        while self.collect_replies(core) && looks < most {
            looks += 1;
            thread::sleep(timing::CLOSING_LOOK);
        }
    }
}

/// Releases these lockers, or ends them for certain where the store can. Returns for each whether the store has
/// answered.
fn release_all(core: &Core, cleanups: &[PendingCleanup]) -> Vec<bool> {
    let (client, limit) = (core.id.current().as_str(), core.limits.command);
    if !core.limits.settles {
        let now = core.clock.now();
        let requests: Vec<_> = cleanups.iter().map(|cleanup| cleanup.request(client, now)).collect();
        return core.batch(&requests, limit).iter().map(Result::is_ok).collect();
    }
    let until = Instant::now() + limit;
    let settle = |cleanup: &PendingCleanup| {
        let left = until.saturating_duration_since(Instant::now());
        !left.is_zero() && cleanup.settle(core, left).is_ok()
    };
    cleanups.iter().map(settle).collect()
}
