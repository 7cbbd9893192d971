//! Writes the library's log to standard error: its warnings while the command runs and, with `--verbose`, all of its lines.

use super::signals::{self, SignalTarget};
use crate::message;
use crate::output::one_line;
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Library;

/// Begins to receive the library's log.
pub(super) fn hear(verbose: bool) {
    if log::set_logger(&Library).is_ok() {
        log::set_max_level(if verbose { LevelFilter::Info } else { LevelFilter::Warn });
    }
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
        if self.enabled(record.metadata()) && !is_told(record.level(), &text) {
            message::tell(record.level(), &one_line(&text), None);
        }
    }

    fn flush(&self) {}
}
