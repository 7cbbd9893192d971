//! The thread `dlock-lease`: it extends the leases of held tenures, checks that their keys are still ours, and announces a loss.
//!
//! One thread serves all tenures of a client. A lease is extended at 75 % (`with_renew_at`); in between, the key is probed every lease/6.
//! All requests that are due go to the store in one batch, earliest deadline first. An attempt may use a third of the time that the most
//! urgent tenure has left. The next attempt may use a third of what remains then, so that three attempts fit before the deadline. If a
//! lease is short for the time of a round trip, it is extended earlier, and an attempt may take several round trips. If the most urgent
//! tenure has too little time left for another attempt, it does not shorten the present attempt for the other tenures.

use super::core::Core;
use super::loss::{self, Lost};
use super::twin;
use super::worker::{Schedule, Worker};
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{Error, LossCause};
use crate::log;
use crate::port::{ExtendOutcome, Extension, Outcome, ProbeOutcome, Request};
use crate::state::key::Key;
use crate::state::owner;
use crate::state::tenure::Tenure;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::timer::Timer;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// The tenures that the thread renews: when each must be looked at, its deadline, and how long an attempt may take.
#[derive(Debug)]
pub(crate) struct Renewals {
    clock: Timer,
    /// The limit of one command.
    longest: Duration,
    tenures: Mutex<Tenures>,
    pub(super) thread: Worker,
    /// The slowest recent round trip, in nanoseconds.
    // ORDERING: Relaxed: a statistic.
    trip: AtomicU64,
}

#[derive(Debug)]
struct Tenures {
    /// The keys, by when each must be looked at.
    looks: Schedule<Arc<Key>>,
    /// The deadlines of the live tenures.
    deadlines: Schedule<()>,
}

impl Renewals {
    pub(super) fn new(clock: &Timer, longest: Duration, thread: Worker) -> Self {
        Self {
            clock: clock.clone(),
            longest,
            tenures: Mutex::new(Tenures { looks: Schedule::new(), deadlines: Schedule::new() }),
            thread,
            trip: AtomicU64::new(0),
        }
    }

    /// Adds a new tenure, or notes that it is due at another moment.
    pub(super) fn put(&self, key: &Arc<Key>, tenure: &Tenure) {
        self.look_at(key, tenure, tenure.due(self.trip()));
    }

    /// Sets when the thread must look at a kept tenure.
    pub(super) fn look_at(&self, key: &Arc<Key>, tenure: &Tenure, due: Moment) {
        let mut tenures = self.tenures.lock();
        tenures.looks.put(key.id, due, Arc::clone(key));
        tenures.deadlines.put(key.id, tenure.deadline(), ());
        drop(tenures);
        self.thread.wake_by(due);
    }

    /// Stops renewing a tenure that was lost. Its key stays until the hold ends. This keeps the key alive, so that the thread of the
    /// stale hold finds it again, and the lease thread checks from time to time whether that thread has ended.
    pub(super) fn stop_renewing(&self, key: &Arc<Key>, tenure: &Tenure) {
        let look = self.clock.now() + timing::stale_look_pause(tenure.lease());
        let mut tenures = self.tenures.lock();
        tenures.deadlines.remove(key.id);
        tenures.looks.put(key.id, look, Arc::clone(key));
        drop(tenures);
        self.thread.wake_by(look);
    }

    /// Removes the tenure of a hold that ends.
    pub(super) fn forget(&self, key: &Key) {
        let mut tenures = self.tenures.lock();
        tenures.deadlines.remove(key.id);
        let removed = tenures.looks.remove(key.id);
        drop(tenures);
        drop(removed);
    }

    /// Makes every tenure due now.
    pub(super) fn hasten(&self, now: Moment) {
        self.tenures.lock().looks.hasten(now);
        self.thread.wake_by(now);
    }

    pub(super) fn take_due(&self, now: Moment) -> Vec<Arc<Key>> {
        self.tenures.lock().looks.take_due(now, usize::MAX)
    }

    /// Returns when the next tenure must be looked at.
    pub(super) fn next(&self) -> Moment {
        self.tenures.lock().looks.next()
    }

    /// Returns the earliest deadline of a live tenure; [`Moment::NEVER`] if there is none.
    pub(super) fn first_deadline(&self) -> Moment {
        self.tenures.lock().deadlines.next()
    }

