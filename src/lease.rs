//! The lease-extension thread: renews what is held, looks whether it is still ours, and tells when it is not.
//!
//! One thread for all tenures of a client. A lease is extended at 75 % (`with_renew_at`); every lease/6 in between the
//! key is probed. What is due goes to the store in one batch, earliest deadline first. An attempt may use a third of
//! the time that the most urgent tenure has left, and the next one a third of the rest, so that three fit before the
//! deadline; where round trips are long for a lease, it is extended earlier, and an attempt gets several of them.

use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::key::Key;
use crate::log;
use crate::loss_hook::LossHook;
use crate::owner;
use crate::processor::{ExtendOutcome, ExtendRequest, Outcome, ProbeOutcome, ProbeRequest, Request};
use crate::state::{Phase, State};
use crate::sync::{MutexGuard, mutant};
use crate::tenure::Tenure;
use crate::timing;
use crossbeam_channel::Sender;
use std::sync::Arc;
use std::time::Duration;

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
        let (key, locker) = (&*self.key.name, &*self.locker);
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
        let limit = client.keep_limit(first.deadline, sent_at);
        let requests: Vec<_> = chores.iter().map(Chore::request).collect();
        let results = client.batch(&requests, limit);
        // Also when there was no answer in time: it may have been too short a time.
        client.note_trip(client.clock.now().since(sent_at));
        for (chore, result) in chores.iter().zip(results) {
            end(client, &chore.key, &chore.locker, result, sent_at);
        }
    }
    client.next_lease()
}

/// Extends one tenure on the calling thread, now; with fresh numbers for its tokens if it needs some.
pub(crate) fn extend_now(client: &Client, key: &Arc<Key>, locker: &str, fresh_numbers: bool, limit: Duration) {
    let lease = match key.state().live_tenure(locker) {
        Some(tenure) => tenure.lease(),
        None => return,
    };
    let sent_at = client.clock.now();
    let limit = limit.min(client.keep_limit(key.hold.deadline(), sent_at));
    let request = ExtendRequest { key: &key.name, locker, lease, fresh_numbers };
    let result = client.processor.extend(&request, limit).map(Outcome::Extend);
    end(client, key, locker, result, sent_at);
}

/// What a due key needs, if its tenure is still live.
fn begin(client: &Client, key: Arc<Key>, now: Moment) -> Option<Chore> {
    let owner = key.hold.owner();
    if owner::has_ended(owner) && client.end_orphan(&key, owner) {
        return None;
    }
    let mut state = key.state();
    let tenure = state.kept()?;
    if tenure.is_lost() {
        client.keep_no_more(&key, now + timing::stale_look_pause(tenure.lease()));
        return None;
    }
    if let Some((cause, at)) = tenure.overdue(now) {
        notice_loss(client, &key, state, cause, at);
        return None;
    }
    if now < tenure.due(client.trip()) {
        client.keep_until(&key, tenure, tenure.due(client.trip()));
        return None;
    }
    let (locker, lease, deadline) = (Arc::clone(&tenure.locker), tenure.lease(), tenure.deadline());
    let extend = now >= tenure.extend_at(client.trip());
    // Whatever becomes of this round, the loss is not overlooked.
    client.keep_until(&key, tenure, deadline);
    drop(state);
    Some(Chore { key, locker, lease, deadline, extend })
}

