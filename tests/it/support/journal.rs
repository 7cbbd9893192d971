//! The log of the test process, kept, so that tests can read what was written about their locks.

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use std::sync::Once;

static JOURNAL: Journal = Journal(Mutex::new(Vec::new()));

struct Journal(Mutex<Vec<(Level, String)>>);

impl Log for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info && metadata.target().starts_with("redis_dlock")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().push((record.level(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Begins to keep the log, for the rest of the process.
pub(crate) fn keep() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        log::set_logger(&JOURNAL).expect("no other logger in the tests");
        log::set_max_level(LevelFilter::Info);
    });
}

/// The lines of level ERROR: panics of our threads among them.
pub(crate) fn errors() -> Vec<String> {
    JOURNAL.0.lock().iter().filter(|(level, _)| *level == Level::Error).map(|(_, l)| l.clone()).collect()
}

/// The warnings about a key, in order.
pub(crate) fn warnings(key: &str) -> Vec<String> {
    lines(key, Level::Warn)
}

/// The warnings that contain a text, in order.
#[allow(dead_code, reason = "the tests of etcd and Consul use it")]
pub(crate) fn warnings_with(text: &str) -> Vec<String> {
    let journal = JOURNAL.0.lock();
    journal
        .iter()
        .filter(|(level, line)| *level == Level::Warn && line.contains(text))
        .map(|(_, l)| l.clone())
        .collect()
}

/// What was noted about a key, in order.
pub(crate) fn notes(key: &str) -> Vec<String> {
    lines(key, Level::Info)
}

fn lines(key: &str, wanted: Level) -> Vec<String> {
    let quoted = format!("{key:?}");
    let journal = JOURNAL.0.lock();
    journal.iter().filter(|(level, line)| *level == wanted && line.contains(&quoted)).map(|(_, l)| l.clone()).collect()
}
