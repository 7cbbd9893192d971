//! A thread that writes messages, so that a reader of standard error that stands still blocks neither the thread that renews the lease nor the one
//! that ends the command.

use crate::timing;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// How many lines wait to be written.
const ROOM: usize = 64;

/// The orders for the thread.
enum WriteOrder {
    Write(String),
    /// Drops the sender when all lines before it are written.
    Confirm(Sender<()>),
}

/// Set when the messages begin to go through the thread.
static IN_USE: OnceLock<()> = OnceLock::new();

/// The way to the thread.
static WRITER: OnceLock<Option<SyncSender<WriteOrder>>> = OnceLock::new();

/// Hands all further messages to the thread. The first one starts it. All signals must be blocked by now, because a thread may begin.
pub(crate) fn begin() {
    let _ = IN_USE.set(());
}

/// Hands a line over, or returns it if the caller is to write it. Drops a line for which there is no room, or no thread.
pub(super) fn take(line: String) -> Option<String> {
    if IN_USE.get().is_none() {
        return Some(line);
    }
    let start = || {
        let (orders, received) = sync_channel(ROOM);
        let thread = thread::Builder::new().name("dlock-log".to_owned()).spawn(move || write(&received));
        thread.ok().map(|_| orders)
    };
    if let Some(orders) = WRITER.get_or_init(start) {
        let _ = orders.try_send(WriteOrder::Write(line));
    }
    None
}

/// Waits a moment until the lines so far are written. Call it before the process ends.
pub(crate) fn finish() {
    if let Some(Some(orders)) = WRITER.get() {
        let (confirm, confirmed) = channel::<()>();
        let sent = orders.try_send(WriteOrder::Confirm(confirm));
        let _ = sent.map(|()| confirmed.recv_timeout(timing::LOGGED_WITHIN));
    }
}

fn write(orders: &Receiver<WriteOrder>) {
    for order in orders {
        match order {
            WriteOrder::Write(line) => super::write(&line),
            WriteOrder::Confirm(confirm) => drop(confirm),
        }
    }
}
