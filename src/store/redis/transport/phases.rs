//! The phases of a call, and what moves it from one to the next.
//!
//! | phase | meaning | who may change it |
//! |---|---|---|
//! | `Queued` | not written; it is in its mux's queue | the writer, the caller that gives up, or a thread that fails it |
//! | `Written` | handed to the connection; it has its place in the order of replies | the reader, the caller that gives up, or a thread that fails it |
//! | `Left` | the caller is gone; its replies are read and dropped | nobody |
//! | `Done` | all replies have come, or the call has failed | nobody |

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPhase {
    Queued,
    Written,
    Left,
    Done,
}

/// The roles to which a caller is promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promotion {
    pub(crate) to_writer: bool,
    pub(crate) to_reader: bool,
}

impl Promotion {
    pub(crate) fn any(self) -> bool {
        self.to_writer || self.to_reader
    }
}

/// Why a caller woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Done,
    Promoted,
    TimedOut,
}

/// What a reply meant to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody has to be woken: the caller is gone, or more replies or the confirmation are missing.
    Kept,
    /// It was the last reply: the call must be woken.
    Last,
    /// The server does not know the short form of some commands, for which the call must be queued again.
    Again,
}
