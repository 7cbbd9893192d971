//! `unlock()`: what happens to a tenure when its hold ends. It is passed on in this process, kept for a while, or given back.
//!
//! | when the last hold ends | then |
//! |---|---|
//! | threads of this process wait, and other clients do not wait, or wait only since a moment ago | the first of these threads gets the next hold |
//! | the hold was to last for longer: [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after) | the tenure ends, and the key is kept from everybody until then, also from the threads of this process: they ask the store, and wait in its queue |
//! | no thread and no other client waits, and the tenure may linger | the tenure is kept: [`Phase::Lingering`] |
//! | otherwise | the tenure is released; if threads of this process wait, this client goes to the end of the store's queue again |

use crate::client::closing::Leaving;
use crate::client::events::{Queued, tell_watchers};
use crate::client::lease_thread;
use crate::client::loss;
use crate::client::parts::Parts;
use crate::client::question::Answer;
use crate::client::releases;
use crate::client::turn::Turn;
use crate::client::twin;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::HoldEnd;
use crate::port::{Note, ReleaseOutcome, Request};
use crate::state::hold::Exit;
use crate::state::key::Key;
use crate::state::machine::{Phase, State, Waiter};
use crate::state::tenure::{Tenure, Unsettled};
use crate::sync::MutexGuard;
use crossbeam_channel::Sender;
use std::sync::Arc;

/// What an unlock does about the store's reply to the release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReleaseReply {
    /// It waits for the reply, and returns what it says.
    Awaited,
    /// It waits only if threads of this client wait for the key. Otherwise the reply is handled later.
    Unawaited,
}

/// A thread that unlocks a key.
#[derive(Clone, Copy)]
pub(crate) struct Unlock<'c> {
    parts: &'c Parts,
    key: &'c Arc<Key>,
    reply: ReleaseReply,
}

/// The work that is left to do, without the key's mutex, for a tenure that is kept.
struct Kept {
    /// The waiting thread that now has the hold.
    waiter: Option<Arc<Waiter>>,
    /// The channels of the hold that has ended.
    watchers: Vec<Sender<()>>,
    queued: Queued,
}

impl Kept {
    fn finish(self) {
        let Self { waiter, watchers, queued } = self;
        if let Some(waiter) = waiter {
            waiter.parked.notify_one();
        }
        drop(watchers);
        queued.finish();
    }
}

impl<'c> Unlock<'c> {
    pub(crate) fn new(parts: &'c Parts, key: &'c Arc<Key>, reply: ReleaseReply) -> Self {
        Self { parts, key, reply }
    }

    /// Does what is left to do after the thread has unlocked once.
    pub(crate) fn unlock(self, exit: Exit) -> Result<(), Error> {
        let (parts, key) = (self.parts, self.key);
        match exit {
            Exit::Last => {}
            Exit::Inner => return Ok(()),
            Exit::InnerLost => return Err(loss::error(parts, key)),
            Exit::NotHeld => return Err(self.not_held()),
        }
        let hands_over = parts.core.hands_over;
        let mut state = key.state.lock();
        if hands_over {
            state = self.prepare_to_keep(state);
        }
        let now = parts.core.clock.now();
        let Phase::Held(tenure) = &mut state.phase else { return Err(self.not_held()) };
        let is_told = tenure.is_lost();
        if let Some((cause, at)) = tenure.overdue(now) {
            // This leaves an earlier loss as it is.
            tenure.lose(cause, at);
        }
        let is_delayed = tenure.delayed_until(now).is_some();
        let may_keep = hands_over && !is_delayed && !tenure.is_lost() && !parts.core.activity.is_closed();
        let leaves_gap = !is_delayed && state.decide_gap(now);
        if may_keep && !leaves_gap {
            let kept =
                if state.queue.is_empty() { self.linger(&mut state, now) } else { self.pass_on(&mut state, now) };
            if let Some(kept) = kept {
                drop(state);
                kept.finish();
                drop(Leaving(parts));
                return Ok(());
            }
        }
        self.end_tenure(state, is_told, now)
    }

    fn not_held(self) -> Error {
        Error::NotHeld { key: self.key.name.to_string() }
    }

