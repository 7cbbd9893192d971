//! What a holder can ask about its hold: whether it is certainly its own, why it is not, and to be told when it no longer is.

use crate::client::Client;
use crate::error::Error;
use crate::key::Key;
use crate::state::Phase;
use crossbeam_channel::{Receiver, bounded};
use std::sync::Arc;

impl Key {
    /// A channel that tells the loss of the hold with this token.
    pub(crate) fn watch(&self, token: u64) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        let mut state = self.state();
        if self.hold.token() == token && matches!(state.phase, Phase::Held(_)) {
            if self.hold.is_lost() {
                let _ = sender.try_send(());
            } else {
                state.watchers.push(sender);
            }
        }
        receiver
    }
}

impl Client {
    /// The loss of the current hold, which the caller has seen marked.
    pub(crate) fn loss_error(&self, key: &Key) -> Error {
        let loss = match &key.state().phase {
            Phase::Held(tenure) => tenure.loss_error(&key.name, self.clock.now()),
            _ => None,
        };
        loss.unwrap_or_else(|| Error::NotHeld { key: key.name.to_string() })
    }

    /// Whether the hold with this token is certainly ours. A passed deadline is made final: a renewal that comes in
    /// later cannot make valid what was called invalid.
    pub(crate) fn is_valid(&self, key: &Arc<Key>, token: u64) -> bool {
        if self.is_forked() {
            return false;
        }
        if key.hold.is_valid(token, self.clock.now()) {
            return true;
        }
        if key.hold.token() == token && !key.hold.is_lost() {
            crate::lease::notice_deadline(self, key);
        }
        key.hold.is_valid(token, self.clock.now())
    }

    /// Why the hold with this token is not valid.
    pub(crate) fn why_invalid(&self, key: &Key, token: u64) -> Error {
        if self.is_forked() {
            return Error::Forked;
        }
        if key.hold.token() == token { self.loss_error(key) } else { Error::NotHeld { key: key.name.to_string() } }
    }
}
