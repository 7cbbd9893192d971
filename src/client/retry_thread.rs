//! The thread `dlock-retry`: it asks again for every key for which threads of this client wait, gives back tenures that have lingered,
//! works through the clean-up list, and collects the replies to posted releases.
//!
//! It asks for a key after lease/10 first, and then every lease/6. It asks earlier if the holder's lease ends earlier. (The JVM's
//! `RetryLockThread` has the same two figures.) All requests that are due go to the store in one batch. Messages only make a hand-over
//! faster: this thread guarantees that a waiter makes progress.

use super::cleanup::{CleanupStep, Ending, PendingCleanup, ROUND};
use super::closing::{self, Inside};
use super::give_back::{GiveBack, Repeat};
use super::lease_thread;
use super::orders::{Confirmation, Order, ReleaseReply};
use super::parts::Parts;
use super::question::Question;
use super::releases::PostReleases;
use super::slow_nodes::SlowRetries;
use super::turn::Turn;
use super::turn_end::end_retry;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::{Outcome, Request};
use crate::state::key::Key;
use crate::state::machine::{State, Waiter};
use crate::sync::catch_panic;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// With fewer releases than this, a round sends them and its requests in one write. A write of their own takes longer than they do.
/// It is one in the model of threads, which has fewer tasks.
const FEW_RELEASES: usize = if cfg!(dlock_shuttle) { 1 } else { 4 };

/// Runs one round: carries out what tasks have ordered, asks for the keys that are due, and releases what has lingered and the pending clean-ups
/// that are due.
pub(crate) fn round(parts: &Parts, now: Moment) -> Moment {
    parts.retries.collect(&parts.core, now);
    let orders = orders_on_fast_nodes(parts);
    let errands = Errands::of(parts, orders);
    // A posted release of a task may have made its key due.
    let now = if errands.has_posted { parts.core.clock.now() } else { now };
    let (mut keys, mut cleanups) = (parts.retries.take_due(now), parts.retries.cleanup.take_due(now));
    retry_on_slow_nodes(parts, &mut keys, &mut cleanups);
    ask(parts, keys, cleanups, errands);
    parts.describe.answer_questions(&parts.core);
    parts.retries.next()
}

/// Does the work of [`round`] for keys whose servers keep others waiting.
pub(crate) fn round_on_slow_nodes(parts: &Parts, _now: Moment) -> Moment {
    let SlowRetries { keys, mut cleanups, orders } = parts.slow_nodes.retries.take();
    let errands = Errands::of(parts, orders);
    // The client may have met a twin since the other thread has looked.
    cleanups.retain(|cleanup| parts.core.is_ours(&cleanup.locker));
    ask(parts, keys.into_values().collect(), cleanups, errands);
    // Requests that are to be repeated are in the schedules of the main retry thread, which may sleep.
    parts.retries.wake();
    Moment::NEVER
}

