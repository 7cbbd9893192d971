//! Lost tenures: how a loss is noticed, announced and queried.

use crate::client::events::{Queued, tell_queued};
use crate::client::parts::Parts;
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::log;
use crate::port::{Broken, Limit, Request};
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::state::task::Watcher;
use crate::state::tenure::Tenure;
use crate::sync::{MutexGuard, catch_panic};
use std::sync::Arc;
use std::time::Duration;

/// A tenure that is marked lost. The key keeps the channels of its hold until one of two threads reports the loss on them: the thread that
/// has noticed the loss, or the thread that unlocks before that.
#[must_use]
pub(super) struct Lost {
    key: Arc<Key>,
    tenure: Box<Tenure>,
    /// The event for the program. `None` until it is known whether an operator has broken the hold.
    queued: Option<Queued>,
}

impl Lost {
    /// Marks the live tenure of a key lost. The caller must [announce](Self::announce) what this returns.
    #[must_use]
    pub(super) fn mark(
        parts: &Parts,
        key: &Arc<Key>,
        mut state: MutexGuard<'_, State>,
        cause: LossCause,
        at: Moment,
    ) -> Option<Self> {
        if matches!(state.phase, Phase::Lingering { .. }) {
            Turn::lose_lingering(parts, key, state, &cause);
            return None;
        }
        let Phase::Held(tenure) = &mut state.phase else { return None };
        if !tenure.lose(cause, at) {
            return None;
        }
        key.hold.lose();
        parts.renewals.stop_renewing(key, tenure);
        let tenure = tenure.clone();
        // An event whose cause may change waits until it is known, and may be told behind later ones.
        let queued = (!tenure.may_be_broken()).then(|| parts.core.events.queue_lost(&key.name, &tenure));
        Some(Self { key: Arc::clone(key), tenure, queued })
    }

    /// Announces losses that are marked. If an operator may have broken some of the holds, this asks the store for their causes first, together, and
    /// so announces these losses after the others. The lease thread may be the one that asks, so it waits for a short time only. Without an answer,
    /// the cause that was seen is announced.
    pub(super) fn announce(parts: &Parts, losses: impl IntoIterator<Item = Self>) {
        let mut unsure = Vec::new();
        for Self { key, tenure, queued } in losses {
            match queued {
                Some(queued) => tell_queued(queued, &key.name, &tenure, take_watchers(&key, &tenure)),
                None => unsure.push((key, tenure)),
            }
        }
        if unsure.is_empty() {
            return;
        }
        let asked = unsure.iter().map(|(key, tenure)| (&*key.name, &**tenure));
        let causes = broken(parts, asked, parts.renewals.side_limit());
        for ((key, mut tenure), cause) in unsure.into_iter().zip(causes) {
            if let Some(cause) = cause {
                tenure.set_cause(&cause);
                if let Phase::Held(held) = &mut key.state.lock().phase
                    && held.locker == tenure.locker
                {
                    held.set_cause(&cause);
                }
            }
            parts.core.events.tell_lost(&key.name, &tenure, take_watchers(&key, &tenure));
        }
    }
}

/// Marks the live tenure of a key lost, and announces the loss.
pub(super) fn notice(parts: &Parts, key: &Arc<Key>, state: MutexGuard<'_, State>, cause: LossCause, at: Moment) {
    let lost = Lost::mark(parts, key, state, cause, at);
    Lost::announce(parts, lost);
}

/// Checks whether the held tenure of a key is overdue and if so marks it lost, for a thread that cannot wait
/// until the lease thread does so.
fn notice_deadline(parts: &Parts, key: &Arc<Key>) {
    let state = key.state.lock();
    if let Phase::Held(tenure) = &state.phase
        && let Some((cause, at)) = tenure.overdue(parts.core.clock.now())
    {
        notice(parts, key, state, cause, at);
    }
}

/// Asks the store, within a limit, whether tenures were broken, whose keys contain something else. Returns one answer for each of them.
pub(super) fn broken<'a>(
    parts: &Parts,
    lost: impl IntoIterator<Item = (&'a str, &'a Tenure)>,
    limit: Duration,
) -> Vec<Option<LossCause>> {
    let request = |(key, tenure): (&'a str, &'a Tenure)| Request::Broken { key, locker: &tenure.locker };
    let requests: Vec<_> = lost.into_iter().map(request).collect();
    if !parts.core.limits.breaks {
        return vec![None; requests.len()];
    }
    // A store may panic.
    let answers = catch_panic(|| (*parts.core.processor).run(&requests, Limit::Call(limit)));
    let mut answers = answers.unwrap_or_default().into_iter();
    let cause = |request: &Request<'_>| match answers.next()?.and_then(TryInto::try_into) {
        Ok(broken) => Option::<Broken>::map(broken, LossCause::from),
        Err(error) => {
            log::debug!(LEASE, "lock {:?}: cannot ask whether it was broken: {error}", request.key());
            None
        }
    };
    requests.iter().map(cause).collect()
}

/// Returns the loss of the current hold, which the caller has seen marked.
pub(super) fn error(parts: &Parts, key: &Key) -> Error {
    if parts.core.process.is_forked() {
        return Error::Forked;
    }
    let loss = match &key.state.lock().phase {
        Phase::Held(tenure) => tenure.loss_error(&key.name, parts.core.clock.now()),
        _ => None,
    };
    loss.unwrap_or_else(|| Error::NotHeld { key: key.name.to_string() })
}

/// Returns whether the hold with this token is certainly ours. A passed deadline is made final: a renewal that
/// arrives later cannot make valid what was reported invalid.
pub(crate) fn is_valid(parts: &Parts, key: &Arc<Key>, token: u64) -> bool {
    if parts.core.process.is_forked() {
        return false;
    }
    if key.hold.is_valid(token, parts.core.clock.now()) {
        return true;
    }
    if key.hold.token() == token && !key.hold.is_lost() {
        notice_deadline(parts, key);
    }
    key.hold.is_valid(token, parts.core.clock.now())
}

/// Returns why the hold with this token is not valid.
pub(crate) fn why_invalid(parts: &Parts, key: &Key, token: u64) -> Error {
    if key.hold.token() == token || parts.core.process.is_forked() {
        error(parts, key)
    } else {
        Error::NotHeld { key: key.name.to_string() }
    }
}

/// Takes the channels of the hold of a lost tenure. There are none if that hold has ended, because its thread has then sent the messages.
fn take_watchers(key: &Key, tenure: &Tenure) -> Vec<Watcher> {
    let mut state = key.state.lock();
    match &state.phase {
        Phase::Held(held) if held.locker == tenure.locker => std::mem::take(&mut state.watchers),
        _ => Vec::new(),
    }
}
