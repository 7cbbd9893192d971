//! A pause of a task, by the clock of its client.

use crate::clock::Moment;
use crate::error::Error;
use crate::lock::handle::Handle;
use crate::state::owner::HoldNumber;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Ends when its time is over, or with [`Error::ShutDown`] when the client is closed.
pub(super) struct Pause<'a> {
    handle: &'a Handle,
    until: Moment,
    /// Names the alarm.
    number: HoldNumber,
}

impl<'a> Pause<'a> {
    pub(super) fn new(handle: &'a Handle, time: Duration) -> Self {
        Self { handle, until: handle.now() + time, number: HoldNumber::new(None) }
    }
}

impl Future for Pause<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.handle.client.pause(self.number.get(), self.until, cx.waker())
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.handle.client.end_pause(self.number.get());
    }
}