fn ask(parts: &Parts, keys: Vec<Arc<Key>>, mut cleanups: Vec<PendingCleanup>, mut errands: Errands<'_>) {
    let (mut turns, mut over) = (Vec::new(), Vec::new());
    for key in keys {
        match Turn::of_lingering(parts, &key) {
            Some(lingered) => over.push(lingered),
            None => {
                prepare_for_tasks(parts, &key);
                // The threads of the key may have begun to wait before there was an inbox. This does not wait until the inbox hears of the key,
                // because other keys are due in this round. The inbox reports it later.
                parts.subscription.get_ready_to_hear(&parts.core, &key, || Duration::ZERO);
                turns.extend(Question::of_waiters(parts, &key));
            }
        }
    }
    let unsettled = if parts.core.limits.settles { std::mem::take(&mut cleanups) } else { Vec::new() };
    let sent_at = parts.core.clock.now();
    // A clean-up goes before a request for its key: a single attempt would find the key busy with a locker that the client has given up.
    let requests: Vec<_> = cleanups
        .iter()
        .map(|cleanup| cleanup.request(parts.core.id.current().as_str(), sent_at))
        .chain(turns.iter().map(|(turn, question)| question.request(&turn.key.name, &parts.core, None)))
        .chain(over.iter().map(|(turn, tenure)| turn.release_of(tenure)))
        .chain(errands.requests())
        .collect();
    if requests.is_empty() && errands.are_kept_back {
        // There is no request with which the posted releases could go out.
        parts.retries.collect_replies(&parts.core);
    }
    let mut results = parts.core.batch(&requests, parts.core.limits.command).into_iter();
    drop(requests);
    post_releases_meanwhile(parts);
    for (cleanup, result) in cleanups.into_iter().zip(&mut results) {
        parts.retries.cleanup.put_back(cleanup, &result, CleanupStep::Release, sent_at);
    }
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let answer = question.take_in(&turn, result, sent_at);
        unwanted.extend(end_retry(turn, answer, sent_at));
    }
    for ((turn, tenure), result) in over.into_iter().zip(&mut results) {
        turn.released(&tenure, &result);
    }
    errands.answered(results, sent_at);
    parts.retries.settle(&parts.core, unsettled);
    if parts.core.activity.is_closed() {
        // The shutdown, or a round after this one, works through the clean-up list.
        for (turn, tenure) in unwanted {
            parts.retries.cleanup.add(&turn.key.name, &tenure.locker, tenure.store_time(), Ending::GivenUp, None);
        }
    } else {
        Turn::release_all(parts, unwanted, parts.core.limits.command);
    }
    errands.end();
}

/// Posts the releases that tasks have left while the round waited for its replies. So the server works while this thread handles the replies and
/// wakes tasks, if posting them keeps nobody waiting, and there are enough for a write of their own.
fn post_releases_meanwhile(parts: &Parts) {
    if parts.core.processor.posting().is_some_and(|posting| posting.keeps_back()) {
        let orders = parts.take_plain_releases(FEW_RELEASES);
        // A panic of the store would lose the replies.
        let _ = catch_panic(|| drop(Errands::of(parts, orders)));
    }
}

/// Moves the keys and clean-ups of servers that keep others waiting from `keys` and `cleanups` to the slow-node worker.
fn retry_on_slow_nodes(parts: &Parts, keys: &mut Vec<Arc<Key>>, cleanups: &mut Vec<PendingCleanup>) {
    let slow_keys: Vec<_> = keys.extract_if(.., |key| parts.core.keeps_waiting(&key.name)).collect();
    let mut slow_cleanups: Vec<_> = cleanups.extract_if(.., |cleanup| parts.core.keeps_waiting(&cleanup.key)).collect();
    if slow_keys.is_empty() && slow_cleanups.is_empty() {
        return;
    }
    if !parts.slow_nodes.retries.start() {
        keys.extend(slow_keys);
        cleanups.append(&mut slow_cleanups);
        return;
    }
    let now = parts.core.clock.now();
    parts.slow_nodes.retries.add(now, |slow| {
        slow.keys.extend(slow_keys.into_iter().map(|key| (key.id, key)));
        // More of them would take the thread too long.
        let room = ROUND.saturating_sub(slow.cleanups.len()).min(slow_cleanups.len());
        slow.cleanups.extend(slow_cleanups.drain(..room));
    });
    for cleanup in slow_cleanups {
        let why = "its server keeps others waiting, and others are tried first";
        let later = Error::backend(BackendFailure::NotExecuted, why);
        parts.retries.cleanup.put_back(cleanup, &Err::<(), _>(later), CleanupStep::Release, now);
    }
}

