//! The hand-over: who is given a key that may be given away.
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

use super::super::{Claimant, Environment, KeyHolder, LockerRef, Stop, Ticks};
use super::{KeyState, life, number, undo};

/// The lockers that a hand-over must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates<N> {
    /// Whoever asks from within the queue. It counts as heard without an inbox, because its reply tells it that it won.
    pub(super) asker: Option<Claimant<N>>,
    /// The locker that is being released, which is never given the key, whoever left it in the queue.
    pub(super) ended: Option<N>,
    /// Whoever goes to the end of the queue if somebody else is given the key.
    pub(super) behind: Option<Claimant<N>>,
}

impl<N> Default for Candidates<N> {
    fn default() -> Self {
        Self { asker: None, ended: None, behind: None }
    }
}

/// What a hand-over has done.
#[derive(Debug)]
pub(super) struct HandOver<L> {
    /// Who holds the key now. `None` if nobody is heard: then the key is as it was, and for the caller to give.
    pub(super) winner: Option<Claimant<L>>,
    /// The number of whoever is given the key.
    pub(super) number: u64,
    /// Whether the queue took the one behind, if it was to.
    pub(super) queued: Result<(), Stop>,
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

impl<L: Clone> KeyState<L> {
    /// Issues a number, and gives the key to the first waiter that is heard. Call it only when the key may be given away. Fails with
    /// [`Stop::Refused`]; then only dead waiters have left the queue, and the winner may have come before those that are passed over.
    /// [`Stop::Raised`]; then the winner may have left the queue, or the one behind may stand in it.
    pub(super) fn hand_over<N: LockerRef<L>>(
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

impl<N> Candidates<N> {
    fn has_ended<L>(&self, waiter: &Claimant<L>) -> bool
    where
        N: Copy + PartialEq<L>,
    {
        self.ended.is_some_and(|ended| ended == waiter.locker)
    }
}
