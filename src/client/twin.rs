//! Two clients with one identity: copies of one running machine, as when a snapshot is restored twice.
//!
//! Both make the same lockers, in the same order. A locker is sent by only one acquire, and no request is sent again that may have been
//! executed. So an acquire that is told that its own locker holds the key has met such a twin. The client then draws a new identity, and
//! keeps nothing that the twin could have, too. It releases nothing of that either, because it may be the twin's.

use super::core::Core;
use super::loss;
use super::question::Answer;
use super::turn::Turn;
use crate::error::{Error, LossCause};
use crate::log;
use crate::state::key::Key;
use crate::state::machine::Phase;
use std::sync::Arc;

/// Returns the answer to the first question for this locker, or the error if it says that this locker holds the key already.
pub(super) fn checked(core: &Core, key: &Key, locker: &str, answer: Answer) -> Answer {
    match &answer {
        Answer::Busy { busy, .. } if busy.holder.as_deref() == Some(locker) => {
            let error = meet(core, key, locker);
            Answer::Failed { error, unsettled: None }
        }
        _ => answer,
    }
}

/// Draws a new identity, and loses everything that this client has under the present one.
fn meet(core: &Core, key: &Key, locker: &str) -> Error {
    let (name, locker) = (key.name.to_string(), locker.to_owned());
    // Another thread may have met it before.
    if core.is_ours(&locker) {
        log::error!(
            CLIENT,
            "lock {name:?} is held with this client's own locker {locker:?}: a copy of this process runs elsewhere; drawing a new \
             identity, all holds are lost"
        );
        if let Err(error) = core.id().replace() {
            return error;
        }
        core.retries.cleanup.forget_all();
        core.keys.all().iter().for_each(|key| lose(core, key));
        core.subscription.reopen();
    }
    Error::Cloned { key: name, locker }
}

fn lose(core: &Core, key: &Arc<Key>) {
    let mut state = key.state();
    let now = core.clock.now();
    match &mut state.phase {
        Phase::Held(_) => loss::notice(core, key, state, LossCause::Cloned, now),
        Phase::Lingering { .. } => {
            let left = Turn::leave_lingering(core, key, &mut state, Phase::Asking { turn: None, about: None });
            drop(state);
            drop(left);
        }
        Phase::Waiting { unsettled } => {
            *unsettled = None;
            core.retries.ask_at(key, now);
        }
        _ => {}
    }
}
