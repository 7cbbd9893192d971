//! What a store demands of a lock's settings.

use crate::config::{DLockConfig, MIN_LEASE};
use crate::error::Error;
use crate::log;
use crate::store::processor::StoreLimits;
use crate::sync::Mutex;
use crate::timing;
use std::collections::HashSet;
use std::time::Duration;

/// The most lock types about whose leases is warned.
const MOST_WARNED: usize = 1000;

/// Checks settings against what a store can keep to, truncates the lease to the units in which the store counts, and lets it be extended
/// early enough to outlive an outage of the store, unless the config says when.
///
/// # Errors
///
/// [`Error::InvalidConfig`], which names the setting and the limit of the store.
pub(super) fn within(config: DLockConfig, limits: &StoreLimits) -> Result<DLockConfig, Error> {
    let asked = config.lease();
    let (shortest, longest) = (limits.shortest_lease, limits.longest_lease);
    // Checked as the store counts it.
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
    // Rounded up: a delay that is cut off would let the next holder in too early.
    let ticks = u64::try_from(config.lock_delay().as_nanos().div_ceil(tick) * tick).unwrap_or(u64::MAX);
    let delay = Duration::from_nanos(ticks);
    if whole + delay > longest {
        let hint =
            format!("this store keeps a lock for {longest:?} at most, the lease of {whole:?} included: give less");
        return Err(Error::invalid_config("lock_delay", format!("{:?}", config.lock_delay()), hint));
    }
    let config = if delay == config.lock_delay() { config } else { config.with_lock_delay(delay) };
    let extends_earlier = !config.has_renew_at() && !limits.outage.is_zero();
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
mod tests {
    use super::*;

    fn limits() -> StoreLimits {
        let (shortest_lease, tick) = (Duration::from_secs(10), Duration::from_secs(1));
        StoreLimits { shortest_lease, tick, ..StoreLimits::default() }
    }

    fn hint(config: DLockConfig) -> String {
        within(config, &limits()).expect_err("beyond the limits").to_string()
    }

    #[test]
    fn what_a_store_cannot_keep_is_refused_by_name() {
        let config = |seconds| DLockConfig::new("T", "x").with_lease(Duration::from_secs(seconds));
        let short = hint(config(9));
        assert!(short.contains("lease") && short.contains("9s") && short.contains("10s"), "{short}");
        let gap = hint(config(10).with_poller_gap(Duration::from_secs(60)));
        assert!(gap.contains("poller_gap") && gap.contains("60s"), "{gap}");
        assert_eq!(within(config(10), &limits()).expect("within").lease(), Duration::from_secs(10));
    }

    #[test]
    fn a_lock_delay_is_rounded_up_to_the_units_of_the_store_and_counts_beside_the_lease() {
        let seconds = Duration::from_secs;
        let config = DLockConfig::new("T", "x").with_lease(seconds(10));
        for (asked, kept) in [(0, 0), (1, 1000), (1000, 1000), (1001, 2000)] {
            let asked = config.clone().with_lock_delay(Duration::from_millis(asked));
            assert_eq!(within(asked, &limits()).expect("within").lock_delay(), Duration::from_millis(kept));
        }
        let narrow = StoreLimits { longest_lease: seconds(15), ..limits() };
        assert!(within(config.clone().with_lock_delay(seconds(5)), &narrow).is_ok());
        let refused = within(config.with_lock_delay(seconds(6)), &narrow).expect_err("beyond the limits").to_string();
        assert!(refused.contains("lock_delay") && refused.contains("6s") && refused.contains("15s"), "{refused}");
    }

    #[test]
    fn a_lease_is_truncated_to_the_units_of_the_store() {
        let config = DLockConfig::new("T", "x").with_lease(Duration::from_millis(12_700));
        assert_eq!(within(config, &limits()).expect("within").lease(), Duration::from_secs(12));
        let coarse = StoreLimits { tick: Duration::from_secs(1), ..StoreLimits::default() };
        let config = DLockConfig::new("T", "x").with_lease(Duration::from_millis(900));
        let refused = within(config, &coarse).expect_err("nothing is left of it").to_string();
        assert!(refused.contains("900ms") && refused.contains("1s"), "{refused}");
    }

    #[test]
    fn a_lease_is_extended_early_enough_to_outlive_an_outage_of_the_store() {
        let (seconds, limits) = (Duration::from_secs, |outage| StoreLimits { outage, ..StoreLimits::default() });
        for (lease, outage, expected) in
            [(30, 0, 22.5), (30, 7, 22.5), (30, 10, 20.0), (30, 20, 10.0), (30, 25, 10.0), (6, 60, 2.0)]
        {
            let config = DLockConfig::new("T", "x").with_lease(seconds(lease));
            let after = within(config.clone(), &limits(seconds(outage))).expect("within").renew_after().as_secs_f64();
            assert!((after - expected).abs() < 1e-6, "{lease} {outage}: {after}");
            let set = within(config.with_renew_at(0.5), &limits(seconds(outage))).expect("within").renew_after();
            assert_eq!(set, seconds(lease) / 2);
        }
    }

    #[test]
    fn one_warning_a_type_tells_of_leases_that_an_outage_may_end() {
        let limits = StoreLimits { outage: Duration::from_secs(20), ..StoreLimits::default() };
        let short = ShortLeases::default();
        let warned_of = |lock_type: &str, lease, renew_at: Option<f64>| {
            let config = DLockConfig::new(lock_type, "x").with_lease(Duration::from_secs(lease));
            let config = if let Some(part) = renew_at { config.with_renew_at(part) } else { config };
            let before = short.0.lock().len();
            short.warn_of(&within(config, &limits).expect("within"), &limits);
            short.0.lock().len() > before
        };
        assert!(!warned_of("A", 30, None));
        assert!(warned_of("A", 29, None));
        assert!(!warned_of("A", 29, None));
        assert!(warned_of("B", 30, Some(0.75)));
        assert!(!warned_of("C", 80, Some(0.75)));
        assert_eq!(timing::lease_for(limits.outage), Duration::from_secs(30));
    }
}
