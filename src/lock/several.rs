//! Several locks that are held together: the guard of a thread, and the form that belongs to no thread.
//!
//! The locks are taken one after another, in the order of their keys. So no two callers that take all their locks in this way wait for each
//! other. If one cannot be had, or is lost meanwhile, all that were taken are given back, in one batch.

use crate::client::unlock::{AfterRelease, unlock_all};
use crate::client::wait_limit::{CancelToken, WaitLimit};
use crate::error::{BackendFailure, Error, LeaseLoss};
use crate::lock::guard::OfThisThread;
use crate::lock::handle::{Handle, owner_of};
#[cfg(feature = "async")]
use crate::lock::held_lock::HeldLock;
#[cfg(feature = "async")]
use crate::lock::hold_end::{LossFuture, ReleaseFuture};
#[cfg(feature = "async")]
use crate::lock::hold_future::TryHoldFuture;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::log;
use crate::state::hold::Exit;
use crate::state::owner::HoldNumber;
use crate::state::task::{TaskReply, Watcher};
use crossbeam_channel::{Receiver, bounded};
#[cfg(feature = "async")]
use std::fmt;
#[cfg(feature = "async")]
use std::future::poll_fn;
use std::marker::PhantomData;
#[cfg(feature = "async")]
use std::pin::{Pin, pin};
use std::sync::Arc;
#[cfg(feature = "async")]
use std::task::{Context, Poll};
use std::time::Duration;

/// Keeps several locks for the thread that took them, until it is dropped. Made by [`DLockGenerator::lock_all`](crate::DLockGenerator::lock_all).
///
/// Each lock is held as by a [`DLockGuard`](crate::DLockGuard): it has its own fencing token, its own lease, which is renewed, and it can be lost
/// alone. The guard belongs to the thread that locked, and the holds are reentrant. Several locks have no `unlock_after` and no `held_for`.
///
/// Dropping it gives all locks back together: on one Redis server the releases go out in one write, and the drop waits for no reply.
/// [`unlock`](Self::unlock) waits for the replies. While the guard lives, the client behind its generator lives, too.
///
/// ```compile_fail,E0277
/// # use redis_dlock::{DLockGenerator, MemoryLockProcessor};
/// # let generator = DLockGenerator::new(MemoryLockProcessor::new()).unwrap();
/// let guards = generator.try_lock_all([("ACCOUNT", "1"), ("ACCOUNT", "2")]).unwrap();
/// std::thread::spawn(move || drop(guards)); // error: TheThreadThatLocksMustUnlock
/// ```
#[derive(Debug)]
#[must_use = "the locks are unlocked at once when their guard is dropped"]
pub struct DLockGuards {
    several: Several,
    _of_this_thread: PhantomData<OfThisThread>,
}

/// Keeps several locks, and belongs to no thread. Made by [`DLockGenerator::hold_all`](crate::DLockGenerator::hold_all).
///
/// Each lock is held as by a [`Hold`](crate::Hold): it is not reentrant, and any thread may query, release or drop the whole. Dropping it gives
/// all locks back together, as the drop of [`DLockGuards`] does.
#[derive(Debug)]
#[must_use = "the locks are unlocked at once when their hold is dropped"]
pub struct Holds {
    several: Several,
}

/// Locks that are held together.
#[derive(Debug)]
struct Several {
    /// In the order in which they were taken, which is that of their keys.
    taken: Vec<TakenLock>,
    /// Whether a thread of the client gives the locks back when they are dropped, so that the drop does not block. This is so if a task has taken
    /// them, and while a caller that may wait does not have all of them.
    goes_back_elsewhere: bool,
}

/// One of the locks.
#[derive(Debug)]
struct TakenLock {
    /// The place of the lock in the caller's list.
    place: usize,
    lock: DistributedReentrantLock,
    token: u64,
    /// The owner of the hold, if that is not a thread.
    number: Option<HoldNumber>,
}

