//! The thread `dlock-retry`: it asks again for every key for which threads of this client wait, gives back tenures that have lingered,
//! works through the clean-up list, and collects the replies to posted releases.
//!
//! It asks for a key after lease/10 first, and then every lease/6. It asks earlier if the holder's lease ends earlier. (The JVM's
//! `RetryLockThread` has the same two figures.) All requests that are due go to the store in one batch. Messages only make a hand-over
//! faster: this thread guarantees that a waiter makes progress.

use super::cleanup::{Cleanup, Ending, PendingCleanup};
use super::core::Core;
use super::releases::InFlight;
use super::turn::Turn;
use super::worker::{Schedule, Worker};
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::log;
use crate::port::{Operations, Outcome, Request};
use crate::state::key::Key;
use crate::state::tenure::Tenure;
use crate::sync::Mutex;
use crate::timer::Timer;
use crate::timing::CLOSING_TRIES;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub(crate) struct Retries {
    pub(super) clock: Timer,
    /// The keys for which threads wait, ordered by when the store must be asked.
    waiting: Mutex<Schedule<Arc<Key>>>,
    pub(crate) cleanup: Cleanup,
    pub(super) thread: Worker,
}

impl Retries {
    pub(super) fn new(clock: &Timer, thread: Worker) -> Self {
        Self {
            clock: clock.clone(),
            waiting: Mutex::new(Schedule::new()),
            cleanup: Cleanup::new(clock.clone()),
            thread,
        }
    }

    /// Makes sure that the thread wakes when something is due.
    fn wake(&self) {
        self.thread.wake_by(self.next());
    }

    /// Returns when something is due next.
    fn next(&self) -> Moment {
        self.waiting.lock().next().min(self.cleanup.next())
    }
}

/// The keys that threads wait for.
impl Retries {
    /// Sets when the store must be asked for a key.
    pub(super) fn ask_at(&self, key: &Arc<Key>, at: Moment) {
        self.waiting.lock().put(key.id, at, Arc::clone(key));
        self.thread.wake_by(at);
    }

    /// Removes a key for which no thread waits any more. Call it with the key's mutex held.
    pub(super) fn forget(&self, key: &Key) {
        let removed = self.waiting.lock().remove(key.id);
        drop(removed);
    }

    /// Makes every waited-for key due now.
    fn hasten(&self, now: Moment) {
        self.waiting.lock().hasten(now);
        self.thread.wake_by(now);
    }

    /// Makes every waited-for key and every pending clean-up due now.
    pub(super) fn hasten_all(&self, now: Moment) {
        self.cleanup.hasten(now);
        self.hasten(now);
    }

    /// Makes every waited-for key due now, and makes holders assume that others wait: messages about that are lost.
    pub(super) fn ask_about_all(&self, core: &Core) {
        let now = self.clock.now();
        for key in core.keys.all() {
            key.state.lock().note_change(now);
        }
        self.hasten(now);
    }

    fn take_due(&self, now: Moment) -> Vec<Arc<Key>> {
        self.waiting.lock().take_due(now, usize::MAX)
    }
}

/// The clean-up list.
impl Retries {
    /// Adds a locker to the list, and wakes the thread.
    pub(super) fn clean_up(
        &self,
        key: &str,
        locker: &Arc<str>,
        kept: Duration,
        ending: Ending,
        in_flight: Option<InFlight>,
    ) {
        self.cleanup.add(key, locker, kept, ending, in_flight);
        match self.thread.start() {
            Ok(_) => self.thread.wake_by(self.cleanup.next()),
            Err(Error::ShutDown) => {}
            Err(error) => log::error!(CLIENT, "cannot start the retry thread, clean-up is delayed: {error}"),
        }
    }

    /// Takes the pending clean-ups that are due. Those of an identity that this client has given up are dropped, because a copy of this
    /// client has that identity, too. They may have come onto the list after it was cleared: a release may have been under way, or posted,
    /// at that time.
    fn take_cleanups(&self, core: &Core, now: Moment) -> Vec<PendingCleanup> {
        loop {
            let mut due = self.cleanup.take_due(now);
            let are_all_taken = due.is_empty();
            due.retain(|cleanup| core.is_ours(cleanup.locker()));
            if are_all_taken || !due.is_empty() {
                return due;
            }
        }
    }

