//! Unit tests of `src/client/activity.rs`.

use super::*;

/// Shows: L6.
#[test]
fn the_last_hold_after_the_closing_knows_it() {
    let activity = Activity::default();
    Inside::of(&activity).expect("open").begin_hold();
    Inside::of(&activity).expect("open").begin_hold();
    assert!(!activity.end_hold());
    assert!(activity.closing().try_recv().is_err_and(|error| !error.is_disconnected()));
    assert!(activity.close());
    assert!(activity.closing().try_recv().is_err_and(|error| error.is_disconnected()));
    assert!(!activity.close());
    assert!(Inside::of(&activity).is_err());
    assert!(!activity.wait_until_left());
    assert!(activity.end_hold());
}

/// Shows: L6.
#[test]
fn the_closing_thread_waits_for_those_inside() {
    let activity = Activity::default();
    let inside = Inside::of(&activity).expect("open");
    std::thread::scope(|scope| {
        activity.close();
        let closer = scope.spawn(|| activity.wait_until_left());
        // Time enough for it to end too early.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!closer.is_finished());
        drop(inside);
        assert!(closer.join().expect("no panic"));
    });
}
