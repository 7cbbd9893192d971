//! Unit tests of `src/state/hold.rs`.

use super::*;
use crate::config::DLockConfig;
use crate::port::Grant;
use crate::state::owner::current_thread;
use std::sync::Arc;
use std::time::Duration;

/// Begins the first hold of the tenure with this number for the calling thread.
fn begin(hold: &CurrentHold, reentry: bool, number: u64) {
    let settings = Arc::new(DLockConfig::new("T", "x").with_lease(Duration::from_secs(1)).with_reentry(reentry));
    let tenure = Tenure::new("me-1".into(), Arc::clone(&settings), Grant::new(number, 0), Moment::from_nanos(0));
    hold.begin(Taker { owner: current_thread(), settings: &settings }, &tenure);
}

#[test]
fn the_count_stops_at_the_limit() {
    let hold = CurrentHold::none();
    begin(&hold, true, 1);
    hold.count.store(MAX_COUNT - 1, Ordering::Relaxed);
    assert_eq!(hold.reenter(current_thread()), Reentry::Entered);
    assert_eq!(hold.reenter(current_thread()), Reentry::TooMany);
    assert_eq!(hold.count(), MAX_COUNT);
    assert_eq!(hold.leave(current_thread(), None), Exit::Inner);
    assert_eq!(hold.reenter(current_thread()), Reentry::Entered);
}

#[test]
fn a_hold_without_reentry_counts_one_and_stays_so() {
    let hold = CurrentHold::none();
    begin(&hold, false, 1);
    assert_eq!(hold.reenter(current_thread()), Reentry::Refused);
    assert_eq!(hold.count(), 1);
    assert_eq!(hold.leave(current_thread(), Some(1024)), Exit::Last);
    assert_eq!(hold.leave(current_thread(), Some(2048)), Exit::NotHeld);
    hold.lose();
    assert_eq!(hold.reenter(current_thread()), Reentry::Lost);
    begin(&hold, true, 2);
    assert_eq!(hold.reenter(current_thread()), Reentry::Entered);
}

/// Shows: G6.
#[test]
fn loss_is_sticky_until_the_next_hold() {
    let hold = CurrentHold::none();
    begin(&hold, true, 1);
    assert!(hold.is_valid(1024, Moment::from_nanos(5)));
    hold.lose();
    assert!(!hold.is_valid(1024, Moment::from_nanos(5)));
    assert_eq!(hold.reenter(current_thread()), Reentry::Lost);
    hold.end();
    begin(&hold, true, 2);
    assert!(hold.is_valid(2048, Moment::from_nanos(5)));
    assert!(!hold.is_valid(1024, Moment::from_nanos(5)));
}
