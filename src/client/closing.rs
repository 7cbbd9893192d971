//! Closing a client: waiting threads leave, holds continue, and the end of the last hold ends the threads and closes
//! the store.

use super::core::Core;
use crate::client::retry;
use crate::client::turn::Turn;

/// Turns new and waiting threads away, and waits until they have left. Holds continue, and the last one to end
/// runs the shutdown.
pub(super) fn close(core: &Core) {
    if core.process.is_forked() {
        return;
    }
    if core.activity.close() {
        for key in core.keys.all() {
            key.nudge_all();
        }
    }
    end_lingering(core);
    if core.activity.wait_until_left() {
        shut_down(core);
    }
}

/// Shuts the client down immediately, because its last handle is dropped. In a forked child there is nothing to
/// end: the threads and what is in the store belong to the parent.
pub(super) fn end(core: &Core) {
    if !core.process.is_forked() {
        core.activity.close();
        shut_down(core);
    }
}

/// Gives back the tenures that linger. After the closing no tenure begins to linger.
fn end_lingering(core: &Core) {
    let over: Vec<_> = core.keys.all().iter().filter_map(|key| Turn::of_lingering(core, key, true)).collect();
    retry::release(core, over, core.limits.command);
    // The retry thread handles what could not be released.
    core.retries.thread.wake_by(core.retries.cleanup.next());
}

/// Ends the threads and closes the store. Runs only once.
pub(super) fn shut_down(core: &Core) {
    let mut is_down = core.is_down.lock();
    if std::mem::replace(&mut *is_down, true) {
        return;
    }
    end_lingering(core);
    core.retries.thread.stop();
    let now = core.clock.now();
    core.slow_nodes.stop_retrying().into_iter().for_each(|cleanup| core.retries.cleanup.return_untried(cleanup, now));
    // Before the pending clean-ups are released: a grant that arrives at the last moment becomes one of them.
    core.subscription.stop();
    core.releases.await_replies(core);
    core.retries.release_cleanups();
    core.renewals.thread.stop();
    core.slow_nodes.stop_renewing();
    core.record.remove(core.renewals.side_limit());
    core.events.end();
    core.processor.close();
}
