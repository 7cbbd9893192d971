//! Records what is known about the calls of an execution.

use crate::error::BackendFailure;

/// What is known about the commands of one call for one key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) call: u16,
    pub(super) key: u8,
    pub(super) begin: u64,
    /// When the call was sent or given up, as far as its caller knows.
    pub(super) end: Option<u64>,
    /// Whether the caller had as much time as it wanted.
    pub(super) is_long: bool,
    /// Whether its caller did not wait for the answer.
    pub(super) is_posted: bool,
    /// Whether it was posted to be sent with what its caller does next.
    pub(super) is_kept: bool,
    /// The outcome of each command.
    pub(super) answers: Vec<Result<(), Option<BackendFailure>>>,
    /// How often the call was answered, and when it was answered last.
    pub(super) answered: u32,
    pub(super) answered_at: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) time: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) faults: Vec<String>,
    /// Whether a caller closed the transport or may have broken a connection.
    pub(super) is_closed: bool,
}

impl Book {
    pub(super) fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }
}
