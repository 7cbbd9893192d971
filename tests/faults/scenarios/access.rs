//! Rights that are taken away while the lock is held and waited for, and given back.
//!
//! A thread that asks gets an error at once, which names the reason. A holder keeps trying until its deadline: an operator's mistake that is
//! corrected in time costs no lease.

use crate::refused::Length;
use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::setup::{Setup, leases};
use crate::support::crew::eventually;
use std::cell::RefCell;
use std::time::Duration;

/// Lets the server deny for a while. All threads that ask must get an error with these words.
fn deny(
    setup: Setup,
    length: Length,
    words: &str,
    begin: impl FnOnce(&mut Scene),
    end: impl FnOnce(&mut Scene),
) -> Report {
    // No attempt waits in silence: each gets an error, so there are many in a long time.
    let least = if matches!(length, Length::Long) { 10 } else { 0 };
    setup.first_holds(length.holds()).play(length.bounds(), |scene| {
        scene.refuse(length, begin, |scene| {
            eventually("somebody is told", || {
                scene.refresh();
                scene.failures("access denied", |_| true) > least
            });
            let denied = scene.failures("access denied", |_| true);
            assert_eq!(scene.failures(words, |_| true), denied, "by name");
            end(scene);
        });
        scene.sleep(0.5);
    })
}

#[track_caller]
fn judge(report: Report, length: Length) {
    match length {
        Length::Short => report.assert_clean_without_loss(),
        Length::Long => assert!(report.assert_clean().lost >= 1),
    }
}

/// A password is set while all are connected; then all connections break.
fn password_set(name: &'static str, length: Length) {
    // The operator stays connected.
    let admin = RefCell::new(None);
    let set = |password: &str| {
        let mut admin = admin.borrow_mut();
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(password).exec(admin.as_mut().unwrap()).unwrap();
    };
    let report = deny(
        Setup::of(name),
        length,
        "NOAUTH",
        |scene| {
            *admin.borrow_mut() = Some(scene.server.connection());
            set("new");
            scene.processes().for_each(|process| scene.proxy(process).reset());
        },
        |_| set(""),
    );
    judge(report, length);
}

/// Shows: G3.
#[test]
fn a_password_that_is_taken_back_in_time_costs_no_lease() {
    password_set("NOAUTH 0.2 L", Length::Short);
}

/// Shows: G5.
#[test]
fn a_password_that_stays_ends_leases_at_their_deadlines() {
    password_set("NOAUTH 1.5 L", Length::Long);
}

/// A server with a user for the workers.
fn with_user(name: &'static str) -> Setup {
    let mut setup = Setup::of(name).server(&["--user", "dlock", "on", ">secret", "~*", "&*", "+@all"]);
    setup.login = Some("dlock:secret");
    setup
}

/// A right is taken away while all are connected.
fn right_taken(setup: Setup, length: Length, right: &str, words: &str) -> Report {
    let change = |scene: &Scene, sign: &str| scene.server.set_user("dlock", &[&format!("{sign}{right}")]);
    deny(setup, length, words, |scene| change(scene, "-"), |scene| change(scene, "+"))
}

/// A holder whose extension is denied is not told that the lock is lost: it asks again until its deadline.
pub(crate) fn right_taken_for_a_moment(mutant: Option<&'static str>) -> Report {
    right_taken(with_user("NOPERM evalsha 0.2 L").with(mutant), Length::Short, "evalsha", "NOPERM")
}

/// Shows: G3.
#[test]
fn a_right_that_is_given_back_in_time_costs_no_lease() {
    judge(right_taken_for_a_moment(None), Length::Short);
    let inside = with_user("NOPERM get in scripts 0.2 L");
    // "The user executing the script …" by 7.0, "ACL failure in script: …" from 7.2 on.
    judge(right_taken(inside, Length::Short, "get", "script"), Length::Short);
}

/// Shows: G5.
#[test]
fn a_right_that_stays_away_ends_leases_at_their_deadlines() {
    judge(right_taken(with_user("NOPERM evalsha 1.5 L"), Length::Long, "evalsha", "NOPERM"), Length::Long);
}

/// The right to publish is taken away for good, after all processes have shown that they have it. A waiter then finds its grant by a poll: after a
/// sixth of the lease, or when the holder's lease is over.
fn messages_denied(name: &'static str, rules: &[&str], in_queue: bool) {
    let bounds = Bounds { waited: leases(1.0 / 6.0) + Duration::from_millis(160), ..Bounds::default() };
    let report = with_user(name).play(bounds, |scene| {
        scene.server.run::<()>(&["ACL", "LOG", "RESET"]);
        scene.server.set_user("dlock", rules);
        scene.sleep(2.0);
        scene.go_on(12);
        // Waiters in the queue are not forgotten. A process that is not heard there only gets the lock by chance.
        let from = scene.fault_at;
        for process in scene.processes().filter(|_| in_queue) {
            eventually("it gets the lock", || scene.got_since(process, from) > 0);
        }
        let log: Vec<redis::Value> = scene.server.run(&["ACL", "LOG"]);
        assert!(!log.is_empty(), "messages were denied");
        assert_eq!(scene.failures("access denied", |_| true), 0, "that is no caller's concern");
    });
    report.assert_clean_without_loss();
}

/// Shows: G10, L1.
#[test]
fn without_the_right_to_tell_others_waiters_proceed_by_asking() {
    messages_denied("PUBLISH denied", &["-publish"], true);
}

#[test]
fn without_the_right_to_any_channel_waiters_proceed_by_asking() {
    // The server closes the inboxes, too: then nobody can wait in the queue.
    messages_denied("channels denied", &["resetchannels"], false);
}

/// Shows: G3.
#[test]
fn a_rotated_password_matters_to_nobody_who_is_connected() {
    let report = with_user("password rotated").first_holds(1.2).play(Bounds::default(), |scene| {
        for password in ["new", "newer", "secret"] {
            scene.wait_inside(0);
            scene.server.set_user("dlock", &["resetpass", &format!(">{password}")]);
            scene.sleep(0.5);
        }
    });
    report.assert_clean_without_loss();
}

/// A password is rotated, and all connections break.
fn password_rotated(name: &'static str, length: Length) {
    let report = deny(
        with_user(name),
        length,
        "WRONGPASS",
        |scene| {
            scene.server.set_user("dlock", &["resetpass", ">new"]);
            assert!(scene.server.run::<u64>(&["CLIENT", "KILL", "USER", "dlock"]) >= 3);
        },
        |scene| scene.server.set_user("dlock", &[">secret"]),
    );
    judge(report, length);
}

/// Shows: G3.
#[test]
fn a_rotated_password_that_is_good_again_in_time_costs_no_lease() {
    password_rotated("WRONGPASS 0.2 L", Length::Short);
}

/// Shows: G5.
#[test]
fn a_rotated_password_ends_leases_at_their_deadlines() {
    password_rotated("WRONGPASS 1.5 L", Length::Long);
}
