//! Unit tests of `src/clock/manual.rs`.

use super::*;
use std::sync::Arc;

#[test]
fn a_clock_keeps_nothing_of_generators_that_are_gone() {
    let clock = Arc::new(ManualClock::new());
    let generator = || crate::DLockGenerator::builder().clock(clock.clone()).build(crate::MemoryLockProcessor::new());
    let living: Vec<_> = (0..3).map(|_| generator().expect("random numbers")).collect();
    for _ in 0..10_000 {
        drop(generator());
    }
    clock.advance(Duration::from_secs(1));
    let wakes = &clock.generators.lock().wakes;
    assert!(wakes.capacity() <= 8, "{}", wakes.capacity());
    assert_eq!(wakes.iter().filter(|wake| wake.strong_count() > 0).count(), living.len());
}
