//! The server: one key as the [specification](crate::spec) has it, the fence, and the mistakes that a script could make.

use crate::around::Around;
use crate::list::List;
use crate::rules::{Mutant, Rules};
use crate::spec::key::Keep;
use crate::spec::{
    AcquireEffect, BreakEffect, Claimant, DelayEffect, ExtendEffect, KeyHolder, KeyState, NumberedGrant, PollEffect,
    PollingGap, ReleaseEffect, Stop, Ticks,
};

/// A number from the fence; 0 is none.
pub(crate) type Number = u16;

/// The locker of a tenure. A client never uses one twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Locker {
    pub(crate) client: u8,
    pub(crate) n: u8,
}

/// What marks have more than the lockers that they are made of. No client has so many.
const MARKED: u8 = 100;

impl Locker {
    /// The mark that the key contains when the release of this locker is delayed.
    pub(crate) fn mark(self) -> Self {
        Self { n: self.n + MARKED, ..self }
    }

    #[inline]
    pub(crate) fn is_mark(self) -> bool {
        self.n >= MARKED
    }

    /// The locker that this is, or of which it is the mark.
    #[inline]
    pub(crate) fn unmarked(self) -> Self {
        Self { n: self.n % MARKED, ..self }
    }
}

/// Some of the lockers that are waiting, or were.
pub(crate) type Lockers = List<Locker, 8>;

/// A script with its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Script {
    Acquire {
        wait: bool,
    },
    #[default]
    Poll,
    Extend,
    Release {
        next: Option<Locker>,
    },
    Probe,
    /// A release that is delayed: the mark of the locker keeps everybody from the key.
    Delay,
    /// A forced break of this locker's hold, by an operator.
    Break,
    /// The four commands of a plain attempt, one after another: `SET NX`, `LLEN`, `INCR`, `GET`.
    Set,
    Len,
    Count,
    Get,
}

/// A command as it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    pub(crate) script: Script,
    pub(crate) locker: Locker,
    /// Whether the connection has had a number, so that the fence may lag behind the clock.
    pub(crate) warm: bool,
}

/// What a script answers. `Busy` and `Waiting` come with the holder and its time to live, which decide nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    /// Of acquire and poll: the key is the locker's.
    Ours(Number),
    /// Of acquire: somebody else has it; with `wait`, the locker stands in the queue.
    Busy,
    /// Of poll: the locker stands in the queue.
    Waiting,
    /// Of poll: neither; nothing was written.
    #[default]
    Gone,
    /// Of extend and probe.
    Kept,
    /// Of extend, probe and release.
    NotOurs,
    /// Of release: the key is free or handed over; of a delayed one: it is kept from everybody.
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

/// The end of a time that the clock was stepped back from, further than it goes forward in a model.
const FAR: Ticks = Ticks::MAX;

/// Who holds nothing, ever.
const NOBODY: Locker = Locker { client: u8::MAX, n: 0 };

/// The message `granted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Granted {
    pub(crate) locker: Locker,
    pub(crate) number: Number,
}

/// The counter of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fence {
    pub(crate) last: Number,
    pub(crate) clock: Number,
    /// For the properties only: the highest number ever issued, and whether a later one was not higher.
    pub(crate) highest: Number,
    pub(crate) fell: bool,
}

/// What the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// Its clock stands at 0, so each moment in it is the number of ticks that are left.
    pub(crate) key: KeyState<Locker>,
    /// For the properties only: somebody holds the key, and no message of this grant is under way or was heard.
    pub(crate) silent: bool,
    /// Whether the next release that can leaves the key free for pollers; and how many more may.
    pub(crate) gap_due: bool,
    pub(crate) gaps: u8,
    pub(crate) fence: Fence,
    /// For the properties only, where keys are deleted: who was given the key, in that order.
    pub(crate) given: Vec<Locker>,
}

