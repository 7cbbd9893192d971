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

use super::cleanup::Ending;
use super::core::Core;
use super::events::Events;
use super::loss;
use super::retries::Retries;
use super::twin;
use crate::clock::Moment;
use crate::error::{Error, LeaseLoss, LossCause};
use crate::log;
use crate::port::{Claim, NotOurs, Operations, Posting, ReleaseOutcome, Request};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread;
use crate::timing;
use crossbeam_channel::Sender;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    unanswered: Arc<Unanswered>,
    /// When to collect the replies to posted releases; zero if none is known to be outstanding.
    // ORDERING: the value alone matters. `collect_soon` loads it after a release was posted; `collect` stores zero and
    // then asks the store. The store's mutex, which both take in between, orders the two: either `collect` finds the
    // post, or `collect_soon` sees the zero and sets a new moment. Neither Acquire nor Release decides this.
    collect_at: AtomicU64,
}

impl Releases {
    /// Releases a tenure. After three failed tries, leaves it to the clean-up list.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] if the key was no longer ours; otherwise the error of the last try.
    pub(crate) fn give_back(&self, core: &Core, key: &str, tenure: &Tenure) -> Result<(), Error> {
        self.release(core, key, tenure, false)
    }

    /// Releases a tenure again, after a release of it that may have been executed.
    ///
    /// # Errors
    ///
    /// As [`give_back`](Self::give_back).
    pub(crate) fn give_back_again(&self, core: &Core, key: &str, tenure: &Tenure) -> Result<(), Error> {
        self.release(core, key, tenure, true)
    }

    /// Releases a tenure. `perhaps_done` says that an earlier release of it may have been executed.
    fn release(&self, core: &Core, key: &str, tenure: &Tenure, mut perhaps_done: bool) -> Result<(), Error> {
        if !core.is_ours(&tenure.locker) {
            // It is of an identity that a twin has, too: see `twin.rs`.
            return Ok(());
        }
        let release = Request::Release(core.ending(key, tenure));
        let mut failures = 0;
        loop {
            // After the lease's end the key is gone by itself, and there is nothing left to wait for.
            let left = tenure.deadline().since(core.clock.now());
            match core.run(&release, release_limit(core, left)).and_then(ReleaseOutcome::try_from) {
                // After a try without a reply, "not ours" may be the effect of that try.
                Ok(ReleaseOutcome::NotOurs(other)) if !perhaps_done => return self.not_ours(core, key, tenure, other),
                Ok(_) => return Ok(()),
                Err(error) => {
                    failures += 1;
                    perhaps_done |= error.is_unknown();
                    if failures >= timing::RELEASE_TRIES || left.is_zero() || !matches!(error, Error::Backend { .. }) {
                        log::warn!(
                            RELEASE,
                            "lock {key:?}: release of {:?} failed, retrying in background: {error}",
                            tenure.locker
                        );
                        self.release_later(core, key, tenure);
                        return Err(error);
                    }
                    thread::sleep(timing::retries(timing::longest_release_pause(tenure.lease())).after(failures));
                }
            }
        }
    }

    /// Releases a tenure without waiting for the reply, which is handled when it arrives.
    pub(crate) fn post(&self, core: &Core, key: &Arc<str>, tenure: Tenure, watchers: Vec<Sender<()>>, now: Moment) {
        note_use(core);
        let (locker, kept, gap) = (Arc::clone(&tenure.locker), tenure.kept(), tenure.gap);
        let claim = Claim { poller_gap: gap, ..core.claim(key, &locker, kept) };
        let limit = release_limit(core, tenure.deadline().since(now));
        let posted = Posted {
            retries: Arc::clone(&core.retries),
            events: Arc::clone(&core.events),
            posted_at: core.events.metered_now(),
            key: Arc::clone(key),
            in_flight: self.in_flight(),
        };
        match core.processor.posting() {
            Some(posting) => {
                let done = Box::new(move |answer| posted.answered(tenure, watchers, answer));
                if posting.post_release(&claim, limit, done) {
                    self.collect_soon(core, now);
                }
            }
            None => posted.answered(tenure, watchers, core.processor.release(&claim, limit)),
        }
    }

    /// Interprets `NotOurs` for a release of a tenure whose hold ended in time: a loss, unless the lease, which
    /// nobody renews after the hold, has run out by now.
    pub(crate) fn not_ours(&self, core: &Core, key: &str, tenure: &Tenure, other: NotOurs) -> Result<(), Error> {
        // The loss below is what the caller is told, also of a twin.
        let _ = twin::shown_by(core, key, None, other.holder.as_deref());
        if core.clock.now() >= tenure.deadline() {
            return Ok(());
        }
        let cause = loss::broken(core, key, tenure, core.limits.command).unwrap_or_else(|| LossCause::from(other));
        let locker = tenure.locker.to_string();
        Err(Error::LeaseLost(Box::new(LeaseLoss { key: key.to_owned(), locker, cause, ago: Duration::ZERO })))
    }

    /// Leaves the release of a tenure to the clean-up list.
    pub(crate) fn release_later(&self, core: &Core, key: &str, tenure: &Tenure) {
        let ending = Ending::ReleaseUnanswered(tenure.deadline());
        clean_up(core, key, &tenure.locker, tenure.kept(), ending, Some(self.in_flight()));
    }

    /// Gives up a locker that was sent. The clean-up list releases it, and begins at once.
    pub(crate) fn abandon(&self, core: &Core, key: &str, unsettled: Option<Unsettled>) {
        if let Some(Unsettled { locker, settings, answered, .. }) = unsettled {
            let ending = if answered { Ending::GivenUp } else { Ending::AcquireUnanswered };
            clean_up(core, key, &locker, settings.kept(), ending, None);
        }
    }

