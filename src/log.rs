//! The macros of the crate `log`, wrapped so that a panic of the logger reaches no caller.
//!
//! A logger is the program's own code and may panic: one that prints panics when its pipe is closed. This crate logs in
//! destructors, in callbacks and while a thread does work for which others wait, so a panic there would end more than the
//! calling thread's request. A module that logs writes `use crate::log;` and then `log::warn!(LEASE, …)` with one of the
//! [`target`]s. A test checks that all of them do.

use ::log::{Metadata, Record};
use std::fmt::Arguments;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use ::log::{Level, STATIC_MAX_LEVEL, max_level};

/// The targets of all log lines. They are part of the public interface, because programs filter by them. A line keeps its
/// target when its code moves to another module.
pub(crate) mod target {
    pub(crate) const ACQUIRE: &str = "redis_dlock::acquire";
    pub(crate) const CLIENT: &str = "redis_dlock::client";
    pub(crate) const CONFIG: &str = "redis_dlock::config";
    pub(crate) const HAND_OVER: &str = "redis_dlock::hand_over";
    pub(crate) const LEASE: &str = "redis_dlock::lease";
    pub(crate) const RELEASE: &str = "redis_dlock::release";
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only connections write to it"))]
    pub(crate) const TRANSPORT: &str = "redis_dlock::transport";

    #[cfg(test)]
    pub(super) const ALL: [&str; 7] = [ACQUIRE, CLIENT, CONFIG, HAND_OVER, LEASE, RELEASE, TRANSPORT];
}

/// The origin of a line: module, file, line.
pub(crate) type SourceLocation = (&'static str, &'static str, u32);

/// Writes a line. Catches a panic of the logger.
pub(crate) fn write(level: Level, target: &str, (module, file, line): SourceLocation, text: Arguments<'_>) {
    let written = catch_unwind(AssertUnwindSafe(|| {
        let logger = ::log::logger();
        let metadata = Metadata::builder().level(level).target(target).build();
        if logger.enabled(&metadata) {
            logger.log(
                &Record::builder()
                    .metadata(metadata)
                    .args(text)
                    .module_path_static(Some(module))
                    .file_static(Some(file))
                    .line(Some(line))
                    .build(),
            );
        }
    }));
    if let Err(panic) = written {
        // Leak the panic: its destructor is the logger's code, too, and may panic.
        std::mem::forget(panic);
    }
}

/// Writes a line, unless its level is switched off.
macro_rules! line {
    ($level:expr, $target:ident, $($text:tt)+) => {{
        let (level, origin) = ($level, (module_path!(), file!(), line!()));
        if level <= $crate::log::STATIC_MAX_LEVEL && level <= $crate::log::max_level() {
            $crate::log::write(level, $crate::log::target::$target, origin, format_args!($($text)+));
        }
    }};
}

macro_rules! error_line {
    ($($text:tt)+) => { $crate::log::log!($crate::log::Level::Error, $($text)+) };
}

macro_rules! warn_line {
    ($($text:tt)+) => { $crate::log::log!($crate::log::Level::Warn, $($text)+) };
}

macro_rules! info_line {
    ($($text:tt)+) => { $crate::log::log!($crate::log::Level::Info, $($text)+) };
}

macro_rules! debug_line {
    ($($text:tt)+) => { $crate::log::log!($crate::log::Level::Debug, $($text)+) };
}

macro_rules! trace_line {
    ($($text:tt)+) => { $crate::log::log!($crate::log::Level::Trace, $($text)+) };
}

pub(crate) use {
    debug_line as debug, error_line as error, info_line as info, line as log, trace_line as trace, warn_line as warn,
};

#[cfg(test)]
#[path = "../tests/white_box/log.rs"]
mod tests;