/// Which calls of one script are refused, or at which one an error is raised; the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    None,
    Only(u8),
    From(u8),
    /// As if another key were touched that is elsewhere. What follows the last call is the message.
    Raised(u8),
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    /// The message that it published.
    pub(crate) granted: Option<Granted>,
    /// How many calls its script made, and whether one was refused.
    pub(crate) calls: u8,
    pub(crate) refused: bool,
    /// Whether it came to a message of a grant.
    pub(crate) tells: bool,
    /// For the properties only: the waiters that a hand-over came to, and that nobody hears.
    pub(crate) unheard: Lockers,
}

impl Server {
    pub(crate) fn new(clock: Number, gaps: u8) -> Self {
        let fence = Fence { last: 0, clock, highest: 0, fell: false };
        Self { key: KeyState::default(), silent: false, gap_due: false, gaps, fence, given: Vec::new() }
    }

    #[inline]
    pub(crate) fn holder(&self) -> Option<Locker> {
        self.key.held_by()
    }

    /// Who waits.
    #[inline]
    pub(crate) fn queue(&self) -> impl Iterator<Item = Locker> {
        self.key.queue.iter().map(|waiter| waiter.locker)
    }

    #[inline]
    pub(crate) fn is_queued(&self, locker: Locker) -> bool {
        self.queue().any(|waiting| waiting == locker)
    }

    /// Does what an administrator's DEL does.
    pub(crate) fn delete(&mut self) {
        (self.key.holder, self.silent) = (None, false);
    }

    /// Runs a command, with some of its calls refused. `hears` says for each client whether anybody hears its inbox.
    pub(crate) fn run(&mut self, rules: &Rules, hears: [bool; 3], refusal: Refusal, command: Command) -> Done {
        let before = self.holder();
        let polls = (command.script == Script::Poll).then_some(command.locker);
        let mut around = Around::new(rules, hears, refusal, self.fence, command.warm, polls);
        let mark = self.key.keep;
        self.mistake_mark(rules);
        let reply = match self.execute(&mut around, command) {
            Ok(reply) if !around.raised => reply,
            Err(Stop::Refused(command)) => self.refuse(&around, command),
            Ok(_) => Reply::Failed,
            Err(Stop::Raised) if around.forgot => Reply::Refused,
            Err(Stop::Raised) => Reply::Failed,
        };
        let Around { fence, granted, calls, refused, tells, mut unheard, .. } = around;
        self.fence = fence;
        let is_poll_of_held_key = polls.is_some() && before.is_some();
        if is_poll_of_held_key {
            // It looks whether the first waiter is heard, and passes over nobody.
            unheard.clear();
        }
        self.restore_mark(rules, mark, is_poll_of_held_key);
        self.key.expire(0);
        if granted.is_some() && rules.is(Mutant::GrantsWithoutKey) {
            self.key.holder = None;
        }
        if let (Some(_), true, Some(holder)) = (granted, rules.is(Mutant::HandOverForgetsDelay), &mut self.key.holder) {
            holder.until = Some(rules.lease.into());
        }
        let holder = self.holder();
        if rules.deletes && holder != before {
            self.given.extend(holder);
        }
        self.silent = holder.is_some()
            && match granted {
                Some(_) => !rules.publish,
                None => self.silent || holder != before,
            };
        let granted = granted.filter(|granted| rules.publish && hears[usize::from(granted.locker.client)]);
        Done { reply, granted, calls, refused, tells, unheard }
    }

    /// What a script that makes a mistake takes the mark of the queue for.
    fn mistake_mark(&mut self, rules: &Rules) {
        match &mut self.key.keep {
            keep if rules.is(Mutant::DropsUnheardAtOnce) => *keep = Some(Keep { until: 0, count: usize::MAX }),
            Some(keep) if rules.is(Mutant::MissesStepBack) && keep.until == FAR => keep.until = rules.keep.into(),
            Some(keep) if rules.is(Mutant::MarkCountsAll) => keep.count = usize::MAX,
            _ => {}
        }
    }