    /// Does what needs the mutex to be given up meanwhile, if the tenure may be kept. Starts the thread that ends a linger. Fetches fence
    /// numbers if the tokens run out: once after 1024 holds, and then after every ten million holds.
    fn prepare_to_keep(self, mut state: MutexGuard<'c, State>) -> MutexGuard<'c, State> {
        let (parts, key) = (self.parts, self.key);
        let Phase::Held(tenure) = &state.phase else { return state };
        if !tenure.settings.linger.is_zero() && !parts.retries.thread.is_started() {
            drop(state);
            // Without the thread, the tenure does not linger.
            let _ = parts.retries.thread.start();
            state = key.state.lock();
        }
        let Phase::Held(tenure) = &state.phase else { return state };
        let may_be_kept =
            || !state.queue.is_empty() || tenure.may_linger() && parts.subscription.hears(&parts.core, key);
        if !tenure.tokens.is_last() || !parts.core.limits.numbers || !may_be_kept() || parts.core.process.is_forked() {
            return state;
        }
        let locker = Arc::clone(&tenure.locker);
        drop(state);
        lease_thread::extend_now(parts, key, &locker, true, parts.core.limits.command);
        key.state.lock()
    }

    /// Passes the hold on to the first thread that waits in this process, unless other clients must be let in. Returns `None` if the tenure
    /// must be given back.
    fn pass_on(self, state: &mut State, now: Moment) -> Option<Kept> {
        let (parts, key) = (self.parts, self.key);
        let State { phase: Phase::Held(tenure), queue, watchers, .. } = state else { return None };
        if !parts.subscription.hears(&parts.core, key) {
            // This client would not be told that others wait, so it assumes that they do.
            tenure.note_waiting(1, now);
        }
        if !tenure.may_pass(now) || !tenure.tokens.advance() {
            return None;
        }
        let waiter = queue.pop_front()?;
        let queued = parts.core.events.queue_released(tenure, key.hold.token(), now, HoldEnd::PassedOn);
        tenure.kept_on = true;
        tenure.hold_begins(now);
        if tenure.times_holds() {
            // What is due in this hold may come before the lease thread would check.
            parts.renewals.put(key, tenure);
        }
        key.hold.end();
        key.hold.begin((&waiter).into(), tenure);
        Some(Kept { waiter: Some(waiter), watchers: std::mem::take(watchers), queued })
    }

    /// Keeps the tenure for the next thread to arrive, if the tenure may linger. Returns `None` if the tenure must be given back.
    fn linger(self, state: &mut State, now: Moment) -> Option<Kept> {
        let (parts, key) = (self.parts, self.key);
        match &state.phase {
            // Without an inbox, this client would not learn that others want the key.
            Phase::Held(tenure)
                if tenure.may_linger()
                    && parts.retries.thread.is_started()
                    && parts.subscription.hears(&parts.core, key)
                    && !tenure.tokens.is_last() => {}
            _ => return None,
        }
        let Phase::Held(mut tenure) = std::mem::replace(&mut state.phase, Phase::Idle) else { return None };
        tenure.hold_ended();
        let queued = parts.core.events.queue_released(&tenure, key.hold.token(), now, HoldEnd::Lingers);
        let until = now + tenure.settings.linger;
        if !std::mem::replace(&mut tenure.watched, true) {
            // Not again for each hold: the retry thread checks when this linger would end, and then considers any
            // later one.
            parts.retries.ask_at(key, until);
        }
        state.phase = Phase::Lingering { tenure, until };
        key.hold.end();
        Some(Kept { waiter: None, watchers: std::mem::take(&mut state.watchers), queued })
    }

    /// Ends the hold of the calling thread and its tenure. The key goes back to the store; if threads of this client
    /// wait, the client goes to the end of the store's queue.
    fn end_tenure(self, mut state: MutexGuard<'_, State>, is_told: bool, now: Moment) -> Result<(), Error> {
        let (parts, key) = (self.parts, self.key);
        let forked = parts.core.process.check();
        // In a forked child, the parent's hold continues, and only this process's copy of it ends.
        let next = if forked.is_ok() { Phase::Releasing { ended: None, about: None } } else { Phase::Idle };
        let others_wait = !state.queue.is_empty();
        let ended = parts.renewals.end_hold(key, &mut state, next);
        drop(state);
        forked?;
        let (mut tenure, watchers) = ended.ok_or_else(|| self.not_held())?;
        let _leaving = Leaving(parts);
        let turn = Turn::of(parts, key);
        let is_awaited = matches!(self.reply, ReleaseReply::Awaited);
        if is_awaited
            && tenure.may_be_broken()
            && let Some(cause) = loss::broken(parts, &key.name, &tenure, parts.renewals.side_limit())
        {
            // The thread that has noticed the loss is still asking.
            tenure.lost_by(&cause);
        }
        let is_lost = tenure.is_lost();
        let is_delayed = tenure.delayed_until(now).is_some();
        let next = if others_wait && !is_lost && !is_delayed { self.next_in_line(now) } else { None };
        if next.is_none() && !is_awaited && !is_lost && !is_delayed {
            parts.core.events.queue_released(&tenure, tenure.tokens.current(), now, HoldEnd::Sent).finish();
            releases::post(parts, &key.name, tenure, watchers, now);
            drop(turn);
            return Ok(());
        }
        self.give_back(turn, tenure, next, (watchers, is_told), now)
    }

    /// Gives the key back, waits for the reply, and tells of the end of the hold, and of its loss unless that `is_told`.
    fn give_back(
        self,
        turn: Turn<'c>,
        mut tenure: Box<Tenure>,
        next: Option<Unsettled>,
        (watchers, is_told): (Vec<Sender<()>>, bool),
        now: Moment,
    ) -> Result<(), Error> {
        let (parts, key) = (self.parts, self.key);
        // Without a next locker the first waiter gets its turn only after everything about this hold has been
        // announced.
        let (mut released, rest) = match next {
            Some(next) => self.hand_over(turn, &tenure, next),
            None => (releases::give_back(parts, &key.name, &tenure), Some(turn)),
        };
        if let Err(Error::LeaseLost(loss)) = &released {
            tenure.lose(loss.cause.clone(), now);
        }
        if let Some(loss) = tenure.loss_error(&key.name, now) {
            released = Err(loss);
        }
        if !is_told {
            parts.core.events.tell_lost(&key.name, &tenure, watchers);
        } else {
            // The thread that has noticed the loss may not have told yet, and this one returns the loss.
            tell_watchers(watchers);
        }
        if rest.is_some() {
            parts.core.events.tell_released(&tenure, now, &released);
        }
        drop(rest);
        released
    }

    /// Returns the locker with which this client goes to the end of the store's queue, if threads of it wait and it
    /// would hear of a grant.
    fn next_in_line(self, now: Moment) -> Option<Unsettled> {
        let (parts, key) = (self.parts, self.key);
        // The thread is started without the key's mutex.
        if !parts.subscription.hears(&parts.core, key)
            || parts.core.activity.is_closed()
            || parts.retries.thread.start().is_err()
        {
            return None;
        }
        let mut state = key.state.lock();
        let settings = Arc::clone(&state.queue.front()?.settings);
        let locker = parts.core.next_locker(&settings);
        state.ask_about(&locker);
        Some(Unsettled { locker, settings, answered: false, counts_from: now })
    }

    /// Releases a tenure and joins the store's queue again, in one command. `next` counts from before that command is written. Returns the turn
    /// if it is not over; otherwise, has told of the end of the hold. The first value fails as
    /// [`give_back`](crate::client::releases::give_back) does.
    fn hand_over(self, turn: Turn<'c>, tenure: &Tenure, mut next: Unsettled) -> (Result<(), Error>, Option<Turn<'c>>) {
        let (parts, key) = (self.parts, self.key);
        let sent_at = next.counts_from;
        let outcome = self.send_hand_over(tenure, &next);
        let heard = key.state.lock().heard();
        let answer = match (outcome, heard) {
            (Ok(ReleaseOutcome::Passed(grant)), _) => Answer::Acquired(next.granted(grant)),
            (Ok(ReleaseOutcome::Queued(_)), Some(grant)) => Answer::Acquired(next.heard(grant)),
            (Ok(ReleaseOutcome::Queued(busy)), None) => {
                next.answered = true;
                Answer::Busy { busy, unsettled: Some(next) }
            }
            // The store knows the next locker only if the tenure was ours.
            (Ok(ReleaseOutcome::NotOurs(other)), _) => {
                if other.holder.as_deref() == Some(&*next.locker) {
                    twin::meet(parts, &key.name, &next.locker);
                }
                return (releases::not_ours(parts, &key.name, tenure, other), Some(turn));
            }
            (Ok(ReleaseOutcome::Released { .. }), _) => {
                return (Ok(()), Some(turn));
            }
            (Err(error), heard) if error.is_unknown() => {
                let answer = match heard {
                    Some(grant) => Answer::Acquired(next.heard(grant)),
                    // A poll tells its outcome.
                    None => Answer::Failed { error, unsettled: Some(next) },
                };
                parts
                    .core
                    .events
                    .queue_released(tenure, tenure.tokens.current(), sent_at, HoldEnd::Unconfirmed)
                    .finish();
                self.end_hand_over(turn, answer, sent_at);
                // It is safe to repeat the release without a next locker, whatever its outcome was.
                return (releases::give_back_again(parts, &key.name, tenure), None);
            }
            (Err(_), _) => {
                // The command was not executed.
                return (releases::give_back(parts, &key.name, tenure), Some(turn));
            }
        };
        parts.core.events.queue_released(tenure, tenure.tokens.current(), sent_at, HoldEnd::GivenBack).finish();
        self.end_hand_over(turn, answer, sent_at);
        (Ok(()), None)
    }

    fn send_hand_over(self, tenure: &Tenure, next: &Unsettled) -> Result<ReleaseOutcome, Error> {
        let (parts, key) = (self.parts, self.key);
        let note = Note::new(next.settings.reason(), None, Some(parts.core.id.current().host()));
        let wanted = parts.core.claim(&key.name, &next.locker, next.settings.kept()).with_note(note);
        let request = Request::HandOver(parts.core.ending(&key.name, tenure), wanted);
        parts.core.run(&request, parts.core.limits.command).and_then(ReleaseOutcome::try_from)
    }

    fn end_hand_over(self, turn: Turn<'_>, answer: Answer, sent_at: Moment) {
        let (parts, key) = (self.parts, self.key);
        let again = key.state.lock().release_ends();
        if let Some(locker) = again {
            parts.retries.give_up_grant(&key.name, &locker);
        }
        if let Some((turn, unwanted)) = answer.end_retry(turn, sent_at) {
            let _ = releases::give_back(parts, &key.name, &unwanted);
            drop(turn);
        }
    }
}
