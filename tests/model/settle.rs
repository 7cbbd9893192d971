//! What happens once nothing more goes wrong: the argument that nobody is forgotten.
//!
//! From a state in which nothing is under way, one fair schedule without faults is played to its end: whoever waits polls, whoever holds
//! unlocks, clean-up lists are worked off, everything that comes to be under way arrives. Time stands still as long as anything else can
//! happen.
//!
//! From any other state, whatever is under way arrives first, in any order. Each arrival is a step of the model, which is always offered,
//! and whose outcome is a state that the checker visits. Arrivals come to an end: only the answers to a plain attempt make a client send
//! anything, which is at most a release and then an acquire.
//!
//! So a live waiter that needs time to pass waits for nothing but the end of a lease. It may do so only where the
//! protocol promises no more, and the key is *excused*:
//!
//! * its holder's process has ended while it held, or a late command of an ended process took the key;
//! * its release is delayed: that ends without anybody, too;
//! * it is free for pollers: that ends without anybody, and the next poll hands it over;
//! * a command that was under way for longer than a lease after the first answered release of its locker took the key,
//!   or brought the locker into the queue and the message of its grant was lost.

use crate::client::Phase;
use crate::rules::{Mutant, Rules};
use crate::server::{Locker, Script};
use crate::world::World;

/// What is wrong with the end of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// A live waiter waits for a lease to end that somebody should have given back.
    Forgotten,
    /// All have ended and cleaned up, and something of them is left.
    LeftBehind,
}

/// More rounds than any schedule needs.
const ROUNDS: usize = 500;

/// Plays the schedule; the world is left as it is then.
pub(crate) fn settle(rules: &Rules, world: &mut World, served_only: bool) -> Result<(), Stuck> {
    // Clients keep their places, for `before` to be comparable.
    let rules = &Rules { alike: false, ..*rules };
    for _ in 0..ROUNDS {
        let waiting = world.clients.iter().any(|client| client.lives && client.waits());
        if served_only && !waiting {
            return Ok(());
        }
        let before = world.clone();
        arrive(rules, world);
        for client in 0..world.clients.len() {
            step(rules, world, client);
        }
        arrive(rules, world);
        world.normalise(rules);
        if *world != before {
            continue;
        }
        let excused =
            world.server.holder().map_or(world.server.key.gap_until.is_some(), |holder| is_excused(world, holder));
        if waiting && !excused {
            return Err(Stuck::Forgotten);
        }
        let working = world.clients.iter().any(|client| !client.leftovers.is_empty());
        if !working && !waiting {
            return if left_behind(world) { Err(Stuck::LeftBehind) } else { Ok(()) };
        }
        world.tick(rules);
    }
    Err(Stuck::Forgotten)
}

/// Everything under way arrives.
fn arrive(rules: &Rules, world: &mut World) {
    while !world.seen.is_empty() {
        world.break_hold(rules, 0);
    }
    for client in 0..world.clients.len() {
        while !world.clients[client].late.is_empty() {
            world.execute_late(rules, client, 0);
        }
        while world.clients[client].link.pending.len() > world.clients[client].link.replies.len() {
            world.execute(rules, client);
        }
    }
    for client in 0..world.clients.len() {
        if !world.clients[client].lives {
            continue;
        }
        while !world.clients[client].inbox.is_empty() {
            world.hear(rules, client);
        }
        while !world.clients[client].link.replies.is_empty() {
            world.answer(rules, client);
        }
    }
}

/// A live client does what is next for it.
fn step(rules: &Rules, world: &mut World, client: usize) {
    let is_held = world.server.holder().is_some();
    let client = &mut world.clients[client];
    if !client.lives {
        return;
    }
    client.deaf = false;
    match client.phase {
        Phase::Asking { settled: true, .. } if is_held && rules.is(Mutant::ReliesOnMessage) => {}
        Phase::Asking { .. } => client.poll(rules),
        Phase::Beside { .. } => client.join(rules),
        Phase::Aside { .. } => client.take_back(rules),
        Phase::Anew => client.start(rules, true, false),
        Phase::Confirming { .. } => client.keep(rules, Script::Extend),
        Phase::Held { .. } => client.unlock(rules, false),
        Phase::Idle | Phase::Releasing { .. } => {}
    }
    for entry in 0..client.leftovers.len() {
        client.clean_up(rules, entry);
    }
}

/// Whether the protocol leaves the key to the end of its lease.
fn is_excused(world: &World, holder: Locker) -> bool {
    if holder.is_mark() {
        return true;
    }
    let ended = !world.clients[usize::from(holder.client)].lives;
    world.server.silent && (ended || world.memory.cleaned.contains(&holder))
}

/// Whether the key or the queue has something of a locker whose client lives, though all have ended.
fn left_behind(world: &World) -> bool {
    let queued = world
        .server
        .queue()
        .any(|locker| world.clients[usize::from(locker.client)].lives && !world.memory.cleaned.contains(&locker));
    queued || world.server.holder().is_some_and(|holder| !is_excused(world, holder))
}
