//! A client: what it believes, what it has sent, what it must still clean up.

use crate::list::List;
use crate::rules::{Mutant, Rules};
use crate::server::{Command, Granted, Locker, Number, Reply, Script};

/// What a client does about the key.
///
/// Every `left` is the rest of a lease that was counted from some local moment; at 0 the deadline has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// Wants nothing.
    #[default]
    Idle,
    /// Wants the key, and has no locker for it: the last one was gone.
    Anew,
    /// Has sent a locker, and does not know that it holds.
    Asking {
        locker: Locker,
        wait: bool,
        /// Counted from the last answered question that found the locker waiting, else from its first writing.
        left: u8,
        /// Whether anything has shown that the acquire, or the release that carried the locker, was executed.
        settled: bool,
    },
    /// Has found the key busy without waiting: nothing is in the store. It gets ready to hear, and asks with the same locker again.
    Beside { locker: Locker },
    /// Has taken the key by a plain attempt that must not keep it, and sent a release; then it asks by the script. Once that
    /// release's connection was given up, the locker is, too, and released until there is an answer.
    Aside { locker: Locker, wait: bool, given_up: bool },
    /// Knows that it was given the key, and has less than half the lease left: extends before `lock()` returns.
    Confirming { locker: Locker, number: Number },
    /// Holds; believes in it as long as something is left.
    Held { locker: Locker, number: Number, left: u8 },
    /// Has sent the release, and waits for its answer.
    Releasing { locker: Locker, next: Option<Locker>, left: u8 },
}

/// More commands than a client ever has under way on one connection.
const MOST_SENT: usize = 8;

/// A command whose reply is due on the present connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sent {
    pub(crate) command: Command,
    /// The rest of a lease counted from the sending.
    pub(crate) left: u8,
}

/// The present connection. The first `replies.len()` commands were executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Link {
    pub(crate) pending: List<Sent, MOST_SENT>,
    pub(crate) replies: List<Reply, MOST_SENT>,
    /// Whether it has brought a number.
    pub(crate) warm: bool,
    /// With the fine clock: the highest number that it has brought, if counted ones may be believed.
    pub(crate) proof: Option<Proof>,
}

impl Link {
    /// Whether a delayed release of this locker is under way.
    pub(crate) fn delays(&self, locker: Locker) -> bool {
        self.pending.iter().any(|sent| sent.command.locker == locker && sent.command.script == Script::Delay)
    }

    /// The next command that the server executes, of those that it has not executed.
    #[inline]
    pub(crate) fn next(&self) -> Command {
        self.pending[self.replies.len()].command
    }
}

/// What counted numbers are believed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Proof {
    pub(crate) highest: Number,
    /// What is left of the time in which one may be asked for.
    pub(crate) left: u8,
}

/// An entry of the clean-up list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Leftover {
    pub(crate) locker: Locker,
    /// Whether its acquire may still be under way: then released until one lease after the first answered release.
    pub(crate) unanswered: bool,
    /// What is left of that lease.
    pub(crate) until: Option<u8>,
    /// Whether a release of it is under way on the present connection.
    pub(crate) sent: bool,
    /// Whether its release is delayed.
    pub(crate) delayed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) id: u8,
    pub(crate) lives: bool,
    /// Whether its inbox has no connection for the moment.
    pub(crate) deaf: bool,
    /// How many lockers it has sent.
    pub(crate) lockers: u8,
    pub(crate) phase: Phase,
    pub(crate) link: Link,
    /// Commands on connections that were dropped: each connection in order, all of them whenever the network likes.
    pub(crate) late: List<List<Command, MOST_SENT>, 2>,
    pub(crate) leftovers: List<Leftover, 6>,
    /// Messages under way.
    pub(crate) inbox: List<Granted, 4>,
}

impl Phase {
    /// What tells phases apart that differ in more than their fields.
    #[inline]
    pub(crate) fn kind(self) -> impl Ord {
        match self {
            Self::Idle => 0,
            Self::Anew => 1,
            Self::Asking { .. } => 2,
            Self::Aside { .. } => 3,
            Self::Confirming { .. } => 4,
            Self::Held { .. } => 5,
            Self::Releasing { .. } => 6,
            Self::Beside { .. } => 7,
        }
    }
}

impl Client {
    pub(crate) fn new(id: u8, deaf: bool) -> Self {
        Self { id, lives: true, deaf, ..Self::default() }
    }

