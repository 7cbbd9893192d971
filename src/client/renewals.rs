//! The tenures of a client, by when they must be renewed and by their deadlines.

use crate::client::schedule::Schedule;
use crate::state::key::Key;
use std::sync::Arc;

/// The tenures that the lease thread renews.
#[derive(Debug)]
pub(super) struct Renewals {
    pub(super) schedule: Schedule<Arc<Key>>,
    /// The deadlines of the live tenures.
    pub(super) deadlines: Schedule<()>,
}

impl Renewals {
    pub(super) fn new() -> Self {
        Self { schedule: Schedule::new(), deadlines: Schedule::new() }
    }
}
