//! When the test's own process and its servers waited for the machine.

use crate::checker::lateness::Late;
use crate::history::Nanos;
use crate::pulse::{self, Pulse};
use crate::worker::now;
use parking_lot::Mutex;
use std::sync::Arc;

/// When this process, whose threads are the network, and the servers did not run.
pub(crate) struct Watch {
    pub(crate) away: Arc<Mutex<Vec<(Nanos, Nanos)>>>,
    pub(crate) server_late: Arc<Mutex<Vec<Late>>>,
    _pulse: Pulse,
}

impl Watch {
    pub(crate) fn start(servers: &[u32]) -> Self {
        let (away, server_late): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (noted, lates) = (Arc::clone(&away), Arc::clone(&server_late));
        let mut delays: Vec<_> = servers.iter().map(|server| (*server, None)).collect();
        let look = move || {
            for (server, before) in &mut delays {
                let delay = pulse::run_delay(*server);
                if let (Some(before), Some(delay)) = (*before, delay)
                    && delay > before + 1_000_000
                {
                    let to = now();
                    lates.lock().push(Late { process: None, from: to - (delay - before), to });
                }
                *before = delay;
            }
            true
        };
        let pulse = pulse::keep(look, move |since, at| noted.lock().push((since, at)));
        Self { away, server_late, _pulse: pulse }
    }
}
