//! The clean-up list: lockers that this client no longer uses, although the store may still contain them, or may receive them later.
//!
//! A release is safe to repeat, so the retry thread repeats it until nothing can be left. (A store that can end a
//! locker for certain is asked to do that instead, until it answers.)
//!
//! | ended | how | repeated until |
//! |---|---|---|
//! | [`Ending::ReleaseUnanswered`] | every try of a release failed | the first answered release, or so long after the tenure's deadline as the store keeps a key for it (then the key is gone by itself) |
//! | [`Ending::DelayUnanswered`] | every try of a delayed release failed | the same. Until the moment up to which the release is delayed, what is repeated is the delayed release: an ordinary one, or the certain end of the locker, would make the key free for somebody who must not get it yet. After that moment, the ordinary one is repeated |
//! | [`Ending::GivenUp`] | it was given up while it stood in the store's queue, or its grant had no taker | the first answered release |
//! | [`Ending::AcquireUnanswered`] | it was given up, or reported `gone`, while its acquire was unanswered | one lease after the first answered release, because closing a socket does not cancel what was sent on it |

use super::core::Core;
use super::delayed::Delayed;
use crate::backoff::Cooldown;
use crate::client::worker::Schedule;
use crate::clock::{Moment, Timer};
use crate::error::Error;
use crate::log;
use crate::port::{Claim, Operations, Request};
use crate::state::locker::ClientId;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::timing;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The maximum length of the list. In an outage every call that gives up adds to it. A locker that does not fit is not released. It goes when the
/// store no longer keeps it.
const LONGEST: usize = 65_536;

/// How many lockers are released in one round. Threads that wait for a lock share the batch.
pub(super) const ROUND: usize = 256;

/// What a store was asked to do with a locker on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanupStep {
    Release,
    /// To end it for certain. An answer ends the clean-up.
    Settle,
}

/// Why a locker is on the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its release was not answered. Contains the tenure's deadline.
    ReleaseUnanswered(Moment),
    /// Its delayed release was not answered. Contains the tenure's deadline, too.
    DelayUnanswered(Moment, Delayed),
    /// It stood in the store's queue, or its grant had no taker.
    GivenUp,
    /// Its acquire was not answered, and may still be executed.
    AcquireUnanswered,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReleaseUnanswered(_) => "its release was not answered",
            Self::DelayUnanswered(..) => "its delayed release was not answered",
            Self::GivenUp => "it was given up",
            Self::AcquireUnanswered => "its acquire was not answered",
        })
    }
}

/// One locker whose release must be repeated.
pub(crate) struct PendingCleanup {
    id: u64,
    pub(super) key: String,
    pub(super) locker: Arc<str>,
    /// How long the store keeps the key for it: its lease, and the lock-delay.
    kept: Duration,
    ending: Ending,
    /// The moment until which the release is repeated; `None` before the first answered one.
    until: Option<Moment>,
    failed: Cooldown<Moment>,
    /// The number of answered releases.
    answers: u32,
    /// [`List::hastened`] as it was when this was taken from the list.
    seen: u64,
    /// Makes the end of the main thread wait.
    _in_flight: Option<InFlight>,
}

/// The number of unanswered posted releases, in two halves: those posted before the end of the main thread, and those
/// posted since. The end waits for the former.
#[derive(Default)]
pub(super) struct Unanswered {
    half: AtomicUsize,
    counts: [AtomicUsize; 2],
}

impl Unanswered {
    /// Counts one more release.
    pub(super) fn add(self: &Arc<Self>) -> InFlight {
        let half = self.half.load(Ordering::SeqCst) % 2;
        self.counts[half].fetch_add(1, Ordering::SeqCst);
        InFlight { of: Arc::clone(self), half }
    }

    /// Counts later releases apart. Returns the number of those that were posted until now and are not answered.
    #[cfg_attr(any(not(unix), all(test, dlock_shuttle)), expect(dead_code, reason = "nobody waits there"))]
    pub(super) fn turn_over(&self) -> &AtomicUsize {
        &self.counts[self.half.fetch_add(1, Ordering::SeqCst) % 2]
    }
}

