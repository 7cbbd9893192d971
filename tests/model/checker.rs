//! The world as the model checker sees it: what can happen next, and what must hold.

use crate::client::Phase;
use crate::rules::Rules;
use crate::server::{Refusal, Script};
use crate::settle::{Stuck, settle};
use crate::world::{Action, PLAIN, World};

/// Shows: G1, S1.
pub(crate) const ONE_BELIEVER: &str = "at most one believes to hold";
/// Shows: G1, S1.
pub(crate) const BELIEVER_HOLDS: &str = "who believes to hold has the key";
/// Shows: G4, S1.
pub(crate) const KEPT_FOR_LONGER: &str = "the server keeps a key for its holder's lease and the lock-delay";
/// Shows: G11, G13, S3.
pub(crate) const KEPT_FROM_ALL: &str = "nobody gets the key before the end of a delay";
/// Shows: G7, S2.
pub(crate) const NUMBERS_RISE: &str = "every number is greater than all issued before";
/// Shows: G7, S2.
pub(crate) const HOLDS_RISE: &str = "every hold's number is greater than those of all holds before";
/// Shows: G7, S2.
pub(crate) const NUMBERS_FOLLOW: &str = "numbers rise in the order in which the key was given";
/// Shows: G8, S5.
pub(crate) const NOBODY_PASSED: &str = "a plain attempt passes no waiter";
/// Shows: S6.
pub(crate) const REFUSALS_ARE_TRUE: &str = "a refusal leaves the locker where it was";
/// Shows: G2, S3.
pub(crate) const NO_THEFT: &str = "nobody touches a key that is not his";
/// Shows: S4.
pub(crate) const NOBODY_FALLS_OUT: &str = "a waiter leaves the queue by a grant or its release";
/// Shows: G8, S4.
pub(crate) const PLACES_KEPT: &str = "a waiter that nobody hears keeps its place for its time";
/// Shows: S4.
pub(crate) const PLACES_END: &str = "a waiter that nobody hears keeps its place no longer than its time";
/// Shows: G10, L1.
pub(crate) const NOBODY_FORGOTTEN: &str = "no waiter is forgotten";
/// Shows: G11, L2.
pub(crate) const NOTHING_LEFT: &str = "nothing is left of ended lockers";