    /// What such a script leaves of it.
    fn restore_mark(&mut self, rules: &Rules, mark: Option<Keep>, is_poll: bool) {
        let is_left = self.key.keep.is_some();
        if rules.is(Mutant::DropsUnheardAtOnce) {
            self.key.keep = None;
        } else if rules.is(Mutant::MissesStepBack) && mark.is_some_and(|keep| keep.until == FAR) && is_left
            || rules.is(Mutant::LeavesMark) && !is_left
            || rules.is(Mutant::PollLeavesMark) && is_poll && !is_left
        {
            self.key.keep = mark;
        }
    }

    fn execute(&mut self, around: &mut Around<'_>, command: Command) -> Result<Reply, Stop> {
        let (rules, locker) = (around.rules, command.locker);
        let me = tenure(rules, locker);
        // What a script acts on that does not compare.
        let anyone = self.holder().map_or(me, |holder| tenure(rules, holder));
        Ok(match command.script {
            Script::Acquire { wait } => self.acquire(around, me, wait || rules.is(Mutant::TryJoins))?,
            Script::Poll => match self.key.poll(around, me)? {
                PollEffect::Acquired(grant) => Reply::Ours(number(grant)),
                PollEffect::Waiting(_) => Reply::Waiting,
                PollEffect::Gone if rules.is(Mutant::PollQueuesAnew) => match self.acquire(around, me, true)? {
                    Reply::Busy => Reply::Waiting,
                    other => other,
                },
                PollEffect::Gone => Reply::Gone,
            },
            Script::Extend => {
                let me = if rules.is(Mutant::ExtendsAnything) { anyone } else { me };
                match self.key.extend(around, me)? {
                    ExtendEffect::Extended { .. } => Reply::Kept,
                    ExtendEffect::NotOurs(_) => Reply::NotOurs,
                }
            }
            Script::Release { next } => {
                let me = if rules.is(Mutant::ReleasesAnything) { anyone } else { me };
                self.release(around, me, next)?
            }
            Script::Delay => {
                let time = if rules.is(Mutant::DelayOfALease) { rules.lease } else { rules.delayed };
                match self.key.delay_release(around, locker, Claimant { locker: locker.mark(), lease: time.into() })? {
                    DelayEffect::Delayed => {
                        if rules.is(Mutant::DelayForgetsQueue) {
                            self.key.queue.clear();
                        }
                        Reply::Released
                    }
                    DelayEffect::NotOurs(_) => Reply::NotOurs,
                }
            }
            Script::Break => {
                let me = if rules.is(Mutant::BreaksAnything) { anyone } else { me };
                match self.key.break_hold(around, me.locker)? {
                    BreakEffect::Broken { .. } if rules.is(Mutant::BreakForgetsQueue) => {
                        self.key.queue.clear();
                        Reply::Released
                    }
                    BreakEffect::Broken { .. } => Reply::Released,
                    BreakEffect::NotHeldBy(_) => Reply::NotOurs,
                }
            }
            Script::Probe if self.key.is_held_by(locker) => Reply::Kept,
            Script::Probe => Reply::NotOurs,
            Script::Set if self.key.holder.is_none() => {
                self.key.hold(0, me);
                Reply::Took { ahead: self.queue().next() }
            }
            Script::Set => Reply::No,
            Script::Len => yes(self.key.queue.is_empty() && self.key.gap_until.is_none()),
            Script::Count => {
                // A number that no clock is asked about: whether it was issued, its reader decides.
                let fence = &mut around.fence;
                fence.last += 1;
                fence.clock += Number::from(rules.clock.is_some());
                let rose = fence.last > fence.highest;
                fence.highest = fence.highest.max(fence.last);
                Reply::Counted { number: fence.last, rose }
            }
            Script::Get => yes(self.key.is_held_by(locker)),
        })
    }

