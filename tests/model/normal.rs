//! Gives worlds that differ in nothing that matters the same form, so that each is looked at once.
//!
//! | what | why it does not matter |
//! |---|---|
//! | the number of a hold that has begun | `Memory::highest` has it |
//! | how far apart counted numbers are | only their order is looked at; the fence is above all that are under way |
//! | the numbers that clients know, where the fence can be lost | only the order of issuing is looked at then (and by plain attempts, what a connection has brought) |
//! | when a command was sent whose answer begins or renews nothing | no deadline comes of it |
//! | what the answer to a plain release, or to a question about an ended locker, says | any answer means the same |
//! | the number that a late `INCR` counts, where the fence cannot be lost | nobody reads it, and numbers go on rising |
//! | how the key came to whom a live client knows to hold | it will be released |
//! | the order of dropped connections, and of the clean-up list | nobody takes the first of them |
//! | how many lockers an ended process had sent | it sends no more |
//! | late commands about a locker that is nowhere and comes nowhere any more | they find nothing, and nobody reads the reply |
//! | which client is which, of those with the same bounds (`Rules::alike`) | they follow the same rules |

use crate::client::{Client, Phase};
use crate::list::List;
use crate::rules::{Mutant, Rules};
use crate::server::{Locker, Number, Reply, Script, Server};
use crate::world::World;
use std::cmp::Reverse;

impl World {
    pub(crate) fn normalise(&mut self, rules: &Rules) {
        for client in &mut self.clients {
            client.forget();
        }
        if rules.is(Mutant::Faithful) {
            for client in &mut self.clients {
                client.drop_dead_letters(&self.server, rules.clock.is_some());
            }
        }
        if let Some(holder) = self.server.holder() {
            let client = &self.clients[usize::from(holder.client)];
            self.server.silent |=
                client.lives && matches!(client.phase, Phase::Held { locker, .. } if locker == holder);
        }
        self.memory.cleaned.sort_unstable();
        self.memory.broken.sort_unstable();
        self.seen.sort_unstable();
        if rules.clock.is_none() {
            self.rank_numbers();
        } else {
            self.each_number(!rules.plain, |number| *number = 0);
        }
        if rules.alike {
            self.sort_clients(rules.lockers);
        }
    }

    /// Numbers the clients in the order of what they do.
    fn sort_clients(&mut self, bounds: &[u8]) {
        let server = &mut self.server;
        let place = |id| server.queue().position(|locker| locker.client == id);
        let holds = |id| server.holder().is_some_and(|holder| holder.client == id);
        self.clients.sort_unstable_by(|a, b| {
            let finely = || a.renamed(0).cmp(&b.renamed(0));
            let in_server = || (holds(a.id), place(a.id), a.id).cmp(&(holds(b.id), place(b.id), b.id));
            let rough = |client: &Client| (Reverse(bounds[usize::from(client.id)]), client.roughly());
            rough(a).cmp(&rough(b)).then_with(finely).then_with(in_server)
        });
        let mut names = [0; 3];
        for (client, new) in self.clients.iter_mut().zip(0..) {
            names[usize::from(client.id)] = new;
            if client.id != new {
                *client = client.renamed(new);
            }
        }
        if names[..self.clients.len()].is_sorted() {
            return;
        }
        let holder = server.key.holder.iter_mut().map(|holder| &mut holder.locker);
        let queue = server.key.queue.iter_mut().map(|waiter| &mut waiter.locker);
        let ahead =
            self.clients.iter_mut().flat_map(|client| &mut client.link.replies).filter_map(|reply| match reply {
                Reply::Took { ahead } => ahead.as_mut(),
                _ => None,
            });
        let delayed = self.memory.delayed.iter_mut().map(|(locker, _)| locker);
        for locker in holder
            .chain(queue)
            .chain(delayed)
            .chain(ahead)
            .chain(&mut self.memory.cleaned)
            .chain(&mut self.memory.broken)
            .chain(&mut self.seen)
        {
            locker.client = names[usize::from(locker.client)];
        }
        for lockers in [&mut self.memory.cleaned, &mut self.memory.broken, &mut self.seen] {
            lockers.sort_unstable();
        }
    }

    /// Replaces every number by its rank.
    fn rank_numbers(&mut self) {
        // One bit for each number that is known. Numbers that were ranked last time are small.
        let mut known = 1_u64;
        self.each_number(true, |number| known |= 1 << *number);
        if known & (known + 1) != 0 {
            self.each_number(true, |number| *number = rank(known, *number));
        }
        self.server.fence.last = rank(known, 63) - 1;
        self.server.fence.highest = self.server.fence.last;
    }

