//! The thread `dlock-lease`: it extends the leases of held tenures, checks that their keys are still ours, and announces a loss.
//!
//! One thread serves all tenures of a client. A lease is extended at 75 % (`with_renew_at`); in between, the key is probed every lease/6.
//! All requests that are due go to the store in one batch, earliest deadline first. An attempt may use a third of the time that the most
//! urgent tenure has left. The next attempt may use a third of what remains then, so that three attempts fit before the deadline. If a
//! lease is short for the time of a round trip, it is extended earlier, and an attempt may take several round trips. If the most urgent
//! tenure has too little time left for another attempt, it does not shorten the present attempt for the other tenures.

use super::closing::Leaving;
use super::events::tell_watchers;
use super::loss::{self, Lost};
use super::parts::Parts;
use super::turn::Turn;
use super::twin;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{Error, LossCause};
use crate::log;
use crate::port::{ExtendOutcome, Extension, Outcome, ProbeOutcome, Request};
use crate::state::key::Key;
use crate::state::machine::{AskedBy, Phase};
use crate::state::owner;
use crate::state::tenure::Tenure;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// Runs one round: extends and probes what is due.
pub(crate) fn round(parts: &Parts, now: Moment) -> Moment {
    let mut long = Vec::new();
    let due = parts.renewals.take_due(now).into_iter().filter_map(|key| RenewalTask::due(parts, key, now, &mut long));
    // The slow-node worker renews the others.
    let slow = &parts.slow_nodes.renewals;
    let is_slow = |key: &Arc<Key>| {
        let is_slow = parts.core.keeps_waiting(&key.name) && slow.start();
        if is_slow {
            slow.add(parts.core.clock.now(), |keys| _ = keys.insert(key.id, Arc::clone(key)));
        }
        is_slow
    };
    renew(parts, due.filter(|task| !is_slow(&task.key)).collect(), false);
    // The reports come after the renewals, because a log may take time.
    long.iter().for_each(LongHold::report);
    keep_record(parts);
    parts.renewals.next().min(parts.record.next())
}

/// Does the work of [`round`] for keys whose servers keep others waiting.
pub(crate) fn round_on_slow_nodes(parts: &Parts, now: Moment) -> Moment {
    let mut long = Vec::new();
    let keys = parts.slow_nodes.renewals.take().into_values();
    renew(parts, keys.filter_map(|key| RenewalTask::due(parts, key, now, &mut long)).collect(), true);
    long.iter().for_each(LongHold::report);
    Moment::NEVER
}

fn renew(parts: &Parts, mut tasks: Vec<RenewalTask>, is_on_slow_node: bool) {
    tasks.sort_by_key(|task| task.deadline);
    let (Some(first), Some(last)) = (tasks.first(), tasks.last()) else { return };
    let sent_at = parts.core.clock.now();
    let limit = parts.renewals.limit(first.deadline, last.deadline, other_deadline(parts, is_on_slow_node), sent_at);
    let requests: Vec<_> = tasks.iter().map(|task| task.request(parts)).collect();
    let results = parts.core.batch(&requests, limit);
    if !is_on_slow_node {
        let (took, before) = (parts.core.clock.now().since(sent_at), parts.renewals.trip());
        // If no request was answered, a round trip takes longer than this attempt took. So the remembered time must not become shorter.
        parts.renewals.note_trip(if results.iter().any(Result::is_ok) { took } else { took.max(before) });
    }
    let end = |(task, result): (&RenewalTask, Result<_, _>)| {
        if task.extend && result.is_err() {
            parts.core.events.record_unrenewed(&task.lock);
        }
        take_in_reply(parts, &task.key, &task.locker, result, sent_at)
    };
    // All losses are marked before the first one is announced, because announcing may take time.
    let lost: Vec<_> = tasks.iter().zip(results).filter_map(end).collect();
    Lost::announce(parts, lost);
    // A close waits for this thread.
    if !is_on_slow_node && !parts.core.activity.is_closed() {
        parts.core.between_rounds(parts.renewals.side_limit());
    }
}

/// Returns the deadline of the most urgent other tenure for which a renewal must leave time. Once the slow-node worker renews some tenures, there is
/// no such deadline: tenures on slow nodes must not shorten the attempts for the others, and the others must not shorten theirs.
fn other_deadline(parts: &Parts, is_on_slow_node: bool) -> Moment {
    if is_on_slow_node || parts.slow_nodes.renewals.thread.is_started() {
        Moment::NEVER
    } else {
        parts.renewals.first_deadline()
    }
}

