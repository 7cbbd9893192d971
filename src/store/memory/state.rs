//! One lock key: its holder, its queue, and what each operation does to them.
//!
//! | holder | queue | means |
//! |---|---|---|
//! | none | empty | free; such an entry is not kept |
//! | some | empty | held |
//! | some | waiters | held and contended: the holder's client was told |
//! | none | waiters | the holder's lease ended or its key was deleted: the next acquire or poll hands over |
//! | none | any, in a gap | free for pollers: nobody is given the key before the gap is over |
//!
//! Invariants: a locker is in the queue only because it was sent with `wait` or as a next locker. It leaves the queue by a grant, by a
//! release, or when the queue ends. The holder changes only in [`KeyState::hold`] and by administrators.

use super::fence;
use super::inbox::Inboxes;
use crate::clock::Moment;
use crate::error::Error;
use crate::store::processor::{
    AcquireOutcome, Busy, Claim, ExtendOutcome, Extension, Grant, Inspection, Message, NotOurs, PollOutcome,
    ProbeOutcome, ReleaseOutcome,
};
use std::collections::VecDeque;
use std::time::Duration;

/// What an operation needs to know in addition to the key's state.
pub(super) struct Scene<'a> {
    /// The lock's unique key.
    pub(super) key: &'a str,
    /// The time of the operation.
    pub(super) now: Moment,
    /// Which clients are alive, and how to reach them.
    pub(super) inboxes: &'a mut Inboxes,
    /// The operations that are denied, by their Redis commands. Only tests deny any.
    pub(super) denied: &'a [&'static str],
}

impl Scene<'_> {
    /// Checks the right to change something. Call it before the change.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`].
    fn ask(&self, command: &'static str) -> Result<(), Error> {
        if !self.denied.contains(&command) {
            return Ok(());
        }
        Err(Error::Denied { message: format!("the embedded store was told to deny {command}") })
    }
}

/// The state of one key. It is empty when the key is free, nobody waits, and no gap is remembered.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
    /// When the queue ends, unless one of its waiters asks again before. Set while the queue is not empty.
    queue_until: Option<Moment>,
    /// Until when the key, if nobody holds it, is reserved for pollers.
    gap_until: Option<Moment>,
    /// Until when there is no other gap.
    gapped_until: Option<Moment>,
}

#[derive(Debug)]
struct Holder {
    locker: String,
    /// `None` for a key without a lease: only an administrator leaves such a key.
    until: Option<Moment>,
}

#[derive(Debug)]
struct Waiter {
    locker: String,
    lease: Duration,
}

/// The waiter that a hand-over gave the key to.
struct Winner {
    locker: String,
    lease: Duration,
    number: u64,
}

