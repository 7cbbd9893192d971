//! How the loss of a tenure is announced: to the log, to the loss channels of the hold, and to the program's
//! callback.

use crate::client::hook::LossHook;
use crate::log;
use crate::state::tenure::Tenure;
use crossbeam_channel::Sender;

/// Announces a lost tenure to the log, the loss channels and the hook. Does nothing if the tenure is not lost. Call
/// it without holding any mutex.
pub(crate) fn tell(on_lost: Option<&LossHook>, key: &str, tenure: &Tenure, watchers: Vec<Sender<()>>) {
    let Some((loss, at)) = tenure.loss() else { return };
    let error = tenure.loss_error(key, *at).map(|error| error.to_string()).unwrap_or_default();
    match tenure.settings.reason() {
        _ if !tenure.told => log::debug!(LEASE, "lock {key:?}: lost before its thread was told of the grant: {loss}"),
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
