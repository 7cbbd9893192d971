//! The thread `dlock-retry`: it asks again for every key for which threads of this client wait, gives back tenures that have lingered,
//! works through the clean-up list, and collects the replies to posted releases.
//!
//! It asks for a key after lease/10 first, and then every lease/6. It asks earlier if the holder's lease ends earlier. (The JVM's
//! `RetryLockThread` has the same two figures.) All requests that are due go to the store in one batch. Messages only make a hand-over
//! faster: this thread guarantees that a waiter makes progress.

use super::activity::Inside;
use super::cleanup::{Ending, InFlight, PendingCleanup};
use super::closing;
use super::give_back::{GiveBack, Repeat};
use super::lease_thread;
use super::orders::{Confirmation, Order, Released};
use super::parts::Parts;
use super::question::Question;
use super::turn::Turn;
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::{Outcome, Request};
use crate::state::key::Key;
use crate::state::machine::State;
use std::sync::Arc;
use std::time::Duration;

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
    let errands = Errands::of(parts, parts.slow_nodes.take_orders());
    let (keys, mut cleanups) = parts.slow_nodes.take_retries();
    // The client may have met a twin since the other thread has looked.
    cleanups.retain(|cleanup| parts.core.is_ours(&cleanup.locker));
    ask(parts, keys, cleanups, errands);
    // What is to be repeated is in the schedules of the other thread, which may know of nothing that is due.
    parts.retries.wake();
    Moment::NEVER
}

fn ask(parts: &Parts, keys: Vec<Arc<Key>>, mut cleanups: Vec<PendingCleanup>, errands: Errands<'_>) {
    let (mut turns, mut over) = (Vec::new(), Vec::new());
    for key in keys {
        match Turn::of_lingering(parts, &key, false) {
            Some(lingered) => over.push(lingered),
            None => {
                prepare_for_tasks(parts, &key);
                // The threads of the key may have begun to wait before there was an inbox. The other keys of this round do not wait until
                // the inbox hears of this one: the inbox reports that later.
                parts.subscription.gets_ready_to_hear(&parts.core, &key, || Duration::ZERO);
                turns.extend(Question::of_waiters(parts, &key));
            }
        }
    }
    let unsettled = if parts.core.limits.settles { std::mem::take(&mut cleanups) } else { Vec::new() };
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key.name, parts.core.id.current(), None))
        .chain(over.iter().map(|(turn, tenure)| turn.release_of(tenure)))
        .chain(cleanups.iter().map(|cleanup| cleanup.request(parts.core.id.current().as_str())))
        .chain(errands.requests())
        .collect();
    let sent_at = parts.core.clock.now();
    let mut results = parts.core.batch(&requests, parts.core.limits.command).into_iter();
    drop(requests);
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let answer = question.take_in(&turn, result, sent_at);
        unwanted.extend(answer.end_retry(turn, sent_at));
    }
    for ((turn, tenure), result) in over.into_iter().zip(&mut results) {
        turn.released(&tenure, &result);
    }
    for (cleanup, result) in cleanups.into_iter().zip(&mut results) {
        parts.retries.cleanup.put_back(cleanup, &result, false, sent_at);
    }
    let (inside, shuts_down) = errands.answered(results, sent_at);
    parts.retries.settle(&parts.core, unsettled);
    if parts.core.activity.is_closed() {
        // The thread that closes the client waits for this one, and works through the clean-up list next.
        for (turn, tenure) in unwanted {
            parts.retries.cleanup.add(&turn.key.name, &tenure.locker, tenure.kept(), Ending::GivenUp, None);
        }
    } else {
        Turn::release_all(parts, unwanted, parts.core.limits.command);
    }
    drop(inside);
    if shuts_down {
        closing::shut_down_if_needed(parts);
    }
}

/// Removes the keys and pending clean-ups from those that are due about which the slow-node worker asks instead of the retry thread.
fn retry_on_slow_nodes(parts: &Parts, keys: &mut Vec<Arc<Key>>, cleanups: &mut Vec<PendingCleanup>) {
    let is_on_slow_node = |key: &str| parts.core.processor.keeps_waiting(key);
    let slow_keys: Vec<_> = keys.extract_if(.., |key| is_on_slow_node(&key.name)).collect();
    let mut slow_cleanups: Vec<_> = cleanups.extract_if(.., |cleanup| is_on_slow_node(&cleanup.key)).collect();
    if slow_keys.is_empty() && slow_cleanups.is_empty() {
        return;
    }
    if !parts.slow_nodes.starts_retrying() {
        keys.extend(slow_keys);
        cleanups.append(&mut slow_cleanups);
        return;
    }
    let now = parts.core.clock.now();
    parts.slow_nodes.add_retries(slow_keys, &mut slow_cleanups, now);
    for cleanup in slow_cleanups {
        let why = "its server keeps others waiting, and others are tried first";
        let later = Error::backend(BackendFailure::NotExecuted, why);
        parts.retries.cleanup.put_back(cleanup, &Err::<(), _>(later), false, now);
    }
}

