//! The lease thread: extends the leases of held tenures, checks that the keys are still ours, and announces when one
//! is not.
//!
//! One thread serves all tenures of a client. A lease is extended at 75 % (`with_renew_at`); in between, the key is
//! probed every lease/6. Everything due goes to the store in one batch, earliest deadline first. An attempt may use a
//! third of the time that the most urgent tenure has left, and the next attempt a third of what then remains, so that
//! three fit before the deadline. If round trips are long for a lease, it is extended earlier, and an attempt may
//! take several round trips. A tenure whose time is too short for another attempt does not shorten this one for the
//! other tenures.

use crate::client::core::Core;
use crate::client::loss::Lost;
use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::error::{Error, LossCause};
use crate::log;
use crate::state::key::Key;
use crate::state::owner;
use crate::store::processor::{ExtendOutcome, Extension, Outcome, ProbeOutcome, Request};
use crate::sync::mutant;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// The work due for one tenure.
#[derive(Debug)]
struct Chore {
    key: Arc<Key>,
    locker: Arc<str>,
    lock: Arc<DLockConfig>,
    kept: Duration,
    deadline: Moment,
    extend: bool,
}

impl Chore {
    fn request<'a>(&'a self, core: &'a Core) -> Request<'a> {
        let claim = core.claim(&self.key.name, &self.locker, self.kept);
        if self.extend { Request::Extend(claim) } else { Request::Probe(claim) }
    }
}

/// Runs one round: extends and probes what is due.
pub(crate) fn round(core: &Core, now: Moment) -> Moment {
    // It may have been woken because another server answers.
    core.notice_server();
    let due = core.take_due_leases(now).into_iter().filter_map(|key| core.begin_chore(key, now));
    renew(core, due.filter(|chore| !core.renews_apart(&chore.key)).collect(), false);
    core.keep_record();
    core.next_lease().min(core.record.next())
}

/// The same for keys whose servers keep others waiting.
pub(crate) fn round_apart(core: &Core, now: Moment) -> Moment {
    let due = core.apart.take_renewals().into_iter().filter_map(|key| core.begin_chore(key, now));
    renew(core, due.collect(), true);
    Moment::NEVER
}

fn renew(core: &Core, mut chores: Vec<Chore>, is_apart: bool) {
    chores.sort_by_key(|chore| chore.deadline);
    let (Some(first), Some(last)) = (chores.first(), chores.last()) else { return };
    let sent_at = core.clock.now();
    let limit = core.renewal_limit(first.deadline, last.deadline, sent_at, is_apart);
    let requests: Vec<_> = chores.iter().map(|chore| chore.request(core)).collect();
    let results = core.batch(&requests, limit);
    if !is_apart {
        let took = core.clock.now().since(sent_at);
        // Without an answer, a round trip takes longer than that: the one that is remembered must not become shorter.
        core.note_trip(if results.iter().any(Result::is_ok) { took } else { took.max(core.trip()) });
    }
    let end = |(chore, result): (&Chore, Result<_, _>)| {
        if chore.extend && result.is_err() {
            core.record_unrenewed(&chore.lock);
        }
        core.end_chore(&chore.key, &chore.locker, result, sent_at)
    };
    // All are marked before anybody is told of one: that may take time.
    let lost: Vec<_> = chores.iter().zip(results).filter_map(end).collect();
    core.notice_server();
    core.announce_losses(lost);
}

impl Core {
    /// Returns whether the lease thread must not renew this key, because the thread apart does.
    fn renews_apart(&self, key: &Arc<Key>) -> bool {
        let is_apart =
            self.processor.keeps_waiting(&key.name) && self.apart.starts_renewing(&self.this, self.rounds.renew_apart);
        if is_apart {
            self.apart.add_renewal(key, self.clock.now());
        }
        is_apart
    }

    /// Extends one tenure on the calling thread, immediately. Also asks for a range of numbers if `fresh_numbers` is
    /// set. Returns why the store did not do it, if it failed.
    pub(crate) fn extend_now(
        &self,
        key: &Arc<Key>,
        locker: &str,
        fresh_numbers: bool,
        limit: Duration,
    ) -> Option<Error> {
        let kept = key.state().live_tenure(locker)?.kept();
        let sent_at = self.clock.now();
        let deadline = key.hold.deadline();
        let limit = limit.min(self.renewal_limit(deadline, deadline, sent_at, false));
        let claim = self.claim(&key.name, locker, kept);
        let request = if fresh_numbers { Request::ExtendWithNumbers(claim) } else { Request::Extend(claim) };
        let result = self.run(&request, limit);
        let failure = result.as_ref().err().cloned();
        let lost = self.end_chore(key, locker, result, sent_at);
        self.notice_server();
        self.announce_losses(lost);
        failure
    }