    /// Ends lockers for certain, for at most the time of one command: others wait for the next round. Only for a store
    /// that can.
    fn settle(&self, core: &Core, cleanups: Vec<PendingCleanup>) {
        let (client, until) = (core.id.current().as_str(), Instant::now() + core.limits.command);
        // Once the store has not answered, the others of this round are not tried: each could take as long again.
        let mut failure = None;
        for cleanup in cleanups {
            let (sent_at, left) = (self.clock.now(), until.saturating_duration_since(Instant::now()));
            let result = match &failure {
                None if left.is_zero() => {
                    Err(Error::backend(BackendFailure::NotExecuted, "no time left in this round"))
                }
                None => core.processor.settle(&cleanup.claim(client), left),
                Some(error) => Err(Error::clone(error)),
            };
            failure = result.as_ref().err().filter(|error| matches!(error, Error::Backend { .. })).cloned();
            self.cleanup.put_back(cleanup, &result, true, sent_at);
        }
    }

    /// Releases what is on the clean-up list, as long as the store replies. For the end of the client.
    pub(super) fn release_cleanups(&self, core: &Core) {
        let (mut released, mut unanswered) = (0, 0);
        while unanswered == 0 {
            let mut cleanups = self.take_cleanups(core, Moment::NEVER);
            if cleanups.is_empty() {
                break;
            }
            for _ in 0..CLOSING_TRIES {
                let mut results = release_all(core, &cleanups).into_iter();
                cleanups.retain(|_| {
                    let is_released = results.next().unwrap_or_default();
                    released += usize::from(is_released);
                    !is_released
                });
            }
            unanswered = cleanups.len();
        }
        if unanswered > 0 {
            log::info!(
                RELEASE,
                "closing: {released} pending clean-ups released, {unanswered} not confirmed; their leases will end"
            );
        } else if released > 0 {
            log::debug!(RELEASE, "closing: {released} pending clean-ups released");
        }
    }
}

/// Runs one round: asks for the keys that are due, and releases what has lingered and the pending clean-ups that are due.
pub(crate) fn round(core: &Core, now: Moment) -> Moment {
    core.releases.collect(core, now);
    let (mut keys, mut cleanups) = (core.retries.take_due(now), core.retries.take_cleanups(core, now));
    retry_on_slow_nodes(core, &mut keys, &mut cleanups);
    ask(core, keys, cleanups);
    core.describe.answer_questions(core);
    core.retries.next().min(core.releases.next_collection())
}

/// Does the work of [`round`] for keys whose servers keep others waiting.
pub(crate) fn round_on_slow_nodes(core: &Core, _now: Moment) -> Moment {
    let (keys, cleanups) = core.slow_nodes.take_retries();
    ask(core, keys, cleanups);
    // What is to be repeated is in the schedules of the other thread, which may know of nothing that is due.
    core.retries.wake();
    Moment::NEVER
}

fn ask(core: &Core, keys: Vec<Arc<Key>>, mut cleanups: Vec<PendingCleanup>) {
    let (mut turns, mut over) = (Vec::new(), Vec::new());
    for key in keys {
        match Turn::of_lingering(core, &key, false) {
            Some(lingered) => over.push(lingered),
            None => {
                // The threads of the key may have begun to wait before there was an inbox. The other keys of this round do not wait until
                // the inbox hears of this one: the inbox reports that later.
                core.subscription.gets_ready_to_hear(core, &key, || Duration::ZERO);
                turns.extend(Turn::of_waiters(core, &key));
            }
        }
    }
    let unsettled = if core.limits.settles { std::mem::take(&mut cleanups) } else { Vec::new() };
    let requests: Vec<_> = turns
        .iter()
        .map(|(turn, question)| question.request(&turn.key().name, core.id.current(), None))
        .chain(over.iter().map(|(turn, tenure)| release_of(core, turn, tenure)))
        .chain(cleanups.iter().map(|cleanup| cleanup.request(core.id.current().as_str())))
        .collect();
    let sent_at = core.clock.now();
    let mut results = core.batch(&requests, core.limits.command).into_iter();
    drop(requests);
    let mut unwanted = Vec::new();
    for ((turn, question), result) in turns.into_iter().zip(&mut results) {
        let answer = turn.take_in(question, result, sent_at);
        unwanted.extend(turn.end_retry(answer, sent_at));
    }
    for ((turn, tenure), result) in over.into_iter().zip(&mut results) {
        released(core, &turn, &tenure, &result);
    }
    for (cleanup, result) in cleanups.into_iter().zip(&mut results) {
        core.retries.cleanup.put_back(cleanup, &result, false, sent_at);
    }
    core.retries.settle(core, unsettled);
    if core.is_closed() {
        // The thread that closes the client waits for this one, and works through the clean-up list next.
        for (turn, tenure) in unwanted {
            core.retries.cleanup.add(&turn.key().name, &tenure.locker, tenure.kept(), Ending::GivenUp, None);
        }
    } else {
        release(core, unwanted, core.limits.command);
    }
}