/// One unanswered release, counted until this is dropped.
pub(crate) struct InFlight {
    of: Arc<Unanswered>,
    half: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.of.counts[self.half].fetch_sub(1, Ordering::SeqCst);
    }
}

/// The list. It has lockers of the client's present identity only. A copy of this client may have an earlier identity, too: see
/// [`twin`](super::twin).
pub(crate) struct Cleanup {
    clock: Timer,
    id: Arc<ClientId>,
    list: Mutex<List>,
}

struct List {
    schedule: Schedule<PendingCleanup>,
    /// The lockers whose delayed releases were not answered, even while such a release is under way. If the grant of such a locker is heard late, an
    /// ordinary release would free the key before its moment.
    delayed: HashSet<Arc<str>>,
    last_id: u64,
    /// How often all lockers were made due at once.
    hastened: u64,
}

impl Cleanup {
    pub(crate) fn new(clock: Timer, id: Arc<ClientId>) -> Self {
        Self {
            clock,
            id,
            list: Mutex::new(List { schedule: Schedule::new(), delayed: HashSet::new(), last_id: 0, hastened: 0 }),
        }
    }

    /// Adds a locker, due immediately. The caller must wake the retry thread. The count of a posted release is kept until the locker is
    /// cleaned up. A locker of an earlier identity is dropped: its release may have been under way, or posted, when that was given up.
    pub(super) fn add(
        &self,
        key: &str,
        locker: &Arc<str>,
        kept: Duration,
        ending: Ending,
        in_flight: Option<InFlight>,
    ) {
        let mut list = self.list.lock();
        if !self.is_ours(locker) || list.delayed.contains(locker) {
            return;
        }
        let has_room = list.schedule.len() < LONGEST;
        let shown = (ending != Ending::GivenUp).then(|| ending.to_string());
        if has_room {
            if let Ending::DelayUnanswered(..) = ending {
                list.delayed.insert(Arc::clone(locker));
            }
            list.last_id += 1;
            let cleanup = PendingCleanup {
                id: list.last_id,
                key: key.to_owned(),
                locker: Arc::clone(locker),
                kept,
                ending,
                until: None,
                failed: Cooldown::default(),
                answers: 0,
                seen: 0,
                _in_flight: in_flight,
            };
            list.schedule.put(cleanup.id, self.clock.now(), cleanup);
        }
        drop(list);
        if !has_room {
            log::warn!(
                RELEASE,
                "lock {key:?}: the clean-up list is full ({LONGEST}), locker {locker:?} keeps what it has for its lease"
            );
        } else if let Some(ending) = shown {
            log::info!(RELEASE, "lock {key:?}: locker {locker:?} goes on the clean-up list ({ending})");
        } else {
            log::debug!(RELEASE, "lock {key:?}: locker {locker:?} is given up, releasing it in background");
        }
    }

    /// Returns whether a locker belongs to the present identity. With the mutex of the list held, no locker of an earlier one is left behind:
    /// [`forget_all`](Self::forget_all) comes after an identity is given up.
    fn is_ours(&self, locker: &str) -> bool {
        self.id.current().owns(locker)
    }

    /// Forgets all lockers: they may be another client's, too. Call it when the client has another identity.
    pub(crate) fn forget_all(&self) {
        let mut list = self.list.lock();
        list.delayed.clear();
        let forgotten = std::mem::replace(&mut list.schedule, Schedule::new());
        drop(list);
        drop(forgotten);
    }

    pub(crate) fn next(&self) -> Moment {
        self.list.lock().schedule.next()
    }

    /// Makes every locker due now, because another server answers. The caller must wake the retry thread. A locker whose
    /// release is under way is due again as soon as that fails: the failure may be that of the earlier server.
    pub(crate) fn hasten(&self, now: Moment) {
        let mut list = self.list.lock();
        list.hastened += 1;
        list.schedule.hasten(now);
    }

