//! Everything together: the state of the world, and what can happen in it.

use crate::answers::Memory;
use crate::client::{Client, Phase};
use crate::list::List;
use crate::places::Places;
use crate::rules::Rules;
use crate::server::{Command, Done, Locker, Lockers, Refusal, Reply, Script, Server};
use crate::spec::KeyState;

/// The commands of a plain attempt.
pub(crate) const PLAIN: usize = 4;

/// One moment of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) clients: List<Client, 3>,
    /// How many faults may still happen.
    pub(crate) faults: u8,
    pub(crate) memory: Memory,
    /// How many more times an operator may look who holds the key; and whom it has seen, the breaks of which are under way.
    pub(crate) breaks: u8,
    pub(crate) seen: Lockers,
    pub(crate) places: Places,
    /// Whether a command touched a key that was another locker's.
    pub(crate) theft: bool,
    /// Whether a live waiter left the queue in another way than by a grant or its own release.
    pub(crate) fell_out: bool,
    /// Whether a refusal was answered though something was done for the locker.
    pub(crate) misled: bool,
}

/// One thing that can happen. The first field is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Sends an acquire for a fresh locker.
    Start {
        client: usize,
        wait: bool,
        plain: bool,
    },
    /// Polls the locker that it waits with.
    Poll(usize),
    /// Stops waiting.
    GiveUp(usize),
    /// Extends, for keeping or for confirming.
    Extend(usize),
    Probe(usize),
    /// Ends its hold; with a next locker or without.
    Unlock {
        client: usize,
        pass_on: bool,
    },
    /// Ends its hold with a delayed release.
    Delay(usize),
    /// Releases an entry of its clean-up list.
    CleanUp {
        client: usize,
        entry: usize,
    },
    /// Opens its inbox again.
    Listen(usize),
    /// The server executes the next command of its connection.
    Execute(usize),
    /// The server executes the next command of one of its dropped connections.
    ExecuteLate {
        client: usize,
        link: usize,
    },
    /// Takes the next reply.
    Answer(usize),
    /// Takes the next message.
    Hear(usize),
    /// Fault: gives the connection up; what was not executed is lost, or late.
    Drop {
        client: usize,
        lost: bool,
    },
    /// Fault: the same, with calls of the script refused.
    Refuse {
        client: usize,
        refusal: Refusal,
    },
    /// Fault: its process ends; what was not executed is lost, or late.
    Crash {
        client: usize,
        lost: bool,
    },
    /// Fault: a message is lost.
    LoseMessage(usize),
    /// Fault: the connection of the inbox ends.
    Deafen(usize),
    /// Fault: the connections of all inboxes end.
    DeafenAll,
    /// Fault: the server's clock is stepped back.
    StepBack,
    /// Fault: an administrator deletes the key.
    Delete,
    /// Fault: FLUSHALL. Connections stay.
    Flush,
    /// Fault: a new master lacks the last writes, or all. Connections end.
    FailOver {
        lag: u16,
    },
    /// The last gap is long ago: the next release is to leave the key free for pollers.
    GapDue,
    /// An operator sees who holds the key, and orders to break that hold.
    See,
    /// The server executes such an order.
    Break(usize),
    /// Time passes, for everybody.
    Tick,
}

impl World {
    pub(crate) fn new(rules: &Rules) -> Self {
        let clock = rules.clock.map_or(0, |clock| clock.slack + clock.tick);
        Self {
            server: Server::new(clock, rules.gaps),
            clients: (0..).take(rules.lockers.len()).map(|id| Client::new(id, rules.hears_late)).collect(),
            faults: rules.faults,
            memory: Memory::default(),
            breaks: rules.breaks,
            seen: Lockers::default(),
            places: Places::default(),
            theft: false,
            fell_out: false,
            misled: false,
        }
    }

    /// Runs one command in the server, and looks whether it touched what it must not.
    fn run(&mut self, rules: &Rules, command: Command) {
        self.run_refusing(rules, command, Refusal::None);
    }

