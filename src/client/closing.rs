//! How a client is closed: waiting threads leave, and holds continue. The end of the last hold ends the client's threads and closes the store.

use super::activity::Inside;
use super::give_back::{GiveBack, Repeat};
use super::orders::{Order, ReleaseReply};
use super::parts::Parts;
use super::turn::Turn;
use crate::clock::Moment;
use crate::error::Error;
use crate::log;
use crate::state::key::Key;
use crate::state::machine::Phase;
use crate::state::task::is_waking;
use crate::sync::{MutexGuard, thread};
use std::sync::Arc;

/// A hold that is counted out when this is dropped, after its release.
#[must_use]
pub(crate) struct Leaving<'a>(pub(super) &'a Parts);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let parts = self.0;
        if !parts.core.activity.end_hold() {
            return;
        }
        match is_waking() && parts.retries.thread.start().is_ok() {
            true => parts.order(Order::ShutDown),
            false => shut_down_if_needed(parts),
        }
    }
}

/// Turns new and waiting threads away, and waits until they have left. Holds continue, and the last one to end
/// runs the shutdown. A runtime that calls this while it is told to wake a task does not wait: the thread `dlock-close` does.
pub(super) fn close(parts: &Parts) {
    if parts.core.process.is_forked() {
        return;
    }
    if parts.core.activity.close() {
        for key in parts.core.keys.all() {
            // Their waits end here, because nobody knows when they are polled.
            Turn::send_tasks_away(parts, &key, &Error::ShutDown);
            key.nudge_all();
        }
        // The pauses of tasks end, too.
        parts.alarms.ring(Moment::NEVER);
    }
    if !is_waking() {
        if has_ended(parts) {
            shut_down(parts);
        }
        return;
    }
    // What would be waited for may be the work of this thread, or of one that waits for it.
    match parts.closer.start() {
        Ok(_) => parts.closer.wake_by(parts.core.clock.now()),
        Err(Error::ShutDown) => {}
        Err(error) => log::error!(CLIENT, "the closed client ends with its last handle: {error}"),
    }
}

/// Runs the rest of a closing for which nobody waits.
pub(super) fn close_apart(parts: &Parts, _now: Moment) -> Moment {
    if has_ended(parts) {
        shut_down_if_needed(parts);
    }
    Moment::NEVER
}

/// After the closing, waits until all threads have left. Returns whether nothing is held then.
fn has_ended(parts: &Parts) -> bool {
    end_lingering(parts);
    parts.core.activity.wait_until_left()
}

/// Shuts the client down immediately, because its last handle is dropped. In a forked child there is nothing to
/// end: the threads and what is in the store belong to the parent.
pub(super) fn end(parts: &Arc<Parts>) {
    if parts.core.process.is_forked() {
        return;
    }
    parts.core.activity.close();
    if !is_worker() {
        return shut_down(parts);
    }
    // A task was woken here, and has dropped the last handle. A shutdown waits for this thread, so the retry thread runs it after its round.
    // What is ordered under the mutex is forgotten by a shutdown that comes first.
    let Some(is_down) = parts.core.activity.is_down.try_lock() else { return };
    if *is_down {
        return;
    }
    if parts.retries.thread.start().is_err() {
        return run_shutdown(parts, is_down);
    }
    parts.order(Order::Drop(Box::new(Arc::clone(parts))));
    parts.order(Order::ShutDown);
}

/// Returns whether the calling thread is one of a client or a store.
fn is_worker() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with("dlock-"))
}

/// Gives back the tenures that linger. After the closing no tenure begins to linger.
fn end_lingering(parts: &Parts) {
    let end = |key: &Arc<Key>| {
        let next = Phase::Releasing { ended: None, about: None };
        Turn::leave_lingering(parts, key, &mut key.state.lock(), next)
    };
    let over: Vec<_> = parts.core.keys.all().iter().filter_map(end).collect();
    Turn::release_all(parts, over, parts.core.limits.command);
    // The retry thread handles what could not be released.
    parts.retries.thread.wake_by(parts.retries.cleanup.next());
}

/// Gives back the tenures that tasks have left to the retry thread, which has ended. Returns what these tasks are to be told.
fn give_back_ordered(parts: &Parts, slow: Vec<Order>) -> Vec<(ReleaseReply, Result<(), Error>)> {
    let (mut ended, mut others, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    for order in parts.take_orders().into_iter().chain(slow) {
        match order {
            Order::GiveBack { ended: tenure, released, in_flight } => {
                let inside = Inside::of_release(&parts.core.activity);
                let is_of_twin = !parts.core.is_ours(&tenure.tenure.locker);
                let back = GiveBack::of(parts, tenure);
                if !is_of_twin {
                    ended.push((back, released, (in_flight, inside)));
                    continue;
                }
                // Nothing is sent for it.
                let outcome = back.answered(Err(Error::ShutDown), Repeat::Later);
                outcomes.extend(released.map(|released| (released, outcome)));
            }
            other => others.push(other),
        }
    }
    let requests: Vec<_> = ended.iter().map(|(back, ..)| back.request()).collect();
    let results = parts.core.batch(&requests, parts.core.limits.command);
    drop(requests);
    for ((back, released, _counted), result) in ended.into_iter().zip(results) {
        let outcome = back.answered(result, Repeat::Later);
        outcomes.extend(released.map(|released| (released, outcome)));
    }
    drop(others);
    outcomes
}

/// Shuts the client down, and waits if another thread does.
fn shut_down(parts: &Parts) {
    let is_down = parts.core.activity.is_down.lock();
    run_shutdown(parts, is_down);
    // If one of these threads has shut the client down, it could not wait for its own end.
    parts.retries.thread.stop();
    parts.closer.stop();
}

/// Shuts the client down unless another thread does. That thread may wait for the calling one to end.
pub(super) fn shut_down_if_needed(parts: &Parts) {
    if let Some(is_down) = parts.core.activity.is_down.try_lock() {
        run_shutdown(parts, is_down);
    }
}

/// Ends the threads and closes the store. Runs only once.
fn run_shutdown(parts: &Parts, mut is_down: MutexGuard<'_, bool>) {
    if std::mem::replace(&mut *is_down, true) {
        return;
    }
    end_lingering(parts);
    parts.retries.thread.stop();
    parts.alarms.thread.stop();
    parts.slow_nodes.retries.thread.stop();
    let (slow, now) = (parts.slow_nodes.retries.take(), parts.core.clock.now());
    slow.cleanups.into_iter().for_each(|cleanup| parts.retries.cleanup.return_untried(cleanup, now));
    let outcomes = give_back_ordered(parts, slow.orders);
    // Nobody is inside any more for whom it waits.
    parts.closer.stop();
    // Stop the subscription before the pending clean-ups are released: a grant that arrives at the last moment becomes one of them.
    parts.subscription.stop();
    parts.retries.await_replies(&parts.core);
    parts.retries.release_cleanups(&parts.core);
    parts.renewals.thread.stop();
    parts.slow_nodes.renewals.thread.stop();
    parts.record.remove(&parts.core, parts.renewals.side_limit());
    parts.core.events.end();
    parts.core.processor.close();
    // They may have handles and parts, which would keep one another.
    drop(parts.take_orders());
    drop(is_down);
    for (released, outcome) in outcomes {
        released.set(outcome);
    }
}
