//! A leadership: one of the processes that campaign for it leads at a time, for a term.

use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::error::{Error, LeaseLoss};
use crate::lock::handle::without_limit;
use crate::lock::hold::Hold;
#[cfg(feature = "async")]
use crate::lock::hold_end::{LossFuture, ReleaseFuture};
#[cfg(feature = "async")]
use crate::lock::pause::Pause;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::log;
use crate::timing;
use crossbeam_channel::{Receiver, select};
use std::ops::ControlFlow;
use std::time::Duration;

/// A leadership that this process campaigns for. Made by [`DLockGenerator::leader`](crate::DLockGenerator::leader).
///
/// It is a lock of that name: the holder of the lock leads, so [`describe`](crate::DLockGenerator::describe) and `dlock show` tell who leads.
/// Processes lead in the order in which they began to campaign. The manual's page [Leaders](crate::manual::leaders) says how to use it.
///
/// ```
/// use redis_dlock::{DLockGenerator, MemoryLockProcessor};
/// use std::ops::ControlFlow;
///
/// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
/// let billed = generator.leader("LEADER", "billing")?.run(|term| {
///     let mut bills = 0;
///     while bills < 3 {
///         if term.ensure_valid().is_err() {
///             return ControlFlow::Continue(()); // campaigns again
///         }
///         bills += 1; // the work of a leader, with the token of its term
///     }
///     ControlFlow::Break(bills)
/// })?;
/// assert_eq!(billed, 3);
/// # Ok::<_, redis_dlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leader {
    lock: DistributedReentrantLock,
}

impl Leader {
    pub(super) fn of(lock: DistributedReentrantLock) -> Self {
        Self { lock }
    }

    /// Returns the lock that the leader holds.
    #[must_use]
    pub fn lock(&self) -> &DistributedReentrantLock {
        &self.lock
    }

    /// Campaigns, and calls `lead` with each [`Term`] that is won. Campaigns again if `lead` returns `Continue`, and returns the value of a
    /// `Break`. The term ends when it is dropped: when `lead` returns or panics, unless `lead` has moved it elsewhere.
    ///
    /// Blocks while others lead, also through outages of the store. After a term that was lost it pauses for a sixth of the lease, and for five
    /// seconds at most: in real time, whatever the [`Clock`](crate::Clock) of the generator is. After one that ended without a loss, it campaigns
    /// again at once, behind the processes that already wait.
    ///
    /// # Errors
    ///
    /// As [`DistributedReentrantLock::hold`]. A loss is no error: it ends a term.
    pub fn run<T>(&self, lead: impl FnMut(Term) -> ControlFlow<T>) -> Result<T, Error> {
        without_limit(self.run_cancellable(&CancelToken::new(), lead))
    }

