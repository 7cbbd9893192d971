//! How a tenure goes back to the store: by a release, or by a hand-over, which also puts this client at the end of the store's queue. The thread
//! that unlocks sends the request and waits for the reply, or it leaves both to the retry thread, because it unlocks for a task.

use super::events::tell_watchers;
use super::loss;
use super::orders::EndedTenure;
use super::parts::Parts;
use super::question::Answer;
use super::releases::{self, PostReleases, ReleaseTries};
use super::turn::Turn;
use super::turn_end::end_retry;
use super::twin;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::HoldEnd;
use crate::port::{Note, Outcome, ReleaseOutcome, Request};
use crate::state::tenure::{Tenure, Unsettled};
use std::sync::Arc;
use std::time::Duration;

/// What happens to a release that the store has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The calling thread sends it again, and waits.
    Here,
    /// It goes on the clean-up list.
    Later,
}

/// The giving back of one tenure. It has the turn of its key.
pub(super) struct GiveBack<'c> {
    parts: &'c Parts,
    pub(super) ended: EndedTenure,
    turn: Turn<'c>,
    /// The locker with which this client goes to the end of the store's queue.
    next: Option<Unsettled>,
    tries: ReleaseTries,
}

impl<'c> GiveBack<'c> {
    pub(super) fn of(parts: &'c Parts, ended: EndedTenure) -> Self {
        let tries = ReleaseTries::of(&parts.core, &ended.tenure, ended.at);
        Self { parts, turn: Turn::of(parts, &ended.key), ended, next: None, tries }
    }

    pub(super) fn tenure(&self) -> &Tenure {
        &self.ended.tenure
    }

    /// Asks the store whether an operator has broken a tenure that was lost. The thread that has noticed the loss asks, too, but it may be asking still,
    /// or have had no answer.
    pub(super) fn ask_why_lost(&mut self, limit: Duration) {
        let EndedTenure { key, tenure, .. } = &mut self.ended;
        if tenure.may_be_broken()
            && let Some(Some(cause)) = loss::broken(self.parts, [(&*key.name, &**tenure)], limit).pop()
        {
            tenure.set_cause(&cause);
        }
    }

    /// Decides whether this client goes to the end of the store's queue: if others of it wait, and it would hear of a grant.
    pub(super) fn plan_next(&mut self) {
        let (parts, key) = (self.parts, &self.ended.key);
        // The thread is started without the key's mutex.
        if !self.ended.others_wait
            || self.ended.tenure.is_lost()
            || self.tries.is_delayed()
            || !parts.subscription.hears(&parts.core, key)
            || parts.core.activity.is_closed()
            || parts.retries.thread.start().is_err()
        {
            return;
        }
        let mut state = key.state.lock();
        let Some(settings) = state.queue.front().map(|first| Arc::clone(&first.settings)) else { return };
        let locker = parts.core.next_locker(&settings);
        state.ask_about(&locker);
        self.next = Some(Unsettled { locker, settings, answered: false, counts_from: self.ended.at });
    }

    /// Returns whether the release may be posted: somebody else handles the reply, when it arrives.
    pub(super) fn may_be_posted(&self) -> bool {
        self.next.is_none() && !self.ended.tenure.is_lost() && !self.tries.is_delayed()
    }

    /// Returns whether this client goes to the end of the store's queue.
    pub(super) fn hands_over(&self) -> bool {
        self.next.is_some()
    }

    /// Posts the release. Nobody waits for the reply.
    pub(super) fn post(self) {
        let parts = self.parts;
        let (ended, _turn) = self.into_posted();
        releases::post(parts, ended);
    }

    /// Posts several releases together.
    pub(super) fn post_all(parts: &Parts, posted: Vec<Self>, send: PostReleases) {
        let (ended, _turns): (_, Vec<_>) = posted.into_iter().map(Self::into_posted).unzip();
        releases::post_all(parts, ended, parts.core.clock.now(), send);
    }

    /// Tells that the release is sent. Returns what is posted, and the turn, which ends after the posting.
    fn into_posted(self) -> (EndedTenure, Turn<'c>) {
        let EndedTenure { tenure, at, .. } = &self.ended;
        self.parts.core.events.queue_released(tenure, tenure.tokens.current(), *at, HoldEnd::Sent).finish();
        (self.ended, self.turn)
    }

