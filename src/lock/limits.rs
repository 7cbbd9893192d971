//! What a store demands of a lock's settings.

use crate::config::DLockConfig;
use crate::error::Error;
use crate::store::processor::StoreLimits;
use std::time::Duration;

/// Checks settings against what a store can keep to, and truncates the lease to the units in which the store counts.
///
/// # Errors
///
/// [`Error::InvalidConfig`], which names the setting and the limit of the store.
pub(super) fn within(config: DLockConfig, limits: &StoreLimits) -> Result<DLockConfig, Error> {
    let lease = config.lease();
    let (shortest, longest) = (limits.shortest_lease, limits.longest_lease);
    if !(shortest..=longest).contains(&lease) {
        let hint = format!("this store keeps leases from {shortest:?} to {longest:?}: give one of these");
        return Err(Error::invalid_config("lease", format!("{lease:?}"), hint));
    }
    if let Some(every) = config.poller_gap()
        && !limits.poller_gaps
    {
        let hint = "this store cannot leave a lock free for clients that only poll: leave the setting out";
        return Err(Error::invalid_config("poller_gap", format!("{every:?}"), hint));
    }
    let tick = limits.tick.as_millis().max(1);
    let whole = Duration::from_millis(u64::try_from(lease.as_millis() / tick * tick).unwrap_or(u64::MAX));
    Ok(if whole == lease { config } else { config.with_lease(whole) })
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
    }
}
