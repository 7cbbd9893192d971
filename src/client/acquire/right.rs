//! Whether this client may send messages to other clients.

use crate::backoff::{Backoff, Cooldown};
use crate::client::core::Core;
use crate::clock::Moment;
use crate::error::Error;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timing;
use std::time::Duration;

/// The check of the right to send messages. It happens once.
#[derive(Debug)]
pub(crate) struct RightToSend {
    /// Whether the right has been checked, or a thread is about to check it.
    // ORDERING: the value alone matters: the swap lets one thread check, and a thread that sees `true` relies on
    // nothing that the other has done. Relaxed would do.
    is_checked: AtomicBool,
    /// Until when that is not checked again, after a check without an answer.
    rests: Mutex<Cooldown<Moment>>,
}

impl RightToSend {
    pub(crate) fn new() -> Self {
        Self { is_checked: AtomicBool::new(false), rests: Mutex::default() }
    }

    /// Checks the right, unless that was done. Later calls are cheap. A check without an answer is repeated after a pause, so that a
    /// server that does not answer delays no other lock each time.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if messages may not be sent, [`Error::Forked`].
    pub(super) fn check(&self, core: &Core, key: &str, limit: impl FnOnce() -> Duration) -> Result<(), Error> {
        // ORDERING: the flag alone matters, here and below: see `is_checked`.
        if self.is_checked.load(Ordering::Acquire) || !core.hands_over() {
            return Ok(());
        }
        let Some(queue) = core.processor.queue() else { return Ok(()) };
        core.check_process()?;
        // ORDERING: as above; of two threads that see that the cool-down is over one checks.
        if self.rests.lock().lasts(core.clock.now()) || self.is_checked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let checked = queue.check_inbox(core.id().as_str(), key, limit());
        if let Err(error) = &checked {
            if !matches!(error, Error::Denied { .. }) {
                self.rests.lock().fail(core.clock.now(), Backoff::constant(timing::CHECK_PAUSE));
            }
            // ORDERING: as above.
            self.is_checked.store(false, Ordering::Release);
        }
        match checked {
            Err(error @ Error::Denied { .. }) => Err(error),
            _ => Ok(()),
        }
    }
}