/// Writes the client record if it is due. The write takes at most a quarter of the time that renewals have left.
fn keep_record(parts: &Parts) {
    if parts.core.activity.is_closed() {
        // Without this, the record would be due again at once, until the thread is stopped.
        return parts.record.stop();
    }
    let holds = parts.renewals.first_deadline() != Moment::NEVER;
    if parts.record.keep(&parts.core, holds, || parts.renewals.side_limit()) {
        parts.subscription.listen(&parts.core);
    }
}

/// Whether an extension also fetches a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    Keep,
    Fetch,
}

/// Extends one tenure on the calling thread, immediately. Fails with the error of the store, and with [`Error::NotHeld`] if the tenure is gone, or lost.
pub(super) fn extend_now(
    parts: &Parts,
    key: &Arc<Key>,
    locker: &str,
    numbers: Numbers,
    limit: Duration,
) -> Result<(), Error> {
    let kept = key.state.lock().live_tenure(locker).map(|tenure| tenure.store_time());
    let kept = kept.ok_or_else(|| Error::NotHeld { key: key.name.to_string() })?;
    let sent_at = parts.core.clock.now();
    let deadline = key.hold.deadline();
    let limit = limit.min(parts.renewals.limit(deadline, deadline, other_deadline(parts, false), sent_at));
    let claim = parts.core.claim(&key.name, locker, kept);
    let request = match numbers {
        Numbers::Keep => Request::Extend(claim),
        Numbers::Fetch => Request::ExtendWithNumbers(claim),
    };
    let result = parts.core.run(&request, limit);
    let outcome = result.as_ref().map(drop).map_err(Error::clone);
    extended(parts, key, locker, result, sent_at);
    outcome
}

/// Handles the reply to an extension that another thread has sent.
pub(super) fn extended(parts: &Parts, key: &Arc<Key>, locker: &str, result: Result<Outcome, Error>, sent_at: Moment) {
    let lost = take_in_reply(parts, key, locker, result, sent_at);
    Lost::announce(parts, lost);
}

/// The work due for one tenure.
struct RenewalTask {
    key: Arc<Key>,
    locker: Arc<str>,
    lock: Arc<DLockConfig>,
    deadline: Moment,
    extend: bool,
}

impl RenewalTask {
    /// Returns the work that a due key needs, if its tenure is live. If the hold has lasted so long
    /// that it is to be reported, adds it to `long`.
    fn due(parts: &Parts, key: Arc<Key>, now: Moment, long: &mut Vec<LongHold>) -> Option<Self> {
        let owner = key.hold.owner();
        if owner::has_ended(owner) && end_orphan(parts, &key, owner) {
            return None;
        }
        let mut state = key.state.lock();
        let tenure = state.tenure_mut()?;
        if tenure.is_lost() {
            long.extend(LongHold::of(&key, tenure, now));
            parts.renewals.stop_renewing(&key, tenure);
            return None;
        }
        if let Some((cause, at)) = tenure.overdue(now) {
            loss::notice(parts, &key, state, cause, at);
            return None;
        }
        long.extend(LongHold::of(&key, tenure, now));
        let pace = parts.renewals.pace();
        if now < tenure.due(pace) {
            parts.renewals.put(&key, tenure);
            return None;
        }
        let (locker, lock, deadline) = (Arc::clone(&tenure.locker), Arc::clone(&tenure.settings), tenure.deadline());
        let extend = now >= tenure.lease.extend_at(pace);
        // The thread must notice when the deadline passes, whatever happens in this round.
        parts.renewals.look_at(&key, tenure, deadline);
        drop(state);
        Some(Self { key, locker, lock, deadline, extend })
    }

    fn request<'a>(&'a self, parts: &'a Parts) -> Request<'a> {
        let claim = parts.core.claim(&self.key.name, &self.locker, self.lock.store_time());
        if self.extend { Request::Extend(claim) } else { Request::Probe(claim) }
    }
}

