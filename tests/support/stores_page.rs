//! The manual's page "Stores", whose figures are the limits of the stores.

use redis_dlock::LockProcessor;
use redis_dlock::processor::DeadWaiters;
use std::collections::BTreeMap;
use std::time::Duration;

const PAGE: &str = include_str!("../../src/manual/stores.md");

/// The tables that have a column for each store, by their first lines.
const TABLES: [&str; 2] = ["| | embedded | Redis | Redis Sentinel | Redis Cluster |", "| | etcd | Consul | MongoDB |"];

/// The cells of the column of one store, by the names of their rows. A cell that says so is the same as the one before it.
fn column(store: &str) -> BTreeMap<&'static str, String> {
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim);
    let table = TABLES.iter().find(|head| cells(head).any(|cell| cell == store)).expect("a column");
    let place = cells(table).position(|cell| cell == store).expect("a column");
    let rows = PAGE.lines().skip_while(|line| line != table).skip(2).take_while(|line| line.starts_with('|'));
    let rows = rows.map(|row| {
        assert_eq!(cells(row).count(), cells(table).count(), "{row}");
        let cell = cells(row).take(place + 1).filter(|cell| *cell != "the same").last().expect("a cell");
        (cells(row).next().expect("a name"), cell.to_owned())
    });
    rows.collect()
}

/// A time as the page writes it, in whole units.
fn told(time: Duration) -> String {
    match time.as_secs() {
        _ if time.is_zero() => "none".into(),
        0 => format!("{} ms", time.as_millis()),
        seconds @ ..3600 => format!("{seconds} s"),
        seconds @ ..=86_400 => format!("{} h", seconds / 3600),
        // The longest one.
        31_622_400 => "a year".into(),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.into()
}

/// Checks that the column of this name tells the limits of the store.
pub(crate) fn tells_limits(name: &str, store: &dyn LockProcessor) {
    let (column, limits) = (column(name), store.limits());
    let cell = |row: &str| column.get(row).unwrap_or_else(|| panic!("no row {row:?}")).as_str();
    let leases = cell("leases");
    assert!(leases.starts_with(&told(limits.shortest_lease)), "{leases}, {name}");
    assert!(leases.ends_with(&format!(" to {}", told(limits.longest_lease))), "{leases}, {name}");
    let expected = [
        ("leases in units of", told(limits.tick.max(Duration::from_millis(1)))),
        ("the same in leases, at most, unless a new leader is elected", limits.dead_holder_leases.to_string()),
        ("the limit of one command, where no wait sets a shorter one", told(limits.command)),
        ("a waiter knows how long the holder's lease lasts", yes_or_no(limits.remaining_known)),
        ("turns for pollers ([`with_poller_gap`][DLockConfig::with_poller_gap])", yes_or_no(limits.poller_gaps)),
        (
            "[`describe`, `list`][who_holds_it], [`break_lock`][DLockGenerator::break_lock]",
            yes_or_no(store.directory().is_some() && limits.breaks),
        ),
    ];
    for (row, expected) in expected {
        assert_eq!(cell(row), expected, "{row}: {name}");
    }
    let kept = cell("keeps a lock for a while after a hold ([Scheduled jobs][scheduled_jobs])");
    let longest = told(limits.longest_release_delay);
    let expected = match limits.shortest_release_delay {
        Duration::ZERO => format!("up to {longest}"),
        shortest => format!("{} to {longest}", told(shortest)),
    };
    assert_eq!(kept.split([',', ';']).next(), Some(expected.as_str()), "{kept}: {name}");
    let is_passed_over = cell("a dead waiter").starts_with("is passed over at once");
    assert_eq!(is_passed_over, limits.dead_waiters == DeadWaiters::AtOnce, "{name}");
    let outage = cell("renewals allow for an outage of");
    if outage != "what the Sentinels are set to" {
        assert_eq!(outage, told(limits.outage), "{name}");
    }
}