    /// Whether the client's own clock lets it believe that it holds the key.
    #[inline]
    pub(crate) fn believes(&self) -> bool {
        matches!(self.phase, Phase::Held { left, .. } if left > 0)
    }

    /// Whether it waits for the key and does not give up by itself.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        matches!(
            self.phase,
            Phase::Anew
                | Phase::Beside { .. }
                | Phase::Asking { wait: true, .. }
                | Phase::Aside { wait: true, .. }
                | Phase::Confirming { .. }
                | Phase::Releasing { next: Some(_), .. }
        )
    }

    #[inline]
    pub(crate) fn send(&mut self, rules: &Rules, locker: Locker, script: Script) {
        let warm = rules.clock.is_some() && self.link.warm;
        self.link.pending.push(Sent { command: Command { script, locker, warm }, left: rules.counted() });
    }

    /// Whether a command of this kind about the locker is under way on the present connection.
    #[inline]
    pub(crate) fn has_sent(&self, locker: Locker, kind: fn(Script) -> bool) -> bool {
        self.link.pending.iter().any(|sent| sent.command.locker == locker && kind(sent.command.script))
    }

    #[inline]
    fn fresh(&mut self) -> Locker {
        self.lockers += 1;
        Locker { client: self.id, n: self.lockers }
    }

    /// How many questions and orders are under way; the commands of a plain attempt are one.
    #[inline]
    pub(crate) fn under_way(&self) -> usize {
        let follows = |script| matches!(script, Script::Len | Script::Count | Script::Get);
        self.link.pending.iter().filter(|sent| !follows(sent.command.script)).count()
    }

    /// Whether a number that only was counted would be believed.
    #[inline]
    pub(crate) fn may_count(&self, rules: &Rules) -> bool {
        rules.plain && (rules.clock.is_none() || self.link.proof.is_some_and(|proof| proof.left > 0))
    }

    fn send_plainly(&mut self, rules: &Rules, locker: Locker) {
        for script in [Script::Set, Script::Len, Script::Count, Script::Get] {
            self.send(rules, locker, script);
        }
    }

    /// Sends an acquire for a fresh locker, or tries plain commands first.
    pub(crate) fn start(&mut self, rules: &Rules, wait: bool, plain: bool) {
        let locker = self.fresh();
        if plain {
            self.send_plainly(rules, locker);
        } else {
            self.send(rules, locker, Script::Acquire { wait: wait && !(rules.hears_late && self.deaf) });
        }
        self.phase = Phase::Asking { locker, wait, left: rules.counted(), settled: false };
    }

    /// Asks once more with a locker that has found the key busy: if the client hears by now, to wait.
    pub(crate) fn join(&mut self, rules: &Rules) {
        if let Phase::Beside { locker } = self.phase {
            self.send(rules, locker, Script::Acquire { wait: !self.deaf });
            self.phase = Phase::Asking { locker, wait: true, left: rules.counted(), settled: false };
        }
    }

    /// Asks again.
    pub(crate) fn poll(&mut self, rules: &Rules) {
        if let Phase::Asking { locker, wait, settled, .. } = self.phase {
            if rules.is(Mutant::PlainResent) && !settled {
                return self.send_plainly(rules, locker);
            }
            let script = match settled {
                false if rules.is(Mutant::AcquireResent) => Script::Acquire { wait },
                false if rules.is(Mutant::SecondAfterNoAnswer) => Script::Acquire { wait: !self.deaf },
                _ => Script::Poll,
            };
            self.send(rules, locker, script);
        }
    }

    /// Releases once more what a plain attempt took.
    pub(crate) fn take_back(&mut self, rules: &Rules) {
        if let Phase::Aside { locker, .. } = self.phase {
            self.send(rules, locker, Script::Release { next: None });
        }
    }

    /// Sends an extend or a probe for the locker that it has.
    pub(crate) fn keep(&mut self, rules: &Rules, script: Script) {
        if let Phase::Held { locker, .. } | Phase::Confirming { locker, .. } = self.phase {
            self.send(rules, locker, script);
        }
    }

    /// Stops waiting: the release is written before the next acquire.
    pub(crate) fn give_up(&mut self, rules: &Rules) {
        match self.phase {
            Phase::Asking { locker, settled, .. } => self.end(rules, locker, !settled),
            Phase::Aside { locker, .. } => self.end(rules, locker, true),
            Phase::Confirming { locker, .. } => self.end(rules, locker, false),
            _ => {}
        }
        self.phase = Phase::Idle;
    }

    fn end(&mut self, rules: &Rules, locker: Locker, unanswered: bool) {
        self.send(rules, locker, Script::Release { next: None });
        self.leave(rules, locker, unanswered, true);
    }

    /// Ends the hold.
    pub(crate) fn unlock(&mut self, rules: &Rules, pass_on: bool) {
        if let Phase::Held { locker, .. } = self.phase {
            let next = pass_on.then(|| if rules.is(Mutant::SameLockerNext) { locker } else { self.fresh() });
            self.send(rules, locker, Script::Release { next });
            self.phase = Phase::Releasing { locker, next, left: rules.counted() };
        }
    }

    /// Ends the hold, and keeps everybody from the key for a while.
    pub(crate) fn delay(&mut self, rules: &Rules) {
        if let Phase::Held { locker, .. } = self.phase {
            self.send(rules, locker, Script::Delay);
            self.phase = Phase::Releasing { locker, next: None, left: rules.counted() };
        }
    }

    /// Puts a locker on the clean-up list.
    pub(crate) fn leave(&mut self, rules: &Rules, locker: Locker, unanswered: bool, sent: bool) {
        if unanswered && rules.is(Mutant::NoCleanUp) {
            return;
        }
        let unanswered = unanswered && !rules.is(Mutant::CleansUpOnce);
        self.leftovers.push(Leftover { locker, unanswered, until: None, sent, delayed: false });
    }

    /// Releases an entry of the clean-up list once more.
    pub(crate) fn clean_up(&mut self, rules: &Rules, entry: usize) {
        self.leftovers[entry].sent = true;
        let Leftover { locker, delayed, .. } = self.leftovers[entry];
        self.send(rules, locker, if delayed { Script::Delay } else { Script::Release { next: None } });
    }

    /// Gives up the connection. What the server has not yet executed is late, or lost.
    pub(crate) fn drop_link(&mut self, rules: &Rules, lost: bool) {
        let link = std::mem::take(&mut self.link);
        if rules.is(Mutant::ProofOutlivesConnection) {
            self.link.proof = link.proof;
        }
        let rest: List<_, MOST_SENT> = link.pending[link.replies.len()..].iter().map(|sent| sent.command).collect();
        if !lost && !rest.is_empty() {
            self.late.push(rest);
        }
        for leftover in &mut self.leftovers {
            leftover.sent = false;
        }
        if let Phase::Aside { locker, wait, .. } = self.phase {
            self.phase = if rules.is(Mutant::PlainTakenBackAndPolled) {
                Phase::Asking { locker, wait, left: 0, settled: false }
            } else {
                Phase::Aside { locker, wait, given_up: true }
            };
        }
        if let Phase::Releasing { locker, next, left } = self.phase {
            self.leave(rules, locker, false, false);
            if let Some(last) = self.leftovers.last_mut() {
                last.delayed = link.delays(locker) && !rules.is(Mutant::DelayThenReleased);
            }
            self.phase = match next {
                // What became of the next locker, a poll will tell.
                Some(locker) => Phase::Asking { locker, wait: true, left, settled: false },
                None => Phase::Idle,
            };
        }
    }

    /// Ends the process: nothing is left of it but what it has sent.
    pub(crate) fn crash(&mut self, rules: &Rules, lost: bool) {
        self.drop_link(rules, lost);
        self.lives = false;
        self.deaf = false;
        self.phase = Phase::Idle;
        self.leftovers.clear();
        self.inbox.clear();
    }

    /// Lets a tick pass on the local clock.
    pub(crate) fn tick(&mut self) {
        match &mut self.phase {
            Phase::Asking { left, .. } | Phase::Held { left, .. } | Phase::Releasing { left, .. } => {
                *left = left.saturating_sub(1);
            }
            Phase::Idle | Phase::Anew | Phase::Beside { .. } | Phase::Aside { .. } | Phase::Confirming { .. } => {}
        }
        for sent in &mut self.link.pending {
            sent.left = sent.left.saturating_sub(1);
        }
        if let Some(proof) = &mut self.link.proof {
            proof.left = proof.left.saturating_sub(1);
        }
        for until in self.leftovers.iter_mut().filter_map(|leftover| leftover.until.as_mut()) {
            *until = until.saturating_sub(1);
        }
    }
}
