//! What is known of the calls of an execution.

use crate::error::BackendFailure;

/// What is known of the commands of one call about one key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) call: u16,
    pub(super) key: u8,
    pub(super) begin: u64,
    /// When it was sent or given up, as far as its caller knows.
    pub(super) end: Option<u64>,
    /// Whether the caller had as much time as it wanted.
    pub(super) is_long: bool,
    /// What came of each command.
    pub(super) answers: Vec<Result<(), Option<BackendFailure>>>,
    /// How often it was answered, and when.
    pub(super) answered: u32,
    pub(super) answered_at: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) time: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) faults: Vec<String>,
    /// Whether somebody closed the transport or broke a connection.
    pub(super) is_closed: bool,
    /// Posted calls that were left to another caller.
    pub(super) left: Vec<u16>,
}
