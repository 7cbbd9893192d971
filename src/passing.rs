//! What becomes of a tenure when its hold ends: it is passed on in this process, kept for a while, or given back.
//!
//! | the last hold ends, and | then |
//! |---|---|
//! | threads of this process wait; others do not, or only since a moment ago | the first of them has the next hold |
//! | nobody waits, and the tenure may linger | it is kept: [`Phase::Lingering`] |
//! | else | it is released; with threads waiting here, this client stands at the end of the store's queue again |

use crate::ask::Answer;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, LossCause};
use crate::key::Key;
use crate::log;
use crate::owner::current_thread;
use crate::processor::{ReleaseOutcome, ReleaseRequest};
use crate::state::{Phase, State};
use crate::sync::{MutexGuard, mutant};
use crate::tenure::{Tenure, Unsettled};
use crate::turn::{Turn, is_unknown};
use std::sync::Arc;

/// What a lingering tenure is to an arriving thread.
pub(crate) enum Lingering {
    /// There is none, or others want it.
    No,
    /// The calling thread has the next hold.
    Taken,
    /// Its deadline has passed: it is to be released, and the turn to ask is the caller's.
    Over(Tenure),
}

impl Key {
    /// Whether the tokens run out while the tenure may be kept: once in 1024 holds, and then in ten million.
    fn needs_numbers(state: &State, client: &Client) -> bool {
        match &state.phase {
            Phase::Held(tenure) if tenure.needs_numbers() => {
                !state.queue.is_empty() || tenure.may_linger(client.is_listening())
            }
            _ => false,
        }
    }
}

impl Client {
    /// Keeps the tenure of the calling thread's hold, which ends: for the first thread that waits in this process, or for
    /// the next one that comes. `false` when it has to be given back.
    pub(crate) fn keep_tenure(&self, key: &Arc<Key>) -> bool {
        let mut state = key.state();
        if Key::needs_numbers(&state, self) && !self.is_forked() {
            let locker = state.kept().map(|tenure| Arc::clone(&tenure.locker));
            drop(state);
            if let Some(locker) = locker {
                crate::lease::extend_now(self, key, &locker, true, self.processor.command_limit());
            }
            state = key.state();
        }
        let now = self.clock.now();
        match &state.phase {
            Phase::Held(tenure) if !tenure.is_lost() && tenure.overdue(now).is_none() && !self.is_closed() => {}
            Phase::Held(_) if mutant!(KeepsWhatIsLost) => {}
            _ => return false,
        }
        if state.gap_is_due(now) {
            return false;
        }
        if state.queue.is_empty() { self.linger(key, state, now) } else { self.pass_on(key, state, now) }
    }

    /// Passes the hold on to the first waiting thread, unless others have to be let in.
    fn pass_on(&self, key: &Key, mut state: MutexGuard<'_, State>, now: Moment) -> bool {
        let State { phase: Phase::Held(tenure), queue, watchers, .. } = &mut *state else { return false };
        if !tenure.may_pass(now, self.is_listening()) || !tenure.tokens().advance() {
            return false;
        }
        let Some(waiter) = queue.pop() else { return false };
        tenure.kept_on = true;
        tenure.hold_begins(now);
        let ended = std::mem::take(watchers);
        key.hold.end();
        key.hold.begin(waiter.thread, tenure.token(), tenure.valid_until());
        drop(state);
        waiter.parked.notify_one();
        drop(ended);
        true
    }

    /// Keeps the tenure for whoever comes next, if it may linger.
    fn linger(&self, key: &Arc<Key>, mut state: MutexGuard<'_, State>, now: Moment) -> bool {
        match &state.phase {
            Phase::Held(tenure) if tenure.may_linger(self.is_listening()) && !tenure.needs_numbers() => {}
            _ => return false,
        }
        if self.start_retry_thread().is_err() {
            return false;
        }
        let Phase::Held(mut tenure) = std::mem::replace(&mut state.phase, Phase::Idle) else { return false };
        tenure.hold_ended();
        let until = now + tenure.settings.linger();
        if !std::mem::replace(&mut tenure.watched, true) && !mutant!(LingersUnwatched) {
            // Not for each hold again: the retry thread looks when this linger would end, and then at what came since.
            self.retry_at(key, until);
        }
        state.phase = Phase::Lingering { tenure, until };
        key.hold.end();
        let ended = std::mem::take(&mut state.watchers);
        drop(state);
        drop(ended);
        true
    }
}