    pub(crate) fn take_due(&self, now: Moment) -> Vec<PendingCleanup> {
        let mut list = self.list.lock();
        let mut due = list.schedule.take_due(now, ROUND);
        due.iter_mut().for_each(|cleanup| cleanup.seen = list.hastened);
        due
    }

    /// Handles the result of a request that was sent at `sent_at`. Puts the locker back unless no other release is needed.
    pub(super) fn put_back<T>(
        &self,
        mut cleanup: PendingCleanup,
        result: &Result<T, Error>,
        step: CleanupStep,
        sent_at: Moment,
    ) {
        let now = self.clock.pause_begins(sent_at);
        let due = match result {
            Ok(_) => {
                cleanup.failed.end();
                let until = *cleanup.until.get_or_insert(now + timing::unanswered_acquire(cleanup.kept));
                if step == CleanupStep::Settle || cleanup.ending != Ending::AcquireUnanswered || now >= until {
                    log::debug!(RELEASE, "lock {:?}: locker {:?} is cleaned up", cleanup.key, cleanup.locker);
                    return self.forget_delay(&cleanup);
                }
                let pause = timing::late_acquire_pause(cleanup.kept, cleanup.answers);
                cleanup.answers += 1;
                (now + pause).min(until)
            }
            Err(error) => {
                log::debug!(RELEASE, "lock {:?}: clean-up of {:?} failed: {error}", cleanup.key, cleanup.locker);
                if let Ending::ReleaseUnanswered(deadline) | Ending::DelayUnanswered(deadline, _) = cleanup.ending
                    && now > deadline + timing::unanswered_release(cleanup.kept)
                {
                    log::warn!(
                        RELEASE,
                        "lock {:?}: release of {:?} was never confirmed; its lease has ended",
                        cleanup.key,
                        cleanup.locker
                    );
                    return self.forget_delay(&cleanup);
                }
                cleanup.failed.fail(now, timing::retries(timing::longest_cleanup_pause(cleanup.kept)))
            }
        };
        let mut list = self.list.lock();
        if self.is_ours(&cleanup.locker) {
            let is_hastened = result.is_err() && cleanup.seen != list.hastened;
            list.schedule.put(cleanup.id, if is_hastened { now } else { due }, cleanup);
        }
    }

    /// Notes that the release of a locker is not repeated any more.
    fn forget_delay(&self, cleanup: &PendingCleanup) {
        if let Ending::DelayUnanswered(..) = cleanup.ending {
            self.list.lock().delayed.remove(&cleanup.locker);
        }
    }

    /// Puts back a locker whose release was not tried.
    pub(crate) fn return_untried(&self, cleanup: PendingCleanup, now: Moment) {
        let mut list = self.list.lock();
        if self.is_ours(&cleanup.locker) {
            list.schedule.put(cleanup.id, now, cleanup);
        }
    }
}

impl PendingCleanup {
    /// Describes the locker, one of this client, to the store.
    pub(crate) fn claim<'a>(&'a self, client: &'a str) -> Claim<'a> {
        Claim::new(&self.key, client, &self.locker, self.kept)
    }

    /// Returns the request that ends the locker now.
    pub(crate) fn request<'a>(&'a self, client: &'a str, now: Moment) -> Request<'a> {
        let delayed = match &self.ending {
            Ending::DelayUnanswered(_, delayed) => Some(delayed),
            _ => None,
        };
        Delayed::ending(delayed, self.claim(client), now)
    }

    /// Ends the locker for certain, or delays its release, which is as certain. Only for a store that can do the former.
    pub(super) fn settle(&self, core: &Core, limit: Duration) -> Result<(), Error> {
        let client = core.id.current().as_str();
        match self.request(client, core.clock.now()) {
            release @ Request::DelayRelease(..) => core.run(&release, limit).map(drop),
            _ => core.processor.settle(&self.claim(client), limit),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/client/cleanup.rs"]
mod tests;
