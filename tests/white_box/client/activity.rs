//! Unit tests of `src/client/activity.rs`.

use super::*;

/// Shows: L6.
#[test]
fn the_last_hold_after_the_closing_knows_it() {
    let activity = Activity::default();
    activity.begin_hold();
    activity.begin_hold();
    assert!(!activity.end_hold());
    assert!(activity.closing().try_recv().is_err_and(|error| !error.is_disconnected()));
    assert!(activity.close());
    assert!(activity.closing().try_recv().is_err_and(|error| error.is_disconnected()));
    assert!(!activity.close());
    assert!(!activity.enter());
    assert!(!activity.wait_until_left());
    assert!(activity.end_hold());
}

/// Shows: L6.
#[test]
fn the_closing_thread_waits_for_those_inside() {
    let activity = Activity::default();
    assert!(activity.enter());
    std::thread::scope(|scope| {
        activity.close();
        let closer = scope.spawn(|| activity.wait_until_left());
        // Time enough for it to end too early.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!closer.is_finished());
        assert!(!activity.leave(), "the closing thread ends the client");
        assert!(closer.join().expect("no panic"));
    });
}
