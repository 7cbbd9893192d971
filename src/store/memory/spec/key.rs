//! One lock key: its holder, its queue, and what each operation does to them.
//!
//! | holder | queue | means |
//! |---|---|---|
//! | none | empty | free; such an entry is not kept |
//! | some | empty | held |
//! | some | waiters | held and contended: the holder's client was told |
//! | none | waiters | the holder's lease ended or its key was deleted: the next acquire or poll hands over |
//! | none | any, in a gap | free for pollers: nobody is given the key before the gap is over |
//! | any | waiters, marked | somebody was passed over because nobody heard its inbox: see below |
//!
//! Invariants: a locker is in the queue only because it was sent with `wait` or as a next locker. It leaves the queue by a grant, by a
//! release, by a hand-over that finds it unheard when its time is over, or when the queue ends. The holder changes only by the operations
//! below, by the end of its lease, and by administrators.
//!
//! # The hand-over
//!
//! A hand-over decides who is given a key that may be given away.
//!
//! It goes to the first waiter whose client has an open inbox. A waiter whose client has none may be dead, or may have lost its
//! connection for a moment. At a failover all have. So a waiter that nobody hears is passed over and keeps its place for a while.
//! A mark on the queue says until when, and how many of the first waiters had been passed over when it was made.
//!
//! | the queue | unheard waiters before the winner | then the queue |
//! |---|---|---|
//! | is not marked | none | stays unmarked |
//! | is not marked | some | is marked for them; they stay |
//! | is marked, and the time is not over | some | stays as it is |
//! | is marked | none | is not marked any more |
//! | is marked, and the time is over, or longer than it can be | no more than the mark counts | is not marked any more; they leave |
//! | the same | more | the first ones, as many as the mark counts, leave; it is marked again for the others, which stay |
//!
//! The time is longer than it can be when the clock was stepped back. A waiter that becomes unheard while the queue is marked for others
//! has a time of its own, which begins when theirs is over. A mark counts places: when one of the waiters that it counts has left before
//! its time is over, it counts the next one instead.

use super::{
    AcquireEffect, BreakEffect, BusyReason, Claimant, DelayEffect, Environment, ExtendEffect, KeyHolder, LockerRef,
    Notice, NumberedGrant, PollEffect, PollingGap, ReleaseEffect, Stop, Ticks,
};
use std::collections::VecDeque;

/// The state of one key. It is empty when the key is free, nobody waits, and no gap is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyState<L> {
    /// Who holds the key.
    pub(crate) holder: Option<KeyHolder<L>>,
    /// Who waits for it, the longest first.
    pub(crate) queue: VecDeque<Claimant<L>>,
    /// When the queue ends, unless one of its waiters asks again before. A queue without such a moment does not end.
    pub(crate) queue_until: Option<Ticks>,
    /// For which waiters that nobody hears the places are kept, and until when. `None` while nobody was passed over.
    pub(crate) keep: Option<Keep>,
    /// Until when the key, if nobody holds it, is reserved for pollers.
    pub(crate) gap_until: Option<Ticks>,
    /// Until when there is no other gap.
    pub(crate) gapped_until: Option<Ticks>,
}

impl<L> Default for KeyState<L> {
    fn default() -> Self {
        Self {
            holder: None,
            queue: VecDeque::new(),
            queue_until: None,
            keep: None,
            gap_until: None,
            gapped_until: None,
        }
    }
}

/// The lockers that a hand-over must know.
#[derive(Clone, Copy, Debug)]
struct Candidates<N> {
    /// The locker that asks from within the queue. It counts as heard without an inbox, because its reply tells it that it won.
    asker: Option<Claimant<N>>,
    /// The locker that is being released. It is never given the key, even if it is in the queue.
    ended: Option<N>,
    /// The locker that goes to the end of the queue if another one is given the key.
    behind: Option<Claimant<N>>,
}

impl<N> Default for Candidates<N> {
    fn default() -> Self {
        Self { asker: None, ended: None, behind: None }
    }
}

/// What a hand-over has done.
#[derive(Debug)]
struct HandOver<L> {
    /// The new holder of the key. `None` if nobody is heard: the key is unchanged, and the caller decides who gets it.
    winner: Option<Claimant<L>>,
    /// The number of the locker that is given the key.
    number: u64,
    /// Whether the queue took the one behind, if it was to.
    queued: Result<(), Stop>,
}

/// The time for which waiters that nobody hears keep their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keep {
    /// When it is over.
    pub(crate) until: Ticks,
    /// How many of the first waiters it is for.
    pub(crate) count: usize,
}

