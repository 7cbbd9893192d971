//! Checks a lock's settings against the limits of its store.

use crate::config::{DLockConfig, MIN_LEASE};
use crate::error::Error;
use crate::log;
use crate::port::StoreLimits;
use crate::sync::Mutex;
use crate::timing;
use std::collections::HashSet;
use std::time::Duration;

/// How many lock types the warnings name at most.
const MOST_WARNED: usize = 1000;

/// Checks settings against the limits of a store. Truncates the lease to the units in which the store counts. Unless the config says when the
/// lease is extended, sets a time that is early enough to outlive an outage of the store. Fails with [`Error::InvalidConfig`], which names the
/// setting and the limit of the store.
pub(super) fn within(config: DLockConfig, limits: &StoreLimits) -> Result<DLockConfig, Error> {
    let asked = config.lease();
    let (shortest, longest) = (limits.shortest_lease, limits.longest_lease);
    // The lease is checked as the store counts it.
    let tick = limits.tick.as_nanos().max(1);
    let whole = Duration::from_millis(u64::try_from(asked.as_nanos() / tick * tick / 1_000_000).unwrap_or(u64::MAX));
    if !(shortest.max(MIN_LEASE)..=longest).contains(&whole) {
        let hint = format!(
            "this store keeps leases from {shortest:?} to {longest:?}, in units of {:?}: give one of these",
            limits.tick
        );
        return Err(Error::invalid_config("lease", format!("{asked:?}"), hint));
    }
    if let Some(every) = config.poller_gap()
        && !limits.poller_gaps
    {
        let hint = "this store cannot leave a lock free for clients that only poll: leave the setting out";
        return Err(Error::invalid_config("poller_gap", format!("{every:?}"), hint));
    }
    let config = if whole == asked { config } else { config.with_lease(whole) };
    // The delay is rounded up: a shorter one would let the next holder in too early.
    let ticks = u64::try_from(config.lock_delay().as_nanos().div_ceil(tick) * tick).unwrap_or(u64::MAX);
    let delay = Duration::from_nanos(ticks);
    if whole + delay > longest {
        let hint =
            format!("this store keeps a lock for {longest:?} at most, the lease of {whole:?} included: give less");
        return Err(Error::invalid_config("lock_delay", format!("{:?}", config.lock_delay()), hint));
    }
    let config = if delay == config.lock_delay() { config } else { config.with_lock_delay(delay) };
    let extends_earlier = config.renew_at.is_none() && !limits.outage.is_zero();
    Ok(if extends_earlier { config.with_renew_at(timing::renew_at(whole, limits.outage)) } else { config })
}

/// Warns of leases that cannot outlive an outage of the store, once for each lock type.
#[derive(Debug, Default)]
pub(super) struct ShortLeases(Mutex<HashSet<String>>);

impl ShortLeases {
    /// Warns if a hold with these settings may be lost by an outage of the store.
    pub(super) fn warn_of(&self, config: &DLockConfig, limits: &StoreLimits) {
        let survives = config.lease().saturating_sub(config.renew_after());
        // The settings are whole nanoseconds, and fractions of them are not.
        if survives + Duration::from_micros(1) >= limits.outage {
            return;
        }
        let mut warned = self.0.lock();
        if warned.len() < MOST_WARNED && warned.insert(config.lock_type().to_owned()) {
            drop(warned);
            log::warn!(
                LEASE,
                "locks of type {:?} have a lease of {:?}, extended after {:?}: a hold survives {survives:?}, and the store may be away for \
                 {:?} when it fails over. Give them a lease of at least {:?}",
                config.lock_type(),
                config.lease(),
                config.renew_after(),
                limits.outage,
                timing::lease_for(limits.outage)
            );
        }
    }
}

#[cfg(test)]
#[path = "../../tests/white_box/lock/limits.rs"]
mod tests;
