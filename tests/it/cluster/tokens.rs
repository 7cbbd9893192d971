//! Fencing tokens of a Cluster: a counter for each slot.

use super::{generator, lock, lock_with, target_on};
use crate::support::cluster::{Cluster, Plan, slot_of};
use redis_dlock::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Locks of one slot count together, and their counter moves with them.
/// Shows: G2, S2.
#[test]
fn a_slot_has_one_counter_which_moves_with_its_locks() {
    let cluster = Cluster::start_as(&Plan::steady());
    let generator = generator(&cluster);
    let target = target_on(&cluster, 0);
    // By the braces, the key of the second has the slot of the first's.
    let braced = format!("{{DLOCK_CLUSTER_{target}}}");
    let [one, two] = [&target, &braced].map(|target| lock(&generator, target));
    let slot = slot_of(one.key());
    assert_eq!(slot_of(two.key()), slot);
    let fences = || cluster.keys("DLOCK:1:{*}:fence");
    let mut last = 0;
    for to in [1, 2, 0] {
        for lock in [&one, &two, &one] {
            let token = lock.lock().unwrap().fencing_token();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        assert_eq!(fences().len(), 1, "{:?}", fences());
        cluster.move_slot(slot, to);
        let fence = &fences()[0];
        assert_eq!(slot_of(fence), slot);
        assert_eq!(cluster.run::<u64>(to, &["EXISTS", fence]), 1, "the counter is where the locks are");
    }
    // Each other slot has its own.
    lock(&generator, &target_on(&cluster, 1)).lock().unwrap().unlock().unwrap();
    assert_eq!(fences().len(), 2);
}

/// The same locks under slots that move, masters that fail or hand over, and a node that is emptied, one after the other, while threads
/// of two clients take them in turn.
/// Shows: G2, S2.
#[test]
fn numbers_rise_through_all_that_can_happen_to_a_slot() {
    // Otherwise all masters refuse all keys until the replica is promoted.
    let args = ["--cluster-require-full-coverage", "no"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start_as(&Plan { args, ..Plan::default() });
    let targets = [0, 1].map(|node| target_on(&cluster, node));
    let highest: Vec<_> = targets.iter().map(|_| AtomicU64::new(0)).collect();
    let generators = [generator(&cluster), generator(&cluster)];
    let slots = targets.each_ref().map(|target| slot_of(lock(&generators[0], target).key()));
    let is_over = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for (generator, target, highest) in
            generators.iter().flat_map(|generator| targets.iter().zip(&highest).map(move |(t, h)| (generator, t, h)))
        {
            let (is_over, taken) = (&is_over, &taken);
            scope.spawn(move || {
                let lock = lock_with(generator, target, Duration::from_secs(2));
                while !is_over.load(Ordering::Relaxed) {
                    // Where a node is emptied, two may hold at once, and who of them says so first is chance. But whoever asks after that
                    // gets a greater number.
                    let before = highest.load(Ordering::SeqCst);
                    let guard = lock.lock().unwrap();
                    let token = guard.fencing_token();
                    assert!(before < token, "{target}: {token} after {before}");
                    highest.fetch_max(token, Ordering::SeqCst);
                    taken.fetch_add(1, Ordering::Relaxed);
                    match guard.unlock() {
                        // A node was emptied under it, or a replica took over that did not have it.
                        Ok(()) | Err(Error::LeaseLost(_) | Error::Backend { .. }) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
        let go_on = |what: &str| {
            let (before, begun) = (taken.load(Ordering::Relaxed), Instant::now());
            while taken.load(Ordering::Relaxed) < before + 60 {
                assert!(begun.elapsed() < crate::support::crew::HANG, "nobody gets on after {what}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        go_on("the start");
        cluster.move_slot(slots[0], 2);
        go_on("a slot has moved");
        cluster.run::<()>(2, &["FLUSHALL"]);
        go_on("a node was emptied");
        cluster.fail_over_to(5);
        go_on("a master has handed over");
        cluster.nodes[1].kill();
        assert_eq!(cluster.wait_for_promotion(1), 4);
        go_on("a master was killed");
        cluster.run::<()>(4, &["FLUSHALL"]);
        go_on("its follower was emptied");
        is_over.store(true, Ordering::Relaxed);
    });
}