    /// Whether nothing is under way: no command, no reply and no message.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.seen.is_empty()
            && self
                .clients
                .iter()
                .all(|Client { link, late, inbox, .. }| link.pending.is_empty() && late.is_empty() && inbox.is_empty())
    }

    /// For each client, whether anybody hears its inbox.
    #[inline]
    fn hears(&self) -> [bool; 3] {
        std::array::from_fn(|id| self.clients.get(id).is_some_and(|client| client.lives && !client.deaf))
    }

    /// How many calls the script of a client's next command makes if none is refused.
    pub(crate) fn calls(&self, rules: &Rules, client: usize) -> u8 {
        let command = self.clients[client].link.next();
        self.server.clone().run(rules, self.hears(), Refusal::None, command).calls
    }

    /// The same with its message, if it sends one: where it may raise an error.
    pub(crate) fn points(&self, rules: &Rules, client: usize) -> u8 {
        let command = self.clients[client].link.next();
        let done = self.server.clone().run(rules, self.hears(), Refusal::None, command);
        done.calls + u8::from(done.tells)
    }

    /// Executes an operator's order.
    pub(crate) fn break_hold(&mut self, rules: &Rules, order: usize) {
        let locker = self.seen.remove(order);
        let command = Command { script: Script::Break, locker, warm: false };
        if self.run_refusing(rules, command, Refusal::None) == Reply::Released {
            self.memory.broken.push(locker);
        }
    }

    /// The clients that believe to hold, without those whose hold was broken: until they are told, they go on.
    pub(crate) fn believers(&self) -> impl Iterator<Item = &Client> {
        let is_broken = |client: &Client| client.current().is_some_and(|locker| self.memory.broken.contains(&locker));
        self.clients.iter().filter(move |client| client.believes() && !is_broken(client))
    }

    /// The same with refused calls.
    fn run_refusing(&mut self, rules: &Rules, command: Command, refusal: Refusal) -> Reply {
        let hears = self.hears();
        let (held, queue) = (self.server.key.holder, self.server.queue().collect::<Lockers>());
        let done = self.server.run(rules, hears, refusal, command);
        let is_heard = hears[usize::from(command.locker.client)];
        if command.script == Script::Poll && held.is_some() && is_heard && queue.first() == Some(&command.locker) {
            self.places.first_is_heard();
        }
        self.places.look(rules, &queue, &self.server, &done);
        let Done { reply, granted, refused, .. } = done;

        let is_own = held.map(|held| held.locker == command.locker);
        if reply == Reply::Refused {
            self.misled |= (is_own == Some(true)) != self.server.key.is_held_by(command.locker);
            self.misled |= queue.contains(&command.locker) != self.server.is_queued(command.locker);
        }
        let is_marked = held.is_some_and(|held| held.locker == command.locker.mark());
        self.theft |= is_own == Some(false) && !is_marked && self.server.key.holder != held;
        if let (Some(held), Some((ended, _))) = (held, self.memory.delayed) {
            let is_kept = self.server.holder().is_some_and(|holder| holder.unmarked() == ended);
            self.memory.too_early |= held.locker.unmarked() == ended && !is_kept;
        }
        self.fell_out |= queue.iter().any(|waiting| {
            let released = *waiting == command.locker && matches!(command.script, Script::Release { .. });
            hears[usize::from(waiting.client)]
                // A winner that could not be put back is gone, which its poll tells.
                && !(refused && reply == Reply::Failed)
                && !released
                && self.server.holder() != Some(*waiting)
                && !self.server.is_queued(*waiting)
        });
        if let Some(granted) = granted {
            self.clients[usize::from(granted.locker.client)].inbox.push(granted);
        }
        reply
    }

    /// Executes the next command of a connection.
    #[inline]
    pub(crate) fn execute(&mut self, rules: &Rules, client: usize) {
        self.execute_refusing(rules, client, Refusal::None);
    }

    /// The same with refused calls.
    #[inline]
    fn execute_refusing(&mut self, rules: &Rules, client: usize, refusal: Refusal) {
        let reply = self.run_refusing(rules, self.clients[client].link.next(), refusal);
        self.clients[client].link.replies.push(reply);
    }

    pub(crate) fn execute_late(&mut self, rules: &Rules, client: usize, link: usize) {
        let late = &mut self.clients[client].late;
        let command = late[link].remove(0);
        if late[link].is_empty() {
            late.remove(link);
        }
        self.run(rules, command);
    }

    #[inline]
    pub(crate) fn answer(&mut self, rules: &Rules, client: usize) {
        let asker = &mut self.clients[client];
        if asker.link.pending[0].command.script == Script::Set {
            let set = asker.link.pending[0];
            let replies = std::array::from_fn(|place| asker.link.replies[place]);
            asker.link.pending.remove_first(PLAIN);
            asker.link.replies.remove_first(PLAIN);
            return asker.answer_plainly(rules, &mut self.memory, &mut self.server, set, replies);
        }
        let (sent, reply) = (asker.link.pending.remove(0), asker.link.replies.remove(0));
        asker.answer(rules, &mut self.memory, sent, reply);
    }

    #[inline]
    pub(crate) fn hear(&mut self, rules: &Rules, client: usize) {
        let granted = self.clients[client].inbox.remove(0);
        self.clients[client].hear(rules, &mut self.memory, granted);
    }

    /// Loses the first messages for a client.
    fn lose(&mut self, client: usize, count: usize) {
        let inbox = &mut self.clients[client].inbox;
        for granted in &inbox[..count] {
            self.server.silent |= self.server.key.is_held_by(granted.locker);
        }
        inbox.remove_first(count);
    }

    #[inline]
    pub(crate) fn tick(&mut self, rules: &Rules) {
        let is_marked = self.server.holder().is_some_and(Locker::is_mark);
        self.server.tick(rules);
        self.memory.delayed = self.memory.delayed.map(|(locker, left)| (locker, left.saturating_sub(1)));
        self.memory.delayed = self.memory.delayed.filter(|(_, left)| *left > 0);
        self.memory.too_early |= is_marked && self.server.holder().is_none() && self.memory.delayed.is_some();
        self.places.tick(rules, &self.server);
        for client in &mut self.clients {
            client.tick();
        }
    }

    fn crash(&mut self, rules: &Rules, client: usize, lost: bool) {
        self.clients[client].crash(rules, lost);
        self.server.silent |= self.server.holder().is_some_and(|holder| usize::from(holder.client) == client);
        self.memory.cleaned.retain(|locker| usize::from(locker.client) != client);
    }

    fn lose_data(&mut self, lag: u16) {
        (self.server.key, self.server.silent) = (KeyState::default(), false);
        self.server.fence.last = self.server.fence.last.saturating_sub(lag);
        self.places.forget_if_nobody_waits(&self.server);
    }

    /// Ends the connection of an inbox; what was under way on it is lost.
    fn deafen(&mut self, client: usize) {
        self.lose(client, self.clients[client].inbox.len());
        self.clients[client].deaf = true;
    }

    fn fail_over(&mut self, rules: &Rules, lag: u16) {
        self.lose_data(lag);
        for client in &mut self.clients {
            client.drop_link(rules, true);
            client.late.clear();
            client.inbox.clear();
        }
    }

    /// Whether of two holds, the one whose tenure was given the key later has the greater number.
    pub(crate) fn numbers_follow(&self) -> bool {
        // A plain attempt that was taken back asks again.
        let place = |locker| self.server.given.iter().rposition(|given| *given == locker);
        let shown = &self.memory.shown;
        shown.iter().all(|(a, low)| shown.iter().all(|(b, high)| place(*a) >= place(*b) || low < high))
    }

    /// Does one thing that `actions` offered.
    pub(crate) fn apply(&mut self, rules: &Rules, action: Action) {
        use Action as A;
        if matches!(
            action,
            A::Drop { .. }
                | A::Refuse { .. }
                | A::Crash { .. }
                | A::LoseMessage(_)
                | A::Deafen(_)
                | A::DeafenAll
                | A::StepBack
                | A::Delete
                | A::Flush
                | A::FailOver { .. }
        ) {
            self.faults -= 1;
        }
        match action {
            A::Start { client, wait, plain } => self.clients[client].start(rules, wait, plain),
            A::Poll(client) if matches!(self.clients[client].phase, Phase::Aside { .. }) => {
                self.clients[client].take_back(rules);
            }
            A::Poll(client) if matches!(self.clients[client].phase, Phase::Beside { .. }) => {
                self.clients[client].join(rules);
            }
            A::Poll(client) => self.clients[client].poll(rules),
            A::GiveUp(client) => self.clients[client].give_up(rules),
            A::Extend(client) => self.clients[client].keep(rules, Script::Extend),
            A::Probe(client) => self.clients[client].keep(rules, Script::Probe),
            A::Unlock { client, pass_on } => self.clients[client].unlock(rules, pass_on),
            A::Delay(client) => {
                self.memory.delayed = self.clients[client].current().map(|locker| (locker, rules.delayed));
                self.clients[client].delay(rules);
            }
            A::CleanUp { client, entry } => self.clients[client].clean_up(rules, entry),
            A::Listen(client) => self.clients[client].deaf = false,
            A::Execute(client) => self.execute(rules, client),
            A::ExecuteLate { client, link } => self.execute_late(rules, client, link),
            A::Answer(client) => self.answer(rules, client),
            A::Hear(client) => self.hear(rules, client),
            A::Drop { client, lost } => self.clients[client].drop_link(rules, lost),
            A::Refuse { client, refusal } => self.execute_refusing(rules, client, refusal),
            A::Crash { client, lost } => self.crash(rules, client, lost),
            A::LoseMessage(client) => self.lose(client, 1),
            A::Deafen(client) => self.deafen(client),
            A::DeafenAll => {
                for client in 0..self.clients.len() {
                    if self.clients[client].lives {
                        self.deafen(client);
                    }
                }
            }
            A::StepBack => {
                self.server.step_back();
                self.places.step_back(rules);
            }
            A::Delete => self.server.delete(),
            A::Flush => self.lose_data(u16::MAX),
            A::FailOver { lag } => self.fail_over(rules, lag),
            A::GapDue => {
                self.server.gap_due = true;
                self.server.gaps -= 1;
            }
            A::See => {
                self.breaks -= 1;
                if let Some(holder) = self.server.holder() {
                    self.seen.push(holder);
                }
            }
            A::Break(order) => self.break_hold(rules, order),
            A::Tick => self.tick(rules),
        }
        self.normalise(rules);
    }
}
