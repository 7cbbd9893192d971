//! How a hold begins and ends.

use crate::client::core::Core;
use crate::config::DLockConfig;
use crate::state::key::Key;
use crate::state::machine::{Ended, Phase, State};
use crate::state::queue::Waiter;
use crate::state::tenure::Tenure;
use crate::sync::mutant;
use crossbeam_channel::Sender;
use std::sync::Arc;

/// The thread that gets a hold, with the settings of the handle that it has called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker<'a> {
    pub(crate) thread: u64,
    pub(crate) settings: &'a DLockConfig,
}

impl<'a> From<&'a Arc<Waiter>> for Taker<'a> {
    fn from(waiter: &'a Arc<Waiter>) -> Self {
        Self { thread: waiter.thread, settings: &waiter.settings }
    }
}

impl Core {
    /// Gives the hold to a thread. The caller must have the turn, or the phase must be `Waiting`.
    pub(crate) fn grant(&self, key: &Arc<Key>, state: &mut State, mut tenure: Tenure, to: Taker<'_>) {
        let now = self.clock.now();
        tenure.begin(now);
        tenure.hold_begins(now);
        if mutant!(CountsFromHearing) && self.counts(&tenure) {
            tenure.lease.renewed(now);
        }
        if state.about().is_some_and(|about| about.contended && about.locker == tenure.locker) {
            tenure.note_waiting(1, now);
        }
        state.asked = 0;
        state.failures = 0;
        state.failure = None;
        if state.about().is_some_and(|about| about.broken && about.locker == tenure.locker) {
            tenure.lease.told_broken(now);
        }
        // The earlier server may have granted it, and the reply was on its way.
        if self.is_of_earlier_server(tenure.lease.renewed_at()) {
            tenure.lease.doubt(now);
        }
        self.renewals.put(key, &tenure);
        key.hold.begin(to.thread, to.settings, &tenure);
        state.phase = Phase::Held(tenure);
    }

    /// Returns whether what the client knows of a tenure is enough to tell a thread of its hold.
    pub(super) fn counts(&self, tenure: &Tenure) -> bool {
        tenure.lease.is_answered() || !self.limits.extends_heard_grants || mutant!(BelievesMessages)
    }

    /// Ends the current hold and enters `phase`. Returns the tenure and the loss channels of the hold, or `None` if
    /// there is no hold.
    pub(crate) fn end_hold(&self, key: &Key, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        self.end_hold_in(key, &mut key.state(), phase)
    }

    /// Like [`end_hold`](Self::end_hold), with the mutex held.
    pub(crate) fn end_hold_in(&self, key: &Key, state: &mut State, phase: Phase) -> Option<(Tenure, Vec<Sender<()>>)> {
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Held(mut tenure) => {
                if let Phase::Releasing { ended, .. } = &mut state.phase {
                    *ended = Some(Ended { locker: Arc::clone(&tenure.locker), heard: false });
                    state.released = Some(Arc::clone(&tenure.locker));
                }
                state.tenure_ends(&mut tenure, self.clock.now());
                self.renewals.forget(key);
                key.hold.end();
                Some((tenure, std::mem::take(&mut state.watchers)))
            }
            other => {
                state.phase = other;
                None
            }
        }
    }
}
