//! The futures that acquire a [`Hold`].

use crate::client::acquire::TaskWait;
use crate::client::wait_limit::WaitLimit;
use crate::error::Error;
use crate::lock::handle::without_limit;
use crate::lock::held_lock::HeldLock;
use crate::lock::hold::Hold;
use crate::lock::reentrant::DistributedReentrantLock;
use crate::state::owner::HoldNumber;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The wait of a task for a hold.
struct Acquisition {
    lock: HeldLock,
    wait: TaskWait,
    /// The number of the hold, from the first poll on.
    number: Option<HoldNumber>,
}

impl Acquisition {
    fn new(lock: &DistributedReentrantLock, limit: WaitLimit<'static>) -> Self {
        Self { lock: HeldLock::of_task(lock), wait: TaskWait::new(limit), number: None }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Hold>, Error>> {
        let handle = &self.lock.handle;
        // In a forked child, the wait and its hold are the parent's.
        handle.client.core().process.check()?;
        let new = || HoldNumber::new(handle.settings.holder_name());
        let number = self.number.get_or_insert_with(new).get();
        let ended = ready!(handle.acquire_for_task(number, &mut self.wait).poll(cx.waker()));
        handle.client.core().events.note_call(&handle.settings, &self.wait.limit(), &ended);
        let token = ended?;
        Poll::Ready(Ok(token.zip(self.number.take()).map(|(token, number)| Hold::of_task(&self.lock, number, token))))
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        let handle = &self.lock.handle;
        if handle.client.core().process.is_forked() {
            return;
        }
        if let Some(number) = self.number.as_ref().filter(|_| self.wait.is_under_way()) {
            handle.acquire_for_task(number.get(), &mut self.wait).abandon();
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
/// and no hold. A future that was polled, and is neither polled again when it is woken nor dropped, keeps its place, or the lock, from all others.
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
        self.0.poll(cx).map(without_limit)
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