/// Makes the preparations that a thread makes before it asks, for a key for which a task waits.
fn prepare_for_tasks(parts: &Parts, key: &Arc<Key>) {
    let settings = |state: &State| state.first_task().and(state.queue.front()).map(|first| Arc::clone(&first.settings));
    let Some(settings) = settings(&key.state.lock()) else { return };
    if let Err(error) = parts.subscription.check(&parts.core, &key.name, || parts.core.limits.command) {
        return Turn::send_tasks_away(parts, key, &error);
    }
    // A client whose tenures may linger must hear when others wait, and one that gives reasons must hear questions about them.
    let answers = settings.reason().is_some() && parts.record.is_on;
    if !settings.linger.is_zero() || answers && !parts.record.defer_listening() {
        parts.subscription.listen(&parts.core);
    }
}

/// Takes the orders of tasks. The slow-node worker carries out those for keys whose servers keep others waiting.
fn orders_on_fast_nodes(parts: &Parts) -> Vec<Order> {
    let mut orders = parts.take_orders();
    let is_slow = |order: &mut Order| order.key().is_some_and(|key| parts.core.keeps_waiting(&key.name));
    let slow: Vec<_> = orders.extract_if(.., is_slow).collect();
    if slow.is_empty() || !parts.slow_nodes.retries.start() {
        orders.extend(slow);
    } else {
        parts.slow_nodes.retries.add(parts.core.clock.now(), |retries| retries.orders.extend(slow));
    }
    orders
}

/// What tasks have ordered, of one round. If a store panics, what is not done yet is done by the next round, or given up.
struct Errands<'c> {
    parts: &'c Parts,
    orders: VecDeque<Order>,
    /// The tenures whose releases are to be posted, until all are posted.
    posted: Vec<Errand<'c>>,
    tenures: Vec<Errand<'c>>,
    /// Tenures of an identity that a [twin](super::twin) has, too: nothing is sent for them.
    of_twins: Vec<Errand<'c>>,
    confirmations: Vec<Confirmation>,
    /// Whether a release was posted.
    has_posted: bool,
    /// Whether these releases go out with the requests of the round.
    are_kept_back: bool,
    afterwards: Afterwards,
}

/// A tenure that goes back to the store.
struct Errand<'c> {
    back: GiveBack<'c>,
    released: Option<ReleaseReply>,
    inside: Inside<'c>,
}

/// What is left of a round, for its end: wakers may do anything, such as close the client or drop its last handle.
#[derive(Default)]
struct Afterwards {
    outcomes: Vec<(ReleaseReply, Result<(), Error>)>,
    confirmed: Vec<Arc<Waiter>>,
    shuts_down: bool,
    /// What is dropped when the round is over.
    drops: Vec<Box<dyn Send + Sync>>,
}

impl<'c> Errands<'c> {
    /// Begins to carry out the orders: posts the releases for which nobody waits.
    fn of(parts: &'c Parts, orders: Vec<Order>) -> Self {
        let mut errands = Self {
            parts,
            orders: orders.into(),
            posted: Vec::new(),
            tenures: Vec::new(),
            of_twins: Vec::new(),
            confirmations: Vec::new(),
            has_posted: false,
            are_kept_back: false,
            afterwards: Afterwards::default(),
        };
        while let Some(order) = errands.orders.pop_front() {
            match order {
                Order::ShutDown => errands.afterwards.shuts_down = true,
                Order::Drop(last) => errands.afterwards.drops.push(last),
                Order::Confirm(confirmation) => errands.confirmations.push(confirmation),
                Order::GiveBack { ended, released } => {
                    let inside = Inside::of_release(parts);
                    errands.begin(Errand { back: GiveBack::of(parts, ended), released, inside });
                }
            }
        }
        let (posted, _inside): (Vec<_>, Vec<_>) =
            errands.posted.drain(..).map(|errand| (errand.back, errand.inside)).unzip();
        // The server carries many releases out while this thread prepares the requests.
        errands.has_posted = !posted.is_empty();
        errands.are_kept_back = errands.has_posted && posted.len() < FEW_RELEASES;
        let send: PostReleases = match errands.are_kept_back {
            true => |store, releases, limit| store.post_releases_with_next(releases, limit),
            false => |store, releases, limit| {
                store.post_releases_with_next(releases, limit);
                store.collect()
            },
        };
        GiveBack::post_all(parts, posted, send);
        errands
    }

