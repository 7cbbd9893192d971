//! What it costs to wait for many keys at once.

use super::{LEASE, generator, target_on};
use crate::support::cluster::{Cluster, Plan, slot_of};
use crate::support::crew::slowly;
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock};
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

/// Enough for `lock` and its callees.
const STACK: usize = 256 * 1024;

fn lock(generator: &DLockGenerator, n: usize) -> DistributedReentrantLock {
    generator.generate_with(DLockConfig::new("MANY", n.to_string()).with_lease(LEASE)).unwrap()
}

/// A field of a line of `CLIENT LIST`.
fn field(line: &str, name: &str) -> u64 {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok()).unwrap()
}

/// A client waits for a reply for a second, and then asks for the outcome. With ten thousand threads it may take longer.
const LONGER: Duration = Duration::from_millis(1200);
const MUCH_LONGER: Duration = Duration::from_millis(2500);

const SHORT: Duration = Duration::from_millis(300);

/// Waits until a number stays as it is for so long, and returns it.
fn settled(quiet: Duration, number: impl Fn() -> u64) -> u64 {
    let mut last = number();
    slowly("nothing happens any more", || {
        thread::sleep(quiet);
        let before = std::mem::replace(&mut last, number());
        before == last
    });
    last
}

/// Slots of one master move away: the client asks about its keys there, and about no others.
#[test]
fn a_reshard_polls_only_for_the_slots_that_move() {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let (holder, waiter) = (generator(&cluster), generator(&cluster));
    let guards: Vec<_> = (0..300).map(|n| lock(&holder, n).lock_owned().unwrap()).collect();
    let waits = |n| {
        let lock = lock(&waiter, n);
        thread::spawn(move || lock.lock_owned().unwrap().unlock().unwrap())
    };
    let waiting: Vec<_> = (0..guards.len()).map(waits).collect();
    slowly("all wait in the store's queues", || cluster.keys("DLOCK:1:*:queue:*").len() == guards.len());
    let scripts = |master: usize| {
        let info: String = cluster.run(master, &["INFO", "commandstats"]);
        let calls = |name: &str| {
            let prefix = format!("cmdstat_{name}:calls=");
            info.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok()).unwrap_or(0)
        };
        calls("evalsha") + calls("eval")
    };
    let before = settled(LONGER, || (0..3).map(scripts).sum());
    let elsewhere = scripts(2);
    let slots: BTreeSet<_> = guards.iter().map(|guard| slot_of(guard.lock().key())).collect();
    let others = slots.iter().filter(|slot| cluster.owner_of(**slot) == 2).count() as u64;
    let moving: Vec<_> = slots.into_iter().filter(|slot| cluster.owner_of(*slot) == 0).take(20).collect();
    for slot in &moving {
        cluster.reshard([*slot], 1);
    }
    let after = settled(SHORT, || (0..3).map(scripts).sum());
    assert!(after - before >= moving.len() as u64, "those of the slots that move are asked about");
    // On a busy machine a single reply may come so late that its key is asked about again.
    let asked = scripts(2) - elsewhere;
    assert!(asked < others / 10, "nothing has moved there, and {asked} of {others} are asked about");
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}

/// One process waits for so many keys of another one. Then all are handed over, by two scripts for each, after so long a time without any.
fn one_process_waits_for(count: usize, quiet: Duration) {
    let cluster = Cluster::start_as(&Plan { replicas: 0, ..Plan::default() });
    let (holder, waiter) = (generator(&cluster), generator(&cluster));
    // Each master knows the scripts.
    (0..3).for_each(|master| super::lock(&holder, &target_on(&cluster, master)).lock().unwrap().unlock().unwrap());
    let guards: Vec<_> = (0..count).map(|n| lock(&holder, n).lock_owned().unwrap()).collect();
    let slots: BTreeSet<_> = guards.iter().map(|guard| slot_of(guard.lock().key())).collect();
    let waits = |n| {
        let lock = lock(&waiter, n);
        let waits = move || lock.lock_owned().unwrap().unlock().unwrap();
        thread::Builder::new().stack_size(STACK).spawn(waits).unwrap()
    };
    let waiting: Vec<_> = (0..count).map(waits).collect();
    slowly("all wait in the store's queues", || cluster.keys("DLOCK:1:*:queue:*").len() == count);
    let scripts = || cluster.calls("evalsha") + cluster.calls("eval");
    let before = settled(quiet, scripts);

    // One subscription a slot, on one listening connection a master; four connections for calls at most.
    assert_eq!(cluster.calls("ssubscribe"), slots.len() as u64);
    let mut subscribed = 0;
    for master in 0..3 {
        let list: String = cluster.run(master, &["CLIENT", "LIST"]);
        let ours: Vec<_> = list.lines().filter(|line| line.contains("name=redis-dlock ")).collect();
        let listening: Vec<_> = ours.iter().map(|line| field(line, "ssub")).filter(|count| *count > 0).collect();
        assert_eq!(listening.len(), 1, "{list}");
        subscribed += listening[0];
        assert!(ours.len() <= 2 * 4 + 1, "{list}");
    }
    assert_eq!(subscribed, slots.len() as u64);

    // A hand-over is one script and one message; the waiter's own release has nobody to tell.
    let messages = cluster.calls("spublish");
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(cluster.calls("spublish") - messages, count as u64);
    // On a busy machine a single reply may come so late that its key is asked about again.
    let (after, twice) = (settled(SHORT, scripts) - before, 2 * count as u64);
    assert!((twice..=twice + twice / 200).contains(&after), "{after} scripts for {count} hand-overs");
    assert_eq!((cluster.calls("publish"), cluster.published_on_the_bus()), (0, 0));
    assert_eq!(cluster.calls("ssubscribe"), slots.len() as u64);
    assert_eq!(cluster.keys("DLOCK_*").len(), 0);
}

/// Shows: G10, L1.
#[test]
fn a_thousand_waiting_keys_cost_one_connection_a_master_and_two_scripts_a_hand_over() {
    one_process_waits_for(1000, LONGER);
}

/// On a busy machine ten thousand threads read thousands of replies to their joins later than within the second that a call may take. Each then
/// asks once more for its outcome, also after all of them stand in the queues. With the hand-overs these scripts would count as theirs.
/// Shows: G10, L1.
#[test]
#[ignore = "ten thousand threads: about a minute"]
fn ten_thousand_waiting_keys_cost_one_connection_a_master_and_two_scripts_a_hand_over() {
    one_process_waits_for(10_000, MUCH_LONGER);
}
