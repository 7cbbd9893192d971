//! What the program is told: the builder's `on_event`, and the metrics.

#[cfg(feature = "metrics")]
mod alerts;
mod holds;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
mod page;
mod slow;
mod store;
mod times;

use crate::support::crew::HANG;
use crate::support::lab::Lab;
use crossbeam_channel::{Receiver, unbounded};
use redis_dlock::event::{Acquired, HoldEnd, How, Released};
use redis_dlock::{DLockConfig, DLockGenerator, DistributedReentrantLock, Event, GeneratorBuilder, LeaseLoss};

/// A builder with a function that passes all events on.
fn told() -> (GeneratorBuilder, Receiver<Event>) {
    let (say, events) = unbounded();
    let builder = DLockGenerator::builder().on_event(move |event| {
        // The test may have seen enough.
        let _ = say.send(event.clone());
    });
    (builder, events)
}

/// The lock of a client that tells all events.
fn told_lock(lab: &Lab, settings: DLockConfig) -> (DistributedReentrantLock, Receiver<Event>) {
    let (builder, events) = told();
    (lab.time.set(builder).build(lab.processor()).unwrap().generate_with(settings).unwrap(), events)
}

#[track_caller]
fn next(events: &Receiver<Event>) -> Event {
    events.recv_timeout(HANG).expect("an event")
}

#[track_caller]
fn next_acquired(events: &Receiver<Event>, how: How) -> Acquired {
    match next(events) {
        Event::Acquired(acquired) if acquired.how == how => acquired,
        other => panic!("not acquired so ({how:?}): {other:?}"),
    }
}

#[track_caller]
fn next_released(events: &Receiver<Event>, end: HoldEnd) -> Released {
    match next(events) {
        Event::Released(released) if released.end == end => released,
        other => panic!("not released so ({end:?}): {other:?}"),
    }
}

#[track_caller]
fn next_lost(events: &Receiver<Event>) -> LeaseLoss {
    match next(events) {
        Event::Lost(loss) => loss,
        other => panic!("not lost: {other:?}"),
    }
}
