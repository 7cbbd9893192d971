//! One tenure: its lease, its tokens, its loss, and when other clients must be let in; and the locker before it has one.

use crate::clock::Moment;
use crate::config::{DLockConfig, whole_milliseconds};
use crate::error::{Error, LeaseLoss, LossCause};
use crate::port::{Gap, Grant};
use crate::state::lease::Lease;
use crate::state::tokens::Tokens;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// A locker that was sent and has not ended: it stands in the store's queue, or its outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    pub(crate) locker: Arc<str>,
    pub(crate) settings: Arc<DLockConfig>,
    /// Whether the command that brought it to the store was answered. If not, the command may still be on its way.
    pub(crate) answered: bool,
    /// When a lease that this locker is granted begins to count: when the last answered request that found it waiting
    /// was sent, or, before any reply, when the first request was sent. The grant can only come later.
    pub(crate) counts_from: Moment,
}

impl Unsettled {
    /// Returns the tenure that the locker gets when a reply says that the key is granted to it.
    pub(crate) fn granted(self, grant: Grant) -> Tenure {
        Tenure::new(self.locker, self.settings, grant, self.counts_from)
    }

    /// Returns the tenure that the locker gets when a message says that the key is granted to it.
    pub(crate) fn heard(self, grant: Grant) -> Tenure {
        self.granted(grant).unanswered()
    }
}

/// One unbroken ownership of the key by this client.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) locker: Arc<str>,
    pub(crate) settings: Arc<DLockConfig>,
    /// The settings of the handle through which the current hold was acquired, where somebody is told of holds.
    pub(crate) of_hold: Option<Arc<DLockConfig>>,
    pub(crate) lease: Lease,
    tokens: Tokens,
    /// How many others waited when the store granted the tenure.
    waiting: u64,
    /// When other clients were first known to wait, and how often the hold was passed on in this process since.
    contended: Option<(Moment, u32)>,
    /// When contention was last reported. Replies to requests sent before this are stale.
    heard_at: Moment,
    /// When the current hold began, or else the last one.
    held_since: Moment,
    /// When the current hold reaches the longest time that it may last.
    hold_ends: Moment,
    /// Whether a thread was told of this hold. Before that, nobody needs to hear of its loss.
    pub(crate) is_confirmed: bool,
    /// Whether a hold followed another one, by passing on or lingering.
    pub(crate) kept_on: bool,
    /// Whether its release must leave the key free for pollers.
    pub(crate) gap: Option<Gap>,
    /// Whether the retry thread has the key in its schedule, to notice the end of a linger.
    pub(crate) watched: bool,
    /// In a box, because it is long, and rare.
    loss: Option<Box<(LossCause, Moment)>>,
}

impl Tenure {
    /// Creates a tenure whose lease counts from `counts_from`.
    pub(crate) fn new(locker: Arc<str>, settings: Arc<DLockConfig>, grant: Grant, counts_from: Moment) -> Self {
        Self {
            lease: Lease::new(&settings, counts_from),
            locker,
            settings,
            of_hold: None,
            tokens: Tokens::of(grant.number),
            waiting: grant.waiting,
            contended: None,
            heard_at: counts_from,
            held_since: counts_from,
            hold_ends: Moment::NEVER,
            is_confirmed: false,
            kept_on: false,
            gap: None,
            watched: false,
            loss: None,
        }
    }

    /// Notes that no reply of the store has said so far that the key is ours.
    pub(crate) fn unanswered(self) -> Self {
        Self { lease: self.lease.unanswered(), ..self }
    }

    /// The lease that this client counts on: all its deadlines and pauses come of it.
    pub(crate) fn lease(&self) -> Duration {
        self.settings.lease()
    }

    /// How long the store keeps the key without an extension, which every request for this tenure says.
    pub(crate) fn kept(&self) -> Duration {
        self.settings.kept()
    }

    /// Begins the tenure, and its first hold, once the client has heard of it. The time that others wait counts from now.
    pub(crate) fn begin(&mut self, now: Moment) {
        self.note_waiting(self.waiting, now);
        self.hold_begins(now);
    }

    /// Notes that a hold begins.
    pub(crate) fn hold_begins(&mut self, now: Moment) {
        self.held_since = now;
        self.hold_ends = self.settings.max_hold.map_or(Moment::NEVER, |limit| now + limit);
    }

    /// Notes that the hold has ended and that the tenure is kept.
    pub(crate) fn hold_ended(&mut self) {
        self.hold_ends = Moment::NEVER;
    }

    /// Returns when the current hold began, or else the last one.
    pub(crate) fn held_since(&self) -> Moment {
        self.held_since
    }

    /// Returns the moment until which the current hold is certainly valid if nothing is done.
    pub(crate) fn valid_until(&self) -> Moment {
        self.deadline().min(self.hold_ends)
    }

