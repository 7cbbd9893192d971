//! Unit tests of `src/store/memory/processor.rs`.

use super::super::store::SWEEP_FROM;
use super::*;
use crate::clock::ManualClock;
use crate::port::{AcquireOutcome, Claim, Gap, Operations};

const LEASE: Duration = Duration::from_secs(30);

fn entries(processor: &MemoryLockProcessor) -> usize {
    processor.shared.store.lock().keys.len()
}

fn take(processor: &MemoryLockProcessor, key: &str, locker: &str) {
    let claim = Claim::new(key, "a", locker, LEASE);
    assert!(matches!(processor.acquire(&claim, LEASE), Ok(AcquireOutcome::Acquired(_))));
}

/// Shows: L2.
#[test]
fn free_keys_leave_nothing_behind() {
    let processor = MemoryLockProcessor::new();
    for n in 0..100_000 {
        let key = format!("DLOCK_T_{n}");
        take(&processor, &key, "a-1");
        processor.release(&Claim::new(&key, "a", "a-1", LEASE), LEASE).expect("never fails");
        processor.inspect(&key, LEASE).expect("never fails");
        assert_eq!(entries(&processor), 0);
    }
    assert!(processor.shared.store.lock().keys.capacity() < SWEEP_FROM);
}

/// Shows: L2.
#[test]
fn keys_of_dead_holders_and_keys_that_had_a_gap_are_swept() {
    for has_gap in [false, true] {
        let clock = Arc::new(ManualClock::new());
        let processor = MemoryLockProcessor::with_clock(clock.clone());
        for n in 0..100_000 {
            // A thousand keys are alive, or remembered, at any time.
            clock.advance(LEASE / 1000);
            let key = format!("DLOCK_T_{n}");
            take(&processor, &key, "a-1");
            if has_gap {
                let claim = Claim::new(&key, "a", "a-1", LEASE).with_poller_gap(Some(Gap::new(LEASE / 6, LEASE)));
                processor.release(&claim, LEASE).expect("never fails");
            }
            assert!(entries(&processor) <= 2001, "{}", entries(&processor));
        }
        clock.advance(LEASE);
        assert!(processor.keys().is_empty());
        assert!(processor.shared.store.lock().keys.capacity() < 4 * SWEEP_FROM);
    }
}

#[test]
fn debug_output_does_not_wait_for_the_store() {
    let processor = MemoryLockProcessor::new();
    let guard = processor.shared.store.lock();
    assert_eq!(format!("{processor:?}"), "MemoryLockProcessor { keys: None, .. }");
    drop(guard);
    take(&processor, "DLOCK_T_x", "a-1");
    assert_eq!(format!("{processor:?}"), "MemoryLockProcessor { keys: Some(1), .. }");
}
