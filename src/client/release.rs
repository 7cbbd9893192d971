//! What happens to a tenure when its hold ends: it is passed on in this process, kept for a while, or given back.
//!
//! | when the last hold ends | then |
//! |---|---|
//! | threads of this process wait, and no others do, or only since a moment ago | the first of these threads gets the next hold |
//! | nobody waits, and the tenure may linger | it is kept: [`Phase::Lingering`] |
//! | otherwise | it is released; if threads wait here, this client goes to the end of the store's queue again |

use crate::client::core::Core;
use crate::client::events::tell_watchers;
use crate::client::loss;
use crate::client::question::Answer;
use crate::client::renew;
use crate::client::turn::{Turn, is_unknown};
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::event::HoldEnd;
use crate::state::key::Key;
use crate::state::machine::{Phase, State};
use crate::state::owner::{self, current_thread};
use crate::state::tenure::{Tenure, Unsettled};
use crate::store::processor::{Note, Outcome, ReleaseOutcome, Request};
use crate::sync::{MutexGuard, mutant};
use std::sync::Arc;

impl Core {
    /// Unlocks once: the hold with this token, or without a token whichever hold the calling thread has. `waits` says
    /// whether to wait for the store's reply.
    pub(crate) fn unlock(&self, key: &Arc<Key>, token: Option<u64>, waits: bool) -> Result<(), Error> {
        let not_held = || Error::NotHeld { key: key.name.to_string() };
        if !key.hold.is_owned_by(current_thread()) || token.is_some_and(|token| token != key.hold.token()) {
            return Err(not_held());
        }
        if key.hold.leave_inner() {
            return if key.hold.is_lost() { Err(loss::error(self, key)) } else { Ok(()) };
        }
        owner::hold_ends();
        if !self.subscription.hands_over() || !self.keep_tenure(key) {
            return self.end_tenure(key, waits).unwrap_or_else(|| Err(not_held()));
        }
        drop(self.leaving());
        Ok(())
    }

