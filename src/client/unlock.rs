//! `unlock()`: what happens to a tenure when its hold ends. The tenure is passed on in this process, kept for a while, or given back.
//!
//! | when the last hold ends | then |
//! |---|---|
//! | threads of this process wait, and no other client waits, or only [for a moment and a few passes](crate::state::tenure::Tenure::may_pass) | the first of these threads gets the next hold |
//! | the hold was to last for longer: [`DLockGuard::unlock_after`](crate::DLockGuard::unlock_after) | the tenure ends, and the key is kept from everybody until then, also from the threads of this process: they ask the store, and wait in its queue |
//! | no thread and no other client waits, and the tenure may linger | the tenure is kept: [`Phase::Lingering`] |
//! | otherwise | the tenure is released; if threads of this process wait, this client goes to the end of the store's queue again |

use crate::client::closing::Leaving;
use crate::client::events::Queued;
use crate::client::give_back::{GiveBack, Repeat};
use crate::client::lease_thread::{self, Numbers};
use crate::client::loss;
use crate::client::orders::{EndedTenure, Order, ReleaseReply};
use crate::client::parts::Parts;
use crate::client::releases;
use crate::clock::Moment;
use crate::error::Error;
use crate::event::HoldEnd;
use crate::state::hold::Exit;
use crate::state::key::Key;
use crate::state::machine::{Phase, State, Waiter};
use crate::state::task::Watcher;
use crate::sync::{MutexGuard, thread};
use std::sync::Arc;
use std::time::Duration;

/// What an unlock does about the store's reply to the release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AfterRelease {
    /// It waits for the reply, and returns what it says.
    Awaited,
    /// It waits only if others of this client wait for the key. Otherwise the reply is handled later.
    Unawaited,
    /// It does not wait, because it unlocks for a task. The retry thread sends the release.
    Elsewhere,
}

/// A thread that unlocks a key.
#[derive(Clone, Copy)]
pub(crate) struct Unlock<'c> {
    parts: &'c Parts,
    key: &'c Arc<Key>,
    after: AfterRelease,
}

/// The work that is left to do, without the key's mutex, for a tenure that is kept.
struct Finish {
    /// The waiting thread that now has the hold.
    waiter: Option<Arc<Waiter>>,
    /// The channels of the hold that has ended.
    watchers: Vec<Watcher>,
    queued: Queued,
}

impl Finish {
    fn finish(self) {
        let Self { waiter, watchers, queued } = self;
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        drop(watchers);
        queued.finish();
    }
}

impl<'c> Unlock<'c> {
    pub(crate) fn new(parts: &'c Parts, key: &'c Arc<Key>, after: AfterRelease) -> Self {
        Self { parts, key, after }
    }

    /// Does what is left to do after the thread has unlocked once.
    pub(crate) fn unlock(self, exit: Exit) -> Result<(), Error> {
        if matches!(exit, Exit::Inner) {
            return Ok(());
        }
        let ended = self.end_hold(exit)?;
        let _leaving = Leaving(self.parts);
        match ended {
            Some(ended) => self.give_back(ended),
            None => Ok(()),
        }
    }

    /// Ends the hold of a task, without waiting for the store. Returns `false` if that is all. Otherwise the retry thread gives the tenure back,
    /// and then leaves the outcome in `released`.
    pub(crate) fn unlock_for_task(self, exit: Exit, released: Option<ReleaseReply>) -> Result<bool, Error> {
        let parts = self.parts;
        if matches!(exit, Exit::Inner) {
            return Ok(false);
        }
        if parts.retries.thread.start().is_err() {
            // Without that thread, the calling one does it.
            return Self { after: AfterRelease::Awaited, ..self }.unlock(exit).map(|()| false);
        }
        let ended = self.end_hold(exit)?;
        let is_given_back = ended.is_some();
        if let Some(ended) = ended {
            self.order(ended, released);
        }
        parts.count_out_task();
        Ok(is_given_back)
    }

    /// Ends a hold of which its task was not told, and counts the task out. The retry thread gives the tenure back.
    #[cfg(feature = "async")]
    pub(crate) fn unlock_untold(self, mut state: MutexGuard<'_, State>) {
        let now = self.parts.core.clock.now();
        let is_told = state.tenure_mut().is_some_and(|tenure| {
            tenure.is_confirmed = false;
            tenure.is_lost()
        });
        if let Ok(ended) = self.end_tenure(state, is_told, now) {
            self.order(ended, None);
        }
        self.parts.count_out_task();
    }

    /// Leaves a tenure to the retry thread.
    fn order(self, mut ended: EndedTenure, released: Option<ReleaseReply>) {
        let parts = self.parts;
        // The closing thread waits for it.
        parts.core.activity.begin_release();
        ended.in_flight = Some(parts.retries.unanswered.add());
        parts.order(Order::GiveBack { ended, released });
    }

