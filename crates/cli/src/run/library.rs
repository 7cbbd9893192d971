//! Writes the library's log to standard error: its warnings while the command runs and, with `--verbose`, all of its lines.
//!
//! A separate thread writes the lines. The library also logs on the thread that renews the lease, and a reader of standard error that stands still
//! must not block that thread. A line for which there is no room is dropped.

use super::signals::{self, SignalTarget};
use crate::message;
use crate::output::one_line;
use crate::timing;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// How many lines wait to be written.
const ROOM: usize = 64;

/// The orders for the thread.
enum LogOrder {
    Write(Level, String),
    /// Drops the sender when all lines before it are written.
    Confirm(Sender<()>),
}

/// Hands lines to the thread. The first line starts it.
struct Library(OnceLock<Option<SyncSender<LogOrder>>>);

static LIBRARY: Library = Library(OnceLock::new());

/// Begins to receive the library's log. All signals must be blocked by now, because a thread may begin.
pub(super) fn hear(verbose: bool) {
    if log::set_logger(&LIBRARY).is_ok() {
        log::set_max_level(if verbose { LevelFilter::Info } else { LevelFilter::Warn });
    }
}

/// Waits a moment until the lines so far are written.
pub(super) fn finish() {
    LIBRARY.flush();
}

/// Whether `dlock` reports the same itself: a loss, with its effect on the command; before the command, once, the reason why it waits; after the
/// command, the result of the release.
fn is_told(level: Level, text: &str) -> bool {
    let runs = signals::target() == SignalTarget::Runs || log::max_level() > LevelFilter::Warn;
    text.starts_with("the lease of lock ") || !runs && level == Level::Warn
}

impl Log for Library {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["redis_dlock", "dlock_"].iter().any(|of| metadata.target().starts_with(of))
    }

    fn log(&self, record: &Record<'_>) {
        let text = record.args().to_string();
        if !self.enabled(record.metadata()) || is_told(record.level(), &text) {
            return;
        }
        let begin = || {
            let (orders, received) = sync_channel(ROOM);
            let thread = thread::Builder::new().name("dlock-log".to_owned()).spawn(move || write(&received));
            thread.ok().map(|_| orders)
        };
        if let Some(orders) = self.0.get_or_init(begin) {
            let _ = orders.try_send(LogOrder::Write(record.level(), text));
        }
    }

    fn flush(&self) {
        if let Some(Some(orders)) = self.0.get() {
            let (confirm, confirmed) = channel::<()>();
            let sent = orders.try_send(LogOrder::Confirm(confirm));
            let _ = sent.map(|()| confirmed.recv_timeout(timing::LOGGED_WITHIN));
        }
    }
}

fn write(orders: &Receiver<LogOrder>) {
    for order in orders {
        match order {
            LogOrder::Write(level, text) => message::tell(level, &one_line(&text), None),
            LogOrder::Confirm(confirm) => drop(confirm),
        }
    }
}
