//! What a call gets: its replies, or why they are missing.

use crate::error::Error;
use ::redis::Value;
use smallvec::SmallVec;
use std::sync::Arc;

/// A reply that has come.
#[derive(Clone, Debug)]
pub(crate) struct Replied {
    pub(crate) value: Value,
    /// The epoch of the connection in which the command was written.
    pub(crate) epoch: u64,
    /// The reply to the command that confirmed it, if it is one to be confirmed and that reply has come.
    pub(crate) confirmation: Option<Arc<Value>>,
}

/// The outcome of a call: the reply to each of its commands that has come and, if some are missing, the reason. Those at the end may be left
/// out.
#[derive(Debug, Default)]
pub(crate) struct CallReplies {
    pub(crate) replies: SmallVec<[Option<Replied>; 1]>,
    pub(crate) failure: Option<Error>,
}

impl CallReplies {
    /// Returns the answer to a call that failed before it was sent.
    pub(crate) fn failed(error: Error) -> Self {
        Self { failure: Some(error), ..Self::default() }
    }

    /// Returns the reply to the first command.
    pub(crate) fn first(&self) -> Option<&Value> {
        self.replies.first()?.as_ref().map(|replied| &replied.value)
    }
}

/// Receives the answer of a call that nobody waits for. It runs on whichever thread finds the answer, and must not block.
pub(crate) type Callback = Box<dyn FnOnce(CallReplies) + Send>;