    /// Notes how long the store took to reply.
    pub(super) fn note_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // ORDERING: Relaxed: a statistic. If two threads update it at once, one update is lost; that costs only
        // precision.
        let before = self.trip.load(Ordering::Relaxed);
        self.trip.store(took.max(before - before / timing::TRIP_DECAY), Ordering::Relaxed);
    }

    /// Returns the slowest recent round trip. A lease that is short for it is renewed earlier.
    pub(super) fn trip(&self) -> Duration {
        Duration::from_nanos(self.trip.load(Ordering::Relaxed)) // ORDERING: Relaxed: a statistic.
    }

    /// Returns how long the lease thread may ask what no lease depends on: a quarter of what the most urgent lease has left, and never
    /// long, because another lease may begin meanwhile.
    pub(super) fn side_limit(&self) -> Duration {
        let urgent = self.first_deadline().since(self.clock.now());
        let most = timing::SIDE_LIMIT.max(self.trip() * 4).min(self.longest);
        most.min(urgent / 4).max(timing::SHORTEST_COMMAND)
    }

    /// Returns how long an attempt may take that is sent now and renews tenures whose deadlines are `first` and `last` or between these. It
    /// should leave time for further attempts, for these tenures and for that with the deadline `other`.
    pub(super) fn limit(&self, first: Moment, last: Moment, other: Moment, now: Moment) -> Duration {
        let urgent = other.min(first).since(now);
        timing::attempt_limit(urgent, last.since(now), self.trip()).min(self.longest).max(timing::SHORTEST_COMMAND)
    }
}

/// Runs one round: extends and probes what is due.
pub(crate) fn round(core: &Core, now: Moment) -> Moment {
    let due = core.renewals.take_due(now).into_iter().filter_map(|key| RenewalTask::due(core, key, now));
    renew(core, due.filter(|task| !renews_on_slow_node(core, &task.key)).collect(), false);
    keep_record(core);
    core.renewals.next().min(core.record.next())
}

/// Does the work of [`round`] for keys whose servers keep others waiting.
pub(crate) fn round_on_slow_nodes(core: &Core, now: Moment) -> Moment {
    let due = core.slow_nodes.take_renewals().into_iter().filter_map(|key| RenewalTask::due(core, key, now));
    renew(core, due.collect(), true);
    Moment::NEVER
}

fn renew(core: &Core, mut tasks: Vec<RenewalTask>, is_on_slow_node: bool) {
    tasks.sort_by_key(|task| task.deadline);
    let (Some(first), Some(last)) = (tasks.first(), tasks.last()) else { return };
    let sent_at = core.clock.now();
    let limit = core.renewals.limit(first.deadline, last.deadline, other_deadline(core, is_on_slow_node), sent_at);
    let requests: Vec<_> = tasks.iter().map(|task| task.request(core)).collect();
    let results = core.batch(&requests, limit);
    if !is_on_slow_node {
        let (took, before) = (core.clock.now().since(sent_at), core.renewals.trip());
        // If no request was answered, a round trip takes longer than this attempt. So the time that is remembered must not become shorter.
        core.renewals.note_trip(if results.iter().any(Result::is_ok) { took } else { took.max(before) });
    }
    let end = |(task, result): (&RenewalTask, Result<_, _>)| {
        if task.extend && result.is_err() {
            core.events.record_unrenewed(&task.lock);
        }
        end(core, &task.key, &task.locker, result, sent_at)
    };
    // All losses are marked before the first one is announced, because announcing may take time.
    let lost: Vec<_> = tasks.iter().zip(results).filter_map(end).collect();
    Lost::announce(core, lost);
}

/// Returns the deadline of the most urgent other tenure for which a renewal must leave time. Once the slow-node worker renews some tenures,
/// there is no such deadline: the deadlines of tenures on slow nodes must not shorten the attempts for the other tenures, and the reverse.
fn other_deadline(core: &Core, is_on_slow_node: bool) -> Moment {
    if is_on_slow_node || core.slow_nodes.lease_thread.is_started() {
        Moment::NEVER
    } else {
        core.renewals.first_deadline()
    }
}

/// Returns whether the slow-node worker renews this key, so that the lease thread must not.
fn renews_on_slow_node(core: &Core, key: &Arc<Key>) -> bool {
    let is_on_slow_node = core.processor.keeps_waiting(&key.name) && core.slow_nodes.starts_renewing();
    if is_on_slow_node {
        core.slow_nodes.add_renewal(key, core.clock.now());
    }
    is_on_slow_node
}

/// Writes the client record if it is due. The write takes at most a quarter of the time that renewals have left.
fn keep_record(core: &Core) {
    if core.is_closed() {
        // Without this, the record would be due again at once, until the thread is stopped.
        return core.record.stop();
    }
    let holds = core.renewals.first_deadline() != Moment::NEVER;
    core.record.keep(core, holds);
}

/// Extends one tenure on the calling thread, immediately. Also asks for a range of numbers if `fresh_numbers` is
/// set. Returns why the store did not do it, if it failed.
pub(super) fn extend_now(
    core: &Core,
    key: &Arc<Key>,
    locker: &str,
    fresh_numbers: bool,
    limit: Duration,
) -> Option<Error> {
    let kept = key.state.lock().live_tenure(locker)?.kept();
    let sent_at = core.clock.now();
    let deadline = key.hold.deadline();
    let limit = limit.min(core.renewals.limit(deadline, deadline, other_deadline(core, false), sent_at));
    let claim = core.claim(&key.name, locker, kept);
    let request = if fresh_numbers { Request::ExtendWithNumbers(claim) } else { Request::Extend(claim) };
    let result = core.run(&request, limit);
    let failure = result.as_ref().err().cloned();
    let lost = end(core, key, locker, result, sent_at);
    Lost::announce(core, lost);
    failure
}

