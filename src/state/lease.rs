//! The lease of one tenure: until when the key is certainly ours, and when the lease thread must ask about it.

use crate::clock::Moment;
use crate::config::DLockConfig;
use crate::timing;
use std::time::Duration;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// How long after it was set or renewed it is extended.
    renew_after: Duration,
    /// How often the key is probed in between, if it is.
    probe_pause: Option<Duration>,
    /// The time that was read before the command that last set or renewed the lease was first written.
    renewed_at: Moment,
    /// Until when the tenure is certainly ours: a lease after `renewed_at`, less a margin.
    deadline: Moment,
    /// When the key in the store was last known to contain our locker.
    checked_at: Moment,
    /// Since when the key may no longer contain our locker, because another server answers than before. [`Moment::NEVER`] without such a
    /// doubt.
    doubted_at: Moment,
    /// When the key must be checked because a message says that the hold was broken. [`Moment::NEVER`] if none does.
    check_at: Moment,
    /// When the next such message counts. Anybody who may publish can send them.
    next_check: Moment,
    /// Whether a reply of the store has said that the key is ours. A tenure that begins with a message has none at first.
    is_answered: bool,
}

impl Lease {
    /// Creates a lease that counts from `counts_from`.
    pub(crate) fn new(settings: &DLockConfig, counts_from: Moment) -> Self {
        let length = settings.lease();
        Self {
            length,
            renew_after: settings.renew_after(),
            probe_pause: settings.probe.then(|| timing::probe_pause(length)),
            renewed_at: counts_from,
            deadline: deadline(counts_from, length),
            checked_at: counts_from,
            doubted_at: Moment::NEVER,
            check_at: Moment::NEVER,
            next_check: counts_from,
            is_answered: true,
        }
    }

    /// Notes that no reply of the store has said so far that the key is ours.
    pub(crate) fn unanswered(self) -> Self {
        Self { is_answered: false, ..self }
    }

    /// Returns whether a reply of the store has said that the key is ours.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Returns the moment until which the tenure is certainly ours.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Returns the time that was read before the command that last set or renewed the lease was first written.
    pub(crate) fn renewed_at(&self) -> Moment {
        self.renewed_at
    }

    /// Returns whether less than half the lease is left. The lease must then be extended before anybody is told of
    /// the hold.
    pub(crate) fn is_near_expiry(&self, now: Moment) -> bool {
        now + timing::least_left(self.length) > self.deadline
    }

    /// Returns whether an extension that is answered now comes late: less than half of the time is left that the settings leave between an
    /// extension and the deadline.
    pub(crate) fn is_late(&self, now: Moment) -> bool {
        let planned = self.deadline.since(self.renewed_at + self.renew_after);
        self.deadline.since(now) < planned / 2
    }

    /// Returns when to extend the lease: at its configured fraction, or earlier if otherwise several round trips of
    /// this length would not fit before the deadline.
    pub(crate) fn extend_at(&self, trip: Duration) -> Moment {
        let by_part = self.renewed_at + self.renew_after;
        let by_trips = self.deadline.before(trip.saturating_mul(timing::TRIPS_BEFORE_DEADLINE));
        by_part.min(by_trips.max(self.renewed_at + timing::earliest_extension(self.length)))
    }

    /// Returns when the lease thread must ask about the key next.
    pub(crate) fn due(&self, trip: Duration) -> Moment {
        let probe = self.probe_pause.map_or(Moment::NEVER, |pause| self.checked_at + pause);
        self.extend_at(trip).min(probe).min(self.doubted_at).min(self.check_at)
    }

    /// Notes that a reply has extended the lease.
    pub(crate) fn renewed(&mut self, sent_at: Moment) {
        self.renewed_at = self.renewed_at.max(sent_at);
        self.deadline = deadline(self.renewed_at, self.length);
        self.is_answered = true;
        self.checked(sent_at);
    }

    /// Notes that the key contained our locker when a request sent at `sent_at` was answered.
    pub(crate) fn checked(&mut self, sent_at: Moment) {
        self.checked_at = self.checked_at.max(sent_at);
        if self.doubted_at <= sent_at {
            self.doubted_at = Moment::NEVER;
        }
        if self.check_at <= sent_at {
            self.check_at = Moment::NEVER;
        }
    }

    /// Notes that a message says that the hold was broken. The key must be checked: at once, or a while after the last check for this reason.
    pub(crate) fn told_broken(&mut self, now: Moment) {
        let at = now.max(self.next_check);
        if at < self.check_at {
            self.check_at = at;
            self.next_check = at + timing::BROKEN_PAUSE;
        }
    }

    /// Notes that another server answers since now. The key must be checked.
    pub(crate) fn doubt(&mut self, now: Moment) {
        self.doubted_at = now;
    }

    /// Returns whether such a doubt has come up since a request was sent, and the key was not checked since.
    pub(crate) fn is_doubted_since(&self, sent_at: Moment) -> bool {
        self.doubted_at > sent_at && self.doubted_at != Moment::NEVER
    }
}

/// Returns the moment until which a lease that was set or renewed then is certainly ours.
fn deadline(renewed_at: Moment, lease: Duration) -> Moment {
    renewed_at + (lease - timing::margin(lease))
}
