//! How a client is closed: waiting threads leave, and holds continue. The last to leave shuts the client down, which ends its threads and closes the
//! store.
//!
//! | the client is | since | a thread that enters | the last thread that leaves | the last hold that ends |
//! |---|---|---|---|---|
//! | open | the beginning | is counted | | |
//! | closed | `close`, or the drop of the last handle, which goes straight to down | leaves at once | wakes the closing thread, which drains the client | |
//! | left alone | a `close` that may not wait, because a waker calls it | leaves at once | drains the client | |
//! | drained | nobody was inside after the closing; if nothing was held either, the thread that has seen that shuts the client down | leaves at once | | shuts the client down |
//! | down | the first shutdown; also that of the last handle, whatever is held | leaves at once | | |
//!
//! [`Activity`](super::activity::Activity) counts. A task that waits is counted as a hold. A tenure that a task has left to the retry thread is counted
//! as a thread inside, in place of the hold. So is a thread in `close` while it gives back what lingers.
//!
//! A thread shuts the client down itself, or orders the retry thread to do so. It gives the order if it may be in the middle of a client's work (a
//! waker runs on it, or it is a worker that drops the last handle), or if its caller has a limit (it leaves `lock`). The numbers continue those of
//! the protocol in ARCHITECTURE.md:
//!
//! * **S23** A client is shut down while a thread is in `lock` or something is held only if its last handle is gone. The shutdown gives back what
//!   tasks have left to the retry thread, and the retry thread has not given back.
//! * **S24** Each order is carried out by a round of a retry thread, or taken by the shutdown, or refused because the client is down. None is taken by
//!   anybody else: it could be a release.
//! * **S25** Only a shutdown takes `is_down`, and sets it at once. So a thread that finds it taken, or set, leaves the rest to that shutdown.
//! * **S26** A thread that ends a lingering, to give the tenure back, is counted as inside, or a shutdown waits for its end, or it runs the shutdown
//!   itself. So the release is sent before the store is closed.
//!
//! No order is dropped while `is_down` is taken: it may have a waker or a handle, whose drop may wait for that shutdown.

use super::give_back::{GiveBack, Repeat};
use super::orders::{Order, ReleaseReply};
use super::parts::Parts;
use super::turn::Turn;
use crate::clock::Moment;
use crate::error::Error;
use crate::state::key::Key;
use crate::state::machine::Phase;
use crate::state::task::is_waking;
use crate::sync::{MutexGuard, is_own_thread};
use std::sync::Arc;

/// A thread inside `lock`, or a release that a thread of the client sends. It is counted until this is dropped.
#[must_use]
pub(crate) struct Inside<'a>(&'a Parts);

impl<'a> Inside<'a> {
    /// Counts the calling thread in. Fails with [`Error::ShutDown`] after the closing, and with [`Error::Forked`] in a child of the process that
    /// has made the client. The caller is not counted then.
    pub(crate) fn of(parts: &'a Parts) -> Result<Self, Error> {
        parts.core.process.check()?;
        let activity = &parts.core.activity;
        if !activity.enter() {
            return Err(Error::ShutDown);
        }
        let inside = Self(parts);
        // The closing thread reads the count after it has closed the client. So it sees this thread, or this thread sees that the client is closed.
        if activity.is_closed() { Err(Error::ShutDown) } else { Ok(inside) }
    }

    /// Takes over a release that was [counted in](super::activity::Activity::begin_release).
    pub(super) fn of_release(parts: &'a Parts) -> Self {
        Self(parts)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.0.core.activity.leave() {
            self.0.order_shutdown();
        }
    }
}

/// A hold that is counted out when this is dropped, after its release.
#[must_use]
pub(crate) struct Leaving<'a>(pub(super) &'a Parts);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let parts = self.0;
        if !parts.core.activity.end_hold() {
            return;
        }
        match is_waking() {
            true => parts.order_shutdown(),
            false => shut_down_if_needed(parts),
        }
    }
}

