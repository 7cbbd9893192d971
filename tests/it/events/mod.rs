//! What the program is told: the builder's `on_event`, and the metrics.
//!
//! | file | holds |
//! |---|---|
//! | `holds.rs` | each event of a lock, on both stores, and their order |
//! | `times.rs` | what the events say of times, by a clock that is moved by hand |
//! | `store.rs` | the store fails, comes back, and is another server |
//! | `slow.rs` | functions that are slow, block, panic or lock |
//! | `metrics.rs`, `page.rs` | the figures, and the manual's page of them |
//! | `alerts.rs` | the alerts of that page, by Prometheus' `promtool`, and the dashboard |

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
use crossbeam_channel::{Receiver, unbounded};
use redis_dlock::event::{Acquired, HoldEnd, How, Released};
use redis_dlock::{DLockGenerator, Event, GeneratorBuilder, LeaseLoss};

/// A builder with a function that passes all events on.
fn told() -> (GeneratorBuilder, Receiver<Event>) {
    let (say, events) = unbounded();
    let builder = DLockGenerator::builder().on_event(move |event| {
        // The test may have seen enough.
        let _ = say.send(event.clone());
    });
    (builder, events)
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
