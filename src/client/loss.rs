//! Lost tenures: how a loss is noticed, announced and queried.

use crate::client::announce::{queue, tell, tell_queued};
use crate::client::core::Core;
use crate::client::turn::Turn;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::sync::MutexGuard;
use crate::timing;
use std::sync::Arc;

impl Core {
    /// Checks whether the held tenure of a key is overdue and if so marks it lost, for a thread that cannot wait
    /// until the lease thread does so.
    pub(crate) fn notice_deadline(&self, key: &Arc<Key>) {
        let state = key.state();
        if let Phase::Held(tenure) = &state.phase
            && let Some((cause, at)) = tenure.overdue(self.clock.now())
        {
            self.notice_loss(key, state, cause, at);
        }
    }

    /// Marks the live tenure of a key lost, and announces the loss.
    pub(super) fn notice_loss(&self, key: &Arc<Key>, mut state: MutexGuard<'_, State>, cause: LossCause, at: Moment) {
        if matches!(state.phase, Phase::Lingering { .. }) {
            return self.lose_lingering(key, state, &cause);
        }
        let Phase::Held(tenure) = &mut state.phase else { return };
        if !tenure.lose(cause, at) {
            return;
        }
        key.hold.lose();
        self.stop_renewing(key, self.clock.now() + timing::stale_look_pause(tenure.lease()));
        let lost = tenure.clone();
        let watchers = std::mem::take(&mut state.watchers);
        let queued = queue(self.observer.as_deref(), &key.name, &lost);
        drop(state);
        tell_queued(queued, &key.name, &lost, watchers);
    }

    /// Ends the hold of a thread that has ended, and its tenure. The key is not released, because nobody knows what
    /// that thread left half done: the lease runs out, and until then this process waits like the others. Returns
    /// `false` if that thread no longer has the hold.
    pub(crate) fn end_orphan(&self, key: &Arc<Key>, owner: u64) -> bool {
        let mut state = key.state();
        // A destructor of that thread may still unlock, and another thread may have the hold by now.
        if !key.hold.is_owned_by(owner) || !crate::state::owner::has_ended(owner) {
            return false;
        }
        let Some((mut tenure, watchers)) = self.end_hold_in(key, &mut state, Phase::Asking { turn: None, about: None })
        else {
            return false;
        };
        drop(state);
        let (_leaving, turn) = (self.leaving(), Turn::of(self, key));
        crate::state::owner::forget_hold(owner);
        let now = self.clock.now();
        if tenure.lose(LossCause::ThreadEnded, now) {
            tell(self.observer.as_deref(), &key.name, &tenure, watchers);
        }
        self.tell_released(&tenure, now, &Ok(()));
        drop(turn);
        true
    }

    /// Returns the loss of the current hold, which the caller has seen marked.
    pub(crate) fn loss_error(&self, key: &Key) -> Error {
        let loss = match &key.state().phase {
            Phase::Held(tenure) => tenure.loss_error(&key.name, self.clock.now()),
            _ => None,
        };
        loss.unwrap_or_else(|| Error::NotHeld { key: key.name.to_string() })
    }

    /// Returns whether the hold with this token is certainly ours. A passed deadline is made final: a renewal that
    /// arrives later cannot make valid what was reported invalid.
    pub(crate) fn is_valid(&self, key: &Arc<Key>, token: u64) -> bool {
        if self.is_forked() {
            return false;
        }
        if key.hold.is_valid(token, self.clock.now()) {
            return true;
        }
        if key.hold.token() == token && !key.hold.is_lost() {
            self.notice_deadline(key);
        }
        key.hold.is_valid(token, self.clock.now())
    }

    /// Returns why the hold with this token is not valid.
    pub(crate) fn why_invalid(&self, key: &Key, token: u64) -> Error {
        if self.is_forked() {
            return Error::Forked;
        }
        if key.hold.token() == token { self.loss_error(key) } else { Error::NotHeld { key: key.name.to_string() } }
    }
}
