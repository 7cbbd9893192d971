//! The long mix: faults in a random order, for as long as one likes; and failovers, one after another.
//!
//! `DLOCK_TEST_HOURS=0.5 cargo test --test faults -- long:: --ignored --nocapture`; `DLOCK_TEST_SEED` plays an order again
//! (the machine's timing is another one). `DLOCK_TEST_FAILOVERS` says how many failovers there are, 100 without.

use crate::report::Bounds;
use crate::scenarios::cluster::planned::APART;
use crate::scenarios::sentinel::{ALL, bounds_with, lease_here};
use crate::scene::Scene;
use crate::servers::Servers;
use crate::setup::{Setup, lease, leases};
use crate::stage::Stage;
use crate::support::dice::{Dice, seed};
use crate::support::proxy::{Lot, Sent, Way};
use std::thread;
use std::time::{Duration, Instant};

/// How many faults a round has. After a round everything is judged and begins anew.
const FAULTS: usize = 8;

/// Shows: G1, G2, G7, G11, G12, L2.
#[test]
#[ignore = "takes as long as DLOCK_TEST_HOURS says, 36 s without"]
fn faults_in_a_random_order_break_nothing() {
    let hours: f64 = std::env::var("DLOCK_TEST_HOURS").map_or(0.01, |hours| hours.parse().expect("a number of hours"));
    let end = Instant::now() + Duration::from_secs_f64(3600.0 * hours);
    let (mut rounds, mut operations, mut holds) = (0, 0, 0);
    while Instant::now() < end {
        let setup = Setup::of("long mix").server(&["--enable-debug-command", "local"]);
        eprintln!("long mix: round {rounds}, DLOCK_TEST_SEED={}", setup.work.seed);
        let mut dice = Dice::new(setup.work.seed);
        // Faults meet, so a wait or a lost tenure may have any of them for its reason.
        let bounds = Bounds { lossy: false, told: leases(20.0), waited: leases(20.0), expired: usize::MAX };
        let report = setup
            .play(bounds, |scene| {
                for _ in 0..FAULTS {
                    play_one(scene, &mut dice);
                }
            })
            .assert_clean();
        rounds += 1;
        operations += report.operations;
        holds += report.holds;
    }
    eprintln!(
        "long mix: {rounds} rounds, {} faults, {operations} operations, {holds} holds, no violation",
        rounds * FAULTS
    );
}

/// One fault of a random kind, at a random process, for a random time; and its end.
fn play_one(scene: &mut Scene, dice: &mut Dice) {
    let process = u32::try_from(dice.up_to(2)).unwrap();
    let time = Duration::from_millis(dice.up_to(lease() * 2));
    let leases = time.as_secs_f64() * 1000.0 / lease() as f64;
    let fault = dice.up_to(11);
    eprintln!("  fault {fault} at process {process} for {time:.0?}");
    let proxy = |scene: &Scene, switch: &dyn Fn(&crate::support::Proxy)| switch(scene.proxy(process));
    match fault {
        0 => {
            let holder = scene.stop_holder();
            scene.sleep(leases);
            scene.resume(holder);
        }
        1 => {
            scene.stop(process);
            scene.sleep(leases);
            scene.resume(process);
        }
        2 => {
            let delay = time / 20;
            proxy(scene, &|proxy| proxy.delay(Way::ToClient, delay));
            scene.sleep(1.0);
            proxy(scene, &|proxy| proxy.delay(Way::ToClient, Duration::ZERO));
        }
        3 => {
            proxy(scene, &|proxy| proxy.lose_messages(true));
            scene.sleep(leases);
            proxy(scene, &|proxy| proxy.lose_messages(false));
        }
        4 => proxy(scene, &|proxy| proxy.silence()),
        5 => proxy(scene, &|proxy| proxy.reset()),
        6 => proxy(scene, &|proxy| drop(proxy.trap(Sent::Release, 0, Lot::LoseReply))),
        7 => proxy(scene, &|proxy| drop(proxy.trap(Sent::Extend, 0, Lot::DelayRequest(time)))),
        8 => proxy(scene, &|proxy| drop(proxy.trap(Sent::Acquire, 0, Lot::DelayRequest(time)))),
        9 => {
            scene.server.close_inboxes();
            scene.server.forget_scripts();
        }
        10 => {
            scene.server.pause(if dice.up_to(1) == 0 { "ALL" } else { "WRITE" }, time);
            scene.sleep(leases);
        }
        _ => scene.server.sleep(time),
    }
    scene.go_on(2);
}

