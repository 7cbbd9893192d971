//! What an answer or a message means to a client.

use crate::client::{Client, Phase, Proof, Sent};
use crate::rules::{Mutant, Rules};
use crate::server::{Command, Granted, Locker, Lockers, Number, Reply, Script, Server};

/// What the properties remember of the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    /// The highest number of a hold that has begun.
    pub(crate) highest: Number,
    /// Whether a hold began with a number that is not greater than those of all earlier ones.
    pub(crate) fell: bool,
    /// Whether a plain attempt kept the key though somebody waited before it, and still does.
    pub(crate) passed: bool,
    /// Where keys are deleted: the holds that have begun.
    pub(crate) shown: Vec<(Locker, Number)>,
    /// Lockers whose acquire had no answer, and that were released until one lease after the first answered release.
    pub(crate) cleaned: Lockers,
    /// A hold that has ended with a delayed release, and for how many ticks nobody is to get the key.
    pub(crate) delayed: Option<(Locker, u8)>,
    /// Whether a command let somebody have a key before the end of that time, or a mark ended before.
    pub(crate) too_early: bool,
    /// Lockers from which the key was taken by force. They may not know it yet.
    pub(crate) broken: Lockers,
}

impl Client {
    /// Takes the answer to a command.
    pub(crate) fn answer(&mut self, rules: &Rules, memory: &mut Memory, sent: Sent, reply: Reply) {
        let locker = sent.command.locker;
        let left = if rules.is(Mutant::CountsFromReply) { rules.lease } else { sent.left };
        if let (Some(_), Reply::Ours(number) | Reply::Passed(number)) = (rules.clock, reply) {
            self.link.warm = true;
            let highest = self.link.proof.map_or(0, |proof| proof.highest).max(number);
            self.link.proof = rules.plain.then_some(Proof { highest, left: 1 });
        }
        match sent.command.script {
            Script::Acquire { .. } | Script::Poll => self.asked(rules, memory, sent.command, left, reply),
            Script::Extend | Script::Probe => self.kept(rules, memory, sent.command.script, locker, left, reply),
            Script::Release { next } => {
                if let Phase::Aside { locker: aside, wait, given_up } = self.phase
                    && aside == locker
                    && !matches!(reply, Reply::Failed | Reply::Refused)
                {
                    self.taken_back(rules, locker, wait, given_up, left);
                }
                self.released(rules, memory, locker, reply);
                self.carried(rules, memory, locker, next, left, reply);
            }
            Script::Delay => {
                self.released(rules, memory, locker, reply);
                self.carried(rules, memory, locker, None, left, reply);
            }
            Script::Set | Script::Len | Script::Count | Script::Get => unreachable!("answered together"),
            Script::Break => unreachable!("sent by an operator"),
        }
    }

    /// Takes the answers to the four commands of a plain attempt.
    pub(crate) fn answer_plainly(
        &mut self,
        rules: &Rules,
        memory: &mut Memory,
        server: &mut Server,
        set: Sent,
        replies: [Reply; 4],
    ) {
        let asked = set.command.locker;
        let [set_reply, len, count, get] = replies;
        let wait = match self.phase {
            Phase::Asking { locker, wait, .. } if locker == asked => wait,
            _ => {
                if set_reply != Reply::No {
                    self.stranger(rules, asked);
                }
                return;
            }
        };
        let (Reply::Took { ahead }, Reply::Counted { number, rose }) = (set_reply, count) else {
            return self.send(rules, asked, Script::Acquire { wait });
        };
        let alone = len == Reply::Yes || rules.is(Mutant::PlainPassesQueue);
        let throughout = get == Reply::Yes || rules.is(Mutant::PlainWithoutGet);
        if alone && throughout && self.believes_count(rules, number) {
            server.fence.fell |= !rose;
            memory.passed |= ahead.is_some_and(|ahead| server.is_queued(ahead));
            return self.obtain(rules, memory, asked, number, set.left);
        }
        self.phase = Phase::Aside { locker: asked, wait, given_up: false };
        self.take_back(rules);
    }

    /// What a plain attempt took is released.
    fn taken_back(&mut self, rules: &Rules, locker: Locker, wait: bool, given_up: bool, left: u8) {
        if !given_up {
            self.phase = Phase::Asking { locker, wait, left, settled: false };
            return self.send(rules, locker, Script::Acquire { wait });
        }
        self.phase = if wait { Phase::Anew } else { Phase::Idle };
        self.leave(rules, locker, true, false);
    }

