//! One tenure: its lease, its tokens, its loss, and when other clients must be let in; and the locker before it has one.

use crate::clock::Moment;
use crate::config::{DLockConfig, whole_milliseconds};
use crate::error::{Error, LeaseLoss, LossCause};
use crate::port::{Gap, Grant, StoreLimits};
use crate::timing;
use std::ops::{Range, RangeInclusive};
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
    pub(crate) fn granted(self, grant: Grant) -> Box<Tenure> {
        Box::new(Tenure::new(self.locker, self.settings, grant, self.counts_from))
    }

    /// Returns the tenure that the locker gets when a message says that the key is granted to it.
    pub(crate) fn heard(self, grant: Grant) -> Box<Tenure> {
        let mut tenure = self.granted(grant);
        tenure.lease.is_answered = false;
        tenure
    }
}

/// One unbroken ownership of the key by this client.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) locker: Arc<str>,
    pub(crate) settings: Arc<DLockConfig>,
    /// The settings of the handle through which the current hold was acquired. `None` if nobody is told of holds, unless its release is delayed.
    pub(crate) of_hold: Option<Arc<DLockConfig>>,
    pub(crate) lease: Lease,
    pub(crate) tokens: Tokens,
    pub(crate) others: Others,
    pub(crate) hold: HoldTimes,
    /// Whether a thread was told of this hold. Before that, nobody needs to hear of its loss.
    pub(crate) is_confirmed: bool,
    /// Whether a hold followed another one, by passing on or lingering.
    pub(crate) had_earlier_hold: bool,
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
            others: Others { at_grant: grant.waiting, contended: None, heard_at: counts_from },
            hold: HoldTimes {
                since: counts_from,
                free_from: counts_from,
                ends: Moment::NEVER,
                warns_at: Moment::NEVER,
            },
            is_confirmed: false,
            had_earlier_hold: false,
            gap: None,
            watched: false,
            loss: None,
        }
    }

    /// The lease that this client counts on: all its deadlines and pauses are computed from it.
    pub(crate) fn lease(&self) -> Duration {
        self.settings.lease()
    }

    /// How long the store keeps the key without an extension, which every request for this tenure says.
    pub(crate) fn store_time(&self) -> Duration {
        self.settings.store_time()
    }

    /// Begins the tenure, and its first hold, once the client has heard of it. The time that others wait counts from now.
    pub(crate) fn begin(&mut self, now: Moment) {
        self.others.note(self.others.at_grant, now);
        self.hold.begin(&self.settings, now);
    }

    /// Begins the next hold of a tenure that was kept.
    pub(crate) fn begin_next(&mut self, now: Moment) {
        self.had_earlier_hold = true;
        self.hold.begin(&self.settings, now);
    }

    /// Returns whether a hold has a limit, or is reported after a time.
    pub(crate) fn times_holds(&self) -> bool {
        self.settings.max_hold.is_some() || self.settings.hold_warning.is_some()
    }

    /// Returns the moment until which the current hold is certainly valid if nothing is done.
    pub(crate) fn valid_until(&self) -> Moment {
        self.lease.deadline.min(self.hold.ends)
    }

    /// Returns why and when the hold has ended by itself, if it has by now.
    pub(crate) fn overdue(&self, now: Moment) -> Option<(LossCause, Moment)> {
        let at = self.valid_until();
        let cause = || if at < self.lease.deadline { LossCause::HeldTooLong } else { LossCause::Deadline };
        (now >= at).then(|| (cause(), at))
    }

    /// Returns the gap for pollers that the release of this tenure must ask for, if one is due since the last one
    /// that this client knows of; the store knows of all of them. There is none if the key was ours for a single hold
    /// that nobody else waited for, because pollers then find it free anyway.
    pub(super) fn gap_due(&self, last: Option<Moment>, others_wait: bool, now: Moment) -> Option<Gap> {
        let every = self.settings.poller_gap?;
        let due =
            last.is_none_or(|last| now >= last + every) && (self.had_earlier_hold || self.others.wait() || others_wait);
        due.then(|| Gap::new(whole_milliseconds(timing::gap_length(self.lease())), every))
    }

    /// Returns whether the client knows enough of the tenure to tell a thread of its hold, on a store with these limits.
    pub(crate) fn counts(&self, limits: &StoreLimits) -> bool {
        self.lease.is_answered || !limits.extends_heard_grants
    }

    /// Returns whether the tenure is kept when nobody in this process wants it.
    pub(crate) fn may_linger(&self) -> bool {
        !self.settings.linger.is_zero() && !self.others.wait()
    }

    /// Returns whether the hold may be passed on to a thread of this process, and counts the pass.
    pub(crate) fn may_pass(&mut self, now: Moment) -> bool {
        match &mut self.others.contended {
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
        self.lease.deadline
    }

    /// Returns when the lease thread must look at this tenure next. The lease is due before its deadline.
    pub(crate) fn due(&self, pace: Pace) -> Moment {
        self.lease.due(pace).min(self.hold.ends).min(self.hold.warns_at)
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
    pub(crate) fn set_cause(&mut self, better: &LossCause) {
        if let Some((cause, _)) = self.loss.as_deref_mut() {
            *cause = better.clone();
        }
    }

    /// Returns whether the loss may be a forced break: the key was seen to contain something else or nothing, and a thread was told of the hold.
    pub(crate) fn may_be_broken(&self) -> bool {
        self.is_confirmed && matches!(self.loss(), Some((LossCause::Deleted | LossCause::TakenOver { .. }, _)))
    }
}

/// The times of the current hold of a tenure, or else of the last one.
#[derive(Clone, Debug)]
pub(crate) struct HoldTimes {
    /// When it began.
    pub(crate) since: Moment,
    /// The moment before which nobody gets the key, even if the hold ends before that.
    free_from: Moment,
    /// When it reaches the longest time that it may last.
    ends: Moment,
    /// When it is to be reported, because it lasts long. [`Moment::NEVER`] once it was.
    warns_at: Moment,
}

impl HoldTimes {
    fn begin(&mut self, settings: &DLockConfig, now: Moment) {
        let after = |time: Option<Duration>| time.map_or(Moment::NEVER, |time| now + time);
        let (ends, warns_at) = (after(settings.max_hold), after(settings.hold_warning));
        *self = Self { since: now, free_from: now, ends, warns_at };
    }

    /// Notes that the hold has ended and that the tenure is kept.
    pub(crate) fn end(&mut self) {
        (self.ends, self.warns_at) = (Moment::NEVER, Moment::NEVER);
    }

    /// Notes that nobody is to get the key until `at_least` has passed since the hold began. Of several times, the longest counts.
    pub(crate) fn delay_release(&mut self, at_least: Duration) {
        self.free_from = self.free_from.max(self.since + at_least);
    }

    /// Returns the moment until which nobody is to get the key, if it is still to come.
    ///
    /// It counts from the moment at which the client has noted that the hold begins, and that is after the grant in the store. So it is never
    /// too early; it is too late by the time for which the grant was under way.
    pub(crate) fn delayed_until(&self, now: Moment) -> Option<Moment> {
        (self.free_from > now).then_some(self.free_from)
    }

    /// Returns whether the hold is to be reported now. It is reported once.
    pub(crate) fn take_warning(&mut self, now: Moment) -> bool {
        let is_due = now >= self.warns_at;
        if is_due {
            self.warns_at = Moment::NEVER;
        }
        is_due
    }

    /// Puts the report off, because the thread does not know of the hold yet. A moment in the past would make the lease thread look without a pause.
    pub(crate) fn warns_later(&mut self, now: Moment) {
        if now >= self.warns_at {
            self.warns_at = now + timing::UNTOLD_PAUSE;
        }
    }
}

/// What a client knows of others that wait for the key of its tenure.
#[derive(Clone, Debug)]
pub(crate) struct Others {
    /// How many waited when the store granted the tenure.
    at_grant: u64,
    /// When they were first known to wait, and how often the hold was passed on in this process since.
    contended: Option<(Moment, u32)>,
    /// When contention was last reported. Replies to requests sent before this are stale.
    heard_at: Moment,
}

impl Others {
    /// Returns whether others are known to wait.
    pub(crate) fn wait(&self) -> bool {
        self.contended.is_some()
    }

    /// Notes how many wait, as a reply of the store or a message says.
    pub(crate) fn note(&mut self, waiting: u64, now: Moment) {
        if waiting == 0 {
            self.contended = None;
        } else {
            self.heard_at = now;
            self.contended.get_or_insert((now, 0));
        }
    }

    /// Notes how many wait, as the reply to an extension sent at `sent_at` says. "Nobody" is ignored if a message reported contention since.
    pub(crate) fn note_as_of(&mut self, waiting: u64, sent_at: Moment, now: Moment) {
        if waiting > 0 || self.contended.is_none() || self.heard_at < sent_at {
            self.note(waiting, now);
        }
    }
}

/// What decides when a client asks about its tenures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The slowest recent round trip.
    pub(crate) trip: Duration,
    /// The moment from which beats count, if the store is asked about many tenures together.
    pub(crate) beats_from: Option<Moment>,
}