/// What begins a failover.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Kill,
    Stop,
    Plan,
}

const EACH: [Cause; 3] = [Cause::Plan, Cause::Kill, Cause::Stop];

/// Shows: G1, G7, L1.
#[test]
fn three_failovers_in_a_row_break_nothing() {
    in_a_row(&mut Stage::open(), Setup::of("three failovers in a row").behind_sentinels(lease_here(), 0), &EACH);
}

/// Shows: G1, G7, L1.
#[test]
fn three_acknowledged_failovers_in_a_row_break_nothing() {
    in_a_row(&mut Stage::open(), Setup::of("three failovers in a row").behind_sentinels(lease_here(), ALL), &EACH);
}

/// Shows: G1, G3, G7, L1.
#[test]
fn three_failovers_of_a_cluster_in_a_row_break_nothing() {
    let setup = Setup::of("Cluster: three failovers in a row").in_cluster(lease_here());
    in_a_row(&mut Stage::open_cluster(), setup, &EACH);
}

/// Shows: G1, G7, L1.
#[test]
#[ignore = "takes some ten minutes for a hundred failovers, or as many as DLOCK_TEST_FAILOVERS says"]
fn a_hundred_failovers_in_a_row_break_nothing() {
    for acks in [0, ALL] {
        let setup = Setup::of("a hundred failovers in a row").behind_sentinels(lease_here(), acks);
        in_a_row(&mut Stage::open(), setup, &a_hundred());
    }
}

/// Shows: G1, G3, G7, L1.
#[test]
#[ignore = "takes some ten minutes for a hundred failovers, or as many as DLOCK_TEST_FAILOVERS says"]
fn a_hundred_failovers_of_a_cluster_in_a_row_break_nothing() {
    let setup = Setup::of("Cluster: a hundred failovers in a row").in_cluster(lease_here());
    in_a_row(&mut Stage::open_cluster(), setup, &a_hundred());
}

fn a_hundred() -> Vec<Cause> {
    let count: usize = std::env::var("DLOCK_TEST_FAILOVERS").map_or(100, |count| count.parse().expect("a number"));
    let mut dice = Dice::new(seed());
    (0..count).map(|_| EACH[dice.up_to(2) as usize]).collect()
}

/// Locks go from hand to hand all the while, so that each failover comes in the middle of something. An operator replaces the old master.
fn in_a_row(stage: &mut Stage, setup: Setup, causes: &[Cause]) {
    let (name, acks) = (setup.name, setup.work.acks);
    let report = stage.play(setup, bounds_with(acks), |scene| {
        for (n, cause) in causes.iter().enumerate() {
            eprintln!("{name}: {n}, {cause:?}");
            let failover = match cause {
                Cause::Kill => scene.kill_master(),
                Cause::Stop => scene.stop_master(),
                Cause::Plan => scene.plan_failover(n % 3),
            };
            scene.promoted(&failover);
            let all = scene.all_but(&[]);
            scene.followed_past_lost_releases(&failover, &all);
            if acks == 0 {
                scene.go_on(10);
            }
            if matches!(cause, Cause::Stop) {
                scene.wake(&failover);
            }
            scene.mend_for_acks(&failover);
            scene.go_on(10);
            let master = scene.server.heal();
            if matches!(scene.server, Servers::Cluster(..)) {
                thread::sleep(APART.saturating_sub(failover.age()));
            }
            if master != scene.server.master() {
                // The machine was so busy that one more failover happened. The waits until now show nothing.
                eprintln!("{name}: {n}, once more");
                scene.server.follow(master);
                scene.fault();
                scene.followed_past_lost_releases(&failover, &all);
            }
        }
    });
    report.assert_clean();
}
