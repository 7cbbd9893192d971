//! A release that is delayed: the hold has ended, and nobody gets the key before a moment.
//!
//! The tenure ends as other tenures do, except that the key then contains a [mark](DelayedRelease), which is no client's locker. To the store, to
//! waiters, to clients of earlier versions and to JVM DLock the key is held by the mark, with a lease that nobody extends. So there is no new way in:
//! the first question after the end gives the key to the first waiter, as after the end of any lease.
//!
//! If a delayed release has no reply, it is repeated. Before its moment it is never replaced by an ordinary release, which would free the key. The
//! mark stays the same, so a repetition finds what an earlier try has written. What is left of the delay is computed again for each try, so the
//! moment stays the same, too. If no try is answered before the lease of the tenure ends, the key may be free too early. So the caller is told that
//! nothing is confirmed, and the clean-up list repeats the release.

use super::core::Core;
use crate::clock::Moment;
use crate::description::DelayedRelease;
use crate::port::{Claim, ReleaseDelay, Request};
use crate::state::tenure::Tenure;

/// A delayed release: the mark that the key contains, and the moment until which it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delayed {
    mark: String,
    until: Moment,
}

impl Delayed {
    /// Returns what delays the release of a tenure whose hold has ended now. A tenure that is lost is not ours to keep from others.
    pub(super) fn of(core: &Core, tenure: &Tenure, now: Moment) -> Option<Self> {
        let until = tenure.hold.delayed_until(now).filter(|_| !tenure.is_lost())?;
        let settings = tenure.of_hold.as_ref().unwrap_or(&tenure.settings);
        let this = DelayedRelease::of_this_process(core.id.current().host());
        let mark = DelayedRelease {
            locker: tenure.locker.to_string(),
            held_for: now.since(tenure.hold.since),
            delay: until.since(now),
            holder_name: settings.holder_name().map(str::to_owned),
            reason: settings.reason().map(str::to_owned),
            ..if core.limits.remaining_known { this } else { this.ending_now() }
        };
        Some(Self { mark: mark.to_mark(), until })
    }

    /// Returns the request that ends a tenure now: an ordinary release once the moment is over.
    pub(super) fn ending<'a>(delayed: Option<&'a Self>, claim: Claim<'a>, now: Moment) -> Request<'a> {
        match delayed.filter(|delayed| delayed.until > now) {
            Some(Self { mark, until }) => Request::DelayRelease(claim, ReleaseDelay::new(mark, until.since(now))),
            None => Request::Release(claim),
        }
    }
}
