//! What a program that uses `tracing` sees of its locks: the lines of the library inside its own spans, and a span for each hold.
//!
//! ```sh
//! cargo run -p dlock-tasks --example traced
//! ```

use redis_dlock::{DLockGenerator, Event, MemoryLockProcessor};
use std::collections::HashMap;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use tracing::{Level, info, info_span};

fn main() -> Result<(), redis_dlock::Error> {
    // With its feature `tracing-log`, the subscriber takes the lines of the facade `log`, too.
    tracing_subscriber::fmt().with_max_level(Level::TRACE).init();

    let (tell, told) = mpsc::channel();
    let holds = Mutex::new(HashMap::new());
    let trace = move |event: &Event| {
        let mut holds = holds.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Acquired(acquired) => {
                let (key, token) = (acquired.lock.unique_key(), acquired.token);
                holds.insert(token, info_span!("hold", key, token, how = acquired.how.as_str()));
            }
            Event::Released(released) => {
                if let Some(span) = holds.remove(&released.token) {
                    span.in_scope(|| info!(held = ?released.held, end = released.end.as_str(), "released"));
                }
                let _ = tell.send(());
            }
            _ => {}
        }
    };
    let generator = DLockGenerator::builder().on_event(trace).build(MemoryLockProcessor::new())?;
    let lock = generator.generate("ORDER", "4711")?;
    info_span!("order", number = 4711).in_scope(|| lock.lock()?.unlock())?;
    // The events come on a thread of their own, and the program does not end before it is told.
    let _ = told.recv();
    Ok(())
}