    fn believes_count(&mut self, rules: &Rules, number: Number) -> bool {
        if rules.clock.is_none() {
            return true;
        }
        match &mut self.link.proof {
            Some(proof) if number > proof.highest || rules.is(Mutant::FallenNumberBelieved) => {
                proof.highest = proof.highest.max(number);
                true
            }
            _ => {
                (self.link.proof, self.link.warm) = (None, false);
                false
            }
        }
    }

    fn asked(&mut self, rules: &Rules, memory: &mut Memory, command: Command, from: u8, reply: Reply) {
        let (asked, is_poll) = (command.locker, command.script == Script::Poll);
        match (&mut self.phase, reply) {
            (Phase::Asking { locker, .. }, Reply::Ours(number)) if *locker == asked => {
                self.obtain(rules, memory, asked, number, from);
            }
            (_, Reply::Ours(_)) => self.stranger(rules, asked),
            (Phase::Asking { locker, wait, left, settled }, Reply::Busy | Reply::Waiting) if *locker == asked => {
                (*left, *settled) = (from, true);
                if !*wait {
                    self.phase = Phase::Idle;
                } else if command.script == (Script::Acquire { wait: false }) {
                    self.phase = Phase::Beside { locker: asked };
                }
            }
            (Phase::Asking { locker, wait, settled, .. }, Reply::Gone) if *locker == asked => {
                let unanswered = !*settled;
                self.phase = if *wait { Phase::Anew } else { Phase::Idle };
                if unanswered {
                    self.leave(rules, asked, true, false);
                }
            }
            // A permanent error: the caller gets it at once. What a poll was about may be in the store.
            (Phase::Asking { locker, .. }, Reply::Refused) if *locker == asked => {
                if is_poll {
                    self.give_up(rules);
                } else {
                    self.phase = Phase::Idle;
                }
            }
            // Nobody knows what was done: else a poll will tell.
            (Phase::Asking { locker, .. }, Reply::Failed)
                if *locker == asked && rules.is(Mutant::RaisedTakenForRefused) =>
            {
                self.phase = Phase::Idle;
            }
            _ => {}
        }
    }

    fn kept(&mut self, rules: &Rules, memory: &mut Memory, script: Script, asked: Locker, from: u8, reply: Reply) {
        match &mut self.phase {
            Phase::Held { locker, left, .. } if *locker == asked && *left > 0 => match (script, reply) {
                (Script::Extend, Reply::Kept) => *left = from,
                (_, Reply::NotOurs) => *left = 0,
                _ => {}
            },
            Phase::Confirming { locker, number } if *locker == asked => match reply {
                Reply::Kept if from > 0 => {
                    let number = *number;
                    self.hold(rules, memory, asked, number, from);
                }
                Reply::NotOurs => self.phase = Phase::Anew,
                _ => {}
            },
            _ => {}
        }
    }

    /// Looks after the clean-up list when a release was answered.
    fn released(&mut self, rules: &Rules, memory: &mut Memory, locker: Locker, reply: Reply) {
        let found = self.leftovers.iter().position(|leftover| leftover.locker == locker && leftover.sent);
        let Some(entry) = found else { return };
        let leftover = &mut self.leftovers[entry];
        leftover.sent = false;
        if matches!(reply, Reply::Failed | Reply::Refused) {
            return;
        }
        let until = *leftover.until.get_or_insert(rules.kept());
        if leftover.unanswered && until > 0 {
            return;
        }
        if leftover.unanswered {
            memory.cleaned.push(locker);
        }
        self.leftovers.remove(entry);
    }

