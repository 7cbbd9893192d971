//! Which thread ends a closed client. This is small enough to be explored completely.

use super::explorer::explore;
use super::mistakes::{Mutant, build_in};
use crate::client::activity::Activity;
use shuttle::scheduler::{DfsScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::thread;

/// Every schedule of so many threads, from when all have been spawned. What one could do before, it can do then, too.
struct Together {
    schedules: DfsScheduler,
    threads: usize,
    are_there: bool,
}

impl Scheduler for Together {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.are_there = false;
        self.schedules.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        self.are_there |= runnable.len() == self.threads;
        match self.are_there {
            true => self.schedules.next_task(runnable, current, is_yielding),
            false => runnable.first().map(|first| first.id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.schedules.next_u64()
    }
}

/// Explores every schedule of an execution with so many threads.
fn every_order(threads: usize, execution: fn(&'static Activity)) {
    let scheduler = Together { schedules: DfsScheduler::new(None, false), threads, are_there: false };
    // The threads of an execution outlive this scope, as far as the compiler knows.
    let schedules = explore(scheduler, move || execution(Box::leak(Box::default())));
    eprintln!("{schedules} schedules");
    assert!(schedules > 1000, "{schedules}");
}

/// Does as [`every_order`] without the gate, where no thread waits.
fn every_order_without_gate(threads: usize, execution: fn(&'static Activity)) {
    build_in(Some(Mutant::LeavesWithoutGate));
    every_order(threads, execution);
    build_in(None);
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
    every_order(3, |activity| a_hold_begins_as_another_ends(activity, Activity::wait_until_left));
}

/// Nobody waits for those inside.
/// Shows: L6, S23.
#[test]
fn a_hold_that_has_begun_keeps_a_client_alive_that_is_left_alone() {
    every_order_without_gate(3, |activity| a_hold_begins_as_another_ends(activity, Activity::leave_alone));
}

/// A thread leaves without a hold, and a hold ends.
/// Shows: L6.
#[test]
fn the_last_one_ends_a_client_that_is_left_alone() {
    every_order_without_gate(3, |activity| {
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
    every_order_without_gate(2, |activity| {
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