    /// Ends the hold. The tenure is passed on, or lingers, or is returned and must be given back.
    fn end_hold(self, exit: Exit) -> Result<Option<EndedTenure>, Error> {
        let (parts, key) = (self.parts, self.key);
        match exit {
            Exit::Inner => return Ok(None),
            Exit::NotHeld => return Err(self.not_held()),
            Exit::InnerLost => return Err(loss::error(parts, key)),
            // The hold is the parent's, which keeps it. Its copy ends here, without a mutex: see `process.rs`.
            Exit::Last if parts.core.process.is_forked() => {
                key.hold.end();
                return Err(Error::Forked);
            }
            Exit::Last => {}
        }
        let hands_over = parts.core.hands_over;
        let mut state = key.state.lock();
        if hands_over && !matches!(self.after, AfterRelease::Elsewhere) {
            state = self.prepare_to_keep(state);
        }
        let now = parts.core.clock.now();
        let Phase::Held(tenure) = &mut state.phase else { return Err(self.not_held()) };
        let is_told = tenure.is_lost();
        if let Some((cause, at)) = tenure.overdue(now) {
            // This leaves an earlier loss as it is.
            tenure.lose(cause, at);
        }
        let is_delayed = tenure.hold.delayed_until(now).is_some();
        let is_lost = tenure.is_lost();
        let leaves_gap = !is_delayed && state.set_gap(now);
        if hands_over && !is_delayed && !leaves_gap && !is_lost && !parts.core.activity.is_closed() {
            let kept =
                if state.queue.is_empty() { self.linger(&mut state, now) } else { self.pass_on(&mut state, now) };
            if let Some(kept) = kept {
                drop(state);
                kept.finish();
                return Ok(None);
            }
        }
        self.end_tenure(state, is_told, now).map(Some)
    }

    fn not_held(self) -> Error {
        Error::NotHeld { key: self.key.name.to_string() }
    }

    /// Prepares to keep the tenure, if it may be kept. This gives up the mutex meanwhile. Starts the thread that ends a linger. Fetches fence numbers
    /// if the tokens run out: once after 1024 holds, and then after every ten million holds.
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
        if !tenure.tokens.is_last() || !parts.core.limits.numbers || !may_be_kept() {
            return state;
        }
        let locker = Arc::clone(&tenure.locker);
        drop(state);
        // Without fresh numbers, the tenure is not kept.
        let _ = lease_thread::extend_now(parts, key, &locker, Numbers::Fetch, parts.core.limits.command);
        key.state.lock()
    }

    /// Passes the hold on to the first thread that waits in this process, unless other clients must be let in. Returns `None` if the tenure
    /// must be given back.
    fn pass_on(self, state: &mut State, now: Moment) -> Option<Finish> {
        let (parts, key) = (self.parts, self.key);
        let State { phase: Phase::Held(tenure), queue, watchers, .. } = state else { return None };
        if !parts.subscription.hears(&parts.core, key) {
            // This client would not be told that others wait, so it assumes that they do.
            tenure.others.note(1, now);
        }
        if !tenure.may_pass(now) || !tenure.tokens.advance() {
            return None;
        }
        let waiter = queue.pop_front()?;
        let queued = parts.core.events.queue_released(tenure, key.hold.token(), now, HoldEnd::PassedOn);
        key.hold.end();
        parts.renewals.grant_next(key, tenure, (&waiter).into(), now);
        Some(Finish { waiter: Some(waiter), watchers: std::mem::take(watchers), queued })
    }

    /// Keeps the tenure for the next thread to arrive, if the tenure may linger. Returns `None` if the tenure must be given back.
    fn linger(self, state: &mut State, now: Moment) -> Option<Finish> {
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
        tenure.hold.end();
        let queued = parts.core.events.queue_released(&tenure, key.hold.token(), now, HoldEnd::Lingers);
        let until = now + tenure.settings.linger;
        if !std::mem::replace(&mut tenure.watched, true) {
            // This is not repeated for each hold: when this linger would end, the retry thread looks whether a later one has begun.
            parts.retries.ask_at(key, until);
        }
        state.phase = Phase::Lingering { tenure, until };
        key.hold.end();
        Some(Finish { waiter: None, watchers: std::mem::take(&mut state.watchers), queued })
    }

    /// Ends the hold and its tenure, which is returned to be given back.
    fn end_tenure(self, mut state: MutexGuard<'_, State>, is_told: bool, at: Moment) -> Result<EndedTenure, Error> {
        let (parts, key) = (self.parts, self.key);
        let others_wait = !state.queue.is_empty();
        let ended = parts.renewals.end_hold(key, &mut state, Phase::Releasing { ended: None, about: None });
        if let Phase::Releasing { ended: Some(ended), .. } = &mut state.phase {
            ended.is_ordered = matches!(self.after, AfterRelease::Elsewhere);
        }
        drop(state);
        let (tenure, watchers) = ended.ok_or_else(|| self.not_held())?;
        Ok(EndedTenure { key: Arc::clone(key), tenure, watchers, is_told, others_wait, at, in_flight: None })
    }

    /// Gives the key back to the store; if others of this client wait, the client goes to the end of the store's queue.
    fn give_back(self, ended: EndedTenure) -> Result<(), Error> {
        let back = self.plan(ended, self.parts.core.limits.command);
        if self.is_posted(&back) {
            back.post();
            return Ok(());
        }
        back.send()
    }

    /// Decides how a tenure is given back. Asks for at most `asks_for` why it was lost.
    fn plan(self, ended: EndedTenure, asks_for: Duration) -> GiveBack<'c> {
        let mut back = GiveBack::of(self.parts, ended);
        if matches!(self.after, AfterRelease::Awaited) {
            back.ask_why_lost(asks_for);
        }
        back.plan_next();
        back
    }

    /// Returns whether nobody waits for the reply to the release.
    fn is_posted(self, back: &GiveBack<'_>) -> bool {
        matches!(self.after, AfterRelease::Unawaited) && back.may_be_posted()
    }
}

