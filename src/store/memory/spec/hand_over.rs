//! The hand-over: who is given a key that may be given away.
//!
//! It goes to the first waiter whose client has an open inbox. A waiter whose client has none may be dead, or may have lost its
//! connection for a moment. At a failover all have. So a waiter that nobody hears is passed over and keeps its place for a while.
//!
//! | the queue | unheard waiters before the winner | then the queue |
//! |---|---|---|
//! | is not marked | none | stays unmarked |
//! | is not marked | some | is marked; they stay |
//! | is marked, and the time is not over | some | they stay |
//! | is marked | none | is not marked any more |
//! | is marked, and the time is over, or longer than it can be | some | is not marked any more; they leave |
//!
//! The time is longer than it can be when the clock was stepped back. The mark belongs to the queue and not to a waiter: a waiter that
//! becomes unheard while the queue is marked has what is left of the time.

use super::key::{KeyState, life, number, undo};
use super::{Context, Holder, Name, Stop, Tenure};

/// The lockers that a hand-over must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parties<N> {
    /// Whoever asks from within the queue. It counts as heard without an inbox, because its reply tells it that it won.
    pub(super) asker: Option<Tenure<N>>,
    /// The locker that is being released, which is never given the key, whoever left it in the queue.
    pub(super) ended: Option<N>,
    /// Whoever goes to the end of the queue if somebody else is given the key.
    pub(super) behind: Option<Tenure<N>>,
}

impl<N> Default for Parties<N> {
    fn default() -> Self {
        Self { asker: None, ended: None, behind: None }
    }
}

/// What a hand-over has done.
#[derive(Debug)]
pub(super) struct HandOver<L> {
    /// Who holds the key now. `None` if nobody is heard: then the key is as it was, and for the caller to give.
    pub(super) winner: Option<Tenure<L>>,
    /// The number of whoever is given the key.
    pub(super) number: u64,
    /// Whether the queue took the one behind, if it was to.
    pub(super) queued: Result<(), Stop>,
}

/// What the queue looks like from its head to the winner.
struct Look {
    /// How many waiters this is.
    looked: usize,
    /// Whether the last of them wins.
    wins: bool,
    /// Whether those that nobody hears stay.
    keeps: bool,
}

impl<L: Clone> KeyState<L> {
    /// Issues a number, and gives the key to the first waiter that is heard. Call it only when the key may be given away.
    ///
    /// # Errors
    ///
    /// [`Stop::Refused`]; then only dead waiters have left the queue, and the winner may have come before those that are passed over.
    /// [`Stop::Raised`]; then the winner may have left the queue, or the one behind may stand in it.
    pub(super) fn hand_over<N: Name<L>>(
        &mut self,
        context: &mut impl Context<L>,
        parties: Parties<N>,
    ) -> Result<HandOver<L>, Stop> {
        let number = number(context)?;
        let Look { looked, wins, keeps } = self.look(context, &parties);
        let mut winner = None;
        if keeps {
            winner = self.take_out(context, looked, wins, &parties)?;
        }
        // The one behind comes before the last one leaves: no script uses a key after it may have gone.
        let behind = parties.behind.filter(|_| wins);
        let queued = behind.map_or(Ok(()), |behind| self.enqueue(context, behind));
        let stands = behind.is_some() && queued.is_ok();
        if !keeps && looked > 0 {
            if let Err(refused) = context.call("LPOP") {
                self.take_back(context, stands)?;
                return Err(refused);
            }
            winner = self.queue.drain(..looked).next_back().filter(|_| wins);
            self.keep_until = None;
        }
        let Some(winner) = winner else { return Ok(HandOver { winner: None, number, queued }) };
        if let Err(refused) = context.call("SET") {
            self.put_back(context, winner, keeps)?;
            self.take_back(context, stands)?;
            return Err(refused);
        }
        let until = Some(context.now().saturating_add(winner.lease));
        self.holder = Some(Holder { locker: winner.locker.clone(), until });
        Ok(HandOver { winner: Some(winner), number, queued })
    }

    /// Looks for the winner.
    fn look<N: Name<L>>(&self, context: &mut impl Context<L>, parties: &Parties<N>) -> Look {
        let (mut looked, mut unheard) = (0, false);
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
            unheard = true;
        }
        let (now, keep) = (context.now(), context.keep());
        let has_time = self.keep_until.is_none_or(|until| now < until && until - now <= keep);
        Look { looked, wins, keeps: unheard && has_time }
    }

    /// Marks the queue, and takes the winner out of the middle of it.
    fn take_out<N: Name<L>>(
        &mut self,
        context: &mut impl Context<L>,
        looked: usize,
        wins: bool,
        parties: &Parties<N>,
    ) -> Result<Option<Tenure<L>>, Stop> {
        if self.keep_until.is_none() {
            context.call("LPUSH")?;
            self.keep_until = Some(context.now().saturating_add(context.keep()));
        }
        let mut looked = looked;
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
    fn put_back(&mut self, context: &mut impl Context<L>, winner: Tenure<L>, keeps: bool) -> Result<(), Stop> {
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
    fn take_back(&mut self, context: &mut impl Context<L>, stands: bool) -> Result<(), Stop> {
        if stands {
            undo(context, "LREM")?;
            self.queue.pop_back();
        }
        Ok(())
    }
}

impl<N> Parties<N> {
    fn has_ended<L>(&self, waiter: &Tenure<L>) -> bool
    where
        N: Copy + PartialEq<L>,
    {
        self.ended.is_some_and(|ended| ended == waiter.locker)
    }
}
