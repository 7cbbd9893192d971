//! The server: a key, its queue, the fence; and the scripts, step by step as in `scripts/*.lua`.

use crate::rules::{Mutant, Rules};
use std::cell::Cell;

/// A number from the fence; 0 is none.
pub(crate) type Number = u16;

/// The locker of a tenure. A client never uses one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Locker {
    pub(crate) client: u8,
    pub(crate) n: u8,
}

/// A script with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Script {
    Acquire {
        wait: bool,
    },
    Poll,
    Extend,
    Release {
        next: Option<Locker>,
    },
    Probe,
    /// The four commands of a plain attempt, one after another: `SET NX`, `LLEN`, `INCR`, `GET`.
    Set,
    Len,
    Count,
    Get,
}

/// A command as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    pub(crate) script: Script,
    pub(crate) locker: Locker,
    /// Whether the connection has had a number, so that the fence may lag behind the clock.
    pub(crate) warm: bool,
}

/// What a script answers. `Busy` and `Waiting` come with the holder and its time to live, which decide nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    /// Of acquire and poll: the key is the locker's.
    Ours(Number),
    /// Of acquire: somebody else has it; with `wait`, the locker stands in the queue.
    Busy,
    /// Of poll: the locker stands in the queue.
    Waiting,
    /// Of poll: neither; nothing was written.
    Gone,
    /// Of extend and probe.
    Kept,
    /// Of extend, probe and release.
    NotOurs,
    /// Of release: the key is free or handed over.
    Released,
    /// Of release: the key is the next locker's.
    Passed(Number),
    /// Of release: somebody else has the key, the next locker stands in the queue.
    Queued,
    /// A refused command was answered: nothing was done for the locker.
    Refused,
    /// An error raised inside the script: nobody knows what was done.
    Failed,
    /// Of set: the key is the locker's. For the properties only: who stood at the queue's head then.
    Took { ahead: Option<Locker> },
    /// Of len: nobody waits; of get: the key is the locker's.
    Yes,
    /// The opposite, of set too.
    No,
    /// Of count: the number. For the properties only: whether it is above all issued before.
    Counted { number: Number, rose: bool },
}

/// The message `granted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Granted {
    pub(crate) locker: Locker,
    pub(crate) number: Number,
}

/// The lock key while somebody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) holder: Locker,
    /// Ticks until the lease ends.
    pub(crate) left: u8,
    /// For the properties only: no message of this grant is under way or was heard.
    pub(crate) silent: bool,
}

/// What the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) key: Option<Key>,
    pub(crate) queue: Vec<Locker>,
    /// Ticks until the queue ends.
    pub(crate) queue_left: u8,
    /// Ticks until a key that is free for pollers is so for all.
    pub(crate) gap_left: u8,
    /// Whether the next release that can leaves the key free for pollers; and how many more may.
    pub(crate) gap_due: bool,
    pub(crate) gaps: u8,
    pub(crate) fence: Number,
    pub(crate) clock: Number,
    /// For the properties only: the highest number ever issued, and whether a later one was not higher.
    pub(crate) highest: Number,
    pub(crate) fell: bool,
    /// For the properties only, where keys are deleted: who was given the key, in that order.
    pub(crate) given: Vec<Locker>,
}

/// Which calls of one script are refused; the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    None,
    Only(u8),
    From(u8),
}

/// What a script sees of the world around it.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    pub(crate) rules: &'a Rules,
    /// For each client, whether anybody hears its inbox.
    pub(crate) hears: [bool; 3],
    pub(crate) refusal: Refusal,
    /// How many calls there were, and whether one was refused.
    pub(crate) calls: Cell<(u8, bool)>,
}

