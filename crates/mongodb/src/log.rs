//! Log lines, under the targets by which programs filter those of `redis-dlock`.

pub(crate) use log::Level;

use std::fmt::Arguments;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) const CLIENT: &str = "redis_dlock::client";
pub(crate) const LEASE: &str = "redis_dlock::lease";

/// Writes a line. A logger is the program's own code and may panic; the request or task that logs goes on nevertheless.
pub(crate) fn write(level: Level, target: &str, text: Arguments<'_>) {
    let written = catch_unwind(AssertUnwindSafe(|| log::log!(target: target, level, "{text}")));
    if let Err(panic) = written {
        // Leak the panic: its destructor is the logger's code, too, and may panic.
        std::mem::forget(panic);
    }
}
