//! The futures of the end of a [`Hold`](crate::Hold): its release, and its loss.

use crate::client::orders::ReleaseReply;
use crate::client::parts::Parts;
use crate::error::Error;
use crate::lock::handle::Handle;
use crate::state::owner::HoldNumber;
use crate::state::task::{TaskPolling, TaskReply};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// The outcome of a release. Made by [`Hold::release_async`](crate::Hold::release_async). The release goes on if this is dropped.
#[derive(Debug)]
#[must_use = "the outcome of the release is lost unless this is awaited"]
pub struct ReleaseFuture {
    released: ReleaseReply,
    polling: TaskPolling,
    /// The client, which this does not keep alive.
    parts: Weak<Parts>,
    key: Arc<str>,
}

impl ReleaseFuture {
    /// Releases the hold with this number and token.
    pub(super) fn of(handle: &Handle, number: &HoldNumber, token: u64) -> Self {
        let released = ReleaseReply::default();
        match handle.release_for_task(Some(number), token, Some(Arc::clone(&released))) {
            Ok(true) => {}
            ended => released.set(ended.map(drop)),
        }
        Self {
            released,
            polling: TaskPolling::begin(),
            parts: Arc::downgrade(&handle.client.parts),
            key: Arc::clone(&handle.key.name),
        }
    }
}

impl Future for ReleaseFuture {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let parts = self.parts.upgrade();
        if let Some(parts) = &parts {
            // In a forked child, no thread ever leaves the outcome here.
            parts.core.process.check()?;
        }
        let released = self.released.poll(cx.waker());
        if let (None, Some(parts)) = (&released, &parts) {
            let Self { polling, key, .. } = &mut *self;
            polling.again(cx.waker(), |since| parts.core.processor.is_expected_soon(key, since));
        }
        released.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Ends when the lease of a hold is lost. Made by [`Hold::lost_async`](crate::Hold::lost_async).
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct LossFuture(Arc<TaskReply<()>>);

impl LossFuture {
    pub(super) fn new(lost: Arc<TaskReply<()>>) -> Self {
        Self(lost)
    }
}

impl Future for LossFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}
