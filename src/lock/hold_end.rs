//! The futures of the end of a [`Hold`](crate::Hold): its release, and its loss.

use crate::client::orders::Released;
use crate::error::Error;
use crate::lock::handle::Handle;
use crate::state::owner::HoldNumber;
use crate::state::task::Reply;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The outcome of a release. Made by [`Hold::release_async`](crate::Hold::release_async). The release goes on if this is dropped.
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

    /// Releases the hold with this number and token.
    pub(super) fn of(handle: &Handle, number: &HoldNumber, token: u64) -> Self {
        let released = Released::default();
        match handle.release_for_task(number, token, Some(Arc::clone(&released))) {
            Ok(true) => Self(Outcome::Expected(released)),
            Ok(false) => Self::known(Ok(())),
            Err(error) => Self::known(Err(error)),
        }
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

/// Ends when the lease of a hold is lost. Made by [`Hold::lost_async`](crate::Hold::lost_async).
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