/// The methods that both forms have.
macro_rules! held_together {
    ($type:ident, $guard:literal, $release:ident, $verb:literal) => {
        impl $type {
            /// Returns the locks, in the order of the list from which they were taken. Does not block.
            pub fn locks(&self) -> impl ExactSizeIterator<Item = &DistributedReentrantLock> {
                self.several.in_order().into_iter().map(|taken| &taken.lock)
            }

            /// Returns the fencing tokens of the holds, in the same order. See
            #[doc = concat!("[`", $guard, "::fencing_token`](crate::", $guard, "::fencing_token).")]
            /// Does not block.
            pub fn fencing_tokens(&self) -> impl ExactSizeIterator<Item = u64> {
                self.several.in_order().into_iter().map(|taken| taken.token)
            }

            /// Returns `true` if all leases are certainly still valid. Once `false`, it stays `false`. Does not block.
            #[must_use]
            pub fn is_valid(&self) -> bool {
                self.several.taken.iter().all(|taken| taken.handle().holds_validly(taken.token))
            }

            /// Returns for how long all leases are certainly valid if none is extended again: the shortest of the times that are left. It is zero
            /// if one is lost. Does not block.
            #[must_use]
            pub fn remaining(&self) -> Duration {
                let left = self.several.taken.iter().map(|taken| taken.handle().remaining_of(taken.token));
                left.min().unwrap_or_default()
            }

            /// Fails unless all leases are certainly still valid. Call it before each step that must not run beside another holder. Does not block.
            ///
            /// # Errors
            ///
            /// [`Error::LeaseLost`] with the key and the cause, of the first lost lock in the order of the keys.
            pub fn ensure_valid(&self) -> Result<(), Error> {
                self.several.ensure_valid()
            }

            /// Returns a channel that receives a message when one of the leases is lost, or at once if one is lost already. If all holds end
            /// without a loss, the channel is disconnected without a message. Each call makes a new channel, as
            #[doc = concat!("[`", $guard, "::lost`](crate::", $guard, "::lost)")]
            /// does. Does not block.
            #[must_use]
            pub fn lost(&self) -> Receiver<()> {
                self.several.lost()
            }

            /// Returns how a lease was lost, of the first lost lock in the order of the keys; `None` while all are valid. Does not block.
            #[must_use]
            pub fn loss(&self) -> Option<LeaseLoss> {
                self.several.taken.iter().find_map(|taken| taken.handle().loss_of(taken.token))
            }

            #[doc = concat!($verb, " all locks together, and returns the outcome. Blocks for one round trip to the store, in a Cluster to each of its")]
            /// nodes that has one of the locks. Releases that fail are tried again, as those of a single
            #[doc = concat!("[`", $guard, "`](crate::", $guard, ") are.")]
            ///
            /// # Errors
            ///
            /// Those of [`DLockGuard::unlock`](crate::DLockGuard::unlock). If several locks fail, the first loss is returned, or else the first error, in
            /// the order of the keys. The error names its key. All other locks are unlocked.
            pub fn $release(mut self) -> Result<(), Error> {
                self.several.end(AfterRelease::Awaited)
            }
        }
    };
}

held_together!(DLockGuards, "DLockGuard", unlock, "Unlocks");
held_together!(Holds, "Hold", release, "Releases");

impl DLockGuards {
    /// Takes these locks, which one generator made and which differ in their keys, for the calling thread. Returns `None` if the limit ends first.
    pub(super) fn acquire(locks: Vec<DistributedReentrantLock>, limit: &WaitLimit<'_>) -> Result<Option<Self>, Error> {
        let take = |lock: &DistributedReentrantLock, limit: &WaitLimit<'_>| {
            Ok(lock.handle.acquire(limit)?.map(|token| (None, token)))
        };
        let several = Several::acquire(locks, limit, take)?;
        Ok(several.map(|several| Self { several, _of_this_thread: PhantomData }))
    }
}

impl Holds {
    /// As [`DLockGuards::acquire`], for holds that belong to no thread.
    pub(super) fn acquire(locks: Vec<DistributedReentrantLock>, limit: &WaitLimit<'_>) -> Result<Option<Self>, Error> {
        let take = |lock: &DistributedReentrantLock, limit: &WaitLimit<'_>| {
            Ok(lock.handle.acquire_hold(limit)?.map(|(number, token)| (Some(number), token)))
        };
        Ok(Several::acquire(locks, limit, take)?.map(|several| Self { several }))
    }
}

/// For a task.
#[cfg(feature = "async")]
impl Holds {
    /// As [`acquire`](Self::acquire), for a task, of locks that are in order.
    async fn acquire_async(locks: Vec<(usize, HeldLock)>, limit: WaitLimit<'static>) -> Result<Option<Self>, Error> {
        loop {
            let (mut several, lost) = (Several { taken: Vec::new(), goes_back_elsewhere: true }, Arc::default());
            for (place, lock) in &locks {
                if several.is_out_of_time(&limit) {
                    break;
                }
                several.watch_last(&lost, &limit);
                let mut wait = pin!(TryHoldFuture::new(lock, limit));
                let taken = poll_fn(|cx| match lost.poll(cx.waker()) {
                    Some(()) => Poll::Ready(Ok(None)),
                    None => wait.as_mut().poll(cx),
                });
                let Some(hold) = taken.await? else { break };
                let (number, token) = hold.into_parts();
                several.taken.push(TakenLock { place: *place, lock: (**lock).clone(), token, number: Some(number) });
            }
            if let Some(taken) = several.or_again(locks.len(), &limit) {
                return taken.map(|several| several.map(|several| Self { several }));
            }
        }
    }