/// Does for a key for which a task waits what a thread does before it asks for itself.
fn prepare_for_tasks(parts: &Parts, key: &Arc<Key>) {
    let settings = |state: &State| state.first_task().and(state.queue.front()).map(|first| Arc::clone(&first.settings));
    let Some(settings) = settings(&key.state.lock()) else { return };
    if let Err(error) = parts.subscription.check(&parts.core, &key.name, || parts.core.limits.command) {
        return Turn::send_tasks_away(parts, key, &error);
    }
    // A client whose tenures may linger must hear when others wait, and one that gives reasons must hear questions about them.
    let answers = settings.reason().is_some() && parts.record.is_on;
    if !settings.linger.is_zero() || answers && !parts.record.listens_with_it() {
        parts.subscription.listen(&parts.core);
    }
}

/// Takes the orders of tasks. The slow-node worker carries out those for keys whose servers keep others waiting.
fn orders_on_fast_nodes(parts: &Parts) -> Vec<Order> {
    let mut orders = parts.take_orders();
    let is_slow = |order: &mut Order| order.key().is_some_and(|key| parts.core.processor.keeps_waiting(&key.name));
    let slow: Vec<_> = orders.extract_if(.., is_slow).collect();
    if slow.is_empty() || !parts.slow_nodes.starts_retrying() {
        orders.extend(slow);
    } else {
        parts.slow_nodes.add_orders(slow, parts.core.clock.now());
    }
    orders
}

/// What tasks have ordered, of one round.
struct Errands<'c> {
    parts: &'c Parts,
    tenures: Vec<(GiveBack<'c>, Option<Released>, InFlight)>,
    confirmations: Vec<Confirmation>,
    /// Whether a release was posted.
    has_posted: bool,
    /// The releases, which are counted until the round is over.
    inside: Vec<Inside<'c>>,
    shuts_down: bool,
}

impl<'c> Errands<'c> {
    /// Begins to carry out the orders: posts the releases for which nobody waits.
    fn of(parts: &'c Parts, orders: Vec<Order>) -> Self {
        let mut errands = Self {
            parts,
            tenures: Vec::new(),
            confirmations: Vec::new(),
            has_posted: false,
            inside: Vec::new(),
            shuts_down: false,
        };
        for order in orders {
            match order {
                Order::ShutDown => errands.shuts_down = true,
                Order::Confirm(confirmation) => errands.confirmations.push(confirmation),
                Order::GiveBack { ended, released, in_flight } => {
                    let mut back = GiveBack::of(parts, ended);
                    errands.inside.push(Inside::of_release(&parts.core.activity));
                    if released.is_some() {
                        back.ask_why_lost();
                    }
                    back.plan_next();
                    if released.is_none() && back.may_be_posted() && parts.core.processor.posting().is_some() {
                        errands.has_posted = true;
                        back.post();
                    } else {
                        errands.tenures.push((back, released, in_flight));
                    }
                }
            }
        }
        errands
    }

    fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        let core = &self.parts.core;
        let extensions = self.confirmations.iter().map(|Confirmation { key, locker, waiter }| {
            Request::Extend(core.claim(&key.name, locker, waiter.settings.kept()))
        });
        self.tenures.iter().map(|(back, ..)| back.request()).chain(extensions)
    }

    /// Handles the replies, and tells the tasks. Returns the counted releases, and whether the client is to be shut down.
    fn answered(
        self,
        mut results: impl Iterator<Item = Result<Outcome, Error>>,
        sent_at: Moment,
    ) -> (Vec<Inside<'c>>, bool) {
        let Self { parts, tenures, confirmations, inside, shuts_down, .. } = self;
        for ((back, released, _in_flight), result) in tenures.into_iter().zip(&mut results) {
            let outcome = back.answered(result, Repeat::Later);
            if let Some(released) = released {
                released.set(outcome);
            }
        }
        for (Confirmation { key, locker, waiter }, result) in confirmations.into_iter().zip(&mut results) {
            let failure = result.as_ref().err().cloned();
            lease_thread::extended(parts, &key, &locker, result, sent_at);
            if let Some(task) = &waiter.task {
                task.note_extended(locker, failure);
            }
            waiter.wake();
        }
        (inside, shuts_down)
    }
}
