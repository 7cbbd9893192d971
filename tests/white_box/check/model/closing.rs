//! Which thread ends a closed client. This is small enough to be explored completely.

use crate::client::activity::Activity;
use shuttle::thread;
use std::sync::Arc;
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
        let activity = Arc::new(Activity::default());
        activity.enter().expect("open");
        activity.begin_hold();
        activity.leave();
        activity.enter().expect("open");
        activity.close();
        let spawn = |act: fn(&Activity) -> bool| {
            let activity = Arc::clone(&activity);
            thread::spawn(move || act(&activity))
        };
        let comes = spawn(|activity| {
            activity.begin_hold();
            activity.leave();
            false
        });
        let closes = spawn(Activity::wait_until_left);
        let goes = activity.end_hold();
        let ended = [comes.join().expect("no panic"), closes.join().expect("no panic"), goes];
        assert_eq!(ended, [false; 3], "a thread holds, and the client is ended");
        assert!(activity.end_hold(), "nobody ends the client");
    });
    eprintln!("{schedules} schedules");
    assert!(schedules > 1000, "{schedules}");
}
