//! Lost tenures: how a loss is noticed, announced and queried.

use crate::client::activity::Leaving;
use crate::client::core::Core;
use crate::client::events::{Queued, tell_queued, tell_watchers};
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::log;
use crate::port::Operations;
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::state::owner;
use crate::state::tenure::Tenure;
use crate::sync::{MutexGuard, catch_panic};
use crate::timing;
use crossbeam_channel::Sender;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tenure that is marked lost. The key keeps the channels of its hold until one of two threads reports the loss on them: the thread that
/// has noticed the loss, or the thread that unlocks before that.
#[must_use]
pub(super) struct Lost {
    key: Arc<Key>,
    tenure: Tenure,
    /// The event for the program. `None` until it is known whether an operator has broken the hold.
    queued: Option<Queued>,
}

impl Lost {
    /// Marks the live tenure of a key lost. The caller must [announce](Self::announce) what this returns.
    #[must_use]
    pub(super) fn mark(
        core: &Core,
        key: &Arc<Key>,
        mut state: MutexGuard<'_, State>,
        cause: LossCause,
        at: Moment,
    ) -> Option<Self> {
        if matches!(state.phase, Phase::Lingering { .. }) {
            Turn::lose_lingering(core, key, state, &cause);
            return None;
        }
        let Phase::Held(tenure) = &mut state.phase else { return None };
        if !tenure.lose(cause, at) {
            return None;
        }
        key.hold.lose();
        core.renewals.stop_renewing(key, tenure);
        let tenure = tenure.clone();
        // An event whose cause may change waits until it is known, and may be told behind later ones.
        let queued = (!tenure.may_be_broken()).then(|| core.events.queue_lost(&key.name, &tenure));
        Some(Self { key: Arc::clone(key), tenure, queued })
    }

    /// Announces losses that are marked. If an operator may have broken a hold, this asks the store for the cause first, and so announces
    /// that loss after the others. The lease thread may be the one that asks, so it waits for a short time only. Without an answer, the
    /// cause that was seen is announced.
    pub(super) fn announce(core: &Core, losses: impl IntoIterator<Item = Self>) {
        let mut unsure = Vec::new();
        for Self { key, tenure, queued } in losses {
            match queued {
                Some(queued) => tell_queued(queued, &key.name, &tenure, watchers_of(&key, &tenure)),
                None => unsure.push((key, tenure)),
            }
        }
        if unsure.is_empty() {
            return;
        }
        let (begin, limit) = (Instant::now(), core.renewals.side_limit());
        for (key, mut tenure) in unsure {
            let left = limit.saturating_sub(begin.elapsed());
            // A store may panic.
            if let Some(Some(cause)) = catch_panic(|| broken(core, &key.name, &tenure, left)) {
                tenure.lost_by(&cause);
                if let Phase::Held(held) = &mut key.state.lock().phase
                    && held.locker == tenure.locker
                {
                    held.lost_by(&cause);
                }
            }
            core.events.tell_lost(&key.name, &tenure, watchers_of(&key, &tenure));
        }
    }
}

/// Marks the live tenure of a key lost, and announces the loss.
pub(super) fn notice(core: &Core, key: &Arc<Key>, state: MutexGuard<'_, State>, cause: LossCause, at: Moment) {
    let lost = Lost::mark(core, key, state, cause, at);
    Lost::announce(core, lost);
}

/// Checks whether the held tenure of a key is overdue and if so marks it lost, for a thread that cannot wait
/// until the lease thread does so.
fn notice_deadline(core: &Core, key: &Arc<Key>) {
    let state = key.state.lock();
    if let Phase::Held(tenure) = &state.phase
        && let Some((cause, at)) = tenure.overdue(core.clock.now())
    {
        notice(core, key, state, cause, at);
    }
}

/// Asks the store, within a limit, whether a tenure was broken, whose key contains something else.
pub(super) fn broken(core: &Core, key: &str, tenure: &Tenure, limit: Duration) -> Option<LossCause> {
    if !core.limits.breaks || limit < timing::SHORTEST_COMMAND {
        return None;
    }
    match core.processor.broken(key, &tenure.locker, limit) {
        Ok(broken) => broken.map(LossCause::from),
        Err(error) => {
            log::debug!(LEASE, "lock {key:?}: cannot ask whether it was broken: {error}");
            None
        }
    }
}

/// Ends the hold of a thread that has ended, and its tenure. The key is not released, because that thread may have left its work half done.
/// The lease runs out, and until then this process waits like the others. Returns `false` if that thread no longer has the hold.
pub(super) fn end_orphan(core: &Core, key: &Arc<Key>, owner: u64) -> bool {
    let mut state = key.state.lock();
    // A destructor of that thread may still unlock, and another thread may have the hold by now.
    if !key.hold.is_owned_by(owner) || !owner::has_ended(owner) {
        return false;
    }
    let now = core.clock.now();
    let ended = core.end_hold(key, &mut state, Phase::Asking { turn: None, about: None });
    let Some((mut tenure, watchers)) = ended else { return false };
    drop(state);
    let (_leaving, turn) = (Leaving(core), Turn::of(core, key));
    owner::forget_hold(owner);
    if tenure.lose(LossCause::ThreadEnded, now) {
        core.events.tell_lost(&key.name, &tenure, watchers);
    } else {
        tell_watchers(watchers);
    }
    core.events.tell_released(&tenure, now, &Ok(()));
    drop(turn);
    true
}

/// Returns the loss of the current hold, which the caller has seen marked.
pub(super) fn error(core: &Core, key: &Key) -> Error {
    let loss = match &key.state.lock().phase {
        Phase::Held(tenure) => tenure.loss_error(&key.name, core.clock.now()),
        _ => None,
    };
    loss.unwrap_or_else(|| Error::NotHeld { key: key.name.to_string() })
}

/// Returns whether the hold with this token is certainly ours. A passed deadline is made final: a renewal that
/// arrives later cannot make valid what was reported invalid.
pub(super) fn is_valid(core: &Core, key: &Arc<Key>, token: u64) -> bool {
    if core.process.is_forked() {
        return false;
    }
    if key.hold.is_valid(token, core.clock.now()) {
        return true;
    }
    if key.hold.token() == token && !key.hold.is_lost() {
        notice_deadline(core, key);
    }
    key.hold.is_valid(token, core.clock.now())
}

/// Returns why the hold with this token is not valid.
pub(super) fn why_invalid(core: &Core, key: &Key, token: u64) -> Error {
    if core.process.is_forked() {
        return Error::Forked;
    }
    if key.hold.token() == token { error(core, key) } else { Error::NotHeld { key: key.name.to_string() } }
}

/// Takes the channels of the hold of a lost tenure. There are none if that hold has ended, because then its thread has told them.
fn watchers_of(key: &Key, tenure: &Tenure) -> Vec<Sender<()>> {
    let mut state = key.state.lock();
    match &state.phase {
        Phase::Held(held) if held.locker == tenure.locker => std::mem::take(&mut state.watchers),
        _ => Vec::new(),
    }
}