/// Removes the keys and pending clean-ups from those that are due about which the slow-node worker asks instead of the retry thread.
fn retry_on_slow_nodes(core: &Core, keys: &mut Vec<Arc<Key>>, cleanups: &mut Vec<PendingCleanup>) {
    let is_on_slow_node = |key: &str| core.processor.keeps_waiting(key);
    let slow_keys: Vec<_> = keys.extract_if(.., |key| is_on_slow_node(&key.name)).collect();
    let mut slow_cleanups: Vec<_> = cleanups.extract_if(.., |cleanup| is_on_slow_node(cleanup.key())).collect();
    if slow_keys.is_empty() && slow_cleanups.is_empty() {
        return;
    }
    if !core.slow_nodes.starts_retrying() {
        keys.extend(slow_keys);
        cleanups.append(&mut slow_cleanups);
        return;
    }
    let now = core.clock.now();
    core.slow_nodes.add_retries(slow_keys, &mut slow_cleanups, now);
    for cleanup in slow_cleanups {
        let why = "its server keeps others waiting, and others are tried first";
        let later = Error::backend(BackendFailure::NotExecuted, why);
        core.retries.cleanup.put_back(cleanup, &Err::<(), _>(later), false, now);
    }
}

/// Releases tenures that no thread wants any more, and passes their turns on.
pub(crate) fn release(core: &Core, unwanted: Vec<(Turn<'_>, Tenure)>, limit: Duration) {
    let requests: Vec<_> = unwanted.iter().map(|(turn, tenure)| release_of(core, turn, tenure)).collect();
    let results = core.batch(&requests, limit);
    drop(requests);
    for ((turn, tenure), result) in unwanted.into_iter().zip(results) {
        released(core, &turn, &tenure, &result);
    }
}

fn release_of<'a>(core: &'a Core, turn: &'a Turn<'_>, tenure: &'a Tenure) -> Request<'a> {
    Request::Release(core.ending(&turn.key().name, tenure))
}

fn released(core: &Core, turn: &Turn<'_>, tenure: &Tenure, result: &Result<Outcome, Error>) {
    if result.is_err() {
        let ending = Ending::ReleaseUnanswered(tenure.deadline());
        core.retries.cleanup.add(&turn.key().name, &tenure.locker, tenure.kept(), ending, None);
    }
}

/// Releases these lockers, or ends them for certain where the store can. Returns for each whether the store has
/// answered.
fn release_all(core: &Core, cleanups: &[PendingCleanup]) -> Vec<bool> {
    let (client, limit) = (core.id.current().as_str(), core.limits.command);
    if !core.limits.settles {
        let requests: Vec<_> = cleanups.iter().map(|cleanup| cleanup.request(client)).collect();
        return core.batch(&requests, limit).iter().map(Result::is_ok).collect();
    }
    let until = Instant::now() + limit;
    let settle = |cleanup: &PendingCleanup| {
        let left = until.saturating_duration_since(Instant::now());
        !left.is_zero() && core.processor.settle(&cleanup.claim(client), left).is_ok()
    };
    cleanups.iter().map(settle).collect()
}
