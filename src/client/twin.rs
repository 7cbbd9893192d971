//! Two clients with one identity: copies of one running machine, as when a snapshot is restored twice.
//!
//! Both copies make the same lockers, in the same order. A locker is sent by only one acquire, and no request is sent again that may have
//! been executed. So a client has met such a copy, its *twin*, in three cases:
//!
//! * The reply to an acquire says that its own fresh locker holds the key.
//! * The store names a holder that has the client's identity, and whose locker the client has not made yet.
//! * A message in its inbox says that another client has opened that inbox. A connection cannot be shared by two machines, so each copy
//!   must connect and open its inbox again. It then publishes a greeting (`here`) with a random number and a proof: a keyed hash of the
//!   number. The key is never sent, so only a copy has it, too. Another program may know all lockers and may send messages, but it cannot
//!   make a client take itself for a copy.
//!
//! The client then draws a new identity, and drops everything that the twin could have, too. It releases none of that, because it may
//! belong to the twin. A message may say that a key was granted to a locker that this client has not made. The client does not give up that
//! grant either.

use super::describe::Greeting;
use super::loss;
use super::parts::Parts;
use super::turn::Turn;
use crate::error::{Error, LossCause};
use crate::log;
use crate::state::key::Key;
use crate::state::locker::random_number;
use crate::state::machine::{AskedBy, Phase};
use std::sync::Arc;

/// Returns the error if the holder of a key shows that another client has this client's identity. `fresh` is the locker that the request
/// has sent for the first time, if it has sent such a locker.
pub(super) fn shown_by(parts: &Parts, key: &str, fresh: Option<&str>, holder: Option<&str>) -> Option<Error> {
    let holder = holder.filter(|holder| fresh == Some(*holder) || parts.core.id.current().is_of_twin(holder))?;
    Some(meet(parts, key, holder))
}

/// Draws a new identity, and loses everything that this client has under the present one.
pub(super) fn meet(parts: &Parts, key: &str, locker: &str) -> Error {
    // Another thread may have met the twin before this one.
    if parts.core.is_ours(locker) {
        log::error!(
            CLIENT,
            "lock {key:?}: another client uses this client's own locker {locker:?}: a copy of this process runs elsewhere; drawing a \
             new identity, all holds are lost"
        );
        if let Err(error) = lose_identity(parts) {
            return error;
        }
    }
    Error::Cloned { key: key.to_owned(), locker: locker.to_owned() }
}

fn lose_identity(parts: &Parts) -> Result<(), Error> {
    parts.core.id.current().replace()?;
    parts.retries.cleanup.forget_all();
    parts.core.keys.all().iter().for_each(|key| lose(parts, key));
    parts.subscription.reopen();
    Ok(())
}

fn lose(parts: &Parts, key: &Arc<Key>) {
    let mut state = key.state.lock();
    let now = parts.core.clock.now();
    match &mut state.phase {
        Phase::Held(_) => loss::notice(parts, key, state, LossCause::Cloned, now),
        Phase::Lingering { .. } => {
            let left =
                Turn::leave_lingering(parts, key, &mut state, Phase::Asking { by: AskedBy::Arriving, about: None });
            drop(state);
            drop(left);
        }
        Phase::Waiting { unsettled } => {
            *unsettled = None;
            parts.retries.ask_at(key, now);
        }
        // A grant that was heard meanwhile may belong to the twin: it is neither taken nor given up.
        Phase::Asking { about: Some(about), .. } => (about.heard, about.changed) = (None, true),
        Phase::Releasing { ended, about } => (*ended, *about) = (None, None),
        Phase::Asking { .. } | Phase::Idle => {}
    }
}

/// Tells a client of the same identity, if there is one, that this one hears the inbox. Called by the listener when the inbox is open. In a Cluster
/// nothing is said, because an inbox has many channels there, which are opened later.
pub(super) fn greet(parts: &Parts) {
    let (Some(directory), Some(queue)) = (parts.core.processor.directory(), parts.core.processor.queue()) else {
        return;
    };
    let id = parts.core.id.current();
    let client = id.as_str();
    let Some(nonce) = random_number().filter(|_| queue.hears(client, "")) else { return };
    parts.describe.note_greeting(nonce);
    let words = Greeting { nonce, client: client.to_owned(), proof: id.proof(nonce) }.to_line();
    if let Err(error) = directory.say(client, "", &words, parts.renewals.side_limit()) {
        log::debug!(CLIENT, "cannot tell a copy of this process, if there is one, of this one: {error}");
    }
}

/// Handles a greeting. A client also hears its own greeting. A greeting without the right proof does not come from a twin.
pub(super) fn on_greeting(parts: &Parts, greeting: &Greeting) {
    let id = parts.core.id.current();
    let Greeting { nonce, client, proof } = greeting;
    if client == id.as_str() && *proof == id.proof(*nonce) && !parts.describe.is_own_greeting(*nonce) {
        log::error!(
            CLIENT,
            "another client hears this client's own inbox {client:?}: a copy of this process runs elsewhere; drawing a new identity, \
             all holds are lost"
        );
        if let Err(error) = lose_identity(parts) {
            log::error!(CLIENT, "there is no new identity: {error}");
        }
    }
}