/// The lease of one tenure: the moment until which the key is certainly ours, and the moments at which the lease thread must ask about it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// The time between a planned extension and the deadline.
    spare: Duration,
    /// The pause between two probes of the key; [`Duration::MAX`] if it is not probed.
    probe_pause: Duration,
    /// A time that was read before the last command that set or renewed the lease was first written.
    pub(crate) renewed_at: Moment,
    /// The moment until which the tenure is certainly ours: a lease after `renewed_at`, less a margin.
    deadline: Moment,
    /// When the key in the store must be probed, counted from when it was last known to contain our locker.
    probe_at: Moment,
    /// The moment since which the key may no longer contain our locker, because another server than before answers. [`Moment::NEVER`]
    /// without such a doubt.
    doubted_at: Moment,
    /// When the key must be checked because a message says that the hold was broken. [`Moment::NEVER`] if no message says so.
    check_at: Moment,
    /// Whether another such message has come after that check was due. The check may then have been sent before the hold was broken.
    is_told_again: bool,
    /// The earliest moment of the next check for this reason. The checks are limited because any program that may publish can send such
    /// messages.
    next_check: Moment,
    /// Whether a reply of the store has said that the key is ours. A tenure that begins with a message has no such reply at first.
    pub(crate) is_answered: bool,
    /// Whether the log has a warning of a failed extension or probe since the last one that succeeded.
    pub(crate) is_failing: bool,
}

