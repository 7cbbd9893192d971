//! What a client knows of its record, as data.

use crate::clock::Moment;
use crate::sync::Mutex;
use std::time::SystemTime;

/// See the module.
#[derive(Debug)]
pub(crate) struct Record {
    is_on: bool,
    pub(super) started: SystemTime,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// When it is written next; `None` before the first lock.
    pub(super) due: Option<Moment>,
    /// How often the first write was put off, because the client has not got its first lock yet.
    pub(super) put_off: u32,
    /// Whether the client listens from the first write on.
    pub(super) listens: bool,
    pub(super) line: Option<String>,
    pub(super) is_written: bool,
    pub(super) has_warned: bool,
}

impl Record {
    pub(crate) fn new(is_on: bool) -> Self {
        let state = State { due: None, put_off: 0, listens: false, line: None, is_written: false, has_warned: false };
        Self { is_on, started: SystemTime::now(), state: Mutex::new(state) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns when the record is written next.
    pub(crate) fn next(&self) -> Moment {
        self.state.lock().due.unwrap_or(Moment::NEVER)
    }
}
