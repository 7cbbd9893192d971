//! How a lost tenure is told: to the log, to those who watch the hold, and to the program's own function.

use crate::client::hook::LossHook;
use crate::log;
use crate::state::tenure::Tenure;
use crossbeam_channel::Sender;

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