    #[inline]
    fn each_number(&mut self, replies: bool, mut see: impl FnMut(&mut Number)) {
        see(&mut self.memory.highest);
        self.memory.shown.iter_mut().for_each(|(_, number)| see(number));
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::Confirming { number, .. } => see(number),
                Phase::Held { number, .. } => *number = 0,
                _ => {}
            }
            for reply in &mut client.link.replies {
                if let Reply::Ours(number) | Reply::Passed(number) | Reply::Counted { number, .. } = reply
                    && replies
                {
                    see(number);
                }
            }
            for granted in &mut client.inbox {
                see(&mut granted.number);
            }
        }
    }
}

/// How many numbers are known below this one.
#[inline]
fn rank(known: u64, number: Number) -> Number {
    let below = known & ((1 << number) - 1);
    below.count_ones().try_into().unwrap()
}

impl Client {
    /// What tells most clients apart.
    #[inline]
    fn roughly(&self) -> impl Ord + use<> {
        (self.lives, self.deaf, self.lockers, self.phase.kind(), self.link.pending.len(), self.link.replies.len())
    }

    /// The client with another number; its lockers have that, too.
    fn renamed(mut self, id: u8) -> Self {
        self.id = id;
        match &mut self.phase {
            Phase::Idle | Phase::Anew => {}
            Phase::Asking { locker, .. }
            | Phase::Beside { locker }
            | Phase::Aside { locker, .. }
            | Phase::Confirming { locker, .. }
            | Phase::Held { locker, .. } => {
                locker.client = id;
            }
            Phase::Releasing { locker, next, .. } => {
                locker.client = id;
                next.iter_mut().for_each(|next| next.client = id);
            }
        }
        let pending = self.link.pending.iter_mut().map(|sent| &mut sent.command);
        for command in pending.chain(self.late.iter_mut().flatten()) {
            command.locker.client = id;
            if let Script::Release { next: Some(next) } = &mut command.script {
                next.client = id;
            }
        }
        self.leftovers.iter_mut().for_each(|leftover| leftover.locker.client = id);
        self.inbox.iter_mut().for_each(|granted| granted.locker.client = id);
        self
    }

    #[inline]
    fn drop_dead_letters(&mut self, server: &Server, has_clock: bool) {
        if self.late.is_empty() {
            return;
        }
        let waiting = self.link.pending[self.link.replies.len()..].iter().map(|sent| &sent.command);
        let known: List<_, 40> = waiting
            .chain(self.late.iter().flatten())
            .filter_map(|command| match command.script {
                Script::Acquire { .. } | Script::Set => Some(command.locker),
                Script::Release { next } => next,
                _ => None,
            })
            .chain(server.holder().map(Locker::unmarked))
            .chain(server.queue())
            .collect();
        for late in &mut self.late {
            late.retain(|command| {
                let looks = matches!(command.script, Script::Probe | Script::Len | Script::Get);
                let counts = command.script == Script::Count;
                !looks && (counts || known.contains(&command.locker)) && (!counts || has_clock)
            });
        }
        self.late.retain(|late| !late.is_empty());
    }

    #[inline]
    fn forget(&mut self) {
        self.late.sort_unstable();
        self.leftovers.sort_unstable();
        if !self.lives {
            self.lockers = 0;
        }
        if let Phase::Releasing { next: None, left, .. } = &mut self.phase {
            *left = 0;
        }
        let current = self.current();
        let aside = matches!(self.phase, Phase::Aside { .. }).then_some(current).flatten();
        for (place, sent) in self.link.pending.iter_mut().enumerate() {
            let reply = self.link.replies.get_mut(place);
            let known = current == Some(sent.command.locker);
            match sent.command.script {
                Script::Release { next: None } if aside == Some(sent.command.locker) => {}
                Script::Release { next: None } | Script::Delay => {
                    sent.left = 0;
                    if let Some(reply @ Reply::NotOurs) = reply {
                        *reply = Reply::Released;
                    }
                }
                Script::Release { next: Some(_) } => {}
                Script::Acquire { .. } | Script::Poll if !known => {
                    sent.left = 0;
                    if let Some(reply @ (Reply::Busy | Reply::Waiting)) = reply {
                        *reply = Reply::Gone;
                    }
                }
                Script::Extend | Script::Probe if !known => {
                    sent.left = 0;
                    if let Some(reply) = reply {
                        *reply = Reply::Kept;
                    }
                }
                Script::Set if known => {}
                Script::Set | Script::Len | Script::Get => sent.left = 0,
                Script::Count => {
                    sent.left = 0;
                    if let (false, Some(Reply::Counted { number, .. })) = (known, reply) {
                        *number = 0;
                    }
                }
                Script::Probe => sent.left = 0,
                Script::Acquire { .. } | Script::Poll | Script::Extend | Script::Break => {}
            }
        }
    }
}