// Several unlocks at once: what goes back to the store goes in one batch.

/// A tenure that is given back with others.
struct Returned<'c> {
    /// The place of its key among those that are unlocked.
    place: usize,
    back: GiveBack<'c>,
    // Dropped last: the end of the client waits for the release.
    _leaving: Leaving<'c>,
}

/// Does for several keys what is left to do after a thread has unlocked each of them once. Releases that nobody waits for are posted together. All
/// others, and what puts this client at the end of a queue, go in one batch, and are awaited; those that fail are tried again, in one batch.
/// Returns the outcome for each key, in their order.
pub(crate) fn unlock_all<'c>(
    parts: &'c Parts,
    unlocked: impl IntoIterator<Item = (&'c Arc<Key>, Exit)>,
    after: AfterRelease,
) -> Vec<Result<(), Error>> {
    let (mut outcomes, mut posted, mut returned) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (key, exit)) in unlocked.into_iter().enumerate() {
        let unlock = Unlock::new(parts, key, after);
        let outcome = unlock.end_hold(exit).map(|ended| {
            let leaving = (exit != Exit::Inner).then(|| Leaving(parts));
            let (Some(ended), Some(leaving)) = (ended, leaving) else { return };
            // Each of them is asked about by itself, and the others wait for that.
            let back = unlock.plan(ended, parts.renewals.side_limit());
            if unlock.is_posted(&back) {
                posted.push((back, leaving));
            } else {
                returned.push(Returned { place, back, _leaving: leaving });
            }
        });
        outcomes.push(outcome);
    }
    let (posted, _leaving): (Vec<_>, Vec<_>) = posted.into_iter().unzip();
    GiveBack::post_all(parts, posted, |store, releases, limit| store.post_releases(releases, limit));
    while !returned.is_empty() {
        returned = give_back_together(parts, returned, &mut outcomes);
        if let Some(pause) = returned.iter().map(|returned| returned.back.pause()).min() {
            thread::sleep(pause);
        }
    }
    outcomes
}

/// Gives tenures back in one batch, and notes the outcomes for their keys. Returns those whose releases are to be tried again.
fn give_back_together<'c>(
    parts: &'c Parts,
    returned: Vec<Returned<'c>>,
    outcomes: &mut [Result<(), Error>],
) -> Vec<Returned<'c>> {
    // What is of an identity that a twin has, too, is not sent: see `twin.rs`.
    let (ours, twins): (Vec<_>, Vec<_>) =
        returned.into_iter().partition(|returned| parts.core.is_ours(&returned.back.tenure().locker));
    let now = parts.core.clock.now();
    let left = |returned: &Returned<'_>| returned.back.tenure().deadline().since(now);
    let longest = ours.iter().map(left).max().unwrap_or_default();
    let requests: Vec<_> = ours.iter().map(|returned| returned.back.request()).collect();
    let results = parts.core.batch(&requests, releases::release_limit(&parts.core, longest));
    drop(requests);
    for Returned { place, back, .. } in twins {
        outcomes[place] = back.given_back(Ok(()));
    }
    let mut again = Vec::new();
    for (mut returned, result) in ours.into_iter().zip(results) {
        let (place, left) = (returned.place, left(&returned));
        if returned.back.hands_over() {
            outcomes[place] = returned.back.answered(result, Repeat::Here);
            continue;
        }
        match returned.back.end_try(left, result) {
            Some(released) => outcomes[place] = returned.back.given_back(released),
            None => again.push(returned),
        }
    }
    again
}
