//! [`Store`] for the embedded store: time stands still until a test moves it.

use dlock_conformance::Store;
use redis_dlock::processor::Operations;
use redis_dlock::{LockProcessor, ManualClock, MemoryLockProcessor};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct MemoryStore {
    clock: Arc<ManualClock>,
    processor: MemoryLockProcessor,
}

impl MemoryStore {
    pub(crate) fn start() -> Self {
        Self::by(Arc::default())
    }

    /// On a clock that others move, too.
    pub(crate) fn by(clock: Arc<ManualClock>) -> Self {
        Self { processor: MemoryLockProcessor::with_clock(clock.clone()), clock }
    }
}

impl Store for MemoryStore {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(self.processor.clone())
    }

    fn delete(&self, key: &str) -> bool {
        self.processor.delete(key)
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        self.processor.overwrite(key, holder, lease);
    }

    fn take(&self, key: &str, holder: &str, lease: Duration) -> bool {
        let is_free = self.processor.inspect(key, lease).unwrap().holder.is_none();
        if is_free {
            self.processor.overwrite(key, holder, Some(lease));
        }
        is_free
    }

    fn deny(&self, commands: &[&'static str]) -> bool {
        self.processor.deny(commands);
        true
    }

    fn flush(&self) {
        self.processor.flush();
    }

    fn pass_time(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn leftovers(&self) -> Vec<String> {
        self.processor.keys()
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}