impl KeyState {
    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty() && self.gap_until.is_none() && self.gapped_until.is_none()
    }

    /// Forgets everything that has expired. Every operation begins with it, so the rest of this file need not check time-outs.
    pub(super) fn expire(&mut self, now: Moment) {
        let over = |until: Option<Moment>| until.is_some_and(|until| until <= now);
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
            self.queue_until = None;
            self.queue.shrink_to_fit();
        }
    }

    pub(super) fn acquire(
        &mut self,
        scene: &mut Scene<'_>,
        claim: &Claim<'_>,
        wait: bool,
    ) -> Result<AcquireOutcome, Error> {
        let Claim { locker, lease, .. } = *claim;
        if let Some(busy) = self.busy_or_closed(scene.now) {
            if wait {
                scene.ask("RPUSH")?;
                self.enqueue(scene.now, locker, lease);
                if self.queue.len() == 1 {
                    tell_contended(scene, &busy);
                }
            }
            return Ok(AcquireOutcome::Busy(busy));
        }
        let Some(winner) = self.hand_over(scene, None, None)? else {
            scene.ask("SET")?;
            scene.ask("INCR")?;
            return Ok(AcquireOutcome::Acquired(self.give(scene.now, locker, lease)));
        };
        let refused = if wait { scene.ask("RPUSH") } else { Ok(()) };
        if wait && refused.is_ok() {
            self.enqueue(scene.now, locker, lease);
        }
        // The winner is told even if the caller's place in the queue is denied.
        let busy = self.announce(scene, winner);
        refused.map(|()| AcquireOutcome::Busy(busy))
    }

    pub(super) fn poll(&mut self, scene: &mut Scene<'_>, claim: &Claim<'_>) -> Result<PollOutcome, Error> {
        let Claim { locker, lease, .. } = *claim;
        if self.is_held_by(locker) {
            scene.ask("INCR")?;
            scene.ask("PEXPIRE")?;
            return Ok(PollOutcome::Acquired(self.give(scene.now, locker, lease)));
        }
        let Some(place) = self.queue.iter().position(|waiter| waiter.is(locker, lease)) else {
            return Ok(PollOutcome::Gone);
        };
        if let Some(busy) = self.busy_or_closed(scene.now) {
            scene.ask("PEXPIRE")?;
            self.prolong_queue(scene.now, lease);
            if place == 0 {
                tell_contended(scene, &busy);
            }
            return Ok(PollOutcome::Waiting(busy));
        }
        // The caller itself is in the queue and counts as alive, so somebody wins.
        Ok(match self.hand_over(scene, Some(locker), None)? {
            Some(winner) if winner.locker != locker => {
                self.prolong_queue(scene.now, lease);
                PollOutcome::Waiting(self.announce(scene, winner))
            }
            Some(winner) => PollOutcome::Acquired(Grant::new(winner.number, self.waiting())),
            None => PollOutcome::Gone,
        })
    }

    pub(super) fn extend(
        &mut self,
        scene: &mut Scene<'_>,
        claim: &Claim<'_>,
        fresh_numbers: bool,
    ) -> Result<ExtendOutcome, Error> {
        if !self.is_held_by(claim.locker) {
            return Ok(ExtendOutcome::NotOurs(self.not_ours()));
        }
        scene.ask("PEXPIRE")?;
        self.hold(scene.now, claim.locker, claim.lease);
        let numbers = if fresh_numbers { fence::issue_range() } else { None };
        Ok(ExtendOutcome::Extended(Extension::while_waiting(self.waiting()).with_numbers(numbers)))
    }

    pub(super) fn release(
        &mut self,
        scene: &mut Scene<'_>,
        claim: &Claim<'_>,
        next: Option<&Claim<'_>>,
    ) -> Result<ReleaseOutcome, Error> {
        let next = next.map(|next| (next.locker, next.lease));
        if !self.is_held_by(claim.locker) {
            scene.ask("LREM")?;
            self.queue.retain(|waiter| !waiter.is(claim.locker, claim.lease));
            return Ok(ReleaseOutcome::NotOurs(self.not_ours()));
        }
        if let Some(gap) = claim.poller_gap
            && self.gapped_until.is_none()
        {
            scene.ask("LPUSH")?;
            self.queue.retain(|waiter| !waiter.is(claim.locker, claim.lease));
            self.gapped_until = Some(scene.now + gap.every);
            self.gap_until = Some(scene.now + gap.length);
        }
        if let Some(closed) = self.closed(scene.now) {
            scene.ask("DEL")?;
            self.holder = None;
            let waiting = self.waiting();
            return Ok(match next {
                Some((next, lease)) => {
                    self.enqueue_next(scene, next, lease);
                    ReleaseOutcome::Queued(closed)
                }
                None => ReleaseOutcome::Released { waiting },
            });
        }
        let winner = self.hand_over(scene, None, Some(claim.locker))?;
        Ok(match (winner, next) {
            (Some(winner), Some((next, lease))) => {
                self.enqueue_next(scene, next, lease);
                ReleaseOutcome::Queued(self.announce(scene, winner))
            }
            (Some(winner), None) => {
                self.announce(scene, winner);
                ReleaseOutcome::Released { waiting: self.waiting() }
            }
            (None, Some((next, lease))) => {
                scene.ask("INCR")?;
                scene.ask("SET")?;
                ReleaseOutcome::Passed(self.give(scene.now, next, lease))
            }
            (None, None) => {
                scene.ask("DEL")?;
                self.holder = None;
                ReleaseOutcome::Released { waiting: 0 }
            }
        })
    }

    pub(super) fn probe(&self, locker: &str) -> ProbeOutcome {
        if self.is_held_by(locker) { ProbeOutcome::Ours } else { ProbeOutcome::NotOurs(self.not_ours()) }
    }

    pub(super) fn inspect(&self, now: Moment) -> Inspection {
        let found = match &self.holder {
            Some(Holder { locker, until }) => Inspection::held_by(locker, until.map(|until| until.since(now))),
            None => Inspection::free(),
        };
        found.with_waiting(self.waiting())
    }

    /// Does what an administrator's `DEL` does.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn delete(&mut self) -> bool {
        self.holder.take().is_some()
    }

    /// Does what an administrator's `SET` does.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn overwrite(&mut self, now: Moment, locker: &str, lease: Option<Duration>) {
        self.holder = Some(Holder { locker: locker.to_owned(), until: lease.map(|lease| now + lease) });
    }

    /// Gives the key to the first waiter that is alive, and drops the dead ones before it. Call it only when the key may be given away.
    /// `asker` counts as alive without an inbox, because its reply tells it that it won.
    ///
    /// Never gives the key to `ended`, the locker that is being released, whoever left it in the queue.
    ///
    /// [`announce`](Self::announce) tells the winner, once it is known how many wait behind it.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`]; then only dead waiters have left the queue.
    fn hand_over(
        &mut self,
        scene: &mut Scene<'_>,
        asker: Option<&str>,
        ended: Option<&str>,
    ) -> Result<Option<Winner>, Error> {
        while let Some(Waiter { locker, lease }) = self.queue.pop_front() {
            let is_live = asker == Some(&*locker) || scene.inboxes.hears(&locker);
            let wins = is_live && ended != Some(&*locker);
            let asked = scene.ask("LPOP").and_then(|()| if wins { scene.ask("INCR") } else { Ok(()) });
            if let Err(denied) = asked.and_then(|()| if wins { scene.ask("SET") } else { Ok(()) }) {
                self.queue.push_front(Waiter { locker, lease });
                return Err(denied);
            }
            if wins {
                let number = self.give(scene.now, &locker, lease).number;
                return Ok(Some(Winner { locker, lease, number }));
            }
        }
        Ok(None)
    }

    /// Tells the winner of a hand-over. Returns what the other waiters need to know.
    fn announce(&self, scene: &mut Scene<'_>, winner: Winner) -> Busy {
        let Winner { locker, lease, number } = winner;
        let grant = Grant::new(number, self.waiting());
        scene.inboxes.tell(&locker, || Message::Granted { key: scene.key.to_owned(), locker: locker.clone(), grant });
        Busy::new(locker, Some(lease))
    }

    /// Makes a locker the holder from now on, with a new number.
    fn give(&mut self, now: Moment, locker: &str, lease: Duration) -> Grant {
        self.hold(now, locker, lease);
        Grant::new(fence::issue(), self.waiting())
    }

    fn hold(&mut self, now: Moment, locker: &str, lease: Duration) {
        let until = Some(now + lease);
        match &mut self.holder {
            Some(holder) if holder.locker == locker => holder.until = until,
            holder => *holder = Some(Holder { locker: locker.to_owned(), until }),
        }
    }

    fn enqueue(&mut self, now: Moment, locker: &str, lease: Duration) {
        if self.queue.is_empty() {
            self.queue_until = None;
        }
        self.queue.push_back(Waiter { locker: locker.to_owned(), lease });
        self.prolong_queue(now, lease);
    }

    /// Puts the next locker of a released tenure into the queue. If that is denied, the locker is gone, and its next poll says so.
    fn enqueue_next(&mut self, scene: &Scene<'_>, locker: &str, lease: Duration) {
        if scene.ask("RPUSH").is_ok() {
            self.enqueue(scene.now, locker, lease);
        }
    }

    /// Lets the queue live for twice this lease from now, or longer if a waiter has a longer lease.
    fn prolong_queue(&mut self, now: Moment, lease: Duration) {
        self.queue_until = self.queue_until.max(Some(now + lease.saturating_mul(2)));
    }

    fn is_held_by(&self, locker: &str) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.locker == locker)
    }

    fn busy(&self, now: Moment) -> Option<Busy> {
        let Holder { locker, until } = self.holder.as_ref()?;
        Some(Busy::new(locker, until.map(|until| until.since(now))))
    }

    /// The key as busy during a gap, with the time that is left of it.
    fn closed(&self, now: Moment) -> Option<Busy> {
        Some(Busy::free_for_pollers(Some(self.gap_until?.since(now))))
    }

    /// The reason why the key may not be given away, if there is one.
    fn busy_or_closed(&self, now: Moment) -> Option<Busy> {
        self.busy(now).or_else(|| self.closed(now))
    }

    fn not_ours(&self) -> NotOurs {
        NotOurs::new(self.holder.as_ref().map(|holder| holder.locker.clone()))
    }

    fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }
}

impl Waiter {
    /// Compares both, as in Redis, where an entry is found by its whole text.
    fn is(&self, locker: &str, lease: Duration) -> bool {
        self.locker == locker && self.lease == lease
    }
}

/// Tells the holder, if there is one, that others wait.
fn tell_contended(scene: &mut Scene<'_>, busy: &Busy) {
    let Some(holder) = busy.holder.as_deref() else { return };
    scene.inboxes.tell(holder, || Message::Contended { key: scene.key.to_owned(), locker: holder.to_owned() });
}
