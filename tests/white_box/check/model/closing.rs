//! Which thread ends a closed client. This is small enough to be explored completely.

use crate::client::activity::Activity;
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Explores every schedule of an execution.
fn every_order(execution: fn(&'static Activity)) {
    let schedules = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&schedules);
    shuttle::check_dfs(
        move || {
            counted.fetch_add(1, Ordering::Relaxed);
            // The threads of an execution outlive this scope, as far as the compiler knows.
            execution(Box::leak(Box::default()));
        },
        None,
    );
    let schedules = schedules.load(Ordering::Relaxed);
    eprintln!("{schedules} schedules");
    assert!(schedules > 1000, "{schedules}");
}

/// Somebody holds, and nobody is inside.
fn hold(activity: &Activity) {
    assert!(activity.enter());
    activity.begin_hold();
    assert!(!activity.leave());
}

/// One hold ends and another begins while the client is closed. The second hold is then on, so no thread may end the client; the end of
/// that hold must end it.
fn a_hold_begins_as_another_ends(activity: &'static Activity, close: fn(&Activity) -> bool) {
    hold(activity);
    assert!(activity.enter());
    activity.close();
    let comes = thread::spawn(move || {
        activity.begin_hold();
        activity.leave()
    });
    let closes = thread::spawn(move || close(activity));
    let goes = activity.end_hold();
    let ends = [comes.join().expect("no panic"), closes.join().expect("no panic"), goes];
    assert_eq!(ends, [false; 3], "a thread holds, and the client is ended");
    assert!(activity.end_hold(), "nobody ends the client");
}

/// Shows: L6, S23.
#[test]
fn a_hold_that_has_begun_keeps_a_closed_client_alive() {
    every_order(|activity| a_hold_begins_as_another_ends(activity, Activity::wait_until_left));
}

/// Nobody waits for those inside.
/// Shows: L6, S23.
#[test]
fn a_hold_that_has_begun_keeps_a_client_alive_that_is_left_alone() {
    every_order(|activity| a_hold_begins_as_another_ends(activity, Activity::leave_alone));
}

/// A thread leaves without a hold, and a hold ends.
/// Shows: L6.
#[test]
fn the_last_one_ends_a_client_that_is_left_alone() {
    every_order(|activity| {
        hold(activity);
        assert!(activity.enter());
        activity.close();
        let leaves = thread::spawn(move || activity.leave());
        let goes = thread::spawn(move || activity.end_hold());
        let closes = activity.leave_alone();
        let ends = [leaves.join().expect("no panic"), goes.join().expect("no panic"), closes];
        assert!(ends.contains(&true), "nobody ends the client");
    });
}

/// A thread leaves as another one comes, which has looked before the closing whether it may enter.
/// Shows: L6.
#[test]
fn a_thread_that_comes_too_late_ends_a_client_that_is_left_alone() {
    every_order(|activity| {
        assert!(activity.enter());
        activity.close();
        assert!(!activity.leave_alone());
        let turns_back = thread::spawn(move || {
            activity.begin_release();
            activity.leave()
        });
        let leaves = activity.leave();
        assert!(turns_back.join().expect("no panic") || leaves, "nobody ends the client");
    });
}