    /// Returns the work that a due key needs, if its tenure is live.
    fn begin_chore(&self, key: Arc<Key>, now: Moment) -> Option<Chore> {
        let owner = key.hold.owner();
        if owner::has_ended(owner) && self.end_orphan(&key, owner) {
            return None;
        }
        let mut state = key.state();
        let tenure = state.kept()?;
        if tenure.is_lost() {
            self.stop_renewing(&key, now + timing::stale_look_pause(tenure.lease()));
            return None;
        }
        if let Some((cause, at)) = tenure.overdue(now) {
            self.notice_loss(&key, state, cause, at);
            return None;
        }
        if now < tenure.due(self.trip()) {
            self.schedule_look(&key, tenure, tenure.due(self.trip()));
            return None;
        }
        let (locker, lock, deadline) = (Arc::clone(&tenure.locker), Arc::clone(&tenure.settings), tenure.deadline());
        let kept = tenure.kept();
        let extend = now >= tenure.lease.extend_at(self.trip());
        // Whatever happens in this round, the passing of the deadline is noticed.
        self.schedule_look(&key, tenure, deadline);
        drop(state);
        Some(Chore { key, locker, lock, kept, deadline, extend })
    }

    /// Handles the reply to an extension or a probe, unless the tenure has ended meanwhile: a released tenure is not
    /// lost. Returns the tenure if it is.
    #[must_use]
    fn end_chore(&self, key: &Arc<Key>, locker: &str, result: Result<Outcome, Error>, sent_at: Moment) -> Option<Lost> {
        let now = self.clock.now();
        let mut state = key.state();
        let tenure = state.live_tenure(locker)?;
        if let Some((cause, at)) = tenure.overdue(now) {
            // Too late, even if the lease was extended: a thread that checked in between was told that the hold is
            // invalid, and that is final.
            return self.mark_lost(key, state, cause, at);
        }
        match result {
            Ok(Outcome::Extend(ExtendOutcome::Extended(Extension { waiting, numbers, .. }))) => {
                let queued = self.queue_renewed(tenure, now);
                tenure.lease.renewed(if mutant!(CountsFromReply) { now } else { sent_at });
                tenure.note_waiting_as_of(waiting, sent_at, now);
                if let Some(numbers) = numbers {
                    tenure.tokens().refill(numbers);
                }
                key.hold.renew(tenure.valid_until());
                self.schedule_look(key, tenure, tenure.due(self.trip()));
                if state.is_recalled() {
                    self.retry_at(key, now);
                }
                drop(state);
                queued.finish();
            }
            Ok(Outcome::Probe(ProbeOutcome::Ours)) => {
                tenure.lease.checked(sent_at);
                self.schedule_look(key, tenure, tenure.due(self.trip()));
            }
            Ok(Outcome::Extend(ExtendOutcome::NotOurs(other)) | Outcome::Probe(ProbeOutcome::NotOurs(other))) => {
                return self.mark_lost(key, state, LossCause::from(other), now);
            }
            Err(Error::Denied { .. }) if mutant!(TakesDenialForLoss) => {
                return self.mark_lost(key, state, LossCause::Deleted, now);
            }
            Err(Error::Denied { .. }) if mutant!(GivesUpWhenDenied) => {
                self.schedule_look(key, tenure, tenure.deadline());
            }
            other => {
                let from = self.clock.pause_begins(sent_at);
                let left = tenure.deadline().since(from);
                // What was under way to the earlier server has failed with it, which says nothing about this one.
                let is_at_once = tenure.lease.is_doubted_since(sent_at);
                let pause = if is_at_once { Duration::ZERO } else { timing::renewal_pause(left) };
                self.schedule_look(key, tenure, (from + pause).min(tenure.deadline()));
                // Before the hold has begun, its thread gets the error.
                let level = if self.counts(tenure) { log::Level::Warn } else { log::Level::Debug };
                drop(state);
                let why = other.map_or_else(
                    |error| error.to_string(),
                    |outcome| format!("the store answered {outcome:?} to a renewal"),
                );
                log::log!(level, LEASE, "lock {:?}: lease renewal failed, {left:?} left: {why}", key.name);
            }
        }
        None
    }
}