/// What the queue looks like from its head to the winner.
struct Look {
    /// How many waiters this is.
    looked: usize,
    /// Whether the last of them wins.
    wins: bool,
    /// How many of them are unheard.
    unheard: usize,
    /// Whether some of these stay.
    keeps: bool,
    /// If some stay though the time of others is over: how many waiters leave from the head, and how many of these are unheard.
    over: Option<(usize, usize)>,
}

impl<N> Candidates<N> {
    fn has_ended<L>(&self, waiter: &Claimant<L>) -> bool
    where
        N: Copy + PartialEq<L>,
    {
        self.ended.is_some_and(|ended| ended == waiter.locker)
    }
}

impl<L: Clone> KeyState<L> {
    /// Returns whether there is nothing to keep.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty() && self.gap_until.is_none() && self.gapped_until.is_none()
    }

    /// Forgets everything that has expired. Call it before every operation, so that no operation need check time-outs.
    pub(crate) fn expire(&mut self, now: Ticks) {
        let over = |until: Option<Ticks>| until.is_some_and(|until| until <= now);
        if self.holder.as_ref().is_some_and(|holder| over(holder.until)) {
            self.holder = None;
        }
        self.gap_until = self.gap_until.filter(|until| *until > now);
        self.gapped_until = self.gapped_until.filter(|until| *until > now);
        // Redis keeps a gap in the queue, so the queue lasts at least as long.
        if over(self.queue_until) && self.gap_until.is_none() {
            self.queue.clear();
        }
        if self.queue.is_empty() {
            (self.queue_until, self.keep) = (None, None);
            self.queue.shrink_to_fit();
        }
    }

    /// Takes the key for a locker if it is free and nobody who waits is heard. If it is free otherwise, gives it to the first waiter that is
    /// heard. If it fails because the queue did not take the locker, a waiter may have been given the key nevertheless.
    pub(crate) fn acquire<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        asker: Claimant<N>,
        wait: bool,
    ) -> Result<AcquireEffect<L>, Stop> {
        let is_alone = self.queue.is_empty() && self.gap_until.is_none();
        if is_alone {
            // `NX GET`: this call also tells who holds the key.
            context.call("SET")?;
            if self.holder.is_none() {
                self.hold(context.now(), asker);
                let number = number(context).or_else(|refused| {
                    undo(context, "DEL")?;
                    self.holder = None;
                    Err(refused)
                })?;
                return Ok(AcquireEffect::Acquired(self.grant(number)));
            }
        }
        if let Some(busy) = self.held(context.now()).or_else(|| self.gap(context.now())) {
            if wait {
                self.enqueue(context, asker)?;
                if is_alone {
                    self.tell_contended(context);
                }
            }
            return Ok(AcquireEffect::Busy(busy));
        }
        let parties = Candidates { behind: wait.then_some(asker), ..Candidates::default() };
        let HandOver { winner, number, queued } = self.hand_over(context, parties)?;
        let Some(winner) = winner else {
            context.call("SET")?;
            self.hold(context.now(), asker);
            return Ok(AcquireEffect::Acquired(self.grant(number)));
        };
        let busy = winner.busy();
        // The winner is told even if the asker's place in the queue is refused.
        self.tell_granted(context, winner.locker, number);
        queued.map(|()| AcquireEffect::Busy(busy))
    }

    /// Finds out what became of a locker. Gives a free key to the first waiter that is heard, or to this one if it comes before.
    pub(crate) fn poll<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        asker: Claimant<N>,
    ) -> Result<PollEffect<L>, Stop> {
        if self.is_held_by(asker.locker) {
            let number = number(context)?;
            context.call("PEXPIRE")?;
            self.hold(context.now(), asker);
            return Ok(PollEffect::Acquired(self.grant(number)));
        }
        let Some(place) = self.queue.iter().position(|waiter| asker.is(waiter)) else {
            return Ok(PollEffect::Gone);
        };
        if let Some(busy) = self.held(context.now()) {
            self.prolong_queue(context, &asker)?;
            if place == 0 {
                self.forget_the_mark_if_heard(context);
                if self.gap_until.is_none() {
                    self.tell_contended(context);
                }
            }
            return Ok(PollEffect::Waiting(busy));
        }
        let (busy, granted) = if let Some(gap) = self.gap(context.now()) {
            (gap, None)
        } else {
            // The asker itself is in the queue and counts as heard, so somebody wins.
            match self.hand_over(context, Candidates { asker: Some(asker), ..Candidates::default() })? {
                HandOver { winner: Some(winner), number, .. } if asker.locker != winner.locker => {
                    (winner.busy(), Some((winner.locker, number)))
                }
                HandOver { number, .. } => return Ok(PollEffect::Acquired(self.grant(number))),
            }
        };
        // If this is refused, the next poll says so: the winner is told first.
        let _ = self.prolong_queue(context, &asker);
        if let Some((winner, number)) = granted {
            self.tell_granted(context, winner, number);
        }
        Ok(PollEffect::Waiting(busy))
    }

    /// Starts the lease of a locker again if it holds the key.
    pub(crate) fn extend<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        tenure: Claimant<N>,
    ) -> Result<ExtendEffect<L>, Stop> {
        if !self.is_held_by(tenure.locker) {
            return Ok(ExtendEffect::NotOurs(self.held_by()));
        }
        context.call("PEXPIRE")?;
        self.hold(context.now(), tenure);
        Ok(ExtendEffect::Extended { waiting: self.waiting() })
    }

    /// Ends a tenure: gives the key to the first waiter that is heard, or else to the `next` locker, or else frees it. If a `gap` is due, frees
    /// the key for pollers instead. A locker that does not hold the key leaves the queue. Once the key has left the locker there is no error: a
    /// next locker that the queue did not take is unknown.
    pub(crate) fn release<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        tenure: Claimant<N>,
        next: Option<Claimant<N>>,
        gap: Option<PollingGap>,
    ) -> Result<ReleaseEffect<L>, Stop> {
        if !self.is_held_by(tenure.locker) {
            context.call("LREM")?;
            self.queue.retain(|waiter| !tenure.is(waiter));
            return Ok(ReleaseEffect::NotOurs(self.held_by()));
        }
        if let Some(gap) = gap
            && self.gapped_until.is_none()
        {
            // The script undoes what it did before a refusal among these.
            for command in ["SET", "LPUSH", "PEXPIRE"] {
                context.call(command)?;
            }
            self.queue.retain(|waiter| !tenure.is(waiter));
            self.gapped_until = Some(context.now().saturating_add(gap.every));
            self.gap_until = Some(context.now().saturating_add(gap.length));
        }
        if let Some(gap) = self.gap(context.now()) {
            let freed = self.free(context)?;
            let Some(next) = next else { return Ok(freed) };
            let _ = self.enqueue(context, next);
            return Ok(ReleaseEffect::Queued(gap));
        }
        if self.queue.is_empty() && next.is_none() {
            return self.free(context);
        }
        let parties = Candidates { asker: None, ended: Some(tenure.locker), behind: next };
        let HandOver { winner, number, .. } = self.hand_over(context, parties)?;
        match (winner, next) {
            (Some(winner), next) => {
                let busy = winner.busy();
                self.tell_granted(context, winner.locker, number);
                let released = ReleaseEffect::Released { waiting: self.waiting() };
                Ok(next.map_or(released, |_| ReleaseEffect::Queued(busy)))
            }
            (None, Some(next)) => {
                context.call("SET")?;
                self.hold(context.now(), next);
                Ok(ReleaseEffect::Passed(self.grant(number)))
            }
            (None, None) => self.free(context),
        }
    }

    /// Ends a tenure and gives the key to nobody: the mark takes the locker's place, for a time from now. A mark that has it already gets the
    /// time from now, too. The queue stays as it is, and whoever asks first after the end gives the key to its first waiter.
    pub(crate) fn delay_release<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        locker: N,
        mark: Claimant<N>,
    ) -> Result<DelayEffect<L>, Stop> {
        if !self.is_held_by(locker) && !self.is_held_by(mark.locker) {
            return Ok(DelayEffect::NotOurs(self.held_by()));
        }
        context.call("SET")?;
        self.hold(context.now(), mark);
        Ok(DelayEffect::Delayed)
    }

    /// Takes the key from a locker that was seen to hold it: gives it to the first waiter that is heard, or else frees it. If another one holds
    /// the key by now, changes nothing. Fails as a release does.
    pub(crate) fn break_hold<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        locker: N,
    ) -> Result<BreakEffect<L>, Stop> {
        if !self.is_held_by(locker) {
            return Ok(BreakEffect::NotHeldBy(self.held_by()));
        }
        // What its entry in the queue would be matters only to a locker that does not hold.
        let released = self.release(context, Claimant { locker, lease: 0 }, None, None)?;
        context.tell(Notice::Broken { locker: locker.into() });
        Ok(match released {
            ReleaseEffect::Released { waiting } => BreakEffect::Broken { next: self.held_by(), waiting },
            ReleaseEffect::Passed(_) | ReleaseEffect::Queued(_) | ReleaseEffect::NotOurs(_) => {
                BreakEffect::NotHeldBy(self.held_by())
            }
        })
    }

    fn free(&mut self, context: &mut impl Environment<L>) -> Result<ReleaseEffect<L>, Stop> {
        context.call("DEL")?;
        self.holder = None;
        Ok(ReleaseEffect::Released { waiting: self.waiting() })
    }

    /// Makes a locker the holder from now on.
    pub(crate) fn hold<N: LockerRef<L>>(&mut self, now: Ticks, tenure: Claimant<N>) {
        let until = Some(now.saturating_add(tenure.lease));
        match &mut self.holder {
            Some(holder) if tenure.locker == holder.locker => holder.until = until,
            holder => *holder = Some(KeyHolder { locker: tenure.locker.into(), until }),
        }
    }

    /// Puts a locker at the end of the queue. If it fails, the queue is as it was. If the locker cannot be taken out again, that is no error:
    /// it waits.
    pub(super) fn enqueue<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        tenure: Claimant<N>,
    ) -> Result<(), Stop> {
        context.call("RPUSH")?;
        let is_first = self.queue.is_empty();
        if is_first {
            self.queue_until = None;
        }
        self.queue.push_back(Claimant { locker: tenure.locker.into(), lease: tenure.lease });
        if let Err(refused) = self.prolong_queue(context, &tenure) {
            if context.call("LREM").is_ok() {
                self.queue.pop_back();
                return Err(refused);
            }
        } else if is_first {
            self.queue_until = Some(life(context.now(), &tenure));
        }
        Ok(())
    }

    /// Lets the queue live long enough for this waiter.
    fn prolong_queue<N>(&mut self, context: &mut impl Environment<L>, waiter: &Claimant<N>) -> Result<(), Stop> {
        context.call("PEXPIRE")?;
        let life = life(context.now(), waiter);
        self.queue_until = self.queue_until.map(|until| until.max(life));
        Ok(())
    }

    /// Ends the time of those that were passed over if the first waiter is heard again: nobody stands before it.
    fn forget_the_mark_if_heard(&mut self, context: &mut impl Environment<L>) {
        let is_heard = self.keep.is_some() && self.queue.front().is_some_and(|first| context.hears(&first.locker));
        if is_heard && context.call("LREM").is_ok() {
            self.keep = None;
        }
    }

    fn tell_granted(&self, context: &mut impl Environment<L>, locker: L, number: u64) {
        context.tell(Notice::Granted { locker, grant: self.grant(number) });
    }

    fn tell_contended(&self, context: &mut impl Environment<L>) {
        if let Some(locker) = self.held_by() {
            context.tell(Notice::Contended { locker });
        }
    }

    /// Returns whether a locker holds the key.
    #[must_use]
    pub(crate) fn is_held_by<N: LockerRef<L>>(&self, locker: N) -> bool {
        self.holder.as_ref().is_some_and(|holder| locker == holder.locker)
    }

    /// Returns the locker that holds the key.
    #[must_use]
    pub(crate) fn held_by(&self) -> Option<L> {
        self.holder.as_ref().map(|holder| holder.locker.clone())
    }

    /// Returns the number of waiters.
    #[must_use]
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Returns who holds the key, and for how long.
    #[must_use]
    pub(crate) fn held(&self, now: Ticks) -> Option<BusyReason<L>> {
        let KeyHolder { locker, until } = self.holder.as_ref()?;
        Some(BusyReason::Held { by: locker.clone(), left: until.map(|until| until.saturating_sub(now)) })
    }

    fn gap(&self, now: Ticks) -> Option<BusyReason<L>> {
        self.gap_until.map(|until| BusyReason::Gap { left: until.saturating_sub(now) })
    }

    fn grant(&self, number: u64) -> NumberedGrant {
        NumberedGrant { number, waiting: self.waiting() }
    }

    /// Issues a number, and gives the key to the first waiter that is heard. Call it only when the key may be given away. Fails with
    /// [`Stop::Refused`]; then only dead waiters have left the queue, and the winner may have come before those that are passed over.
    /// [`Stop::Raised`]; then the winner may have left the queue, or the one behind may stand in it.
    fn hand_over<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        parties: Candidates<N>,
    ) -> Result<HandOver<L>, Stop> {
        let number = number(context)?;
        let look = self.look(context, &parties);
        let (looked, wins) = (look.looked, look.wins);
        let winner = if look.keeps { self.take_out(context, &look, &parties)? } else { None };
        // The one behind comes before the last one leaves: no script uses a key after it may have gone.
        let behind = parties.behind.filter(|_| wins);
        let queued = behind.map_or(Ok(()), |behind| self.enqueue(context, behind));
        let stands = behind.is_some() && queued.is_ok();
        let winner = if look.keeps || looked == 0 {
            winner
        } else {
            if let Err(refused) = context.call("LPOP") {
                self.take_back(context, stands)?;
                return Err(refused);
            }
            self.keep = None;
            self.queue.drain(..looked).next_back().filter(|_| wins)
        };
        let Some(winner) = winner else { return Ok(HandOver { winner: None, number, queued }) };
        if let Err(refused) = context.call("SET") {
            self.put_back(context, winner, look.keeps)?;
            self.take_back(context, stands)?;
            return Err(refused);
        }
        let until = Some(context.now().saturating_add(winner.lease));
        self.holder = Some(KeyHolder { locker: winner.locker.clone(), until });
        Ok(HandOver { winner: Some(winner), number, queued })
    }

    /// Looks for the winner.
    fn look<N: LockerRef<L>>(&self, context: &mut impl Environment<L>, parties: &Candidates<N>) -> Look {
        let counted = self.keep.map_or(0, |keep| keep.count);
        let (mut looked, mut unheard, mut covered) = (0, 0, 0);
        let mut wins = false;
        for waiter in &self.queue {
            looked += 1;
            if parties.has_ended(waiter) {
                continue;
            }
            wins = parties.asker.is_some_and(|asker| asker.is(waiter)) || context.hears(&waiter.locker);
            if wins {
                break;
            }
            unheard += 1;
            if unheard <= counted {
                covered = looked;
            }
        }
        let (now, length) = (context.now(), context.keep());
        let is_over = self.keep.is_some_and(|keep| keep.until <= now || keep.until - now > length);
        let keeps = unheard > if is_over { counted } else { 0 };
        Look { looked, wins, unheard, keeps, over: (keeps && is_over).then_some((covered, counted)) }
    }

    /// Marks the queue if need be, and takes the winner out of the middle of it.
    fn take_out<N: LockerRef<L>>(
        &mut self,
        context: &mut impl Environment<L>,
        look: &Look,
        parties: &Candidates<N>,
    ) -> Result<Option<Claimant<L>>, Stop> {
        let Look { mut looked, wins, unheard, over, .. } = *look;
        let (leaving, counted) = over.unwrap_or((0, 0));
        if over.is_some() {
            context.call("LPOP")?;
            self.queue.drain(..leaving);
            self.keep = None;
            looked -= leaving;
        }
        if self.keep.is_none() {
            context.call("LPUSH")?;
            self.keep = Some(Keep { until: context.now().saturating_add(context.keep()), count: unheard - counted });
        }
        while let Some(place) = self.queue.iter().take(looked).position(|waiter| parties.has_ended(waiter)) {
            context.call("LREM")?;
            self.queue.remove(place);
            looked -= 1;
        }
        if !wins {
            return Ok(None);
        }
        context.call("LREM")?;
        Ok(self.queue.remove(looked - 1))
    }

    /// Undoes that the winner has left the queue.
    fn put_back(&mut self, context: &mut impl Environment<L>, winner: Claimant<L>, keeps: bool) -> Result<(), Stop> {
        undo(context, "LPUSH")?;
        let life = life(context.now(), &winner);
        self.queue.push_front(winner);
        if keeps {
            // The script puts its marker before the winner. One that it cannot take away behind is dropped later.
            let _ = context.call("LREM");
        } else if self.queue.len() == 1 {
            self.queue_until = None;
            undo(context, "PEXPIRE")?;
            self.queue_until = Some(life);
        }
        Ok(())
    }

    /// Undoes that the one behind has entered the queue, if it has.
    fn take_back(&mut self, context: &mut impl Environment<L>, stands: bool) -> Result<(), Stop> {
        if stands {
            undo(context, "LREM")?;
            self.queue.pop_back();
        }
        Ok(())
    }
}

/// Issues a number.
pub(super) fn number<L>(context: &mut impl Environment<L>) -> Result<u64, Stop> {
    context.call("INCR")?;
    Ok(context.issue())
}

/// Asks for a call that undoes an earlier one.
pub(super) fn undo<L>(context: &mut impl Environment<L>, command: &'static str) -> Result<(), Stop> {
    context.call(command).map_err(|_| Stop::Raised)
}

/// When a queue ends that lives for twice the lease of this waiter.
pub(super) fn life<N>(now: Ticks, waiter: &Claimant<N>) -> Ticks {
    now.saturating_add(waiter.lease.saturating_mul(2))
}
