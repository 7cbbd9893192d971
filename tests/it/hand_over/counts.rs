//! What a hand-over between clients costs: one call to release and one to stand in the queue again, however many wait.

use super::actor::{Actor, Contest};
use super::scene::{HOUR, client, inboxes, lock, queue, start};
use crate::support::commands::Commands;
use crate::support::crew::eventually;
use crate::support::history::{Hold, exclusive};
use std::time::Duration;

/// Hand-overs that are counted each time, about.
const HAND_OVERS: usize = 800;

/// How long each of so many clients holds: long enough for the one before to ask again. Otherwise the lock would be free now and then, and no
/// hand-over. With two clients nobody else asks meanwhile.
fn hold_of(clients: usize) -> Duration {
    Duration::from_micros(if clients == 2 { 2000 } else { 500 })
}

struct Cost {
    /// Holds that followed another client's.
    hand_overs: usize,
    /// Holds that followed one of the same client: the lock was free, because nobody else had asked yet.
    others: usize,
    calls: u64,
    polls: u64,
    /// What the scripts executed.
    inside: u64,
}

impl Cost {
    /// Calls of each hand-over. Taking a free lock and releasing it are two calls at most: an attempt in plain commands is none. So this is
    /// exact only if there were hand-overs alone.
    fn of_each(&self) -> f64 {
        (self.calls as f64 - self.polls as f64 - 2.0 * self.others as f64) / self.hand_overs as f64
    }

    fn inside_each(&self) -> f64 {
        self.inside as f64 / self.hand_overs as f64
    }
}

/// Lets clients of so many processes, one thread each, take turns.
fn take_turns(processes: usize, clients: usize) -> Cost {
    let server = start();
    let here = client(&server.url());
    let guard = lock(&here, HOUR);
    let guard = guard.lock().unwrap();
    let mut actors: Vec<_> = (0..processes).map(|_| Actor::start(&server.url())).collect();
    let (rounds, hold) = (HAND_OVERS / clients, hold_of(clients));
    for actor in &mut actors {
        actor.contend(&Contest { clients: clients / processes, threads: 1, rounds, lease: HOUR, hold });
    }
    eventually("all wait", || queue(&server).len() == clients && inboxes(&server) == clients);
    Commands::forget(&server);
    guard.unlock().unwrap();
    actors.iter_mut().for_each(Actor::finish);
    let holds: Vec<_> = (0..).zip(&mut actors).flat_map(|(process, actor)| actor.holds(process)).collect();
    let calls = Commands::of(&server);
    let holds = exclusive(holds);
    assert_eq!(holds.len(), clients * rounds);
    // A client's first release that it does not wait for carries the text.
    assert!(calls.count("eval") <= clients as u64, "{calls:?}");
    let client = |hold: &Hold| (hold.process, hold.thread);
    // The first hold was handed over by this process.
    let hand_overs = holds.chunk_by(|a, b| client(a) == client(b)).count();
    let (scripts, polls) = (calls.count("evalsha") + calls.count("eval"), calls.count("lpos"));
    let cost =
        Cost { hand_overs, others: holds.len() - hand_overs, calls: scripts, polls, inside: calls.total() - scripts };
    eprintln!(
        "{clients} clients in {processes} processes: {hand_overs} hand-overs and {} other holds, {scripts} script calls, {polls} of \
         them polls: {:.3} calls a hand-over, {:.3} messages, {:.2} commands inside",
        cost.others,
        cost.of_each(),
        calls.count("publish") as f64 / hand_overs as f64,
        cost.inside_each(),
    );
    cost
}

/// Shows: G10.
#[test]
fn a_hand_over_is_two_script_calls_however_many_wait() {
    let costs = [(2, 2), (4, 8), (4, 32)].map(|(processes, clients)| take_turns(processes, clients));
    for cost in &costs {
        assert!(cost.others < HAND_OVERS / 4, "{} of the holds were no hand-overs", cost.others);
        assert!(cost.of_each() <= 2.0, "{}", cost.of_each());
        assert_eq!(cost.polls, 0, "in an hour nobody asks again");
    }
    let [few, some, many] = costs.each_ref().map(Cost::of_each);
    assert!((many / some - 1.0).abs() < 0.05, "{few} with 2 clients, {some} with 8, {many} with 32");
    let [_, some, many] = costs.each_ref().map(Cost::inside_each);
    assert!((many / some - 1.0).abs() < 0.1, "work for the server: {some} with 8 clients, {many} with 32");
}