/// Turns new and waiting threads away, and waits until they have left. Holds continue. A runtime that calls this while it is told to wake a
/// task does not wait.
pub(super) fn close(parts: &Parts) {
    if parts.core.process.is_forked() {
        return;
    }
    let is_waking = is_waking();
    // This thread is counted from before the closing until it has given back what lingers. It wakes no task in that time: another thread may poll the
    // task, close the client there, and wait for this thread.
    let inside = if is_waking { None } else { Inside::of(parts).ok() };
    let is_first = parts.core.activity.close();
    if let Some(_inside) = inside {
        end_lingering(parts);
    }
    if is_first {
        for key in parts.core.keys.all() {
            // The waits of tasks end here, because nobody knows when tasks are polled next.
            Turn::send_tasks_away(parts, &key, &Error::ShutDown);
            key.nudge_all();
        }
        // The pauses of tasks end, too.
        parts.alarms.ring(Moment::NEVER);
    }
    if is_waking {
        // This does not wait: what it would wait for may be the work of this thread, or of a thread that waits for this one. The retry thread gives
        // back what lingers.
        parts.retries.hasten(parts.core.clock.now());
        if parts.core.activity.leave_alone() {
            parts.order_shutdown();
        }
        return;
    }
    if parts.core.activity.wait_until_left() {
        shut_down(parts);
    }
}

/// Shuts the client down immediately, because its last handle is dropped. In a forked child there is nothing to
/// end: the threads and what is in the store belong to the parent.
pub(super) fn end(parts: &Arc<Parts>) {
    if parts.core.process.is_forked() {
        return;
    }
    parts.core.activity.close();
    if !is_own_thread() && !is_waking() {
        return shut_down(parts);
    }
    // This thread was waking a task, which has dropped the last handle. A shutdown here might wait for this thread, or for a thread that waits for
    // what the waker holds. So the retry thread runs the shutdown after its round.
    if parts.retries.thread.start().is_err() {
        return shut_down_if_needed(parts);
    }
    // The retry thread has only a weak pointer, and this thread is about to drop its own pointer.
    parts.order_all([Order::Drop(Box::new(Arc::clone(parts))), Order::ShutDown]);
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
            Order::GiveBack { ended: tenure, released } => {
                let inside = Inside::of_release(parts);
                let is_of_twin = !parts.core.is_ours(&tenure.tenure.locker);
                let back = GiveBack::of(parts, tenure);
                if !is_of_twin {
                    ended.push((back, released, inside));
                    continue;
                }
                // Nothing is sent for this tenure.
                let outcome = back.answered(Err(Error::ShutDown), Repeat::Later);
                outcomes.extend(released.map(|released| (released, outcome)));
            }
            other => others.push(other),
        }
    }
    parts.put_back_orders(others);
    let requests: Vec<_> = ended.iter().map(|(back, ..)| back.request()).collect();
    let results = parts.core.batch(&requests, parts.core.limits.command);
    drop(requests);
    for ((back, released, _inside), result) in ended.into_iter().zip(results) {
        let outcome = back.answered(result, Repeat::Later);
        outcomes.extend(released.map(|released| (released, outcome)));
    }
    outcomes
}

/// Shuts the client down, and waits if another thread does.
fn shut_down(parts: &Parts) {
    let is_down = parts.core.activity.is_down.lock();
    run_shutdown(parts, is_down);
    // If the retry thread has shut the client down, it could not wait for its own end.
    parts.retries.thread.stop();
}

/// Shuts the client down unless another thread does. This does not wait for that thread, which may wait for the calling one to end.
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
    // Stop the subscription before the pending clean-ups are released: a grant that arrives at the last moment becomes one of them.
    parts.subscription.stop();
    parts.retries.await_replies(&parts.core);
    parts.retries.release_cleanups(&parts.core);
    parts.renewals.thread.stop();
    parts.slow_nodes.renewals.thread.stop();
    parts.record.remove(&parts.core, parts.renewals.side_limit());
    parts.core.events.end();
    parts.core.processor.close();
    // The orders may have handles and parts, which would keep one another alive, and wakers.
    let orders = parts.end_orders();
    drop(is_down);
    drop(orders);
    for (released, outcome) in outcomes {
        released.set(outcome);
    }
}