    /// Returns a future that ends when one of the leases is lost. If all holds end without a loss, the future never ends, as that of
    /// [`Hold::lost_async`](crate::Hold::lost_async). Never blocks.
    pub fn lost_async(&self) -> LossFuture {
        let lost = Arc::default();
        let watch = |taken: &TakenLock| taken.handle().key.watch_by_reply(taken.token, &lost);
        self.several.taken.iter().for_each(watch);
        LossFuture::new(lost)
    }

    /// Releases all locks together, as [`release`](Self::release) does. The release begins with this call, whether or not the future is polled. Never
    /// blocks.
    ///
    /// # Errors
    ///
    /// The output of the future is an error as that of [`release`](Self::release). A release that had no answer is repeated in the background.
    pub fn release_async(mut self) -> impl Future<Output = Result<(), Error>> + Send + Sync + 'static {
        let released = self.several.taken.drain(..).filter_map(|taken| {
            let release = ReleaseFuture::of(taken.handle(), taken.number.as_ref()?, taken.token);
            let name = Arc::clone(&taken.handle().key.name);
            // The future owns no handle, so it may be dropped anywhere.
            taken.lock.handle.drop_by_task();
            Some((name, release))
        });
        let releases: Vec<_> = released.collect();
        async move {
            let mut outcomes = Vec::new();
            for (key, release) in releases {
                outcomes.push((key, release.await));
            }
            first_failure(outcomes)
        }
    }
}

/// Takes several locks for [`Holds`], all or none. Made by [`DLockGenerator::hold_all_async`](crate::DLockGenerator::hold_all_async).
///
/// It does nothing before its first poll. Dropping it gives back what it has taken.
#[cfg(feature = "async")]
#[must_use = "a future does nothing unless it is polled"]
pub struct HoldAllFuture(Pin<Box<dyn Future<Output = Result<Option<Holds>, Error>> + Send + Sync>>);

#[cfg(feature = "async")]
impl HoldAllFuture {
    pub(super) fn new(locks: Result<Vec<DistributedReentrantLock>, Error>, limit: WaitLimit<'static>) -> Self {
        // The future may have their last handles, and be dropped by a task.
        let of_task = |(place, lock): (usize, DistributedReentrantLock)| (place, HeldLock::of_task(&lock));
        let locks = locks.map(|locks| in_order_of_keys(locks).into_iter().map(of_task).collect());
        Self(Box::pin(async move { Holds::acquire_async(locks?, limit).await }))
    }
}

#[cfg(feature = "async")]
impl Future for HoldAllFuture {
    type Output = Result<Option<Holds>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

#[cfg(feature = "async")]
impl fmt::Debug for HoldAllFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldAllFuture").finish_non_exhaustive()
    }
}

/// Returns locks in the order of their keys, each with its place in the list.
fn in_order_of_keys(locks: Vec<DistributedReentrantLock>) -> Vec<(usize, DistributedReentrantLock)> {
    let mut locks: Vec<_> = locks.into_iter().enumerate().collect();
    locks.sort_by(|(_, one), (_, other)| one.key().cmp(other.key()));
    locks
}