    /// Returns why and when the hold has ended by itself, if it has by now.
    pub(crate) fn overdue(&self, now: Moment) -> Option<(LossCause, Moment)> {
        let at = self.valid_until();
        let cause = || if at < self.deadline() { LossCause::HeldTooLong } else { LossCause::Deadline };
        (now >= at).then(|| (cause(), at))
    }

    /// Returns the token of this tenure's current hold.
    pub(crate) fn token(&self) -> u64 {
        self.tokens.current()
    }

    /// Returns the tokens of this tenure's holds.
    pub(crate) fn tokens(&mut self) -> &mut Tokens {
        &mut self.tokens
    }

    /// Returns whether the current hold has the last token.
    pub(crate) fn needs_numbers(&self) -> bool {
        self.tokens.is_last()
    }

    /// Notes how many other tenures wait, as a reply of the store or a message says.
    pub(crate) fn note_waiting(&mut self, waiting: u64, now: Moment) {
        if waiting == 0 {
            self.contended = None;
        } else {
            self.heard_at = now;
            self.contended.get_or_insert((now, 0));
        }
    }

    /// Notes how many others wait, as the reply to an extension sent at `sent_at` says. "Nobody" is ignored if a
    /// message reported contention since.
    pub(crate) fn note_waiting_as_of(&mut self, waiting: u64, sent_at: Moment, now: Moment) {
        if waiting > 0 || self.contended.is_none() || self.heard_at < sent_at {
            self.note_waiting(waiting, now);
        }
    }

    /// Returns the gap for pollers that the release of this tenure must ask for, if one is due since the last one
    /// that this client knows of; the store knows of all of them. There is none if the key was ours for a single hold
    /// that nobody else waited for, because pollers then find it free anyway.
    pub(super) fn gap(&self, last: Option<Moment>, others_wait: bool, now: Moment) -> Option<Gap> {
        let every = self.settings.poller_gap?;
        let due = last.is_none_or(|last| now >= last + every) && (self.kept_on || self.is_contended() || others_wait);
        due.then(|| Gap::new(whole_milliseconds(timing::gap_length(self.lease())), every))
    }

    /// Returns whether others are known to wait.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended.is_some()
    }

    /// Returns whether the tenure is kept when nobody in this process wants it.
    pub(crate) fn may_linger(&self) -> bool {
        !self.settings.linger.is_zero() && !self.is_contended()
    }

    /// Returns whether the hold may be passed on to a thread of this process, and counts the pass.
    pub(crate) fn may_pass(&mut self, now: Moment) -> bool {
        match &mut self.contended {
            None => true,
            Some((since, passes)) if *passes < self.settings.local_passes && now < *since + timing::LOCAL_TIME => {
                *passes += 1;
                true
            }
            Some(_) => false,
        }
    }

    /// Returns the moment until which the tenure is certainly ours.
    pub(crate) fn deadline(&self) -> Moment {
        self.lease.deadline()
    }

    /// Returns when the lease thread must look at this tenure next.
    pub(crate) fn due(&self, trip: Duration) -> Moment {
        self.lease.due(trip).min(self.valid_until())
    }

    /// Returns why and when the tenure was lost.
    pub(crate) fn loss(&self) -> Option<&(LossCause, Moment)> {
        self.loss.as_deref()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss.is_some()
    }

    /// Returns the loss as an error, if there is one.
    pub(crate) fn loss_error(&self, key: &str, now: Moment) -> Option<Error> {
        self.loss_of(key, now).map(|loss| Error::LeaseLost(Box::new(loss)))
    }

    /// Returns the full description of the loss, if there is one.
    pub(crate) fn loss_of(&self, key: &str, now: Moment) -> Option<LeaseLoss> {
        self.loss().map(|(cause, at)| LeaseLoss {
            key: key.to_owned(),
            locker: self.locker.to_string(),
            cause: cause.clone(),
            ago: now.since(*at),
        })
    }

    /// Marks the tenure lost and returns `true`. If it is lost already, keeps the first cause and returns `false`.
    pub(crate) fn lose(&mut self, cause: LossCause, at: Moment) -> bool {
        let first = self.loss.is_none();
        if first {
            self.loss = Some(Box::new((cause, at)));
        }
        first
    }

    /// Replaces the cause of the loss by a better one, which the store has told when it was asked.
    pub(crate) fn lost_by(&mut self, better: &LossCause) {
        if let Some((cause, _)) = self.loss.as_deref_mut() {
            *cause = better.clone();
        }
    }

    /// Returns whether the key was seen to contain something else, which may have come of a forced break, of a hold that a thread knows of.
    pub(crate) fn may_be_broken(&self) -> bool {
        self.is_confirmed && matches!(self.loss(), Some((LossCause::Deleted | LossCause::TakenOver { .. }, _)))
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/tenure.rs"]
mod tests;