/// The work due for one tenure.
#[derive(Debug)]
struct RenewalTask {
    key: Arc<Key>,
    locker: Arc<str>,
    lock: Arc<DLockConfig>,
    kept: Duration,
    deadline: Moment,
    extend: bool,
}

impl RenewalTask {
    /// Returns the work that a due key needs, if its tenure is live.
    fn due(core: &Core, key: Arc<Key>, now: Moment) -> Option<Self> {
        let owner = key.hold.owner();
        if owner::has_ended(owner) && loss::end_orphan(core, &key, owner) {
            return None;
        }
        let mut state = key.state.lock();
        let tenure = state.kept()?;
        if tenure.is_lost() {
            core.renewals.stop_renewing(&key, tenure);
            return None;
        }
        if let Some((cause, at)) = tenure.overdue(now) {
            loss::notice(core, &key, state, cause, at);
            return None;
        }
        let trip = core.renewals.trip();
        if now < tenure.due(trip) {
            core.renewals.put(&key, tenure);
            return None;
        }
        let (locker, lock, deadline) = (Arc::clone(&tenure.locker), Arc::clone(&tenure.settings), tenure.deadline());
        let kept = tenure.kept();
        let extend = now >= tenure.lease.extend_at(trip);
        // The thread must notice when the deadline passes, whatever happens in this round.
        core.renewals.look_at(&key, tenure, deadline);
        drop(state);
        Some(Self { key, locker, lock, kept, deadline, extend })
    }

    fn request<'a>(&'a self, core: &'a Core) -> Request<'a> {
        let claim = core.claim(&self.key.name, &self.locker, self.kept);
        if self.extend { Request::Extend(claim) } else { Request::Probe(claim) }
    }
}

/// Handles the reply to an extension or a probe, unless the tenure has ended meanwhile: a released tenure is not
/// lost. Returns the tenure if it is.
#[must_use]
fn end(core: &Core, key: &Arc<Key>, locker: &str, result: Result<Outcome, Error>, sent_at: Moment) -> Option<Lost> {
    let now = core.clock.now();
    let mut state = key.state.lock();
    let tenure = state.live_tenure(locker)?;
    if let Some((cause, at)) = tenure.overdue(now) {
        // Too late, even if the lease was extended: a thread that checked in between was told that the hold is
        // invalid, and that is final.
        return Lost::mark(core, key, state, cause, at);
    }
    match result {
        Ok(Outcome::Extend(ExtendOutcome::Extended(Extension { waiting, numbers, .. }))) => {
            let queued = core.events.queue_renewed(tenure, now);
            tenure.lease.renewed(sent_at);
            tenure.note_waiting_as_of(waiting, sent_at, now);
            if let Some(numbers) = numbers {
                tenure.tokens.refill(numbers);
            }
            key.hold.renew(tenure.valid_until());
            core.renewals.put(key, tenure);
            if state.is_recalled() {
                core.retries.ask_at(key, now);
            }
            drop(state);
            queued.finish();
        }
        Ok(Outcome::Probe(ProbeOutcome::Ours)) => {
            tenure.lease.checked(sent_at);
            core.renewals.put(key, tenure);
        }
        Ok(Outcome::Extend(ExtendOutcome::NotOurs(other)) | Outcome::Probe(ProbeOutcome::NotOurs(other))) => {
            if let Some(holder) = other.holder.as_deref().filter(|holder| core.id.current().is_of_twin(holder)) {
                drop(state);
                twin::meet(core, &key.name, holder);
                return None;
            }
            return Lost::mark(core, key, state, LossCause::from(other), now);
        }
        other => {
            let from = core.clock.pause_begins(sent_at);
            let left = tenure.deadline().since(from);
            // Requests that were under way to the earlier server have failed with it. Their failure says nothing about the present server.
            let is_at_once = tenure.lease.is_doubted_since(sent_at);
            let pause = if is_at_once { Duration::ZERO } else { timing::renewal_pause(left) };
            core.renewals.look_at(key, tenure, (from + pause).min(tenure.deadline()));
            // The hold has not begun, so its thread gets the error.
            let level = if core.counts(tenure) { log::Level::Warn } else { log::Level::Debug };
            drop(state);
            let why = other.map_or_else(|error| error, |outcome| outcome.misplaced());
            log::log!(level, LEASE, "lock {:?}: lease renewal failed, {left:?} left: {why}", key.name);
        }
    }
    None
}
