//! Tests of a tenure.

use super::*;

fn tenure(lease_ms: u64, sent_at: Moment) -> Tenure {
    let settings = DLockConfig::new("T", "x").with_lease(Duration::from_millis(lease_ms));
    Tenure::new("me-1".into(), Arc::new(settings), Grant::new(7, 0), sent_at)
}

/// The pace of a store that is asked about each tenure alone.
fn alone(trip: Duration) -> Pace {
    Pace { trip, beats_from: None }
}

/// Shows: G5.
#[test]
fn the_deadline_counts_from_the_sending() {
    let sent = Moment::from_nanos(1_000_000_000);
    assert_eq!(tenure(1000, sent).deadline().since(sent), Duration::from_millis(990));
    assert_eq!(tenure(20, sent).deadline().since(sent), Duration::from_millis(18));
}

/// Shows: G5.
#[test]
fn a_lock_delay_is_for_the_store_alone() {
    let sent = Moment::from_nanos(1_000_000_000);
    let settings = DLockConfig::new("T", "x").with_lease(Duration::from_millis(1000));
    let delayed = Arc::new(settings.with_lock_delay(Duration::from_millis(700)));
    let t = Tenure::new("me-1".into(), delayed, Grant::new(7, 0), sent);
    assert_eq!((t.deadline().since(sent).as_millis(), t.store_time().as_millis()), (990, 1700));
}

/// Shows: G3.
#[test]
fn an_older_renewal_never_shortens_the_lease() {
    let sent = Moment::from_nanos(1_000_000_000);
    let mut t = tenure(1000, sent);
    t.lease.renewed(sent + Duration::from_millis(500));
    let deadline = t.deadline();
    t.lease.renewed(sent + Duration::from_millis(100));
    assert_eq!(t.deadline(), deadline);
}

/// Shows: G3, G5.
#[test]
fn the_lease_thread_looks_every_sixth_and_at_three_quarters() {
    let sent = Moment::from_nanos(1_000_000_000);
    let mut t = tenure(600, sent);
    let at = |t: &Tenure| t.due(alone(Duration::from_millis(1))).since(sent).as_millis();
    assert_eq!(at(&t), 100);
    t.lease.checked(sent + Duration::from_millis(400));
    assert_eq!(at(&t), 450);
    t.lease.renewed(sent + Duration::from_millis(450));
    assert_eq!(at(&t), 550);
}

/// Where a store is asked about many tenures together, each is asked about at a beat, at least as often as alone, and never twice at one beat.
///
/// Shows: G3, G5.
#[test]
fn tenures_that_began_at_different_times_are_due_at_the_same_beats() {
    let at = |ms| Moment::from_nanos(1_000_000_000) + Duration::from_millis(ms);
    let pace = Pace { trip: Duration::from_millis(1), beats_from: Some(at(0)) };
    for (granted, extension) in [(0, 400), (49, 400), (50, 500), (99, 500)] {
        let mut t = tenure(600, at(granted));
        for beat in (100..extension).step_by(100) {
            assert_eq!((t.due(pace), t.lease.extend_at(pace)), (at(beat), at(extension)));
            t.lease.checked(at(beat + 20));
        }
        assert_eq!(t.due(pace), at(extension));
        t.lease.renewed(at(extension + 20));
        assert_eq!((t.due(pace), t.lease.extend_at(pace)), (at(extension + 100), at(extension + 400)));
    }
    // No beat comes between two extensions of a lease that is extended very early.
    let settings = DLockConfig::new("T", "x").with_lease(Duration::from_millis(600)).with_renew_at(0.1);
    let t = Tenure::new("me-1".into(), Arc::new(settings), Grant::new(7, 0), at(10));
    assert_eq!(t.due(pace), at(70));
}

/// Shows: G3.
#[test]
fn a_lease_that_is_short_for_the_network_is_extended_earlier() {
    let sent = Moment::from_nanos(1_000_000_000);
    let at = |trip| tenure(1000, sent).lease.extend_at(alone(Duration::from_millis(trip))).since(sent).as_millis();
    assert_eq!(at(0), 750);
    assert_eq!(at(40), 750);
    assert_eq!(at(80), 990 - 480);
    assert_eq!(at(500), 166);
}