    /// Releases a locker that was granted a key, and that no thread of this client wants.
    pub(crate) fn give_up_grant(&self, core: &Core, key: &str, locker: &Arc<str>) {
        clean_up(core, key, locker, core.limits.shortest_lease, Ending::GivenUp, None);
    }

    /// Makes sure that the replies to releases posted by `now` are collected, even if no thread calls the store any more.
    fn collect_soon(&self, core: &Core, now: Moment) {
        // ORDERING: the value alone matters: see `collect_at`. The store's mutex orders this after the post.
        if self.collect_at.load(Ordering::Acquire) != 0 {
            return;
        }
        if let Err(error) = core.retries.thread.start() {
            log::debug!(RELEASE, "cannot start the retry thread, replies to releases are read later: {error}");
            return;
        }
        let at = now + timing::COLLECT_PAUSE;
        // ORDERING: as above. The exchange lets one of several posters wake the retry thread.
        if self.collect_at.compare_exchange(0, at.as_nanos(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            core.retries.thread.wake_by(at);
        }
    }

    /// Returns when to collect the replies to posted releases.
    pub(super) fn next_collection(&self) -> Moment {
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
            self.collect_soon(core, now);
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

    fn in_flight(&self) -> InFlight {
        let of = Arc::clone(&self.unanswered);
        let half = of.half.load(Ordering::SeqCst) % 2;
        of.counts[half].fetch_add(1, Ordering::SeqCst);
        InFlight { of, half }
    }

    /// Counts later releases apart. Returns the number of those that were posted until now and are not answered.
    #[cfg_attr(any(not(unix), all(test, dlock_shuttle)), expect(dead_code, reason = "nobody waits there"))]
    pub(super) fn turn_over(&self) -> &AtomicUsize {
        &self.unanswered.counts[self.unanswered.half.fetch_add(1, Ordering::SeqCst) % 2]
    }
}

/// Leaves a locker to the clean-up list, unless a copy of this client has the locker's identity, too: see `twin.rs`.
fn clean_up(core: &Core, key: &str, locker: &Arc<str>, kept: Duration, ending: Ending, in_flight: Option<InFlight>) {
    if core.is_ours(locker) {
        core.retries.clean_up(key, locker, kept, ending, in_flight);
    }
}

/// Returns how long one try of a release may take if `left` of the lease remains.
fn release_limit(core: &Core, left: Duration) -> Duration {
    left.max(timing::SHORTEST_RELEASE).min(core.limits.command)
}

/// The number of unanswered posted releases, in two halves: those posted before the end of the main thread, and those
/// posted since. The end waits for the former.
#[derive(Debug, Default)]
struct Unanswered {
    half: AtomicUsize,
    counts: [AtomicUsize; 2],
}

/// One unanswered release, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    of: Arc<Unanswered>,
    half: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.of.counts[self.half].fetch_sub(1, Ordering::SeqCst);
    }
}

/// A posted release: no thread waits for its reply.
struct Posted {
    // This has parts of the core, and not the core itself. The last replies may arrive while the client ends, and the parts outlive it
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
    fn answered(self, mut tenure: Tenure, watchers: Vec<Sender<()>>, answer: Result<ReleaseOutcome, Error>) {
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
                self.retries.clean_up(&self.key, &tenure.locker, tenure.kept(), ending, Some(self.in_flight));
            }
        }
    }
}

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
mod at_exit {
    use super::Core;
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
        last: Cell<*const Core>,
        clients: RefCell<Vec<Weak<Core>>>,
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
            let clients = self.clients.get_mut().drain(..).filter_map(|core| core.upgrade());
            let clients: Vec<_> = clients.filter(|core| !core.process.is_forked()).collect();
            // A panic here would abort the program.
            let _ = catch_panic(|| await_answers(&clients));
            for core in clients {
                let _ = catch_panic(|| drop(core));
            }
        }
    }

    /// Waits for the replies of all clients at the same time, so that a server that does not reply takes no time from
    /// the others.
    fn await_answers(clients: &[Arc<Core>]) {
        let limit = clients.iter().map(|core| core.limits.command).max().unwrap_or_default();
        let until = Instant::now() + exit_wait(limit);
        let mut waits: Vec<_> = clients.iter().map(|core| (core, core.releases.turn_over())).collect();
        loop {
            waits.retain(|(_, unanswered)| unanswered.load(Ordering::SeqCst) > 0);
            if waits.is_empty() || Instant::now() >= until {
                return;
            }
            for (core, _) in &waits {
                let _ = catch_panic(|| core.releases.collect_replies(core));
            }
            thread::sleep(EXIT_LOOK);
        }
    }

    /// Records that the calling thread has used this client.
    pub(in crate::client) fn note_use(core: &Core) {
        // When the thread-locals of the thread are already gone, this fails, and it is too late to note anything.
        let _ = USED.try_with(|used| {
            if used.is_main && used.last.replace(core) != std::ptr::from_ref(core) {
                let mut clients = used.clients.borrow_mut();
                clients.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), core));
                clients.push(Weak::clone(&core.this));
            }
        });
    }
}

#[cfg(all(unix, not(all(test, dlock_shuttle))))]
pub(super) use self::at_exit::note_use;

/// Does nothing: on this platform the end of the main thread waits for no replies. See the module.
#[cfg(not(all(unix, not(all(test, dlock_shuttle)))))]
pub(super) fn note_use(_core: &Core) {}
