//! The client record: what a client says of itself in the store, for people. It expires soon after the end of the process.
//!
//! The lease thread writes it shortly after the client's first lock, after the renewals that are due, and again every thirty seconds; the
//! store keeps it for ninety. No lock waits for it. A client that is closed removes it.

use super::core::Core;
use crate::clock::Moment;
use crate::description::{ClientRecord, DESCRIBES};
use crate::error::Error;
use crate::log;
use crate::sync::Mutex;
use crate::timing::{RECORD_DELAY, RECORD_DELAYS, RECORD_LIFE, RECORD_PAUSE, RECORD_RETRY};
use std::time::{Duration, SystemTime};

/// The client record, and when it is due.
pub(crate) struct Record {
    pub(super) is_on: bool,
    started: SystemTime,
    state: Mutex<RecordState>,
}

#[derive(Default)]
struct RecordState {
    /// When it is written next; `None` before the first lock.
    due: Option<Moment>,
    /// How often the first write was put off, because the client held no key.
    put_off: u32,
    /// Whether the client begins to listen after the first write.
    listens: bool,
    line: Option<String>,
    is_written: bool,
    has_warned: bool,
}

impl Record {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, started: SystemTime::now(), state: Mutex::default() }
    }

    /// Returns when the record is written next.
    pub(super) fn next(&self) -> Moment {
        self.state.lock().due.unwrap_or(Moment::NEVER)
    }

    /// Has the record written soon, once the lease thread has started. Returns when.
    pub(super) fn begin(&self, core: &Core) -> Moment {
        if self.is_on && core.processor.directory().is_some() {
            let due = core.clock.now() + RECORD_DELAY;
            self.state.lock().due.get_or_insert(due);
        }
        self.next()
    }

    /// Writes no more: the client is closed.
    pub(super) fn stop(&self) {
        self.state.lock().due = None;
    }

    /// Writes the record if it is due, within a limit. Called by the lease thread. `holds` says whether the client holds any key. Returns
    /// whether the client is to listen now.
    pub(super) fn keep(&self, core: &Core, holds: bool, limit: impl FnOnce() -> Duration) -> bool {
        let begun = core.clock.now();
        if begun < self.next() {
            return false;
        }
        let Some(directory) = core.processor.directory() else { return false };
        if !holds && self.puts_off(begun) {
            return false;
        }
        let id = core.id.current();
        let features: &[_] = if core.hands_over { &[DESCRIBES] } else { &[] };
        let of_this_process = || ClientRecord::of_this_process(id.host(), self.started, features).to_line();
        let line = self.state.lock().line.take().unwrap_or_else(of_this_process);
        let written = directory.put_record(id.as_str(), &line, RECORD_LIFE, limit());
        let is_tried_soon = matches!(written, Err(Error::Backend { .. }));
        let mut state = self.state.lock();
        state.line = Some(line);
        state.is_written |= written.is_ok() || is_tried_soon;
        state.due = Some(begun + if is_tried_soon { RECORD_RETRY } else { RECORD_PAUSE });
        let listens = std::mem::take(&mut state.listens);
        let warns = !is_tried_soon && written.is_err() && !std::mem::replace(&mut state.has_warned, true);
        drop(state);
        match written {
            Err(error) if warns => {
                log::warn!(
                    CLIENT,
                    "this client cannot say in the store what it is, and is shown by its lockers alone: {error}"
                );
            }
            Err(error) => log::debug!(CLIENT, "the client record was not written this time: {error}"),
            Ok(()) => {}
        }
        listens
    }

    /// Has the client listen once its record is written, and not before: a program that ends soon saves a thread and a connection. Returns
    /// `false` if nothing is to be waited for.
    pub(super) fn defer_listening(&self) -> bool {
        let mut state = self.state.lock();
        let is_put_off = state.due.is_some() && state.line.is_none();
        state.listens |= is_put_off;
        is_put_off
    }

    /// Puts the first write off, a few times, while the client holds no key. So the first lock of a program does not share its connection
    /// with the write, and opens no second connection.
    fn puts_off(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        let puts_off = state.line.is_none() && state.put_off < RECORD_DELAYS;
        if puts_off {
            state.put_off += 1;
            state.due = Some(now + RECORD_DELAY);
        }
        puts_off
    }

    /// Removes the record, within a limit. Called when the lease thread has ended.
    pub(super) fn remove(&self, core: &Core, limit: Duration) {
        let is_written = std::mem::take(&mut self.state.lock().is_written);
        if let Some(directory) = core.processor.directory().filter(|_| is_written)
            && let Err(error) = directory.remove_record(core.id.current().as_str(), limit)
        {
            log::debug!(CLIENT, "the client record was not removed, and ends by itself: {error}");
        }
    }
}
