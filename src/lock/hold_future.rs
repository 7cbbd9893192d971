//! The futures of a [`Hold`]: its acquisition, its release, its loss.

use crate::client::acquire::TaskWait;
use crate::client::orders::Released;
use crate::client::wait_limit::WaitLimit;
use crate::error::Error;
use crate::lock::hold::Hold;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::state::owner::HoldNumber;
use crate::state::task::Reply;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The wait of a task for a hold.
struct Acquisition {
    lock: DistributedReentrantLock,
    wait: TaskWait,
    /// The number of the hold, from the first poll on.
    number: Option<HoldNumber>,
}

impl Acquisition {
    fn new(lock: &DistributedReentrantLock, limit: WaitLimit<'static>) -> Self {
        Self { lock: lock.clone(), wait: TaskWait::new(limit), number: None }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Hold>, Error>> {
        let handle = &self.lock.handle;
        let number = match &self.number {
            Some(number) => number.get(),
            None => {
                // Before the name is entered: see `HoldNumber`.
                handle.client.core().process.check()?;
                self.number.insert(HoldNumber::new(handle.settings.holder_name())).get()
            }
        };
        let token = ready!(handle.acquire_by(number, &self.wait.limit()).poll(&mut self.wait, cx.waker()))?;
        Poll::Ready(Ok(token.zip(self.number.take()).map(|(token, number)| Hold::of_task(&self.lock, number, token))))
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if let Some(number) = self.number.as_ref().filter(|_| self.wait.is_under_way()) {
            self.lock.handle.acquire_by(number.get(), &self.wait.limit()).abandon(&mut self.wait);
        }
    }
}

impl fmt::Debug for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquisition")
            .field("lock", &self.lock)
            .field("is_under_way", &self.wait.is_under_way())
            .finish()
    }
}

/// Acquires a lock for a [`Hold`]. Made by [`hold_async`](DistributedReentrantLock::hold_async).
///
/// It does nothing before its first poll, at which it takes its place in the queue. Dropping it ends the wait: it leaves no place in the queue
/// and no hold.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct HoldFuture(Acquisition);

impl HoldFuture {
    pub(super) fn new(lock: &DistributedReentrantLock) -> Self {
        Self(Acquisition::new(lock, WaitLimit::FOREVER))
    }
}

impl Future for HoldFuture {
    type Output = Result<Hold, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // `None` means that the caller's own limit ended the wait, and there is none here.
        self.0.poll(cx).map(|held| held?.ok_or(Error::ShutDown))
    }
}

/// Tries to acquire a lock for a [`Hold`]: once, or until its limit is over. Made by
/// [`try_hold_async`](DistributedReentrantLock::try_hold_async) and its other forms. Like [`HoldFuture`], it does nothing before its first poll, and
/// may be dropped at any time.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct TryHoldFuture(Acquisition);

impl TryHoldFuture {
    pub(super) fn new(lock: &DistributedReentrantLock, limit: WaitLimit<'static>) -> Self {
        Self(Acquisition::new(lock, limit))
    }
}

impl Future for TryHoldFuture {
    type Output = Result<Option<Hold>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

/// The outcome of a release. Made by [`Hold::release_async`]. The release goes on if this is dropped.
#[derive(Debug)]
#[must_use = "the outcome of the release is lost unless this is awaited"]
pub struct ReleaseFuture(Outcome);

#[derive(Debug)]
enum Outcome {
    /// It is known: `None` once it was returned.
    Known(Option<Result<(), Error>>),
    Expected(Released),
}

impl ReleaseFuture {
    pub(super) fn known(outcome: Result<(), Error>) -> Self {
        Self(Outcome::Known(Some(outcome)))
    }

    pub(super) fn expected(released: Released) -> Self {
        Self(Outcome::Expected(released))
    }
}

impl Future for ReleaseFuture {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Outcome::Known(outcome) => Poll::Ready(outcome.take().unwrap_or(Ok(()))),
            Outcome::Expected(released) => released.poll(cx.waker()).map_or(Poll::Pending, Poll::Ready),
        }
    }
}

/// Ends when the lease of a hold is lost. Made by [`Hold::lost_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct LossFuture(Arc<Reply<()>>);

impl LossFuture {
    pub(super) fn new(lost: Arc<Reply<()>>) -> Self {
        Self(lost)
    }
}

impl Future for LossFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}