    /// Ends `Releasing`, and takes what the release says about the next locker.
    fn carried(
        &mut self,
        rules: &Rules,
        memory: &mut Memory,
        ended: Locker,
        next: Option<Locker>,
        left: u8,
        reply: Reply,
    ) {
        let waited_for = matches!(self.phase, Phase::Releasing { locker, next: n, .. } if locker == ended && n == next);
        if !waited_for {
            let current = next.is_none_or(|next| self.current() == Some(next));
            if let (Reply::Passed(_), Some(next), false) = (reply, next, current) {
                self.stranger(rules, next);
            }
            return;
        }
        match (reply, next) {
            (Reply::Passed(number), Some(next)) => self.obtain(rules, memory, next, number, left),
            (Reply::Queued, Some(locker)) => {
                self.phase = Phase::Asking { locker, wait: true, left, settled: true };
            }
            (Reply::Failed, None) if rules.is(Mutant::RaisedReleaseBelieved) => self.phase = Phase::Idle,
            // It may have been executed: a poll tells of the next locker, as after a connection that was given up.
            (Reply::Failed, Some(locker)) => {
                self.leave(rules, ended, false, false);
                self.phase = Phase::Asking { locker, wait: true, left, settled: false };
            }
            (Reply::Failed | Reply::Refused, next) => {
                self.leave(rules, ended, false, false);
                self.phase = if next.is_some() { Phase::Anew } else { Phase::Idle };
            }
            // It was not ours, so the next locker is unknown to the server.
            (_, Some(_)) => self.phase = Phase::Anew,
            (_, None) => self.phase = Phase::Idle,
        }
    }

    /// Hears `granted`.
    pub(crate) fn hear(&mut self, rules: &Rules, memory: &mut Memory, granted: Granted) {
        let Granted { locker: winner, number } = granted;
        let from = |left| if rules.is(Mutant::CountsFromHearing) { rules.lease } else { left };
        match self.phase {
            Phase::Asking { locker, left, .. } if locker == winner => {
                self.obtain(rules, memory, winner, number, from(left));
            }
            // The grant proves that the release was executed.
            Phase::Releasing { next, left, .. } if next == Some(winner) => {
                self.obtain(rules, memory, winner, number, from(left));
            }
            _ if rules.is(Mutant::StrangerIgnored) => {}
            // What keeps everybody from the key must not be followed by what frees it.
            Phase::Releasing { locker, .. } if locker == winner && self.link.delays(locker) => {
                if rules.is(Mutant::DelayThenGivenUp) {
                    self.leave(rules, winner, false, false);
                }
            }
            // It may be later than the release, which is repeated.
            Phase::Releasing { locker, .. } if locker == winner && !rules.is(Mutant::ReleasedGrantIgnored) => {
                if !self.leftovers.iter().any(|leftover| leftover.locker == winner) {
                    self.leave(rules, winner, false, false);
                }
            }
            _ => self.stranger(rules, winner),
        }
    }

    /// Begins a tenure.
    fn obtain(&mut self, rules: &Rules, memory: &mut Memory, locker: Locker, number: Number, left: u8) {
        if 2 * left < rules.lease {
            self.phase = Phase::Confirming { locker, number };
        } else {
            self.hold(rules, memory, locker, number, left);
        }
    }

    fn hold(&mut self, rules: &Rules, memory: &mut Memory, locker: Locker, number: Number, left: u8) {
        if rules.deletes {
            memory.shown.push((locker, number));
        }
        // One that was broken before it heard of its grant may begin late.
        memory.fell |= number <= memory.highest && !memory.broken.contains(&locker);
        memory.highest = memory.highest.max(number);
        self.phase = Phase::Held { locker, number, left };
    }

    /// The locker that may come to hold or holds, or whose release is under way.
    #[inline]
    pub(crate) fn current(&self) -> Option<Locker> {
        match self.phase {
            Phase::Asking { locker, .. }
            | Phase::Aside { locker, .. }
            | Phase::Confirming { locker, .. }
            | Phase::Held { locker, .. }
            | Phase::Releasing { locker, .. } => Some(locker),
            // Nothing about a locker that asks anew is in the store, or comes there.
            Phase::Idle | Phase::Anew | Phase::Beside { .. } => None,
        }
    }

    /// Answers a success of a locker that is not current by a release.
    fn stranger(&mut self, rules: &Rules, locker: Locker) {
        let trusts = rules.is(Mutant::StrangerLeftToCleanUp);
        // A release that is under way may have been executed before the grant.
        let comes = self
            .leftovers
            .iter()
            .any(|leftover| leftover.locker == locker && (!leftover.sent || trusts || leftover.delayed));
        if self.current() != Some(locker) && !comes {
            self.leave(rules, locker, false, false);
        }
    }
}