    fn begin(&mut self, mut errand: Errand<'c>) {
        if !self.parts.core.is_ours(&errand.back.tenure().locker) {
            return self.of_twins.push(errand);
        }
        let is_awaited = errand.released.is_some();
        if is_awaited {
            errand.back.ask_why_lost(self.parts.renewals.side_limit());
        }
        errand.back.plan_next();
        if !is_awaited && errand.back.may_be_posted() && self.parts.core.processor.posting().is_some() {
            self.posted.push(errand);
        } else {
            self.tenures.push(errand);
        }
    }

    fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        let core = &self.parts.core;
        let extensions = self
            .confirmations
            .iter()
            .map(|Confirmation { key, locker, kept, .. }| Request::Extend(core.claim(&key.name, locker, *kept)));
        self.tenures.iter().map(|errand| errand.back.request()).chain(extensions)
    }

    /// Handles the replies.
    fn answered(&mut self, mut results: impl Iterator<Item = Result<Outcome, Error>>, sent_at: Moment) {
        let parts = self.parts;
        for (errand, result) in std::mem::take(&mut self.tenures).into_iter().zip(&mut results) {
            let Errand { back, released, inside: _inside } = errand;
            let outcome = catch_panic(|| back.answered(result, Repeat::Later)).unwrap_or_else(|| Err(unsent()));
            self.afterwards.outcomes.extend(released.map(|released| (released, outcome)));
        }
        self.give_up();
        for (Confirmation { key, locker, waiter, .. }, result) in
            std::mem::take(&mut self.confirmations).into_iter().zip(&mut results)
        {
            let failure = result.as_ref().err().cloned();
            lease_thread::extended(parts, &key, &locker, result, sent_at);
            if let Some(task) = &waiter.task {
                task.note_extended(locker, failure);
            }
            self.afterwards.confirmed.push(waiter);
        }
    }

    /// Ends the round: wakes the tasks, and then shuts the client down and drops what was ordered.
    fn end(mut self) {
        self.afterwards.tell();
        if std::mem::take(&mut self.afterwards.shuts_down) {
            closing::shut_down_if_needed(self.parts);
        }
        self.afterwards.drops.clear();
    }

    /// Ends what is not sent: the tenures of twins, or all of them after a panic. Those that are ours go on the clean-up list.
    fn give_up(&mut self) {
        for errand in self.of_twins.drain(..).chain(self.posted.drain(..)).chain(self.tenures.drain(..)) {
            let outcome = errand.back.answered(Err(unsent()), Repeat::Later);
            self.afterwards.outcomes.extend(errand.released.map(|released| (released, outcome)));
        }
    }
}

impl Drop for Errands<'_> {
    fn drop(&mut self) {
        self.give_up();
        for Confirmation { locker, waiter, .. } in self.confirmations.drain(..) {
            if let Some(task) = &waiter.task {
                task.note_extended(locker, Some(unsent()));
            }
            self.afterwards.confirmed.push(waiter);
        }
        let mut afterwards = std::mem::take(&mut self.afterwards);
        let shut_down = afterwards.shuts_down.then_some(Order::ShutDown);
        let drops = afterwards.drops.drain(..).map(Order::Drop);
        self.parts.put_back_orders(self.orders.drain(..).chain(drops).chain(shut_down));
        afterwards.tell();
    }
}

impl Afterwards {
    /// Wakes the tasks, with no mutex held and nothing counted.
    fn tell(&mut self) {
        for (released, outcome) in self.outcomes.drain(..) {
            released.set(outcome);
        }
        self.confirmed.drain(..).for_each(|waiter| waiter.wake());
    }
}

/// The error for what was not sent, because a store has panicked.
fn unsent() -> Error {
    Error::backend(BackendFailure::Unknown, "the store has panicked")
}