/// Lingering tenures.
impl Client {
    /// Takes up a lingering tenure for the calling thread.
    pub(crate) fn take_up(&self, key: &Arc<Key>, state: &mut State) -> Lingering {
        let Phase::Lingering { tenure, .. } = &mut state.phase else { return Lingering::No };
        let now = self.clock.now();
        let is_over = now >= tenure.deadline();
        if !is_over && (tenure.is_contended() && !mutant!(TakesUpRecalled) || !tenure.tokens().advance()) {
            return Lingering::No;
        }
        let lingering = std::mem::replace(&mut state.phase, Phase::Asking { turn: None, about: None });
        let Phase::Lingering { mut tenure, .. } = lingering else { return Lingering::No };
        if is_over {
            self.forget_kept(key);
            return Lingering::Over(tenure);
        }
        tenure.kept_on = true;
        tenure.hold_begins(now);
        if tenure.settings.max_hold().is_some() {
            // Its end may come before the lease thread would look.
            self.keep(key, &tenure);
        }
        key.hold.begin(current_thread(), tenure.token(), tenure.valid_until());
        state.phase = Phase::Held(tenure);
        Lingering::Taken
    }

    /// Ends the lingering of a tenure if its time is over, others want it, or `at_once`. It is to be released before
    /// the turn is dropped. For a key that came out of the retry thread's book.
    pub(crate) fn end_linger(&self, key: &Arc<Key>, at_once: bool) -> Option<(Turn<'_>, Tenure)> {
        let mut state = key.state();
        let is_wanted = !state.queue.is_empty();
        match &mut state.phase {
            Phase::Lingering { tenure, until } => {
                if !at_once && !is_wanted && self.clock.now() < *until && !tenure.is_contended() {
                    self.retry_at(key, *until);
                    return None;
                }
            }
            Phase::Held(tenure) => {
                tenure.watched = false;
                return None;
            }
            _ => return None,
        }
        let mut tenure = self.leave_lingering(key, &mut state, Phase::Releasing { ended: None, about: None })?;
        if !at_once {
            state.tenure_ends(&mut tenure, self.clock.now());
        }
        Some((Turn::of(self, key), tenure))
    }

    /// Ends a lingering tenure that was lost: nobody has to be told, and whoever waits asks.
    pub(crate) fn lose_lingering(&self, key: &Arc<Key>, mut state: MutexGuard<'_, State>, cause: &LossCause) {
        let left = self.leave_lingering(key, &mut state, Phase::Asking { turn: None, about: None });
        drop(state);
        if let Some(tenure) = left {
            log::debug!(LEASE, "lock {:?}: lost while nobody held it: {cause}", key.name);
            self.release_later(&key.name, &tenure);
            drop(Turn::of(self, key));
        }
    }

    fn leave_lingering(&self, key: &Key, state: &mut State, next: Phase) -> Option<Tenure> {
        if !matches!(state.phase, Phase::Lingering { .. }) {
            return None;
        }
        self.forget_kept(key);
        match std::mem::replace(&mut state.phase, next) {
            Phase::Lingering { tenure, .. } => Some(tenure),
            _ => None,
        }
    }
}

/// The end of a tenure.
impl Client {
    /// Ends the hold of a thread that has ended, and its tenure: not by a release, for nobody can say what that thread has
    /// left half done. The lease runs out; until then this process waits like the others. `false` when it is not that
    /// thread's any more.
    pub(crate) fn end_orphan(&self, key: &Arc<Key>, owner: u64) -> bool {
        let mut state = key.state();
        // It may unlock yet, in a destructor, and another thread have the hold.
        if !key.hold.is_owned_by(owner) || !crate::owner::has_ended(owner) {
            return false;
        }
        let Some((mut tenure, watchers)) = self.end_hold_in(key, &mut state, Phase::Asking { turn: None, about: None })
        else {
            return false;
        };
        drop(state);
        let (_leaving, turn) = (self.leaving(), Turn::of(self, key));
        crate::owner::forget_hold(owner);
        if tenure.lose(LossCause::ThreadEnded, self.clock.now()) {
            crate::lease::tell(self.on_lost(), &key.name, &tenure, watchers);
        }
        drop(turn);
        true
    }