/// Shows: L4.
#[test]
fn that_nobody_waits_is_not_believed_of_the_time_before_a_message() {
    let at = |ms| Moment::from_nanos(1_000_000_000) + Duration::from_millis(ms);
    let mut t = tenure(1000, at(0));
    t.others.note(1, at(10));
    t.others.note(1, at(30));
    t.others.note_as_of(0, at(20), at(40));
    assert!(t.others.wait(), "heard again after this was asked");
    t.others.note_as_of(0, at(31), at(40));
    assert!(!t.others.wait());
}

/// Shows: G8, L4.
#[test]
fn others_are_let_in_after_so_many_passes_or_so_long() {
    let now = Moment::from_nanos(1_000_000_000);
    let mut t = tenure(1000, now);
    assert!((0..100).all(|_| t.may_pass(now)), "nobody else waits");
    t.others.note(3, now);
    assert_eq!((0..100).filter(|_| t.may_pass(now)).count(), 16);
    t.others.note(0, now);
    assert!(t.may_pass(now));
    t.others.note(1, now);
    assert!(t.may_pass(now + Duration::from_millis(9)));
    assert!(!t.may_pass(now + Duration::from_millis(10)));
    let mut deaf = tenure(1000, now);
    let passes = (0..100).filter(|_| {
        deaf.others.note(1, now);
        deaf.may_pass(now)
    });
    assert_eq!(passes.count(), 16, "a client that hears nothing assumes each time that others wait");
}

/// Shows: G7.
#[test]
fn tokens_rise_until_the_passes_are_used_up_and_go_on_with_fresh_numbers() {
    let mut tokens = Tokens::of(7);
    assert_eq!(tokens.current(), 7 * 1024);
    let mut last = tokens.current();
    for _ in 1..1024 {
        assert!(!tokens.is_last() && tokens.advance() && tokens.current() > last);
        last = tokens.current();
    }
    assert!(tokens.is_last() && !tokens.advance());
    assert_eq!(tokens.current(), last);
    tokens.refill(5..=9);
    assert!(tokens.advance());
    assert_eq!(tokens.current(), 8 * 1024, "numbers that were used are dropped");
    tokens.refill(1..=8);
    assert_eq!((1..3000).filter(|_| tokens.advance()).count(), 1023);
}

/// Shows: G7.
#[test]
fn tokens_fit_a_signed_column() {
    // The last microsecond of the year 2254.
    assert!(i64::try_from(Tokens::of(9_007_199_254_740_991).current()).is_ok());
}

/// The first check was sent before the break, and is answered after the message of it.
#[test]
fn a_message_of_a_break_that_comes_while_a_check_is_under_way_is_checked_too() {
    let sent = Moment::from_nanos(1_000_000_000);
    let mut t = tenure(600_000, sent);
    let due = |t: &Tenure| t.due(alone(Duration::ZERO));
    t.lease.told_broken(sent);
    assert_eq!(due(&t), sent);
    (0..3).for_each(|_| t.lease.told_broken(sent));
    t.lease.checked(sent);
    assert_eq!(due(&t), sent + timing::BROKEN_PAUSE, "once more, but not at once: anybody may have sent the messages");
    t.lease.checked(sent + timing::BROKEN_PAUSE);
    assert!(due(&t) > sent + timing::BROKEN_PAUSE * 2);
}

/// A hold whose thread has not yet run is not asked about again and again because it is to be reported.
#[test]
fn the_report_of_a_hold_that_its_thread_does_not_know_of_is_put_off() {
    let sent = Moment::from_nanos(1_000_000_000);
    let settings = DLockConfig::new("T", "x").with_lease(Duration::from_secs(60));
    let settings = Arc::new(settings.with_hold_warning(Duration::from_millis(1)));
    let mut t = Tenure::new("me-1".into(), settings, Grant::new(7, 0), sent);
    t.begin(sent);
    let now = sent + Duration::from_secs(1);
    assert!(t.due(alone(Duration::ZERO)) < now);
    t.hold.warns_later(now);
    assert!(t.due(alone(Duration::ZERO)) > now);
    let later = t.due(alone(Duration::ZERO));
    assert!(later < now + Duration::from_secs(1) && t.hold.take_warning(later) && !t.hold.take_warning(later));
}