    /// Keeps the tenure of the calling thread's hold, which ends, for the first thread that waits in this process or
    /// for the next one to arrive. Returns `false` if the tenure must be given back.
    pub(crate) fn keep_tenure(&self, key: &Arc<Key>) -> bool {
        let mut state = key.state();
        if self.needs_numbers(key, &state) && !self.process.is_forked() {
            let locker = state.kept().map(|tenure| Arc::clone(&tenure.locker));
            drop(state);
            if let Some(locker) = locker {
                renew::extend_now(self, key, &locker, true, self.limits.command);
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

    /// Returns whether the tokens run out while the tenure may be kept: once after 1024 holds, and then every ten
    /// million.
    fn needs_numbers(&self, key: &Key, state: &State) -> bool {
        match &state.phase {
            Phase::Held(tenure) if tenure.needs_numbers() && self.processor.numbers().is_some() => {
                !state.queue.is_empty() || tenure.may_linger(self.subscription.hears(key))
            }
            _ => false,
        }
    }

    /// Passes the hold on to the first waiting thread, unless other clients must be let in.
    fn pass_on(&self, key: &Key, mut state: MutexGuard<'_, State>, now: Moment) -> bool {
        let State { phase: Phase::Held(tenure), queue, watchers, .. } = &mut *state else { return false };
        if !tenure.may_pass(now, self.subscription.hears(key)) || !tenure.tokens().advance() {
            return false;
        }
        let Some(waiter) = queue.pop() else { return false };
        let queued = self.events.queue_released(tenure, key.hold.token(), now, HoldEnd::PassedOn);
        tenure.kept_on = true;
        tenure.hold_begins(now);
        let ended = std::mem::take(watchers);
        key.hold.end();
        key.hold.begin(waiter.thread, waiter.settings.reentry(), tenure.token(), tenure.valid_until());
        drop(state);
        waiter.parked.notify_one();
        drop(ended);
        queued.finish();
        true
    }

    /// Ends the hold of the calling thread and its tenure. The key goes back to the store; if threads of this client
    /// wait, the client goes to the end of the store's queue. The call waits for the store's reply if `waits` is set
    /// or threads of this client wait for it; otherwise the reply is handled later.
    pub(crate) fn end_tenure(&self, key: &Arc<Key>, waits: bool) -> Option<Result<(), Error>> {
        if let Err(forked) = self.process.check() {
            // The parent's hold continues. Only this process's copy of it ends.
            self.end_hold(key, Phase::Idle)?;
            return Some(Err(forked));
        }
        let (mut tenure, watchers) = self.end_hold(key, Phase::Releasing { ended: None, about: None })?;
        let _leaving = self.leaving();
        let turn = Turn::of(self, key);
        let now = self.clock.now();
        let known = tenure.is_lost();
        if waits
            && tenure.may_be_broken()
            && let Some(cause) = loss::broken(self, &key.name, &tenure, self.renewals.side_limit())
        {
            // The thread that has noticed the loss is still asking.
            tenure.lost_by(&cause);
        }
        if !known && let Some((cause, at)) = tenure.overdue(now) {
            tenure.lose(cause, at);
        }
        let next = if tenure.is_lost() { None } else { self.next_in_line(key) };
        if next.is_none() && !waits && !tenure.is_lost() {
            self.events.queue_released(&tenure, tenure.token(), now, HoldEnd::Sent).finish();
            self.post_release(&key.name, tenure, watchers);
            drop(turn);
            return Some(Ok(()));
        }
        // Without a next locker the first waiter gets its turn only after everything about this hold has been
        // announced.
        let (mut released, rest) = match next {
            Some(next) => self.hand_over(key, turn, &tenure, next),
            None => (self.give_back(&key.name, &tenure), Some(turn)),
        };
        if let Err(Error::LeaseLost(loss)) = &released {
            tenure.lose(loss.cause.clone(), now);
        }
        if let Some(loss) = tenure.loss_error(&key.name, now) {
            released = Err(loss);
        }
        if !known {
            self.events.tell_lost(&key.name, &tenure, watchers);
        } else if !mutant!(UnlocksUntold) {
            // The thread that has noticed the loss may not have told yet, and this one returns the loss.
            tell_watchers(watchers);
        }
        if rest.is_some() {
            self.events.tell_released(&tenure, now, &released);
        }
        drop(rest);
        Some(released)
    }

    /// Returns the locker with which this client goes to the end of the store's queue, if threads of it wait and it
    /// would hear of a grant.
    pub(crate) fn next_in_line(&self, key: &Key) -> Option<Unsettled> {
        if !self.subscription.hears(key) || self.is_closed() || self.retries.start().is_err() {
            return None;
        }
        let mut state = key.state();
        let settings = Arc::clone(&state.queue.head()?.settings);
        let locker = self.next_locker(&settings);
        state.ask_about(&locker);
        Some(Unsettled { locker, settings, answered: false, counts_from: self.clock.now() })
    }

    /// Releases a tenure and joins the store's queue again, in one command. `next` counts from before that command is
    /// written. Returns the turn if it is not over; otherwise, has told of the end of the hold.
    ///
    /// # Errors
    ///
    /// As [`Core::give_back`], in the first value.
    pub(crate) fn hand_over<'c>(
        &'c self,
        key: &Arc<Key>,
        turn: Turn<'c>,
        tenure: &Tenure,
        mut next: Unsettled,
    ) -> (Result<(), Error>, Option<Turn<'c>>) {
        let note = Note::new(next.settings.reason(), None, Some(self.id().host()));
        let wanted = self.claim(&key.name, &next.locker, next.settings.kept()).with_note(note);
        let request = Request::HandOver(self.ending(&key.name, tenure), wanted);
        let sent_at = next.counts_from;
        let outcome = self.run(&request, self.limits.command).and_then(|outcome| match outcome {
            Outcome::Release(outcome) => Ok(outcome),
            other => {
                Err(Error::backend(BackendFailure::Unknown, format!("the store answered {other:?} to a hand-over")))
            }
        });
        let heard = key.state().heard();
        let (released, answer) = match (outcome, heard) {
            (Ok(ReleaseOutcome::Passed(grant)), _) => (Ok(()), Answer::Acquired(next.granted(grant))),
            (Ok(ReleaseOutcome::Queued(_)), Some(grant)) => (Ok(()), Answer::Acquired(next.heard(grant))),
            (Ok(ReleaseOutcome::Queued(busy)), None) => {
                next.answered = true;
                (Ok(()), Answer::Busy { busy, unsettled: Some(next) })
            }
            // The store knows the next locker only if the tenure was ours.
            (Ok(ReleaseOutcome::NotOurs(other)), _) => {
                return (self.not_ours(&key.name, tenure, other), Some(turn));
            }
            (Ok(ReleaseOutcome::Released { .. }), _) => {
                return (Ok(()), Some(turn));
            }
            (Err(error), heard) if is_unknown(&error) && !mutant!(ForgetsNextLocker) => {
                let answer = match heard {
                    Some(grant) => Answer::Acquired(next.heard(grant)),
                    // A poll tells its outcome.
                    None => Answer::Failed { error, unsettled: Some(next) },
                };
                self.events.queue_released(tenure, tenure.token(), sent_at, HoldEnd::Unconfirmed).finish();
                self.end_hand_over(key, turn, answer, sent_at);
                // It is safe to repeat the release without a next locker, whatever its outcome was.
                return (self.release(&key.name, tenure, true), None);
            }
            (Err(_), _) => {
                // The command was not executed.
                return (self.give_back(&key.name, tenure), Some(turn));
            }
        };
        self.events.queue_released(tenure, tenure.token(), sent_at, HoldEnd::GivenBack).finish();
        self.end_hand_over(key, turn, answer, sent_at);
        (released, None)
    }

    fn end_hand_over(&self, key: &Key, turn: Turn<'_>, answer: Answer, sent_at: Moment) {
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
