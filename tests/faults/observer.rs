//! Repeated looks at the lock in the store. They are needed because a consensus store does not report the commands that it executes.

use crate::checker::entry::Sighting;
use crate::consensus::Look;
use crate::worker::now;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Observer {
    seen: Arc<Mutex<Vec<Sighting>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    pub(crate) fn start(look: Box<dyn Fn() -> Option<Look> + Send>) -> Self {
        let (seen, over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(AtomicBool::new(false)));
        let (noted, is_over) = (Arc::clone(&seen), Arc::clone(&over));
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let from = now();
                if let Some(look) = look() {
                    noted.lock().push(Sighting { from, to: now(), held: held(look) });
                }
                thread::sleep(PAUSE);
            }
        });
        Self { seen, over, thread: Some(thread) }
    }

    /// Ends the looks, and returns what they have shown.
    pub(crate) fn end(mut self) -> Vec<Sighting> {
        self.over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
        std::mem::take(&mut *self.seen.lock())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

fn held(look: Look) -> Option<(u64, String)> {
    match look {
        Look::Held { index, value, session } if !session.is_empty() => Some((index, locker(&value).unwrap_or(value))),
        _ => None,
    }
}

/// The locker that an entry of the library names.
pub(crate) fn locker(value: &str) -> Option<String> {
    let value: Value = serde_json::from_str(value).ok()?;
    value["who"].as_str().map(str::to_owned)
}
