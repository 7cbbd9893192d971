//! Which thread ends a closed client. This is small enough to be explored completely.

use crate::client::activity::{Activity, Inside};
use shuttle::thread;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Explores every schedule of an execution. Returns how many there are.
fn every_order(execution: fn()) -> usize {
    static SCHEDULES: AtomicUsize = AtomicUsize::new(0);
    SCHEDULES.store(0, Ordering::Relaxed);
    shuttle::check_dfs(
        move || {
            SCHEDULES.fetch_add(1, Ordering::Relaxed);
            execution();
        },
        None,
    );
    SCHEDULES.load(Ordering::Relaxed)
}

/// One hold ends and another begins while the client is closed. The second hold is then on, so no thread may end the client; the end of
/// that hold must end it.
/// Shows: L6.
#[test]
fn a_hold_that_has_begun_keeps_a_closed_client_alive() {
    let schedules = every_order(|| {
        // The threads of an execution outlive this scope, as far as the compiler knows.
        let activity: &'static Activity = Box::leak(Box::default());
        Inside::of(activity).expect("open").begin_hold();
        let inside = Inside::of(activity).expect("open");
        activity.close();
        let comes = thread::spawn(move || inside.begin_hold());
        let closes = thread::spawn(|| activity.wait_until_left());
        let goes = activity.end_hold();
        comes.join().expect("no panic");
        assert_eq!([closes.join().expect("no panic"), goes], [false; 2], "a thread holds, and the client is ended");
        assert!(activity.end_hold(), "nobody ends the client");
    });
    eprintln!("{schedules} schedules");
    assert!(schedules > 1000, "{schedules}");
}
