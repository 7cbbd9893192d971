//! How the loss of a tenure is announced: to the log, to the loss channels of the hold, and to the program's
//! callback.

use crate::client::metrics::{Sample, word_for};
use crate::client::observer::{Observer, Queued};
use crate::event::Event;
use crate::log;
use crate::state::tenure::Tenure;
use crossbeam_channel::Sender;
use std::sync::Arc;

/// Announces a lost tenure to the log, the loss channels and the hook. Does nothing if the tenure is not lost. Call
/// it without holding any mutex.
pub(crate) fn tell(observer: Option<&Observer>, key: &str, tenure: &Tenure, watchers: Vec<Sender<()>>) {
    tell_queued(queue(observer, key, tenure), key, tenure, watchers);
}

/// As [`tell`], for a loss that is queued for the hook.
pub(crate) fn tell_queued(queued: Queued, key: &str, tenure: &Tenure, watchers: Vec<Sender<()>>) {
    let Some((loss, at)) = tenure.loss() else { return };
    let error = tenure.loss_error(key, *at).map(|error| error.to_string()).unwrap_or_default();
    match tenure.settings.reason() {
        _ if !tenure.told => log::debug!(LEASE, "lock {key:?}: lost before its thread was told of the grant: {loss}"),
        Some(reason) => log::warn!(LEASE, "{error} (held for: {reason})"),
        None => log::warn!(LEASE, "{error}"),
    }
    tell_watchers(watchers);
    queued.finish();
}

/// Sends the message of a loss to the loss channels of the hold.
pub(crate) fn tell_watchers(watchers: Vec<Sender<()>>) {
    for watcher in watchers {
        // There is room for it, and the receiver may be gone.
        let _ = watcher.try_send(());
    }
}

/// Queues the loss of a tenure, if a thread was told of the hold. Call it with the key's mutex held, or as the thread that has the turn.
pub(crate) fn queue(observer: Option<&Observer>, key: &str, tenure: &Tenure) -> Queued {
    let Some(observer) = observer.filter(|_| tenure.told) else { return Queued::nothing() };
    let Some((cause, at)) = tenure.loss() else { return Queued::nothing() };
    let Some(loss) = tenure.loss_of(key, *at) else { return Queued::nothing() };
    let sample = Sample::Lost { lock: Arc::clone(&tenure.settings), cause: word_for(cause) };
    observer.queue(&Event::Lost(loss), Some(sample))
}