impl Around<'_> {
    /// Whether the next call is refused.
    fn refuses(&self) -> bool {
        let (call, refused) = self.calls.get();
        let refuses = match self.refusal {
            Refusal::None => false,
            Refusal::Only(only) => call == only,
            Refusal::From(first) => call >= first,
        };
        self.calls.set((call + 1, refused || refuses));
        refuses
    }

    /// A call that nothing was done before for the locker.
    fn call(&self) -> Result<(), Stopped> {
        if self.refuses() { Err(Stopped::Refused) } else { Ok(()) }
    }

    /// A call that takes something back after a refusal.
    fn take_back(&self, back: impl FnOnce()) -> Stopped {
        if self.refuses() {
            return Stopped::Raised;
        }
        back();
        Stopped::Refused
    }
}

/// Why a script ended before its end.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    Refused,
    Raised,
}

impl Server {
    pub(crate) fn new(clock: Number, gaps: u8) -> Self {
        Self {
            key: None,
            queue: Vec::new(),
            queue_left: 0,
            gap_left: 0,
            gap_due: false,
            gaps,
            fence: 0,
            clock,
            highest: 0,
            fell: false,
            given: Vec::new(),
        }
    }

    pub(crate) fn holder(&self) -> Option<Locker> {
        self.key.map(|key| key.holder)
    }

    /// Runs a script: its answer, and the message that it publishes.
    pub(crate) fn run(&mut self, around: &Around<'_>, command: Command) -> (Reply, Option<Granted>) {
        let result = match command.script {
            Script::Acquire { wait } => self.acquire(around, command, wait),
            Script::Poll => self.poll(around, command),
            Script::Extend => self.extend(around, command.locker).map(|reply| (reply, None)),
            Script::Release { next } => self.release(around, command, next),
            Script::Probe => {
                let ours = self.holder() == Some(command.locker);
                Ok((if ours { Reply::Kept } else { Reply::NotOurs }, None))
            }
            Script::Set if self.key.is_none() => {
                self.take(around, command.locker);
                Ok((Reply::Took { ahead: self.queue.first().copied() }, None))
            }
            Script::Set => Ok((Reply::No, None)),
            Script::Len => Ok((yes(self.queue.is_empty() && self.gap_left == 0), None)),
            Script::Count => Ok((self.count(around), None)),
            Script::Get => Ok((yes(self.holder() == Some(command.locker)), None)),
        };
        let (reply, granted) = result.unwrap_or_else(|stopped| match stopped {
            Stopped::Refused => (Reply::Refused, None),
            Stopped::Raised => (Reply::Failed, None),
        });
        if self.queue.is_empty() {
            self.queue_left = 0;
        }
        (reply, granted.filter(|granted| around.rules.publish && around.hears[usize::from(granted.locker.client)]))
    }

    fn acquire(
        &mut self,
        around: &Around<'_>,
        command: Command,
        wait: bool,
    ) -> Result<(Reply, Option<Granted>), Stopped> {
        let mut granted = None;
        if self.key.is_none() && self.gap_left == 0 {
            if self.queue.is_empty() {
                around.call()?;
                self.take(around, command.locker);
                if around.refuses() {
                    return Err(around.take_back(|| self.key = None));
                }
                return Ok((Reply::Ours(self.issue(around, command.warm)), None));
            }
            let (winner, number) = self.hand_over(around, command.warm, None)?;
            let Some(locker) = winner else {
                around.call()?;
                self.take(around, command.locker);
                return Ok((Reply::Ours(number), None));
            };
            granted = Some(Granted { locker, number });
        }
        if wait && !self.push(around, command.locker) {
            return Ok((Reply::Refused, granted));
        }
        Ok((Reply::Busy, granted))
    }

    fn poll(&mut self, around: &Around<'_>, command: Command) -> Result<(Reply, Option<Granted>), Stopped> {
        let Command { locker, warm, .. } = command;
        if let Some(key) = self.key.as_mut().filter(|key| key.holder == locker) {
            around.call()?;
            key.left = around.rules.lease;
            return Ok((Reply::Ours(self.issue(around, warm)), None));
        }
        if !self.queue.contains(&locker) {
            if around.rules.is(Mutant::PollQueuesAnew) {
                return self.acquire(around, command, true).map(|(reply, granted)| match reply {
                    Reply::Busy => (Reply::Waiting, granted),
                    other => (other, granted),
                });
            }
            return Ok((Reply::Gone, None));
        }
        if self.key.is_some() || self.gap_left > 0 {
            around.call()?;
            self.refresh(around);
            return Ok((Reply::Waiting, None));
        }
        let (winner, number) = self.hand_over(around, warm, Some(locker))?;
        match winner {
            Some(winner) if winner != locker => {
                self.refresh(around);
                Ok((Reply::Waiting, Some(Granted { locker: winner, number })))
            }
            _ => Ok((Reply::Ours(number), None)),
        }
    }