    /// Ends the hold of the calling thread and its tenure: the key goes back to the store, and this client to the end of
    /// the store's queue when threads of it wait. Unless it `waits`, or the answer is for those, the store's answer is heard later.
    pub(crate) fn end_tenure(&self, key: &Arc<Key>, waits: bool) -> Option<Result<(), Error>> {
        if let Err(forked) = self.check_process() {
            // The parent's hold goes on; this copy of it is over.
            self.end_hold(key, Phase::Idle)?;
            return Some(Err(forked));
        }
        let (mut tenure, watchers) = self.end_hold(key, Phase::Releasing { ended: None, about: None })?;
        let _leaving = self.leaving();
        let turn = Turn::of(self, key);
        let now = self.clock.now();
        let known = tenure.is_lost();
        if !known && let Some((cause, at)) = tenure.overdue(now) {
            tenure.lose(cause, at);
        }
        let next = if tenure.is_lost() { None } else { self.next_in_line(key) };
        if next.is_none() && !waits && !tenure.is_lost() {
            self.post_release(&key.name, tenure, watchers);
            drop(turn);
            return Some(Ok(()));
        }
        // Without a next locker the first waiter gets its turn when all is said about this hold.
        let (mut released, rest) = match next {
            Some(next) => (self.hand_over(key, turn, &tenure, next), None),
            None => (self.give_back(&key.name, &tenure), Some(turn)),
        };
        if let Err(Error::LeaseLost(loss)) = &released {
            tenure.lose(loss.cause.clone(), now);
        }
        if let Some(loss) = tenure.loss_error(&key.name, now) {
            released = Err(loss);
        }
        if !known {
            crate::lease::tell(self.on_lost(), &key.name, &tenure, watchers);
        }
        drop(rest);
        Some(released)
    }
}

/// Release with a next locker.
impl Client {
    /// The locker by which this client goes to the end of the store's queue, when threads of it wait and it would hear of a
    /// grant.
    pub(crate) fn next_in_line(&self, key: &Key) -> Option<Unsettled> {
        if !self.is_listening() || self.is_closed() || self.start_retry_thread().is_err() {
            return None;
        }
        let mut state = key.state();
        let settings = Arc::clone(&state.queue.head()?.settings);
        let locker = self.next_locker(&settings);
        state.ask_about(&locker);
        Some(Unsettled { locker, settings, answered: false, counts_from: self.clock.now() })
    }

    /// Releases a tenure and stands in line again, in one command. `next` counts from before it is written.
    ///
    /// # Errors
    ///
    /// As [`Client::give_back`].
    pub(crate) fn hand_over(
        &self,
        key: &Arc<Key>,
        turn: Turn<'_>,
        tenure: &Tenure,
        mut next: Unsettled,
    ) -> Result<(), Error> {
        let request = ReleaseRequest {
            key: &key.name,
            locker: &tenure.locker,
            lease: tenure.lease(),
            next: Some((&next.locker, next.settings.lease())),
            gap: tenure.gap,
        };
        let sent_at = next.counts_from;
        let outcome = self.processor.release(&request, self.processor.command_limit());
        let heard = key.state().heard();
        let (released, answer) = match (outcome, heard) {
            (Ok(ReleaseOutcome::Passed(grant)), _) | (Ok(ReleaseOutcome::Queued(_)), Some(grant)) => {
                (Ok(()), Answer::Acquired(next.granted(grant)))
            }
            (Ok(ReleaseOutcome::Queued(busy)), None) => {
                next.answered = true;
                (Ok(()), Answer::Busy { busy, unsettled: Some(next) })
            }
            // The next locker is known to the store only if the tenure was ours.
            (Ok(ReleaseOutcome::NotOurs(other)), _) => {
                drop(turn);
                return self.not_ours(&key.name, tenure, other);
            }
            (Ok(ReleaseOutcome::Released { .. }), _) => {
                drop(turn);
                return Ok(());
            }
            (Err(error), heard) if is_unknown(&error) && !mutant!(ForgetsNextLocker) => {
                let answer = match heard {
                    Some(grant) => Answer::Acquired(next.granted(grant)),
                    // What became of it a poll tells.
                    None => Answer::Failed { error, unsettled: Some(next) },
                };
                self.settle(key, turn, answer, sent_at);
                // Repeated without a next locker it is safe, whatever became of it.
                return self.release(&key.name, tenure, true);
            }
            (Err(_), _) => {
                // Not executed.
                let released = self.give_back(&key.name, tenure);
                drop(turn);
                return released;
            }
        };
        self.settle(key, turn, answer, sent_at);
        released
    }

    fn settle(&self, key: &Key, turn: Turn<'_>, answer: Answer, sent_at: Moment) {
        let again = key.state().release_ends();
        if let Some(locker) = again {
            self.give_up_grant(&key.name, &locker);
        }
        if let Some((turn, unwanted)) = turn.end_retry(answer, sent_at) {
            let _ = self.give_back(&key.name, &unwanted);
            drop(turn);
        }
    }
}
