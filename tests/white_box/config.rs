//! Tests of the settings of a lock.

use super::*;

#[test]
fn unique_keys_follow_the_jvm() {
    let key = |t, target| DLockConfig::new(t, target).unique_key().to_owned();
    assert_eq!(key("USER", "7"), "DLOCK_USER_7");
    assert_eq!(key("USER", "\u{1}\t 7\r\n"), "DLOCK_USER_7");
    assert_eq!(key(" USER ", ""), "DLOCK_ USER _");
    assert_eq!(key("USER", "\u{3000}7\u{a0}"), "DLOCK_USER_\u{3000}7\u{a0}");
}

#[test]
fn bad_settings_are_named_with_their_value() {
    let message = |config: DLockConfig| config.checked().expect_err("must be refused").to_string();
    let ok = || DLockConfig::new("T", "x");
    assert!(message(DLockConfig::new("", "x")).contains("lock type"));
    for (lease, text) in
        [(Duration::ZERO, "0ns"), (Duration::from_micros(19_999), "19.999ms"), (Duration::MAX, "18446744073709551615")]
    {
        let message = message(ok().with_lease(lease));
        assert!(message.contains("lease") && message.contains(text), "{message}");
    }
    assert!(message(ok().with_max_hold(Duration::ZERO)).contains("max_hold"));
    for part in [f64::NAN, -1.0, 0.0, 1.0, f64::INFINITY] {
        let message = message(ok().with_renew_at(part));
        assert!(message.contains("renew_at") && message.contains(&part.to_string()), "{message}");
        // Before it is refused, it can be printed, and asked.
        assert_eq!(ok().with_renew_at(part).renew_after(), ok().renew_after());
    }
}

#[test]
fn gaps_for_pollers_are_no_more_frequent_than_leases() {
    let config = |every| DLockConfig::new("T", "x").with_lease(Duration::from_secs(5)).with_poller_gap(every).checked();
    for (every, text) in [
        (Duration::ZERO, "0ns"),
        (Duration::from_micros(4_999_999), "4.999999s"),
        (MAX_LEASE + Duration::from_millis(1), "2147483.648s"),
    ] {
        let message = config(every).expect_err("must be refused").to_string();
        assert!(message.contains("poller_gap") && message.contains(text), "{message}");
    }
    let kept = |every| config(every).expect("valid").poller_gap();
    assert_eq!(kept(Duration::from_micros(5_000_999)), Some(Duration::from_secs(5)));
    assert_eq!(kept(MAX_LEASE), Some(MAX_LEASE));
    assert_eq!(DLockConfig::new("T", "x").checked().expect("valid").poller_gap(), None);
}

#[test]
fn a_lock_delay_is_a_minute_at_most_in_whole_milliseconds_rounded_up() {
    let config = |delay| DLockConfig::new("T", "x").with_lock_delay(delay).checked();
    for delay in [Duration::from_nanos(60_000_000_001), Duration::MAX] {
        let message = config(delay).expect_err("must be refused").to_string();
        assert!(message.contains("lock_delay") && message.contains(&format!("{delay:?}")), "{message}");
    }
    for (delay, kept) in [(0, 0), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (60_000_000_000, 60_000)] {
        let config = config(Duration::from_nanos(delay)).expect("valid");
        assert_eq!(config.lock_delay(), Duration::from_millis(kept));
        assert_eq!(config.store_time(), DEFAULT_LEASE + Duration::from_millis(kept));
    }
}

#[test]
fn a_config_tells_its_settings() {
    let second = Duration::from_secs(1);
    let config = DLockConfig::new("T", "x").with_lease(20 * second).with_renew_at(0.5).with_probe(false);
    let config = config.with_local_passes(3).with_linger(second).with_max_hold(2 * second).with_reason("a\nb");
    assert_eq!((config.renew_after(), config.probe(), config.local_passes()), (10 * second, false, 3));
    assert_eq!((config.linger(), config.max_hold(), config.reason()), (second, Some(2 * second), Some("a\\nb")));
}

#[test]
fn texts_for_people_are_cut() {
    let longest = "é".repeat(LONGEST_NOTE);
    for (text, kept) in [
        (longest.clone(), longest.clone()),
        (longest.clone() + "x", longest + "…"),
        ("\n".repeat(1 << 20), "\\n".repeat(LONGEST_NOTE / 2) + "…"),
    ] {
        let config = DLockConfig::new("T", "x").with_reason(&*text).with_holder_name(text);
        assert_eq!((config.reason(), config.holder_name()), (Some(&*kept), Some(&*kept)));
    }
}

#[test]
fn leases_are_whole_milliseconds() {
    let config = DLockConfig::new("T", "x").with_lease(Duration::from_micros(20_999)).checked().expect("valid");
    assert_eq!(config.lease(), Duration::from_millis(20));
}

#[test]
fn a_config_knows_its_type_and_whether_it_has_a_lease() {
    for lock_type in ["ORDER", "", "_", "é_\u{1}"] {
        let config = DLockConfig::new(lock_type, "_7");
        assert_eq!((config.lock_type(), config.lease, config.lease()), (lock_type, None, DEFAULT_LEASE));
        assert_eq!(config.with_lease(DEFAULT_LEASE).lease, Some(DEFAULT_LEASE));
    }
}
