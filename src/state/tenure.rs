//! One tenure: its lease, its deadline, its tokens, and when other clients must be let in.

use crate::clock::Moment;
use crate::config::{DLockConfig, whole_milliseconds};
use crate::error::{Error, LeaseLoss, LossCause};
use crate::state::tokens::Tokens;
use crate::store::processor::{Gap, Grant};
use crate::sync::mutant;
use crate::timing;
use std::sync::Arc;
use std::time::Duration;

/// One unbroken ownership of the key by this client.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) locker: Arc<str>,
    pub(crate) settings: Arc<DLockConfig>,
    tokens: Tokens,
    /// How many others waited when the store granted the tenure.
    waiting: u64,
    /// When other clients were first known to wait, and how often the hold was passed on in this process since.
    contended: Option<(Moment, u32)>,
    /// When contention was last reported. Replies to requests sent before this are stale.
    heard_at: Moment,
    /// Until when the tenure is certainly ours: a lease after [`renewed_at`](Self::renewed_at), less a margin.
    deadline: Moment,
    /// When the key in the store was last known to contain our locker.
    checked_at: Moment,
    /// Since when the key may no longer contain our locker, because another server answers than before. [`Moment::NEVER`]
    /// without such a doubt.
    doubted_at: Moment,
    /// When the current hold began; [`Moment::NEVER`] without one.
    held_since: Moment,
    /// Whether a reply of the store has said that the key is ours. A tenure that begins with a message has none at first.
    is_answered: bool,
    /// Whether a thread was told of this hold. Before that, nobody needs to hear of its loss.
    pub(crate) told: bool,
    /// Whether a hold followed another one, by passing on or lingering.
    pub(crate) kept_on: bool,
    /// Whether its release must leave the key free for pollers.
    pub(crate) gap: Option<Gap>,
    /// Whether the retry thread has the key in its schedule, to notice the end of a linger.
    pub(crate) watched: bool,
    loss: Option<(LossCause, Moment)>,
}

