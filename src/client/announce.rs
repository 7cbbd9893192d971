//! How a lost tenure is told: to the log, to those who watch the hold, and to the program's own function.
//!
//! The function runs on a thread of its own. However slow it is, it delays no renewal and no unlock.

use crate::error::LeaseLoss;
use crate::log;
use crate::state::tenure::Tenure;
use crate::sync::{Mutex, contain, thread};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::fmt;
use std::sync::Arc;

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
/// So many losses may wait for a slow function; what comes on top is in the log alone.
const ROOM: usize = 4096;

type Told = dyn Fn(&LeaseLoss) + Send + Sync;

/// The function and, from the first loss on, the way to its thread. The thread ends after the client, when all is told;
/// nobody waits for that.
pub(crate) struct LossHook {
    told: Arc<Told>,
    line: Mutex<Option<Sender<LeaseLoss>>>,
}

impl LossHook {
    pub(crate) fn new(told: impl Fn(&LeaseLoss) + Send + Sync + 'static) -> Self {
        Self { told: Arc::new(told), line: Mutex::new(None) }
    }

    /// Passes a loss on. Does not wait for the function.
    pub(crate) fn tell(&self, loss: LeaseLoss) {
        let mut line = self.line.lock();
        let sender = match &*line {
            Some(sender) => sender,
            None => {
                let (sender, losses) = bounded(ROOM);
                let told = Arc::clone(&self.told);
                let spawned =
                    thread::Builder::new().name("dlock-lost".to_owned()).spawn(move || tell_all(&*told, &losses));
                if let Err(e) = spawned {
                    log::error!(LEASE, "on_lost is not told: the operating system refused the thread dlock-lost: {e}");
                    return;
                }
                line.insert(sender)
            }
        };
        if let Err(TrySendError::Full(loss)) = sender.try_send(loss) {
            log::error!(LEASE, "on_lost is {ROOM} losses behind and is not told of lock {:?}", loss.key);
        }
    }
}

impl LossHook {
    /// Lets the thread end once it has told everything. There is nothing to lose any more.
    pub(crate) fn end(&self) {
        *self.line.lock() = None;
    }
}

fn tell_all(told: &Told, losses: &Receiver<LeaseLoss>) {
    for loss in losses {
        if contain(|| told(&loss)).is_err() {
            log::error!(LEASE, "on_lost panicked when it was told of lock {:?}", loss.key);
        }
    }
}

impl fmt::Debug for LossHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossHook").finish_non_exhaustive()
    }
}
