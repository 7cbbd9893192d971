//! Unit tests of `src/lock/limits.rs`.

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
