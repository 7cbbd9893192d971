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
        let clock = Arc::new(ManualClock::new());
        Self { processor: MemoryLockProcessor::with_clock(clock.clone()), clock }
    }
}

/// `SET NX PX`, by somebody who is alone.
pub(crate) fn take(processor: &MemoryLockProcessor, key: &str, holder: &str, lease: Duration) -> bool {
    let is_free = processor.inspect(key, lease).unwrap().holder.is_none();
    if is_free {
        processor.overwrite(key, holder, Some(lease));
    }
    is_free
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
        take(&self.processor, key, holder, lease)
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
}
