//! What a store demands of a lock's settings.

use crate::config::{DLockConfig, MIN_LEASE};
use crate::error::Error;
use crate::store::processor::StoreLimits;
use std::time::Duration;

/// Checks settings against what a store can keep to, and truncates the lease to the units in which the store counts.
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
    Ok(if whole == asked { config } else { config.with_lease(whole) })
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
    fn a_lease_is_truncated_to_the_units_of_the_store() {
        let config = DLockConfig::new("T", "x").with_lease(Duration::from_millis(12_700));
        assert_eq!(within(config, &limits()).expect("within").lease(), Duration::from_secs(12));
        let coarse = StoreLimits { tick: Duration::from_secs(1), ..StoreLimits::default() };
        let config = DLockConfig::new("T", "x").with_lease(Duration::from_millis(900));
        let refused = within(config, &coarse).expect_err("nothing is left of it").to_string();
        assert!(refused.contains("900ms") && refused.contains("1s"), "{refused}");
    }
}