impl Tenure {
    /// Creates a tenure whose lease counts from `counts_from`.
    pub(crate) fn new(locker: Arc<str>, settings: Arc<DLockConfig>, grant: Grant, counts_from: Moment) -> Self {
        Self {
            deadline: deadline(counts_from, settings.lease()),
            locker,
            settings,
            tokens: Tokens::of(if mutant!(TokensStand) { grant.number >> 20 } else { grant.number }),
            waiting: grant.waiting,
            contended: None,
            heard_at: counts_from,
            checked_at: counts_from,
            doubted_at: Moment::NEVER,
            held_since: Moment::NEVER,
            is_answered: true,
            told: false,
            kept_on: false,
            gap: None,
            watched: false,
            loss: None,
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.settings.lease()
    }

    /// Begins the tenure once the client has heard of it. The time that others wait counts from now.
    pub(crate) fn begin(&mut self, now: Moment) {
        self.note_waiting(self.waiting, now);
    }

    /// Notes that a hold begins.
    pub(crate) fn hold_begins(&mut self, now: Moment) {
        self.held_since = now;
    }

    /// Returns when the current hold began.
    pub(crate) fn held_since(&self) -> Moment {
        self.held_since
    }

    /// Notes that the hold has ended and that the tenure is kept.
    pub(crate) fn hold_ended(&mut self) {
        self.held_since = Moment::NEVER;
    }

    /// Returns when the current hold reaches the longest time that it may last.
    fn hold_ends(&self) -> Moment {
        self.settings.max_hold().map_or(Moment::NEVER, |limit| self.held_since + limit)
    }

    /// Returns the moment until which the current hold is certainly valid if nothing is done.
    pub(crate) fn valid_until(&self) -> Moment {
        self.deadline().min(self.hold_ends())
    }

    /// Returns why and when the hold has ended by itself, if it has by now.
    pub(crate) fn overdue(&self, now: Moment) -> Option<(LossCause, Moment)> {
        let hold_ends = self.hold_ends();
        let over = if hold_ends < self.deadline() {
            (LossCause::HeldTooLong, hold_ends)
        } else {
            (LossCause::Deadline, self.deadline())
        };
        (now >= over.1).then_some(over)
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
    pub(crate) fn gap(&self, last: Option<Moment>, others_wait: bool, now: Moment) -> Option<Gap> {
        let every = self.settings.poller_gap()?;
        let due = last.is_none_or(|last| now >= last + every) && (self.kept_on || self.is_contended() || others_wait);
        due.then(|| Gap::new(whole_milliseconds(timing::gap_length(self.lease())), every))
    }

    /// Returns whether others are known to wait.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended.is_some()
    }

    /// Returns whether the tenure is kept when nobody in this process wants it. Without an inbox, nobody would tell
    /// this client that others do.
    pub(crate) fn may_linger(&self, listening: bool) -> bool {
        !self.settings.linger().is_zero() && listening && !self.is_contended()
    }

    /// Returns whether the hold may be passed on to a thread of this process, and counts the pass. Without an inbox
    /// nobody would tell this client that others wait, so it assumes that they do.
    pub(crate) fn may_pass(&mut self, now: Moment, listening: bool) -> bool {
        if !listening {
            self.note_waiting(1, now);
        }
        match &mut self.contended {
            _ if mutant!(PassesWithoutEnd) => true,
            None => true,
            Some((since, passes)) if *passes < self.settings.local_passes() && now < *since + timing::LOCAL_TIME => {
                *passes += 1;
                true
            }
            Some(_) => false,
        }
    }

    /// Returns the moment until which the tenure is certainly ours.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Returns whether less than half the lease is left. The lease must then be extended before anybody is told of
    /// the hold.
    pub(crate) fn is_worn(&self, now: Moment) -> bool {
        now + timing::least_left(self.lease()) > self.deadline()
    }

    /// Returns when to extend the lease: at its configured fraction, or earlier if otherwise several round trips of
    /// this length would not fit before the deadline.
    pub(crate) fn extend_at(&self, trip: Duration) -> Moment {
        let renewed_at = self.renewed_at();
        let by_part = renewed_at + self.settings.renew_after();
        let by_trips = self.deadline().before(trip.saturating_mul(timing::TRIPS_BEFORE_DEADLINE));
        by_part.min(by_trips.max(renewed_at + timing::earliest_extension(self.lease())))
    }

    /// Returns when the lease thread must look at this tenure next.
    pub(crate) fn due(&self, trip: Duration) -> Moment {
        let probe =
            if self.settings.probe() { self.checked_at + timing::probe_pause(self.lease()) } else { Moment::NEVER };
        self.extend_at(trip).min(probe).min(self.doubted_at).min(self.valid_until())
    }

    /// Notes that a reply has extended the lease.
    pub(crate) fn renewed(&mut self, sent_at: Moment) {
        self.deadline = self.deadline.max(deadline(sent_at, self.lease()));
        self.is_answered = true;
        self.checked(sent_at);
    }

    /// Returns whether a reply of the store has said that the key is ours.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Returns the time that was read before the command that last set or renewed the lease was first written.
    pub(crate) fn renewed_at(&self) -> Moment {
        self.deadline.before(sure_part(self.lease()))
    }

    /// Notes that the key contained our locker when a request sent at `sent_at` was answered.
    pub(crate) fn checked(&mut self, sent_at: Moment) {
        self.checked_at = self.checked_at.max(sent_at);
        if self.doubted_at <= sent_at {
            self.doubted_at = Moment::NEVER;
        }
    }

    /// Notes that another server answers since now. The key must be checked.
    pub(crate) fn doubt(&mut self, now: Moment) {
        self.doubted_at = now;
    }

    /// Returns whether another server answers than when a request was sent, and the key was not checked since.
    pub(crate) fn is_doubted_since(&self, sent_at: Moment) -> bool {
        self.doubted_at > sent_at && self.doubted_at != Moment::NEVER
    }

    /// Returns why and when the tenure was lost.
    pub(crate) fn loss(&self) -> Option<&(LossCause, Moment)> {
        self.loss.as_ref()
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
        self.loss.as_ref().map(|(cause, at)| LeaseLoss {
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
            self.loss = Some((cause, at));
        }
        first
    }
}

/// Returns the moment until which a lease that was set or renewed then is certainly ours.
fn deadline(renewed_at: Moment, lease: Duration) -> Moment {
    renewed_at + sure_part(lease)
}

/// Returns the part of a lease during which the tenure is certainly ours.
fn sure_part(lease: Duration) -> Duration {
    lease - timing::margin(lease)
}

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
        Tenure { is_answered: false, ..self.granted(grant) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure(lease_ms: u64, sent_at: Moment) -> Tenure {
        let settings = DLockConfig::new("T", "x").with_lease(Duration::from_millis(lease_ms));
        Tenure::new("me-1".into(), Arc::new(settings), Grant::new(7, 0), sent_at)
    }

    /// Shows: G5.
    #[test]
    fn the_deadline_counts_from_the_sending() {
        let sent = Moment::from_nanos(1_000_000_000);
        assert_eq!(tenure(1000, sent).deadline().since(sent), Duration::from_millis(990));
        assert_eq!(tenure(20, sent).deadline().since(sent), Duration::from_millis(18));
    }

    /// Shows: G3.
    #[test]
    fn an_older_renewal_never_shortens_the_lease() {
        let sent = Moment::from_nanos(1_000_000_000);
        let mut t = tenure(1000, sent);
        t.renewed(sent + Duration::from_millis(500));
        let deadline = t.deadline();
        t.renewed(sent + Duration::from_millis(100));
        assert_eq!(t.deadline(), deadline);
    }

    /// Shows: G3, G5.
    #[test]
    fn the_lease_thread_looks_every_sixth_and_at_three_quarters() {
        let sent = Moment::from_nanos(1_000_000_000);
        let mut t = tenure(600, sent);
        let at = |t: &Tenure| t.due(Duration::from_millis(1)).since(sent).as_millis();
        assert_eq!(at(&t), 100);
        t.checked(sent + Duration::from_millis(400));
        assert_eq!(at(&t), 450);
        t.renewed(sent + Duration::from_millis(450));
        assert_eq!(at(&t), 550);
    }

    /// Shows: G3.
    #[test]
    fn a_lease_that_is_short_for_the_network_is_extended_earlier() {
        let sent = Moment::from_nanos(1_000_000_000);
        let at = |trip| tenure(1000, sent).extend_at(Duration::from_millis(trip)).since(sent).as_millis();
        assert_eq!(at(0), 750);
        assert_eq!(at(40), 750);
        assert_eq!(at(80), 990 - 480);
        assert_eq!(at(500), 166);
    }

    /// Shows: L4.
    #[test]
    fn that_nobody_waits_is_not_believed_of_the_time_before_a_message() {
        let at = |ms| Moment::from_nanos(1_000_000_000) + Duration::from_millis(ms);
        let mut t = tenure(1000, at(0));
        t.note_waiting(1, at(10));
        t.note_waiting(1, at(30));
        t.note_waiting_as_of(0, at(20), at(40));
        assert!(t.is_contended(), "heard again after this was asked");
        t.note_waiting_as_of(0, at(31), at(40));
        assert!(!t.is_contended());
    }

    /// Shows: G8, L4.
    #[test]
    fn others_are_let_in_after_so_many_passes_or_so_long() {
        let now = Moment::from_nanos(1_000_000_000);
        let mut t = tenure(1000, now);
        assert!((0..100).all(|_| t.may_pass(now, true)), "nobody else waits");
        t.note_waiting(3, now);
        assert_eq!((0..100).filter(|_| t.may_pass(now, true)).count(), 16);
        t.note_waiting(0, now);
        assert!(t.may_pass(now, true));
        t.note_waiting(1, now);
        assert!(t.may_pass(now + Duration::from_millis(9), true));
        assert!(!t.may_pass(now + Duration::from_millis(10), true));
        let mut deaf = tenure(1000, now);
        assert_eq!((0..100).filter(|_| deaf.may_pass(now, false)).count(), 16);
    }
}