/// Handles the reply to an extension or a probe, unless the tenure has ended meanwhile: a released tenure is not
/// lost. Returns the tenure if it is lost.
#[must_use]
fn take_in_reply(
    parts: &Parts,
    key: &Arc<Key>,
    locker: &str,
    result: Result<Outcome, Error>,
    sent_at: Moment,
) -> Option<Lost> {
    let now = parts.core.clock.now();
    let mut state = key.state.lock();
    let tenure = state.live_tenure(locker)?;
    if let Some((cause, at)) = tenure.overdue(now) {
        // Too late, even if the lease was extended: a thread that checked in between was told that the hold is
        // invalid, and that is final.
        return Lost::mark(parts, key, state, cause, at);
    }
    match result {
        Ok(Outcome::Extend(ExtendOutcome::Extended(Extension { waiting, numbers, .. }))) => {
            let queued = parts.core.events.queue_renewed(tenure, now);
            tenure.lease.renewed(sent_at);
            tenure.others.note_as_of(waiting, sent_at, now);
            if let Some(numbers) = numbers {
                tenure.tokens.refill(numbers);
            }
            key.hold.renew(tenure.valid_until());
            parts.renewals.put(key, tenure);
            if state.is_recalled() {
                parts.retries.ask_at(key, now);
            }
            drop(state);
            queued.finish();
        }
        Ok(Outcome::Probe(ProbeOutcome::Ours)) => {
            tenure.lease.checked(sent_at);
            parts.renewals.put(key, tenure);
        }
        Ok(Outcome::Extend(ExtendOutcome::NotOurs(other)) | Outcome::Probe(ProbeOutcome::NotOurs(other))) => {
            if let Some(holder) = other.holder.as_deref().filter(|holder| parts.core.id.current().is_of_twin(holder)) {
                drop(state);
                twin::meet(parts, &key.name, holder);
                return None;
            }
            return Lost::mark(parts, key, state, LossCause::from(other), now);
        }
        other => {
            let from = parts.core.clock.pause_begins(sent_at);
            let left = tenure.deadline().since(from);
            // Requests that were under way to the earlier server have failed with it. Their failure says nothing about the present server.
            let is_at_once = tenure.lease.is_doubted_since(sent_at);
            let pause = if is_at_once { Duration::ZERO } else { timing::renewal_pause(left) };
            parts.renewals.look_at(key, tenure, (from + pause).min(tenure.deadline()));
            // The hold has not begun, so its thread gets the error.
            let warns = tenure.counts(&parts.core.limits) && !std::mem::replace(&mut tenure.lease.is_failing, true);
            let level = if warns { log::Level::Warn } else { log::Level::Debug };
            drop(state);
            let why = other.map_or_else(|error| error, |outcome| outcome.misplaced());
            log::log!(level, LEASE, "lock {:?}: lease renewal failed, {left:?} left: {why}", key.name);
        }
    }
    None
}

/// A hold that has lasted as long as its settings say that it is reported.
struct LongHold {
    key: Arc<Key>,
    owner: u64,
    token: u64,
    held: Duration,
    is_lost: bool,
    settings: Arc<DLockConfig>,
}

impl LongHold {
    /// Returns the hold of a tenure if it is to be reported now. Call it with the key's mutex held.
    fn of(key: &Arc<Key>, tenure: &mut Tenure, now: Moment) -> Option<Self> {
        if !tenure.is_confirmed {
            tenure.hold.warns_later(now);
            return None;
        }
        tenure.hold.take_warning(now).then(|| Self {
            key: Arc::clone(key),
            owner: key.hold.owner(),
            token: key.hold.token(),
            held: now.since(tenure.hold.since),
            is_lost: tenure.is_lost(),
            settings: Arc::clone(&tenure.settings),
        })
    }

    /// Logs it. Call it with no mutex held.
    fn report(&self) {
        let Self { key, owner, token, held, is_lost, settings } = self;
        let by = owner::name_of(*owner).unwrap_or_default();
        let reason = settings.reason().map_or_else(String::new, |reason| format!(", for {reason}"));
        let lease =
            if *is_lost { "its lease is lost, and its process waits for its end" } else { "its lease is renewed" };
        log::warn!(LEASE, "lock {:?}: {by} has held it for {held:?}, with token {token}{reason}; {lease}", key.name);
    }
}

/// Ends the hold of a thread that has ended, and its tenure. The key is not released, because that thread may have left its work half done.
/// The lease runs out, and until then this process waits like the others. Returns `false` if that thread no longer has the hold.
fn end_orphan(parts: &Parts, key: &Arc<Key>, owner: u64) -> bool {
    let mut state = key.state.lock();
    // A destructor of that thread may still unlock, and another thread may have the hold by now.
    if !key.hold.is_owned_by(owner) || !owner::has_ended(owner) {
        return false;
    }
    let now = parts.core.clock.now();
    let ended = parts.renewals.end_hold(key, &mut state, Phase::Asking { by: AskedBy::Arriving, about: None });
    let Some((mut tenure, watchers)) = ended else { return false };
    drop(state);
    let (_leaving, turn) = (Leaving(parts), Turn::of(parts, key));
    owner::forget_hold(owner);
    if tenure.lose(LossCause::ThreadEnded, now) {
        parts.core.events.tell_lost(&key.name, &tenure, watchers);
    } else {
        tell_watchers(watchers);
    }
    parts.core.events.tell_released(&tenure, now, &Ok(()));
    drop(turn);
    true
}