/// A property: its name, and whether it holds in a state.
type Check = (&'static str, fn(&Rules, &World) -> bool);

/// What holds in every state of every model.
const ALWAYS: [Check; 2] = [(NUMBERS_RISE, |_, world| !world.server.fence.fell), (NO_THEFT, |_, world| !world.theft)];

/// What holds besides where the key is deleted. Who holds a deleted key does not know, and others can take it: numbers are what is left to
/// rely on.
const DELETED: [Check; 1] = [(NUMBERS_FOLLOW, |_, world| world.numbers_follow())];

/// What holds besides where neither the key nor the fence is lost.
const KEPT: [Check; 12] = [
    (HOLDS_RISE, |_, world| !world.memory.fell),
    (ONE_BELIEVER, |_, world| world.believers().count() < 2),
    (BELIEVER_HOLDS, |_, world| {
        world.believers().all(|client| match client.phase {
            Phase::Held { locker, .. } => world.server.holder() == Some(locker),
            _ => true,
        })
    }),
    (KEPT_FOR_LONGER, |rules, world| {
        let until =
            |locker| world.server.key.holder.filter(|holder| holder.locker == locker).and_then(|held| held.until);
        world.believers().all(|client| match client.phase {
            Phase::Held { locker, left, .. } => until(locker).is_none_or(|until| until >= (left + rules.delay).into()),
            _ => true,
        })
    }),
    (KEPT_FROM_ALL, |_, world| !world.memory.too_early),
    (REFUSALS_ARE_TRUE, |_, world| !world.misled),
    (NOBODY_PASSED, |_, world| !world.memory.passed),
    (NOBODY_FALLS_OUT, |_, world| !world.fell_out),
    (PLACES_KEPT, |_, world| !world.places.lost),
    (PLACES_END, |_, world| !world.places.outstayed),
    (NOBODY_FORGOTTEN, |rules, world| never_stuck(rules, world, Stuck::Forgotten)),
    (NOTHING_LEFT, |rules, world| never_stuck(rules, world, Stuck::LeftBehind)),
];

fn never_stuck(rules: &Rules, world: &World, stuck: Stuck) -> bool {
    !world.is_quiet() || settle(rules, &mut world.clone(), stuck == Stuck::Forgotten) != Err(stuck)
}

impl Rules {
    /// What can happen next.
    pub(crate) fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for client in 0..world.clients.len() {
            self.own_steps(world, client, actions);
            self.network(world, client, actions);
            if world.faults > 0 {
                self.faults(world, client, actions);
            }
        }
        if world.faults > 0 && self.clock.is_some() {
            actions.push(Action::Flush);
            actions.extend([1, 3].map(|lag| Action::FailOver { lag }));
        }
        if world.faults > 0 && self.all_deaf && world.clients.iter().any(|client| client.lives && !client.deaf) {
            actions.push(Action::DeafenAll);
        }
        if world.faults > 0 && self.steps_back && world.server.minds_steps_back() {
            actions.push(Action::StepBack);
        }
        if world.faults > 0 && self.deletes && world.server.holder().is_some() {
            actions.push(Action::Delete);
        }
        if world.server.gaps > 0 && !world.server.gap_due {
            actions.push(Action::GapDue);
        }
        if world.breaks > 0 && world.server.holder().is_some() {
            actions.push(Action::See);
        }
        actions.extend((0..world.seen.len()).map(Action::Break));
        if self.clock.is_none_or(|clock| world.server.fence.clock < clock.end) {
            actions.push(Action::Tick);
        }
    }

    /// The state after an action, if it differs.
    pub(crate) fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.apply(self, action);
        (next != *world).then_some(next)
    }

    pub(crate) fn checks(&self) -> impl Iterator<Item = &'static Check> {
        let others: &[_] = match self {
            _ if self.deletes => &DELETED,
            // Whatever loses the fence loses the key, too.
            _ if self.clock.is_some() => &[],
            _ => &KEPT,
        };
        ALWAYS.iter().chain(others)
    }

    /// The names of the properties that do not hold in a state.
    pub(crate) fn broken(&self, world: &World) -> impl Iterator<Item = &'static str> {
        self.checks().filter(|(_, holds)| !holds(self, world)).map(|(name, _)| *name)
    }

    /// What a live client may do by itself. Whoever takes none of these steps for a while is stopped.
    fn own_steps(&self, world: &World, id: usize, actions: &mut Vec<Action>) {
        let client = &world.clients[id];
        if !client.lives {
            return;
        }
        // Where clients hear late, one that wants nothing does not listen.
        if client.deaf && !(self.hears_late && client.phase == Phase::Idle) {
            actions.push(Action::Listen(id));
        }
        if client.under_way() >= self.under_way {
            return;
        }
        let more = client.lockers < self.lockers[id];
        let asks = |script| matches!(script, Script::Acquire { .. } | Script::Poll | Script::Set);
        match client.phase {
            Phase::Idle | Phase::Anew if more => {
                let tries = self.tries && client.phase == Phase::Idle;
                for wait in [true].into_iter().chain(tries.then_some(false)) {
                    actions.push(Action::Start { client: id, wait, plain: false });
                    if client.may_count(self) {
                        actions.push(Action::Start { client: id, wait, plain: true });
                    }
                }
            }
            Phase::Asking { locker, .. } => {
                if !client.has_sent(locker, asks) {
                    actions.push(Action::Poll(id));
                }
                actions.push(Action::GiveUp(id));
            }
            Phase::Beside { .. } => actions.extend([Action::Poll(id), Action::GiveUp(id)]),
            Phase::Aside { locker, .. } => {
                if !client.has_sent(locker, |script| matches!(script, Script::Release { .. })) {
                    actions.push(Action::Poll(id));
                }
                actions.push(Action::GiveUp(id));
            }
            Phase::Confirming { locker, .. } => {
                if !client.has_sent(locker, |script| script == Script::Extend) {
                    actions.push(Action::Extend(id));
                }
                actions.push(Action::GiveUp(id));
            }
            Phase::Held { locker, left, .. } => {
                if self.extends && left > 0 && !client.has_sent(locker, |script| script == Script::Extend) {
                    actions.push(Action::Extend(id));
                }
                if self.probes && left > 0 && !client.has_sent(locker, |script| script == Script::Probe) {
                    actions.push(Action::Probe(id));
                }
                actions.push(Action::Unlock { client: id, pass_on: false });
                // Later it is no tenure's own that it could keep.
                if self.delayed > 0 && left > 0 && world.memory.delayed.is_none() {
                    actions.push(Action::Delay(id));
                }
                // The next locker may wait, so the client must hear.
                if self.next && more && !(self.hears_late && client.deaf) {
                    actions.push(Action::Unlock { client: id, pass_on: true });
                }
            }
            Phase::Idle | Phase::Releasing { .. } => {}
            Phase::Anew => actions.push(Action::GiveUp(id)),
        }
        for (entry, leftover) in client.leftovers.iter().enumerate() {
            if !leftover.sent {
                actions.push(Action::CleanUp { client: id, entry });
            }
        }
    }

    /// What the network and the server may do.
    fn network(&self, world: &World, id: usize, actions: &mut Vec<Action>) {
        let client = &world.clients[id];
        if client.link.replies.len() < client.link.pending.len() {
            actions.push(Action::Execute(id));
        }
        let plain = client.link.pending.first().is_some_and(|sent| sent.command.script == Script::Set);
        if client.link.replies.len() >= if plain { PLAIN } else { 1 } {
            actions.push(Action::Answer(id));
        }
        if !client.inbox.is_empty() {
            actions.push(Action::Hear(id));
        }
        actions.extend((0..client.late.len()).map(|link| Action::ExecuteLate { client: id, link }));
    }

    fn faults(&self, world: &World, id: usize, actions: &mut Vec<Action>) {
        let client = &world.clients[id];
        if !client.lives {
            return;
        }
        let unread = client.link.replies.len() < client.link.pending.len();
        if self.refusals && unread {
            let calls = 0..world.calls(self, id);
            let refusals = calls.flat_map(|call| [Refusal::Only(call), Refusal::From(call)]);
            actions.extend(refusals.map(|refusal| Action::Refuse { client: id, refusal }));
        }
        if self.raises && unread {
            let raises = (0..world.points(self, id)).map(Refusal::Raised);
            actions.extend(raises.map(|refusal| Action::Refuse { client: id, refusal }));
        }
        if self.drops && !client.link.pending.is_empty() {
            actions.push(Action::Drop { client: id, lost: true });
            if unread {
                actions.push(Action::Drop { client: id, lost: false });
            }
        }
        if self.crashes && client.lockers > 0 {
            actions.push(Action::Crash { client: id, lost: true });
            if unread {
                actions.push(Action::Crash { client: id, lost: false });
            }
        }
        if self.deafness {
            if !client.inbox.is_empty() {
                actions.push(Action::LoseMessage(id));
            }
            if !client.deaf {
                actions.push(Action::Deafen(id));
            }
        }
    }
}
