//! The lease-extension thread: renews what is held, looks whether it is still ours, and tells when it is not.
//!
//! One thread for all tenures of a client. A lease is extended at 75 % (`with_renew_at`); every lease/6 in between the
//! key is probed. What is due goes to the store in one batch, earliest deadline first. A failed attempt may use a third
//! of the time that is left, and the next one a third of the rest, so that at least three fit before the deadline.

use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::key::Key;
use crate::processor::{ExtendOutcome, ExtendRequest, NotOurs, Outcome, ProbeOutcome, ProbeRequest, Request};
use crate::tenure::Tenure;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failed attempt: this part of the time that is left, within these bounds.
const PAUSE_PART: u32 = 8;
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is to be done about one tenure.
#[derive(Debug)]
struct Chore {
    key: Arc<Key>,
    locker: Arc<str>,
    lease: Duration,
    deadline: Moment,
    extend: bool,
}

impl Chore {
    fn request(&self) -> Request<'_> {
        let (key, locker) = (self.key.name.as_str(), &*self.locker);
        if self.extend {
            Request::Extend(ExtendRequest { key, locker, lease: self.lease, fresh_numbers: false })
        } else {
            Request::Probe(ProbeRequest { key, locker })
        }
    }
}

/// One round: extends and probes what is due.
pub(crate) fn round(client: &Client, now: Moment) -> Moment {
    let mut chores: Vec<_> =
        client.take_due_leases(now).into_iter().filter_map(|key| begin(client, key, now)).collect();
    chores.sort_by_key(|chore| chore.deadline);
    if let Some(first) = chores.first() {
        let sent_at = client.clock.now();
        let limit = client.keep_limit(first.deadline.since(sent_at));
        let requests: Vec<_> = chores.iter().map(Chore::request).collect();
        let results = client.processor.batch(&requests, limit);
        for (chore, result) in chores.iter().zip(results) {
            end(client, &chore.key, &chore.locker, result, sent_at);
        }
    }
    client.next_lease()
}

/// Extends one tenure on the calling thread, now.
pub(crate) fn extend_now(client: &Client, key: &Arc<Key>, locker: &str) {
    let lease = match key.state().live_tenure(locker) {
        Some(tenure) => tenure.lease(),
        None => return,
    };
    let sent_at = client.clock.now();
    let limit = client.keep_limit(key.hold.deadline().since(sent_at));
    let request = ExtendRequest { key: &key.name, locker, lease, fresh_numbers: false };
    let result = client.processor.extend(&request, limit).map(Outcome::Extend);
    end(client, key, locker, result, sent_at);
}

/// What a due key needs, if its tenure is still live.
fn begin(client: &Client, key: Arc<Key>, now: Moment) -> Option<Chore> {
    let mut state = key.state();
    let tenure = match &mut state.phase {
        crate::tenure::Phase::Held(tenure) if !tenure.is_lost() => tenure,
        _ => return None,
    };
    if now >= tenure.deadline() {
        let at = tenure.deadline();
        notice_loss(&key, state, LossCause::Deadline, at);
        return None;
    }
    if now < tenure.due() {
        client.keep_until(&key, tenure.due());
        return None;
    }
    let (locker, lease, deadline) = (Arc::clone(&tenure.locker), tenure.lease(), tenure.deadline());
    let extend = now >= tenure.extend_at();
    drop(state);
    Some(Chore { key, locker, lease, deadline, extend })
}

/// Notes what came of an extension or a probe, unless the tenure has ended meanwhile: what is released is not lost.
fn end(client: &Client, key: &Arc<Key>, locker: &str, result: Result<Outcome, Error>, sent_at: Moment) {
    let now = client.clock.now();
    let mut state = key.state();
    let Some(tenure) = state.live_tenure(locker) else { return };
    if now >= tenure.deadline() {
        // Too late, even if it was extended: who looked in between was told that the hold is invalid, and that is final.
        let at = tenure.deadline();
        return notice_loss(key, state, LossCause::Deadline, at);
    }
    let not_ours = |NotOurs { holder }| holder.map_or(LossCause::Deleted, |by| LossCause::TakenOver { by });
    match result {
        Ok(Outcome::Extend(ExtendOutcome::Extended { .. })) => {
            tenure.renewed(sent_at);
            key.hold.renew(tenure.deadline());
            client.keep_until(key, tenure.due());
        }
        Ok(Outcome::Probe(ProbeOutcome::Ours)) => {
            tenure.checked(sent_at);
            client.keep_until(key, tenure.due());
        }
        Ok(Outcome::Extend(ExtendOutcome::NotOurs(other)) | Outcome::Probe(ProbeOutcome::NotOurs(other))) => {
            notice_loss(key, state, not_ours(other), now);
        }
        failure => {
            let left = tenure.deadline().since(now);
            let pause = (left / PAUSE_PART).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            log::warn!("lock {:?}: its lease could not be kept, {left:?} left: {failure:?}", key.name);
            client.keep_until(key, (now + pause).min(tenure.deadline()));
        }
    }
}

/// Notices that the deadline of a key's tenure has passed, for a thread that cannot wait for the lease thread to do so.
pub(crate) fn notice_deadline(client: &Client, key: &Key) {
    let state = key.state();
    if let crate::tenure::Phase::Held(tenure) = &state.phase
        && client.clock.now() >= tenure.deadline()
    {
        let at = tenure.deadline();
        notice_loss(key, state, LossCause::Deadline, at);
    }
}

/// Marks the live tenure of a key lost, and tells everybody who wants to know.
fn notice_loss(key: &Key, mut state: MutexGuard<'_, crate::tenure::State>, cause: LossCause, at: Moment) {
    if let crate::tenure::Phase::Held(tenure) = &mut state.phase {
        lose(&key.name, tenure, cause, at);
        key.hold.lose();
    }
    let watchers = std::mem::take(&mut state.watchers);
    drop(state);
    for watcher in watchers {
        let _ = watcher.try_send(());
    }
}

/// Marks a tenure lost, and says so in the log.
pub(crate) fn lose(key: &str, tenure: &mut Tenure, cause: LossCause, at: Moment) {
    if tenure.lose(cause, at)
        && let Some(error) = tenure.loss_error(key, at)
    {
        match tenure.settings.reason() {
            Some(reason) => log::warn!("{error} (held for: {reason})"),
            None => log::warn!("{error}"),
        }
    }
}
