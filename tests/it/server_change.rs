//! Another server answers while a grant of the earlier one is on its way.

use crate::support::crew::eventually;
use parking_lot::Mutex;
use redis_dlock::processor::{
    AcquireOutcome, Claim, ExtendOutcome, Inspection, LockProcessor, ProbeOutcome, ReleaseOutcome, Status,
};
use redis_dlock::{DLockGenerator, Error, ManualClock, MemoryLockProcessor};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is done between the answer to an acquire and its delivery.
type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Switches {
    server: AtomicU64,
    probes: Mutex<Vec<String>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

/// The embedded store, which counts probes, and whose server may be another one.
#[derive(Clone)]
struct Replaced(MemoryLockProcessor, Arc<Switches>);

impl fmt::Debug for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replaced")
    }
}

impl LockProcessor for Replaced {
    fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
        let outcome = self.0.acquire(claim, limit);
        let meanwhile = self.1.meanwhile.lock().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        outcome
    }

    fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
        self.0.extend(claim, limit)
    }

    fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
        self.0.release(claim, limit)
    }

    fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
        self.0.inspect(key, limit)
    }

    fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
        self.1.probes.lock().push(claim.key.to_owned());
        self.0.probe(claim, limit)
    }

    fn status(&self) -> Status {
        Status::answering().with_server(self.1.server.load(Ordering::SeqCst))
    }
}

/// The thread that notices the change does not know of the grant yet. No time passes: only the doubt makes a probe due.
/// Shows: G5.
#[test]
fn a_grant_that_was_on_its_way_is_checked_at_once() {
    let clock = Arc::new(ManualClock::new());
    clock.advance(Duration::from_secs(5));
    let store = Replaced(MemoryLockProcessor::with_clock(clock.clone()), Arc::default());
    let generator = DLockGenerator::builder().clock(clock).build(store.clone()).unwrap();
    let (lock, other) = (generator.generate("CHANGE", "x").unwrap(), generator.generate("CHANGE", "y").unwrap());
    *store.1.meanwhile.lock() = Some(Box::new({
        let switches = Arc::clone(&store.1);
        move || {
            switches.server.store(1, Ordering::SeqCst);
            // This thread's request makes the client notice.
            drop(other.try_lock().unwrap());
        }
    }));
    let guard = lock.lock().unwrap();
    eventually("the new server is asked about it", || store.1.probes.lock().iter().any(|key| key == lock.key()));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    // A grant of the server that is known is not.
    store.1.probes.lock().clear();
    let calm = generator.generate("CHANGE", "z").unwrap();
    calm.lock().unwrap().unlock().unwrap();
    assert_eq!(*store.1.probes.lock(), [""; 0]);
}