/// Notes what came of an extension or a probe, unless the tenure has ended meanwhile: what is released is not lost.
fn end(client: &Client, key: &Arc<Key>, locker: &str, result: Result<Outcome, Error>, sent_at: Moment) {
    let now = client.clock.now();
    let mut state = key.state();
    let Some(tenure) = state.live_tenure(locker) else { return };
    if let Some((cause, at)) = tenure.overdue(now) {
        // Too late, even if it was extended: who looked in between was told that the hold is invalid, and that is final.
        return notice_loss(client, key, state, cause, at);
    }
    match result {
        Ok(Outcome::Extend(ExtendOutcome::Extended { waiting, numbers })) => {
            tenure.renewed(if mutant!(CountsFromReply) { now } else { sent_at });
            tenure.others_waited(waiting, sent_at, now);
            if let Some(numbers) = numbers {
                tenure.tokens().refill(numbers);
            }
            key.hold.renew(tenure.valid_until());
            client.keep_until(key, tenure, tenure.due(client.trip()));
            if state.is_recalled() {
                client.retry_at(key, now);
            }
        }
        Ok(Outcome::Probe(ProbeOutcome::Ours)) => {
            tenure.checked(sent_at);
            client.keep_until(key, tenure, tenure.due(client.trip()));
        }
        Ok(Outcome::Extend(ExtendOutcome::NotOurs(other)) | Outcome::Probe(ProbeOutcome::NotOurs(other))) => {
            notice_loss(client, key, state, LossCause::from(other), now);
        }
        Err(Error::Denied { .. }) if mutant!(TakesDenialForLoss) => {
            notice_loss(client, key, state, LossCause::Deleted, now);
        }
        Err(Error::Denied { .. }) if mutant!(GivesUpWhenDenied) => client.keep_until(key, tenure, tenure.deadline()),
        other => {
            let from = client.clock.pause_begins(sent_at);
            let left = tenure.deadline().since(from);
            client.keep_until(key, tenure, (from + timing::renewal_pause(left)).min(tenure.deadline()));
            drop(state);
            let why = other.map_or_else(|error| error.to_string(), |outcome| format!("{outcome:?} is no answer"));
            log::warn!(LEASE, "lock {:?}: its lease could not be kept, {left:?} left: {why}", key.name);
        }
    }
}

/// Notices that the deadline of a key's tenure has passed, for a thread that cannot wait for the lease thread to do so.
pub(crate) fn notice_deadline(client: &Client, key: &Arc<Key>) {
    let state = key.state();
    if let Phase::Held(tenure) = &state.phase
        && let Some((cause, at)) = tenure.overdue(client.clock.now())
    {
        notice_loss(client, key, state, cause, at);
    }
}

/// Marks the live tenure of a key lost, and tells everybody who wants to know.
fn notice_loss(client: &Client, key: &Arc<Key>, mut state: MutexGuard<'_, State>, cause: LossCause, at: Moment) {
    if matches!(state.phase, Phase::Lingering { .. }) {
        return client.lose_lingering(&key, state, &cause);
    }
    let Phase::Held(tenure) = &mut state.phase else { return };
    if !tenure.lose(cause, at) {
        return;
    }
    key.hold.lose();
    client.keep_no_more(key, client.clock.now() + timing::stale_look_pause(tenure.lease()));
    let lost = tenure.clone();
    let watchers = std::mem::take(&mut state.watchers);
    drop(state);
    tell(client.on_lost(), &key.name, &lost, watchers);
}

/// Tells of a tenure, if it is lost: in the log, and to those who watch its hold. With no mutex held.
pub(crate) fn tell(on_lost: Option<&LossHook>, key: &str, tenure: &Tenure, watchers: Vec<Sender<()>>) {
    let Some((loss, at)) = tenure.loss() else { return };
    let error = tenure.loss_error(key, *at).map(|error| error.to_string()).unwrap_or_default();
    match tenure.settings.reason() {
        _ if !tenure.told => log::debug!(LEASE, "lock {key:?}: lost before its grant was heard: {loss}"),
        Some(reason) => log::warn!(LEASE, "{error} (held for: {reason})"),
        None => log::warn!(LEASE, "{error}"),
    }
    for watcher in watchers {
        let _ = watcher.try_send(());
    }
    if tenure.told
        && let Some(hook) = on_lost
        && let Some(loss) = tenure.loss_of(key, *at)
    {
        hook.tell(loss);
    }
}
