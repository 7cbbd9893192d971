//! Processes that contend are stopped at any time, some for longer than their lease: holding, waiting, just granted. No two
//! holds that were said to be valid overlap, and their tokens are in order.

use super::actor::{Actor, Contest};
use super::scene::{inboxes, start};
use crate::support::crew::eventually;
use crate::support::dice::Dice;
use crate::support::history::{exclusive, runs};
use crate::support::is_long;
use std::thread;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(300);

/// A time from `low` to `high` milliseconds.
fn millis(dice: &mut Dice, low: u64, high: u64) -> Duration {
    Duration::from_millis(low + dice.up_to(high - low))
}

/// Shows: G1, G7, L1.
#[test]
fn holds_never_overlap_when_processes_are_stopped_at_any_time() {
    let stops = if is_long() { 400 } else { 12 };
    let server = start();
    let mut actors = [(); 3].map(|()| Actor::start(&server.url()));
    for actor in &mut actors {
        actor.contend(&Contest { clients: 1, threads: 2, rounds: 0, lease: LEASE, hold: Duration::from_millis(2) });
    }
    eventually("all hear of grants", || inboxes(&server) == actors.len());
    let mut dice = Dice::new(4711);
    for _ in 0..stops {
        thread::sleep(millis(&mut dice, 5, 80));
        let stopped = &actors[dice.up_to(2) as usize];
        stopped.stop();
        thread::sleep(millis(&mut dice, LEASE.as_millis() as u64 / 3, LEASE.as_millis() as u64 * 3 / 2));
        stopped.go_on();
    }
    let before: Vec<_> = actors.iter_mut().map(Actor::count).collect();
    eventually("all have the lock again", || {
        actors.iter_mut().map(Actor::count).zip(&before).all(|(now, &before)| now > before)
    });
    actors.iter_mut().for_each(Actor::finish);
    let holds: Vec<_> = (0..).zip(&mut actors).flat_map(|(process, actor)| actor.holds(process)).collect();
    let holds = exclusive(holds);
    let turns = runs(&holds).len();
    eprintln!("{stops} stops, {} valid holds in {turns} turns", holds.len());
    assert!(turns > stops, "they take turns");
}
