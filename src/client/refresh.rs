//! The client record: what a client says of itself in the store, for people. A process that is dead has none.
//!
//! The lease thread writes it shortly after the client's first lock, after the renewals that are due, and again every thirty seconds; the
//! store keeps it for ninety. No lock waits for it. A client that is closed removes it.

use crate::client::core::Core;
use crate::clock::Moment;
use crate::description::ClientRecord;
use crate::error::Error;
use crate::log;
use crate::timing::{RECORD_DELAY, RECORD_DELAYS, RECORD_LIFE, RECORD_PAUSE, RECORD_RETRY};

impl Core {
    /// Has the record written soon, once the lease thread has started.
    pub(super) fn begin_record(&self) {
        if !self.record.is_on() || self.processor.directory().is_none() {
            return;
        }
        let mut state = self.record.state.lock();
        if state.due.is_none() {
            let due = self.clock.now() + RECORD_DELAY;
            state.due = Some(due);
            drop(state);
            self.lease_thread.wake_by(due);
        }
    }

    /// Writes the record if it is due. Called by the lease thread. It takes a quarter at most of the time that renewals have.
    pub(super) fn keep_record(&self) {
        let begun = self.clock.now();
        if begun < self.record.next() {
            return;
        }
        if self.is_closed() {
            // Otherwise the lease thread would find it due again at once, until it is stopped.
            self.record.state.lock().due = None;
            return;
        }
        let Some(directory) = self.processor.directory() else { return };
        if self.puts_off_record(begun) {
            return;
        }
        let limit = self.side_limit();
        let line = self.record.state.lock().line.take().unwrap_or_else(|| self.record_line());
        let written = directory.put_record(self.id().as_str(), &line, RECORD_LIFE, limit);
        let is_tried_soon = matches!(written, Err(Error::Backend { .. }));
        let mut state = self.record.state.lock();
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
        if listens {
            self.listen();
        }
    }

    /// Has the client listen once its record is written, and not before: a program that ends soon saves a thread and a connection. Returns
    /// `false` if nothing is to be waited for.
    pub(super) fn listens_with_record(&self) -> bool {
        if self.listener.is_started() {
            return false;
        }
        let mut state = self.record.state.lock();
        let is_put_off = state.due.is_some() && state.line.is_none();
        state.listens |= is_put_off;
        is_put_off
    }

    /// Puts the first write off while the client holds nothing, a few times. The first lock of a program does not share its connection then, and
    /// needs no second one.
    fn puts_off_record(&self, now: Moment) -> bool {
        let holds = self.renewals.lock().deadlines.next() != Moment::NEVER;
        let mut state = self.record.state.lock();
        let puts_off = !holds && state.line.is_none() && state.put_off < RECORD_DELAYS;
        if puts_off {
            state.put_off += 1;
            state.due = Some(now + RECORD_DELAY);
        }
        puts_off
    }

    fn record_line(&self) -> String {
        let host = self.id().host();
        ClientRecord::of_this_process(host, self.record.started).with_describes(self.hands_over()).to_line()
    }

    /// Removes the record. Called when the lease thread has ended.
    pub(super) fn remove_record(&self) {
        let is_written = std::mem::take(&mut self.record.state.lock().is_written);
        if let Some(directory) = self.processor.directory().filter(|_| is_written)
            && let Err(error) = directory.remove_record(self.id().as_str(), self.side_limit())
        {
            log::debug!(CLIENT, "the client record was not removed, and ends by itself: {error}");
        }
    }
}
