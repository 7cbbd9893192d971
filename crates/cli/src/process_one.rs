//! `dlock` as the first process of a container.
//!
//! The kernel delivers no signal to such a process that it does not handle. So SIGTERM, by which containers are stopped, would do nothing.

use crate::status::{Failure, of_signal};
use crate::threads;
use nix::sys::signal::{SigSet, Signal};
use std::process;

/// Ends `dlock` at a signal that would end any other process. Must be called before any thread begins. `dlock run` handles signals itself.
pub(crate) fn hear_signals() -> Result<(), Failure> {
    if process::id() != 1 {
        return Ok(());
    }
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT]);
    signals.thread_block().map_err(|error| Failure::system("cannot block signals", error))?;
    let listen = move || {
        if let Ok(signal) = signals.wait() {
            process::exit(of_signal(signal as i32).into());
        }
    };
    threads::start("dlock-signals", listen)
}