    fn extend(&mut self, around: &Around<'_>, locker: Locker) -> Result<Reply, Stopped> {
        Ok(match &mut self.key {
            Some(key) if key.holder == locker || around.rules.is(Mutant::ExtendsAnything) => {
                around.call()?;
                key.left = around.rules.lease;
                Reply::Kept
            }
            _ => Reply::NotOurs,
        })
    }

    fn release(
        &mut self,
        around: &Around<'_>,
        command: Command,
        next: Option<Locker>,
    ) -> Result<(Reply, Option<Granted>), Stopped> {
        let anything = around.rules.is(Mutant::ReleasesAnything) && self.key.is_some();
        if self.holder() != Some(command.locker) && !anything {
            around.call()?;
            self.queue.retain(|waiting| *waiting != command.locker);
            return Ok((Reply::NotOurs, None));
        }
        if self.gap_due {
            return self.leave_to_pollers(around, next).map(|reply| (reply, None));
        }
        if self.gap_left > 0 {
            // A plain attempt took the key in a gap.
            around.call()?;
            self.key = None;
            let Some(next) = next else { return Ok((Reply::Released, None)) };
            self.push(around, next);
            return Ok((Reply::Queued, None));
        }
        if !self.queue.is_empty() {
            let (winner, number) = self.hand_over_by(around, command.warm, None, Some(command.locker))?;
            if let Some(locker) = winner {
                // A next locker that is not taken in is gone, which its poll tells.
                let pushed = next.is_none_or(|next| self.push(around, next));
                if !pushed && around.rules.is(Mutant::RefusedAfterHandOver) {
                    return Ok((Reply::Refused, Some(Granted { locker, number })));
                }
                let reply = if next.is_some() { Reply::Queued } else { Reply::Released };
                return Ok((reply, Some(Granted { locker, number })));
            }
            if let Some(next) = next {
                around.call()?;
                self.take(around, next);
                return Ok((Reply::Passed(number), None));
            }
        } else if let Some(next) = next {
            around.call()?;
            let number = self.issue(around, command.warm);
            around.call()?;
            self.take(around, next);
            return Ok((Reply::Passed(number), None));
        }
        around.call()?;
        self.key = None;
        Ok((Reply::Released, None))
    }

    /// Frees the key, and lets nobody take it for a tick.
    fn leave_to_pollers(&mut self, around: &Around<'_>, next: Option<Locker>) -> Result<Reply, Stopped> {
        (self.gap_due, self.gap_left) = (false, 1);
        self.queue_left = self.queue_left.max(self.gap_left);
        around.call()?;
        if !around.rules.is(Mutant::GapKeepsKey) {
            self.key = None;
        }
        if around.rules.is(Mutant::GapClearsQueue) {
            self.queue.clear();
        }
        let Some(next) = next else { return Ok(Reply::Released) };
        self.push(around, next);
        Ok(Reply::Queued)
    }

    /// Gives the key to the first waiter that hears its inbox, or to the caller. The number is issued in any case.
    fn hand_over(
        &mut self,
        around: &Around<'_>,
        warm: bool,
        caller: Option<Locker>,
    ) -> Result<(Option<Locker>, Number), Stopped> {
        self.hand_over_by(around, warm, caller, None)
    }

