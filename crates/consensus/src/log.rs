//! Warnings, under a log target of `redis-dlock`, so that programs filter both together.

use std::fmt::Arguments;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The target of warnings about leases.
const LEASE: &str = "redis_dlock::lease";

/// Writes a warning. A logger is the program's own code and may panic; the request that warns goes on nevertheless.
pub(crate) fn warn(text: Arguments<'_>) {
    let written = catch_unwind(AssertUnwindSafe(|| log::warn!(target: LEASE, "{text}")));
    if let Err(panic) = written {
        // Leak the panic: its destructor is the logger's code, too, and may panic.
        std::mem::forget(panic);
    }
}
