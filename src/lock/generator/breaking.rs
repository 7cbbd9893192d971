//! The forced break of a lock.

use crate::config::{DLockConfig, check_name};
use crate::error::Error;
use crate::lock::generator::DLockGenerator;
use crate::log;
use crate::one_line::OneLine;
use crate::port::{Break, BreakOutcome, Broken, Operations};

/// How many characters of the reason for a break a holder is told.
const LONGEST_REASON: usize = 256;

impl DLockGenerator {
    /// Takes a lock away from a holder that does not give it back, whoever that is: a process that hangs, a JVM. Only if `expected_locker`
    /// still holds it ([`Holder::locker`](crate::Holder::locker) of [`inspect`](crate::DistributedReentrantLock::inspect)); otherwise nothing is
    /// changed, and the outcome says who holds it. In the same step the lock goes to the first process that waits, with a greater fencing
    /// token, or is freed.
    ///
    /// A holder of this crate learns of it by a message if its process listens (a thread of it has waited, or a lock may linger), and
    /// otherwise by its next probe, at most lease/6 later: it has lost its lease, with the cause
    /// [`LossCause::Broken`](crate::LossCause::Broken). Until then it may go on, as a holder that was stopped past its lease may: pass the
    /// [token](crate::manual::fencing_tokens) to what the lock protects. A [lock-delay](DLockConfig::with_lock_delay) does not apply.
    ///
    /// The holder is told this generator's client id and the first 256 characters of the reason, with unprintable ones escaped.
    ///
    /// Blocks for one round trip to the store, at most for the limit of one command; after a lost reply for three. Safe to repeat: a locker
    /// holds a lock only once.
    ///
    /// ```
    /// # use redis_dlock::{BreakOutcome, DLockGenerator, MemoryLockProcessor};
    /// # let store = MemoryLockProcessor::new();
    /// # let generator = DLockGenerator::new(store.clone())?;
    /// let lock = generator.generate("ORDER", "4711")?;
    /// # let other = DLockGenerator::new(store)?.generate("ORDER", "4711")?;
    /// # std::mem::forget(other.lock()?);
    /// if let Some(holder) = lock.holder()? {
    ///     let outcome = generator.break_lock("ORDER", "4711", &holder.locker, "hangs since noon")?;
    ///     assert!(matches!(outcome, BreakOutcome::Broken { next: None, .. }));
    /// }
    /// assert!(lock.try_lock()?.is_some());
    /// # Ok::<_, redis_dlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for an empty type or a key longer than 16 KiB; [`Error::Unsupported`] if the store cannot break locks; [`Error::Backend`],
    /// [`Error::Denied`], [`Error::Conflict`] as an unlock; [`Error::ShutDown`] after [`close`](Self::close); [`Error::Forked`].
    pub fn break_lock(
        &self,
        lock_type: impl Into<String>,
        lock_target: impl AsRef<str>,
        expected_locker: &str,
        reason: &str,
    ) -> Result<BreakOutcome, Error> {
        let name = DLockConfig::new(lock_type, lock_target);
        check_name(&name)?;
        self.client.core().process.check()?;
        if self.client.is_closed() {
            return Err(Error::ShutDown);
        }
        if !self.client.core().limits.breaks {
            return Err(Error::unsupported("the store cannot break locks: end the holder's process"));
        }
        let reason = OneLine(reason.chars().take(LONGEST_REASON).collect::<String>()).to_string();
        let order = Break::new(name.unique_key(), expected_locker, self.client.core().id.current().as_str(), &reason);
        let outcome = self
            .client
            .core()
            .processor
            .break_hold(&order, self.client.core().limits.command)
            .or_else(|error| self.look_for_break(&order, error))?;
        if let BreakOutcome::Broken { next, .. } = &outcome {
            log::info!(
                RELEASE,
                "lock {:?}: the hold of {expected_locker:?} was broken ({reason}); now held by {next:?}",
                name.unique_key()
            );
        }
        Ok(outcome)
    }

    /// Finds out whether an order was carried out whose reply is lost: the store then says by whom the hold was broken. Fails with the error
    /// of the order otherwise. The order may still be carried out then.
    fn look_for_break(&self, order: &Break<'_>, error: Error) -> Result<BreakOutcome, Error> {
        if !error.is_unknown() {
            return Err(error);
        }
        let limit = self.client.core().limits.command;
        match self.client.core().processor.broken(order.key, order.locker, limit) {
            Ok(Some(Broken { by, reason })) if by == order.by && reason == order.reason => {
                let found = self.client.core().processor.inspect(order.key, limit)?;
                Ok(BreakOutcome::Broken { next: found.holder, waiting: found.waiting })
            }
            _ => Err(error),
        }
    }
}
