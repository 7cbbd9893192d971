//! Any of the requests, for stores that send several together and for code that treats all alike.

use super::{AcquireOutcome, Claim, ExtendOutcome, LockProcessor, PollOutcome, ProbeOutcome, ReleaseOutcome};
use crate::error::Error;
use std::time::Duration;

/// Any of the requests that concern one tenure: [`LockProcessor::batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// See [`LockProcessor::acquire`].
    Acquire(Claim<'a>),
    /// See [`WaitQueue::join`](super::WaitQueue::join).
    Join(Claim<'a>),
    /// See [`LockProcessor::poll`].
    Poll(Claim<'a>),
    /// See [`LockProcessor::extend`].
    Extend(Claim<'a>),
    /// See [`Numbers::extend_with_numbers`](super::Numbers::extend_with_numbers).
    ExtendWithNumbers(Claim<'a>),
    /// See [`LockProcessor::release`].
    Release(Claim<'a>),
    /// See [`WaitQueue::hand_over`](super::WaitQueue::hand_over): the tenure that ends, and the next one.
    HandOver(Claim<'a>, Claim<'a>),
    /// See [`LockProcessor::probe`].
    Probe(Claim<'a>),
}

/// The outcome of one [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The outcome of a [`Request::Acquire`] or a [`Request::Join`].
    Acquire(AcquireOutcome),
    /// The outcome of a [`Request::Poll`].
    Poll(PollOutcome),
    /// The outcome of a [`Request::Extend`] or a [`Request::ExtendWithNumbers`].
    Extend(ExtendOutcome),
    /// The outcome of a [`Request::Release`] or a [`Request::HandOver`].
    Release(ReleaseOutcome),
    /// The outcome of a [`Request::Probe`].
    Probe(ProbeOutcome),
}

impl<'a> Request<'a> {
    /// Returns the claim that the request is about: of a hand-over, that of the tenure that ends.
    #[must_use]
    pub const fn claim(&self) -> &Claim<'a> {
        match self {
            Self::Acquire(claim)
            | Self::Join(claim)
            | Self::Poll(claim)
            | Self::Extend(claim)
            | Self::ExtendWithNumbers(claim)
            | Self::Release(claim)
            | Self::HandOver(claim, _)
            | Self::Probe(claim) => claim,
        }
    }

    /// Sends this request to a store, by the method of the same name.
    ///
    /// # Errors
    ///
    /// See [`LockProcessor`]; [`Error::Unsupported`] for a request that needs a capability that the store does not have.
    pub fn send<P>(&self, store: &P, limit: Duration) -> Result<Outcome, Error>
    where
        P: LockProcessor + ?Sized,
    {
        match self {
            Self::Acquire(claim) => store.acquire(claim, limit).map(Outcome::Acquire),
            Self::Join(claim) => {
                let queue = store.queue().ok_or_else(|| lacks("a queue"))?;
                queue.join(claim, limit).map(Outcome::Acquire)
            }
            Self::Poll(claim) => store.poll(claim, limit).map(Outcome::Poll),
            Self::Extend(claim) => store.extend(claim, limit).map(Outcome::Extend),
            Self::ExtendWithNumbers(claim) => {
                let numbers = store.numbers().ok_or_else(|| lacks("ranges of numbers"))?;
                numbers.extend_with_numbers(claim, limit).map(Outcome::Extend)
            }
            Self::Release(claim) => store.release(claim, limit).map(Outcome::Release),
            Self::HandOver(claim, next) => {
                let queue = store.queue().ok_or_else(|| lacks("a queue"))?;
                queue.hand_over(claim, next, limit).map(Outcome::Release)
            }
            Self::Probe(claim) => store.probe(claim, limit).map(Outcome::Probe),
        }
    }
}

fn lacks(capability: &str) -> Error {
    Error::unsupported(format!("the store does not have {capability}"))
}