    /// Does the same as [`run`](Self::run) until `cancel` is cancelled. Then a campaign ends at once, no campaign follows a term, and the call
    /// returns `None`. The call does not end a term: `lead` must watch `cancel` itself ([`CancelToken::cancelled`]).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_cancellable<T>(
        &self,
        cancel: &CancelToken,
        mut lead: impl FnMut(Term) -> ControlFlow<T>,
    ) -> Result<Option<T>, Error> {
        // A channel stays with its token, and `cancel` may serve very many campaigns.
        let own = CancelToken::new();
        let (limit, _registration) = WaitLimit::FOREVER.or_cancelled(cancel).part(&own);
        let cancelled = own.cancelled();
        while let Some(hold) = Hold::acquire(&self.lock, &limit)? {
            let (token, lost) = (hold.fencing_token(), hold.lost());
            log::info!(ACQUIRE, "lock {:?}: leads, term {token}", self.lock.key());
            if let ControlFlow::Break(value) = lead(Term { hold }) {
                return Ok(Some(value));
            }
            if lost.try_recv().is_ok() {
                self.pause(&cancelled);
            }
        }
        Ok(None)
    }

    /// Does the same as [`run`](Self::run) for a task, and awaits `lead`. Never blocks the thread that polls it. Its pause follows the generator's
    /// clock. To end it, drop the future: a campaign leaves its place, and a term ends when `lead`'s future drops it.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// ```
    /// use redis_dlock::{DLockGenerator, MemoryLockProcessor};
    /// use std::ops::ControlFlow;
    ///
    /// # futures_lite::future::block_on(async {
    /// let generator = DLockGenerator::new(MemoryLockProcessor::new())?;
    /// let leader = generator.leader("LEADER", "billing")?;
    /// let led = leader.run_async(async |term| match term.ensure_valid() {
    ///     Ok(()) => ControlFlow::Break(term.token()), // the work of a leader
    ///     Err(_) => ControlFlow::Continue(()),         // campaigns again
    /// });
    /// assert!(led.await? > 0);
    /// # Ok::<_, redis_dlock::Error>(())
    /// # })?;
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    #[cfg(feature = "async")]
    pub async fn run_async<T>(&self, mut lead: impl AsyncFnMut(Term) -> ControlFlow<T>) -> Result<T, Error> {
        loop {
            let hold = self.lock.hold_async().await?;
            let (token, lost) = (hold.fencing_token(), hold.lost());
            log::info!(ACQUIRE, "lock {:?}: leads, term {token}", self.lock.key());
            if let ControlFlow::Break(value) = lead(Term { hold }).await {
                return Ok(value);
            }
            if lost.try_recv().is_ok() {
                Pause::new(&self.lock.handle, timing::campaign_pause(self.lock.config().lease())).await?;
            }
        }
    }

    /// Waits until it is time for another campaign, or until there is none, because the token is cancelled or the client is closed.
    fn pause(&self, cancelled: &Receiver<()>) {
        let closing = self.lock.handle.client.core().activity.closing();
        select! {
            recv(cancelled) -> _ => {}
            recv(closing) -> _ => {}
            default(timing::campaign_pause(self.lock.config().lease())) => {}
        }
    }
}

/// A term of a [`Leader`]: the process leads until the term is lost, or ended by [`resign`](Self::resign) or its drop.
///
/// It belongs to no thread: any thread may query it, and it may be moved to the thread that does the work. The next campaign waits until
/// it is dropped.
#[derive(Debug)]
#[must_use = "the term ends at once when it is dropped"]
pub struct Term {
    hold: Hold,
}

impl Term {
    /// Returns the number of the term, the fencing token of its hold: greater than that of every earlier term of any process. See
    /// [`DLockGuard::fencing_token`](crate::DLockGuard::fencing_token).
    #[doc(alias = "fencing_token")]
    #[must_use]
    pub fn token(&self) -> u64 {
        self.hold.fencing_token()
    }

    /// Returns `true` if the process certainly still leads. Once `false`, it stays `false`. Does not block.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Returns for how long the process certainly leads if the lease is not extended again; zero if the term is lost. Does not block.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Fails unless the process certainly still leads. Call it before each step that only a leader may do. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] with the cause.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.hold.ensure_valid()
    }

    /// Returns a channel that receives one message when the term is lost. See [`DLockGuard::lost`](crate::DLockGuard::lost). Does not block.
    #[must_use]
    pub fn lost(&self) -> Receiver<()> {
        self.hold.lost()
    }

    /// Returns how the term was lost; `None` while it is valid. Does not block.
    #[must_use]
    pub fn loss(&self) -> Option<LeaseLoss> {
        self.hold.loss()
    }

    /// Returns a future that ends when the term is lost. See [`Hold::lost_async`](crate::Hold::lost_async).
    #[cfg(feature = "async")]
    pub fn lost_async(&self) -> LossFuture {
        self.hold.lost_async()
    }

    /// Ends the term. The future returns the outcome, as that of [`Hold::release_async`](crate::Hold::release_async).
    ///
    /// # Errors
    ///
    /// As [`Hold::release_async`](crate::Hold::release_async).
    #[cfg(feature = "async")]
    pub fn resign_async(self) -> ReleaseFuture {
        self.hold.release_async()
    }

    /// Ends the term, and returns the outcome. The next process in line leads. Blocks as [`DLockGuard::unlock`](crate::DLockGuard::unlock)
    /// does.
    ///
    /// # Errors
    ///
    /// As [`DLockGuard::unlock`](crate::DLockGuard::unlock).
    pub fn resign(self) -> Result<(), Error> {
        self.hold.release()
    }
}