/// Returns the first loss, or else the first error. Each outcome is that of the lock with this key.
fn first_failure(outcomes: Vec<(Arc<str>, Result<(), Error>)>) -> Result<(), Error> {
    let failed = outcomes.into_iter().filter_map(|(key, outcome)| Some(naming(&key, outcome.err()?)));
    let mut failed: Vec<_> = failed.collect();
    // A loss comes first, because work may have run beside another holder. A release that failed is only repeated.
    failed.sort_by_key(|error| !error.is_lost());
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Names the key in an error that does not.
fn naming(key: &str, error: Error) -> Error {
    let named = |message: String| format!("lock {key:?}: {message}");
    match error {
        Error::Backend { failure, message, source } => Error::Backend { failure, message: named(message), source },
        Error::Denied { message } => Error::denied(named(message)),
        Error::Unsupported { message } => Error::unsupported(named(message)),
        other => other,
    }
}

impl Several {
    /// Takes all locks, one by one, by a function that takes one lock within a limit. If a lock cannot be had, gives back those that were taken.
    ///
    /// The leases of the locks that are taken are renewed while the others are waited for. If one is lost meanwhile, the program has not been told of
    /// its hold. So the loss ends the wait, and all locks are given back, and taken again within the limit, as `lock()` does after a hold that is
    /// lost before it returns.
    fn acquire(
        locks: Vec<DistributedReentrantLock>,
        limit: &WaitLimit<'_>,
        take: impl Fn(&DistributedReentrantLock, &WaitLimit<'_>) -> Result<Option<(Option<HoldNumber>, u64)>, Error>,
    ) -> Result<Option<Self>, Error> {
        let locks = in_order_of_keys(locks);
        loop {
            let mut several = Self { taken: Vec::new(), goes_back_elsewhere: !limit.is_one_attempt };
            let (lost, in_vain) = (Arc::default(), CancelToken::new());
            let (limit_of_one, _registration) = limit.part(&in_vain);
            for (place, lock) in &locks {
                if several.is_out_of_time(limit) {
                    break;
                }
                several.watch_last(&lost, limit);
                if lost.poll(&in_vain.waker()).is_some() {
                    in_vain.cancel();
                }
                let Some((number, token)) = take(lock, &limit_of_one)? else { break };
                several.taken.push(TakenLock { place: *place, lock: lock.clone(), token, number });
            }
            if let Some(taken) = several.or_again(locks.len(), limit) {
                return taken.map(|several| several.map(Self::for_the_caller));
            }
        }
    }

    /// Returns the locks for their caller, which has all of them. From now on the thread that drops them gives them back, as for a single guard.
    fn for_the_caller(mut self) -> Self {
        self.goes_back_elsewhere = false;
        self
    }

    /// Returns whether the limit is over, once a lock is taken. Then the next one is not asked for.
    fn is_out_of_time(&self, limit: &WaitLimit<'_>) -> bool {
        self.taken.last().is_some_and(|taken| taken.handle().is_over(limit))
    }

    /// Has the reply come when the lock that was taken last is lost, too. Does nothing for a single attempt, which does not wait.
    fn watch_last(&self, lost: &Arc<TaskReply<()>>, limit: &WaitLimit<'_>) {
        if let Some(last) = self.taken.last().filter(|_| !limit.is_one_attempt) {
            last.handle().key.watch_by_reply(last.token, lost);
        }
    }

    /// Returns the locks if these are all of them, and none is lost. Otherwise gives them back, and returns `None` if they are to be taken again.
    fn or_again(self, all: usize, limit: &WaitLimit<'_>) -> Option<Result<Option<Self>, Error>> {
        let has_all = self.taken.len() == all;
        let Err(lost) = self.ensure_valid() else { return Some(Ok(has_all.then_some(self))) };
        log::debug!(ACQUIRE, "several locks: one was lost before all were taken: {lost}");
        let is_over = self.is_out_of_time(limit);
        drop(self);
        if limit.is_one_attempt && has_all {
            let why = format!("not all locks could be kept: {lost}");
            return Some(Err(Error::backend(BackendFailure::Unknown, why)));
        }
        (is_over || limit.is_one_attempt).then_some(Ok(None))
    }

    fn ensure_valid(&self) -> Result<(), Error> {
        self.taken.iter().try_for_each(|taken| taken.handle().ensure_valid_hold(taken.token))
    }

    /// Returns the locks in the order of the caller's list.
    fn in_order(&self) -> Vec<&TakenLock> {
        let mut taken: Vec<_> = self.taken.iter().collect();
        taken.sort_by_key(|taken| taken.place);
        taken
    }

    fn lost(&self) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        for taken in &self.taken {
            taken.handle().key.watch_by(taken.token, Watcher::Channel(sender.clone()));
        }
        receiver
    }

    /// Ends all holds.
    fn end(&mut self, after: AfterRelease) -> Result<(), Error> {
        let taken = std::mem::take(&mut self.taken);
        let Some(first) = taken.first() else { return Ok(()) };
        let unlocked: Vec<_> = taken.iter().map(|taken| (&taken.handle().key, taken.leave())).collect();
        let outcomes = unlock_all(&first.handle().client.parts, unlocked, after);
        let keys = taken.iter().map(|taken| Arc::clone(&taken.handle().key.name));
        first_failure(keys.zip(outcomes).collect())
    }
}

impl TakenLock {
    fn handle(&self) -> &Handle {
        &self.lock.handle
    }

    /// Unlocks once, without what is left to do after that.
    fn leave(&self) -> Exit {
        self.handle().leave(owner_of(self.number.as_ref()), Some(self.token))
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        if self.goes_back_elsewhere {
            // The retry thread sends the releases together.
            return self.taken.drain(..).for_each(|taken| {
                taken.handle().release_dropped_by_task(taken.number.as_ref(), taken.token);
                taken.lock.handle.drop_by_task();
            });
        }
        if let Err(error) = self.end(AfterRelease::Unawaited) {
            // Lost leases and unanswered releases have already been logged with their causes.
            log::debug!(RELEASE, "several locks: a dropped guard could not unlock all of them: {error}");
        }
    }
}