impl Lease {
    /// Creates a lease that counts from `counts_from`.
    fn new(settings: &DLockConfig, counts_from: Moment) -> Self {
        let length = settings.lease();
        let valid = length - timing::margin(length);
        let probe_pause = if settings.probe { timing::probe_pause(length) } else { Duration::MAX };
        Self {
            length,
            spare: valid.saturating_sub(settings.renew_after()),
            probe_pause,
            renewed_at: counts_from,
            deadline: counts_from + valid,
            probe_at: counts_from + probe_pause,
            doubted_at: Moment::NEVER,
            check_at: Moment::NEVER,
            is_told_again: false,
            next_check: counts_from,
            is_answered: true,
            is_failing: false,
        }
    }

    /// Returns whether less than half the lease is left. The lease must then be extended before the thread is told of the hold.
    pub(crate) fn is_near_expiry(&self, now: Moment) -> bool {
        self.deadline.since(now) < timing::least_left(self.length)
    }

    /// Returns whether an extension that is answered now is late. By the settings, some time is left between an extension and the deadline.
    /// An extension is late if less than half of that time is left.
    pub(crate) fn is_late(&self, now: Moment) -> bool {
        self.deadline.since(now) < self.spare / 2
    }

    /// Returns when to extend the lease: at its configured fraction, or earlier if otherwise several round trips would not fit before the
    /// deadline.
    pub(crate) fn extend_at(&self, pace: Pace) -> Moment {
        let planned = self.deadline.before(self.spare);
        let trips = pace.trip.saturating_mul(timing::TRIPS_BEFORE_DEADLINE);
        let earliest = self.renewed_at + timing::earliest_extension(self.length);
        let at = if trips <= self.spare { planned } else { planned.min(self.deadline.before(trips).max(earliest)) };
        let beat = self.on_beat(pace, at);
        // A beat that is not after the last extension does not count.
        if beat > self.renewed_at { beat } else { at }
    }