    /// Returns the request that gives the tenure back. It also takes the place in the store's queue, if there is a next locker, whose lease counts
    /// from before the request is written.
    pub(super) fn request(&self) -> Request<'_> {
        let (core, name) = (&self.parts.core, &self.ended.key.name);
        let ending = core.ending(name, &self.ended.tenure);
        match &self.next {
            None => self.tries.request(ending, core.clock.now()),
            Some(next) => {
                let note = Note::new(next.settings.reason(), None, Some(core.id.current().host()));
                Request::HandOver(ending, core.claim(name, &next.locker, next.settings.store_time()).with_note(note))
            }
        }
    }

    /// Sends the request, waits for the reply, and tells of the end of the hold. Fails as [`ReleaseTries::send`] does.
    pub(super) fn send(self) -> Result<(), Error> {
        let core = &self.parts.core;
        if self.next.is_some() {
            let outcome = core.run(&self.request(), core.limits.command);
            return self.answered(outcome, Repeat::Here);
        }
        let Self { parts, ended, turn, tries, .. } = self;
        let released = tries.send(parts, &ended.key.name, &ended.tenure);
        tell(parts, ended, released, Some(turn))
    }

    /// Tells of the end of the hold, after a release with this outcome.
    pub(super) fn given_back(self, released: Result<(), Error>) -> Result<(), Error> {
        tell(self.parts, self.ended, released, Some(self.turn))
    }

    /// Handles the reply to the request, and tells of the end of the hold.
    pub(super) fn answered(self, outcome: Result<Outcome, Error>, repeat: Repeat) -> Result<(), Error> {
        let Self { parts, ended, turn, next, mut tries } = self;
        // Without a next locker, the first waiter gets its turn only after the end of this hold was announced.
        let (released, rest) = match next {
            Some(next) => {
                let outcome = outcome.and_then(ReleaseOutcome::try_from);
                handed_over(parts, &ended, (turn, next), outcome, repeat)
            }
            None => (tries.end_last(parts, &ended.key.name, &ended.tenure, outcome), Some(turn)),
        };
        tell(parts, ended, released, rest)
    }

    /// Handles the reply to a try of a release, as [`ReleaseTries::end`] does.
    pub(super) fn end_try(&mut self, left: Duration, outcome: Result<Outcome, Error>) -> Option<Result<(), Error>> {
        self.tries.end(self.parts, &self.ended.key.name, &self.ended.tenure, left, outcome)
    }

    /// Returns the pause before the next try.
    pub(super) fn pause(&self) -> Duration {
        self.tries.pause(&self.ended.tenure)
    }
}

/// Handles the reply to a hand-over to the `next` locker. Returns the turn if it is not over; otherwise, has told of the end of the hold. The
/// first value fails as [`ReleaseTries::send`] does.
fn handed_over<'c>(
    parts: &'c Parts,
    ended: &EndedTenure,
    (turn, mut next): (Turn<'c>, Unsettled),
    outcome: Result<ReleaseOutcome, Error>,
    repeat: Repeat,
) -> (Result<(), Error>, Option<Turn<'c>>) {
    let (name, tenure, sent_at) = (&ended.key.name, &ended.tenure, next.counts_from);
    let heard = ended.key.state.lock().heard();
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
                twin::meet(parts, name, &next.locker);
            }
            return (releases::not_ours(parts, name, tenure, other), Some(turn));
        }
        (Ok(ReleaseOutcome::Released { .. }), _) => return (Ok(()), Some(turn)),
        (Err(error), heard) if error.is_unknown() => {
            let answer = match heard {
                Some(grant) => Answer::Acquired(next.heard(grant)),
                // A poll tells its outcome.
                None => Answer::Failed { error: error.clone(), unsettled: Some(next) },
            };
            let token = tenure.tokens.current();
            parts.core.events.queue_released(tenure, token, sent_at, HoldEnd::Unconfirmed).finish();
            end_hand_over(parts, turn, answer, sent_at);
            // It is safe to repeat the release without a next locker, whatever its outcome was.
            return (give_back_after(parts, ended, error, repeat, true), None);
        }
        // The command was not executed.
        (Err(error), _) => return (give_back_after(parts, ended, error, repeat, false), Some(turn)),
    };
    parts.core.events.queue_released(tenure, tenure.tokens.current(), sent_at, HoldEnd::GivenBack).finish();
    end_hand_over(parts, turn, answer, sent_at);
    (Ok(()), None)
}

/// Releases a tenure after a hand-over that has failed, and that may have been executed if `perhaps_done`.
fn give_back_after(
    parts: &Parts,
    ended: &EndedTenure,
    error: Error,
    repeat: Repeat,
    perhaps_done: bool,
) -> Result<(), Error> {
    let (name, tenure) = (&ended.key.name, &ended.tenure);
    let mut tries = ReleaseTries::of(&parts.core, tenure, ended.at);
    tries.perhaps_done = perhaps_done;
    match repeat {
        Repeat::Here => tries.send(parts, name, tenure),
        Repeat::Later => tries.end_last(parts, name, tenure, Err(error)),
    }
}

/// Tells of the end of a hold, and of its loss unless that was told. Then the turn ends, if it is not over.
fn tell(
    parts: &Parts,
    ended: EndedTenure,
    mut released: Result<(), Error>,
    rest: Option<Turn<'_>>,
) -> Result<(), Error> {
    let EndedTenure { key, mut tenure, watchers, is_told, at, .. } = ended;
    if let Err(Error::LeaseLost(loss)) = &released {
        tenure.lose(loss.cause.clone(), at);
    }
    if let Some(loss) = tenure.loss_error(&key.name, at) {
        released = Err(loss);
    }
    if !is_told {
        parts.core.events.tell_lost(&key.name, &tenure, watchers);
    } else {
        // The thread that has noticed the loss may not have told yet, and this one returns the loss.
        tell_watchers(watchers);
    }
    if rest.is_some() {
        parts.core.events.tell_released(&tenure, at, &released);
    }
    drop(rest);
    released
}

fn end_hand_over(parts: &Parts, turn: Turn<'_>, answer: Answer, sent_at: Moment) {
    let key = Arc::clone(&turn.key);
    let again = key.state.lock().take_release_to_repeat();
    if let Some(locker) = again {
        parts.retries.give_up_grant(&key.name, &locker);
    }
    if let Some((turn, unwanted)) = end_retry(turn, answer, sent_at) {
        let _ = ReleaseTries::of(&parts.core, &unwanted, sent_at).send(parts, &key.name, &unwanted);
        drop(turn);
    }
}