    /// The same for a release: the locker that `ended` is not given the key, whoever left it in the queue.
    fn hand_over_by(
        &mut self,
        around: &Around<'_>,
        warm: bool,
        caller: Option<Locker>,
        ended: Option<Locker>,
    ) -> Result<(Option<Locker>, Number), Stopped> {
        around.call()?;
        let number = self.issue(around, warm);
        let old = around.rules.is(Mutant::SetsBeforePop) || around.rules.is(Mutant::ReleasedGrantIgnored);
        while let Some(head) = self.queue.first().copied() {
            let live = caller == Some(head) || around.hears[usize::from(head.client)];
            if old && live {
                around.call()?;
                self.give(around, head, caller == Some(head) || !around.rules.publish);
                if around.refuses() {
                    return Err(Stopped::Raised);
                }
                self.queue.remove(0);
                return Ok((Some(head), number));
            }
            around.call()?;
            self.queue.remove(0);
            if ended == Some(head) {
                continue;
            }
            let heard = around.hears[usize::from(head.client)] || around.rules.is(Mutant::GrantsToTheDead);
            if (caller == Some(head) || heard) && around.refuses() {
                if around.rules.is(Mutant::PopsAndForgets) {
                    return Err(Stopped::Refused);
                }
                return Err(around.take_back(|| self.queue.insert(0, head)));
            }
            if caller == Some(head) {
                self.take(around, head);
                return Ok((Some(head), number));
            }
            if heard {
                if around.rules.is(Mutant::PublishesFirst) && !around.rules.publish {
                    return Err(Stopped::Raised);
                }
                let silent = !around.rules.publish;
                self.give(around, head, silent);
                if around.rules.is(Mutant::GrantsWithoutKey) {
                    self.key = None;
                }
                return Ok((Some(head), number));
            }
        }
        Ok((None, number))
    }

    /// Sets the key for a locker whose own command asks for it.
    fn take(&mut self, around: &Around<'_>, locker: Locker) {
        self.give(around, locker, true);
    }

    fn give(&mut self, around: &Around<'_>, locker: Locker, silent: bool) {
        self.key = Some(Key { holder: locker, left: around.rules.lease, silent });
        if around.rules.deletes {
            self.given.push(locker);
        }
    }

    /// Puts a locker at the queue's end; `false` when the queue does not take it.
    fn push(&mut self, around: &Around<'_>, locker: Locker) -> bool {
        let pushes = !around.refuses();
        if pushes {
            self.queue.push(locker);
            self.refresh(around);
        }
        pushes
    }

    fn refresh(&mut self, around: &Around<'_>) {
        self.queue_left = self.queue_left.max(2 * around.rules.lease);
    }

    /// Issues a number. With a fine clock, every number costs at least one unit of it.
    fn issue(&mut self, around: &Around<'_>, warm: bool) -> Number {
        self.fence += 1;
        if let Some(clock) = around.rules.clock {
            self.clock += 1;
            let slack = if warm || around.rules.is(Mutant::SlackWhenFresh) { clock.slack } else { 0 };
            if self.fence < self.clock - slack {
                self.fence = self.clock;
            }
        }
        self.fell |= self.fence <= self.highest;
        self.highest = self.highest.max(self.fence);
        self.fence
    }

    /// Counts a number that no clock is asked about: whether it was issued, its reader decides.
    fn count(&mut self, around: &Around<'_>) -> Reply {
        self.fence += 1;
        self.clock += Number::from(around.rules.clock.is_some());
        let rose = self.fence > self.highest;
        self.highest = self.highest.max(self.fence);
        Reply::Counted { number: self.fence, rose }
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        if let Some(clock) = rules.clock {
            self.clock += clock.tick;
        }
        if let Some(key) = &mut self.key {
            key.left -= 1;
            if key.left == 0 {
                self.key = None;
            }
        }
        if !rules.is(Mutant::GapForEver) {
            self.gap_left = self.gap_left.saturating_sub(1);
        }
        self.queue_left = self.queue_left.saturating_sub(1);
        if self.queue_left == 0 {
            self.queue.clear();
        }
    }
}

fn yes(so: bool) -> Reply {
    if so { Reply::Yes } else { Reply::No }
}
