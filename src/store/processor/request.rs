//! Any of the requests, for stores that send several together and for code that treats all alike.

use super::{AcquireOutcome, Claim, ExtendOutcome, PollOutcome, ProbeOutcome, ReleaseOutcome};

/// Any of the requests that concern one tenure: [`LockProcessor::batch`](super::LockProcessor::batch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// See [`LockProcessor::acquire`](super::LockProcessor::acquire).
    Acquire(Claim<'a>),
    /// See [`WaitQueue::join`](super::WaitQueue::join).
    Join(Claim<'a>),
    /// See [`LockProcessor::poll`](super::LockProcessor::poll).
    Poll(Claim<'a>),
    /// See [`LockProcessor::extend`](super::LockProcessor::extend).
    Extend(Claim<'a>),
    /// See [`Numbers::extend_with_numbers`](super::Numbers::extend_with_numbers).
    ExtendWithNumbers(Claim<'a>),
    /// See [`LockProcessor::release`](super::LockProcessor::release).
    Release(Claim<'a>),
    /// See [`WaitQueue::hand_over`](super::WaitQueue::hand_over): the tenure that ends, and the next one.
    HandOver(Claim<'a>, Claim<'a>),
    /// See [`LockProcessor::probe`](super::LockProcessor::probe).
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
}
