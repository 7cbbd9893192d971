//! A server that executes nothing for a while, or no writes: it loads its data, runs another program's script, cannot save, has no memory left, or is
//! no master any more.
//!
//! Its errors mean "not executed", so only time is lost. A lease is lost if this lasts longer than the lease.

use crate::checker::waits::Kept;
use crate::history::Op;
use crate::refused::{Asker, Length};
use crate::report::{Bounds, Report};
use crate::scene::Scene;
use crate::setup::{Setup, leases};
use crate::support::RedisServer;
use crate::support::crew::{eventually, spawn};
use crate::worker::now;
use std::time::Duration;

#[track_caller]
fn judge(report: Report, length: Length) {
    match length {
        Length::Short => report.assert_clean_without_loss(),
        Length::Long => assert!(report.assert_clean().lost >= 1),
    }
}

/// The server refuses with one of these words, which `try_lock` and timed calls pass on, while `lock()` waits.
fn refuse(
    setup: Setup,
    length: Length,
    words: &[&str],
    begin: impl FnOnce(&mut Scene),
    end: impl FnOnce(&mut Scene),
) -> Report {
    let mut waiter = None;
    setup.first_holds(length.holds()).play(length.bounds(), |scene| {
        let asker = Asker::of(&scene.server);
        let begin = |scene: &mut Scene| {
            begin(scene);
            waiter = Some(asker.is_refused(words));
        };
        scene.refuse(length, begin, end);
        waiter.take().unwrap().join();
        scene.refresh();
        for word in words {
            assert_eq!(scene.failures(word, |op| op == Op::Lock), 0, "lock() waits");
        }
        scene.sleep(0.5);
    })
}

fn busy(name: &'static str, length: Length) {
    let report = refuse(
        Setup::of(name),
        length,
        &["BUSY"],
        |scene| scene.server.run_endless_script(),
        |scene| scene.server.kill_script(),
    );
    judge(report, length);
}

/// Shows: G3, G5.
#[test]
fn a_busy_script_costs_no_lease_unless_it_lasts_longer() {
    busy("busy script 0.2 L", Length::Short);
    busy("busy script 1.5 L", Length::Long);
}

/// Lets the server fail to save, as one does whose disk is full or whose directory is gone.
fn break_saving(server: &RedisServer) {
    let dir = tempfile::tempdir().unwrap();
    server.config("save", "3600 1000000");
    server.config("dir", dir.path().to_str().unwrap());
    drop(dir);
    server.run::<()>(&["BGSAVE"]);
    eventually("the saving has failed", || server.info("persistence").contains("rdb_last_bgsave_status:err"));
}

fn misconfigured(name: &'static str, length: Length) {
    let report = refuse(
        Setup::of(name).server(&["--enable-protected-configs", "local"]),
        length,
        &["MISCONF"],
        |scene| break_saving(&scene.server),
        |scene| scene.server.config("stop-writes-on-bgsave-error", "no"),
    );
    judge(report, length);
}

/// Shows: G3, G5.
#[test]
fn a_server_that_cannot_save_costs_no_lease_unless_it_lasts_longer() {
    misconfigured("MISCONF 0.2 L", Length::Short);
    misconfigured("MISCONF 1.5 L", Length::Long);
}

/// Shows: G3, L2.
#[test]
fn a_server_without_memory_refuses_new_locks_only() {
    // Renewals, releases and hand-overs go on, for however long.
    let report = refuse(
        Setup::of("maxmemory reached, noeviction, 1.5 L"),
        Length::Long,
        &["OOM"],
        |scene| scene.server.config("maxmemory", "1"),
        |scene| scene.server.config("maxmemory", "0"),
    );
    assert!(report.expired == 0, "all was released: {report}");
    report.assert_clean_without_loss();
}

/// Shows: L1.
#[test]
fn a_full_server_hands_over_to_those_who_wait() {
    let report = Setup::of("maxmemory reached, hand-over").first_holds(1.2).play(Length::Short.bounds(), |scene| {
        scene.wait_inside(0);
        scene.next();
        scene.server.config("maxmemory", "1");
        let at = now();
        scene.fault();
        // The first process holds for more than a lease; then another one is given the lock.
        let waited = scene.next_hold_after(at);
        assert!(waited < leases(2.0), "{waited:?}");
        scene.server.config("maxmemory", "0");
    });
    report.assert_clean_without_loss();
}

/// A master becomes a replica that has no master, and a master again.
fn demoted(name: &'static str, length: Length) {
    let report = refuse(
        Setup::of(name),
        length,
        // What a new connection says, which takes the place of one that has heard it.
        &["READONLY", "is a replica"],
        |scene| scene.server.pause_replication(),
        |scene| scene.server.promote(),
    );
    judge(report, length);
}

/// Shows: G3, G5.
#[test]
fn a_master_that_is_a_replica_for_a_while_costs_no_lease_unless_it_lasts_longer() {
    demoted("REPLICAOF on the master 0.2 L", Length::Short);
    demoted("REPLICAOF on the master 1.5 L", Length::Long);
}

/// How often the server's log of commands is filled, so that loading it takes more than a lease.
const COMMANDS: usize = 12_000;

/// Shows: L3.
#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let setup = Setup::of("LOADING 1.2 L").server(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "no",
        // Microseconds for each command, of which some thousand are executed between two looks at the connections.
        "--key-load-delay",
        "20",
    ]);
    let bounds = Bounds { waited: leases(1.0), ..Bounds::default() };
    let mut told = Vec::new();
    let report = setup.first_holds(1.3).unwatched().play(bounds, |scene| {
        let mut junk = redis::pipe();
        for n in 0..COMMANDS {
            junk.set("junk", n).ignore();
        }
        junk.exec(&mut scene.server.connection()).unwrap();
        let asker = Asker::of(&scene.server);
        scene.wait_inside(0);
        scene.fault();
        let (at, (end, is_over)) = (now(), crossbeam_channel::bounded::<()>(0));
        let asking = spawn(move || {
            let mut told = Vec::new();
            while is_over.recv_timeout(Duration::from_millis(5)) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
                told.extend(asker.try_once());
            }
            told
        });
        scene.server.restart();
        scene.kept.push(Kept { at, until: now() });
        drop(end);
        told = asking.join();
        scene.server.run::<()>(&["DEL", "junk"]);
        scene.sleep(0.5);
    });
    assert!(told.iter().any(|words| words.contains("LOADING")), "by name: {told:?}");
    report.assert_clean();
}