    fn acquire(&mut self, around: &mut Around<'_>, me: Claimant<Locker>, wait: bool) -> Result<Reply, Stop> {
        Ok(match self.key.acquire(around, me, wait)? {
            AcquireEffect::Acquired(grant) => Reply::Ours(number(grant)),
            AcquireEffect::Busy(_) => Reply::Busy,
        })
    }

    fn release(
        &mut self,
        around: &mut Around<'_>,
        mut me: Claimant<Locker>,
        next: Option<Locker>,
    ) -> Result<Reply, Stop> {
        let (rules, locker, held) = (around.rules, me.locker, self.key.holder);
        if rules.sets_before_pop() && self.key.is_held_by(locker) {
            // The script of version 0.1.0 does not know whom it must not give the key.
            me.locker = NOBODY;
            self.key.holder = held.map(|held| KeyHolder { locker: NOBODY, ..held });
        }
        // Always long enough ago: the rate of gaps is not looked at.
        let gap = self.gap_due.then_some(PollingGap { length: 1, every: 0 });
        let released = self.key.release(around, me, next.map(|next| tenure(rules, next)), gap);
        if self.key.is_held_by(NOBODY) {
            self.key.holder = held;
        }
        if self.key.gapped_until.is_some() {
            self.gap_due = false;
            if rules.is(Mutant::GapKeepsKey) {
                self.key.holder = held;
            }
            if rules.is(Mutant::GapClearsQueue) {
                self.key.queue.retain(|waiter| next == Some(waiter.locker));
            }
        }
        Ok(match released? {
            ReleaseEffect::Released { .. } => Reply::Released,
            ReleaseEffect::Passed(grant) => Reply::Passed(number(grant)),
            ReleaseEffect::Queued(_)
                if rules.is(Mutant::RefusedAfterHandOver) && next.is_some_and(|next| !self.is_queued(next)) =>
            {
                Reply::Refused
            }
            ReleaseEffect::Queued(_) => Reply::Queued,
            ReleaseEffect::NotOurs(_) => Reply::NotOurs,
        })
    }

    /// Answers a refusal of this command.
    fn refuse(&mut self, around: &Around<'_>, command: &str) -> Reply {
        let head = self.key.queue.front().copied();
        if let ("LPOP", Some(head), true) = (command, head, around.rules.sets_before_pop())
            && (around.heard || around.polls == Some(head.locker))
        {
            // In version 0.1.0 it has the key by then.
            self.key.hold(0, head);
            return Reply::Failed;
        }
        Reply::Refused
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        if let Some(clock) = rules.clock {
            self.fence.clock += clock.tick;
        }
        let KeyState { holder, queue_until, keep, gap_until, .. } = &mut self.key;
        let lease = holder.iter_mut().filter_map(|holder| holder.until.as_mut());
        let gap = gap_until.iter_mut().filter(|_| !rules.is(Mutant::GapForEver));
        let keep = keep.iter_mut().map(|keep| &mut keep.until);
        let keep = keep.filter(|left| **left != FAR && !rules.is(Mutant::KeepsForEver));
        lease.chain(queue_until).chain(gap).chain(keep).for_each(|left| *left = left.saturating_sub(1));
        self.key.expire(0);
        self.silent &= self.key.holder.is_some();
    }

    /// Whether there is a moment that is another one when the clock is stepped back.
    pub(crate) fn minds_steps_back(&self) -> bool {
        self.key.keep.is_some_and(|keep| keep.until != FAR)
    }

    /// Steps the clock back, so far that it does not come back to where it was.
    pub(crate) fn step_back(&mut self) {
        self.key.keep = self.key.keep.map(|keep| Keep { until: FAR, ..keep });
    }
}

#[inline]
fn tenure(rules: &Rules, locker: Locker) -> Claimant<Locker> {
    Claimant { locker, lease: rules.kept().into() }
}

#[inline]
pub(crate) fn number(grant: NumberedGrant) -> Number {
    Number::try_from(grant.number).unwrap()
}

#[inline]
fn yes(so: bool) -> Reply {
    if so { Reply::Yes } else { Reply::No }
}