    /// Returns when the lease thread must ask about the key next.
    fn due(&self, pace: Pace) -> Moment {
        let probe_at = self.on_beat(pace, self.probe_at);
        self.extend_at(pace).min(probe_at).min(self.doubted_at).min(self.check_at)
    }

    /// Returns the last beat that is not after this moment, so that one batch asks about all tenures with this lease. A beat comes every sixth of the
    /// lease, as a probe does. So a probe that is moved to the beat before it still comes after the last probe.
    fn on_beat(&self, pace: Pace, at: Moment) -> Moment {
        let Some(from) = pace.beats_from.filter(|from| *from <= at && at != Moment::NEVER) else { return at };
        let length = u64::try_from(timing::probe_pause(self.length).as_nanos()).unwrap_or(u64::MAX).max(1);
        at.before(Duration::from_nanos((at.as_nanos() - from.as_nanos()) % length))
    }

    /// Notes that a reply has extended the lease.
    pub(crate) fn renewed(&mut self, sent_at: Moment) {
        if sent_at > self.renewed_at {
            self.deadline = self.deadline + sent_at.since(self.renewed_at);
            self.renewed_at = sent_at;
        }
        self.is_answered = true;
        self.checked(sent_at);
    }

    /// Notes that the key contained our locker when a request sent at `sent_at` was answered.
    pub(crate) fn checked(&mut self, sent_at: Moment) {
        self.is_failing = false;
        self.probe_at = self.probe_at.max(sent_at + self.probe_pause);
        if self.doubted_at <= sent_at {
            self.doubted_at = Moment::NEVER;
        }
        if self.check_at <= sent_at {
            self.check_at = Moment::NEVER;
            if std::mem::take(&mut self.is_told_again) {
                self.check_no_earlier(sent_at);
            }
        }
    }

    /// Notes that a message says that the hold was broken. The key must be checked: at once, or when the pause after the last check for
    /// this reason is over.
    pub(crate) fn told_broken(&mut self, now: Moment) {
        if self.check_at <= now {
            self.is_told_again = true;
        } else if now.max(self.next_check) < self.check_at {
            self.check_no_earlier(now);
        }
    }

    fn check_no_earlier(&mut self, now: Moment) {
        self.check_at = now.max(self.next_check);
        self.next_check = self.check_at + timing::BROKEN_PAUSE;
    }

    /// Notes that another server than before answers from now on. The key must be checked.
    pub(crate) fn doubt(&mut self, now: Moment) {
        self.doubted_at = now;
    }

    /// Returns whether such a doubt has come up since the request was sent at `sent_at`, and the key was not checked since then.
    pub(crate) fn is_doubted_since(&self, sent_at: Moment) -> bool {
        self.doubted_at > sent_at && self.doubted_at != Moment::NEVER
    }
}

/// Tokens per fence number.
const PASSES: u64 = 1024;

/// The fencing tokens of one tenure: the current one, and those that follow. A token is fence number × 1024 + pass.
///
/// The store issues the fence number with the tenure. The pass counts the successive holds within the process. When the passes run out, the
/// store issues a range of numbers that no other tenure was or will be given.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    number: u64,
    pass: u64,
    /// Unused numbers, all above `number`.
    spare: Range<u64>,
}

impl Tokens {
    fn of(number: u64) -> Self {
        Self { number, pass: 0, spare: 0..0 }
    }

    /// Returns the token of the current hold.
    pub(crate) fn current(&self) -> u64 {
        self.number.saturating_mul(PASSES).saturating_add(self.pass)
    }

    /// Moves on to the next hold's token. Returns `false` if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        if self.pass + 1 < PASSES {
            self.pass += 1;
            return true;
        }
        match self.spare.next() {
            Some(number) => {
                (self.number, self.pass) = (number, 0);
                true
            }
            None => false,
        }
    }

    /// Returns whether the current token is the last one.
    pub(crate) fn is_last(&self) -> bool {
        self.pass + 1 >= PASSES && self.spare.is_empty()
    }

    /// Replaces the unused numbers by those of the store that are above the current number.
    pub(crate) fn refill(&mut self, numbers: RangeInclusive<u64>) {
        self.spare = *numbers.start().max(&(self.number + 1))..numbers.end().saturating_add(1);
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/state/tenure.rs"]
mod tests;
