//! One client at work: a store, a clock, an identity, the keys in use, and up to three threads. If one of several servers keeps the others
//! waiting, there are two more.
//!
//! A client lives as long as a generator or a lock of it. After it is closed, its threads and its store go on until
//! the last thread has left `lock` and the last hold has ended; see [`activity`].
//!
//! | file | contents, from the top down |
//! |---|---|
//! | `mod.rs` | the client: owns the core and gives the threads their work |
//! | `closing.rs` | closing a client |
//! | `acquire`, `unlock.rs` | a thread in `lock()`, and one in `unlock()`: each is a value with all its methods |
//! | `acquire/steps.rs` | what a thread that asks the store does after each answer, as a table |
//! | `turn.rs`, `question.rs` | the turn to ask; one request and what its reply means |
//! | `releases.rs`, `at_exit.rs` | what is given back, also without waiting for the reply; what the end of the main thread waits for |
//! | `retry.rs`, `renew.rs`, `hear.rs` | the work of the three threads |
//! | `apart.rs` | two more threads, for keys whose servers keep others waiting |
//! | `describe.rs`, `refresh.rs` | who holds and who waits, for people; what the client says of itself |
//! | `loss.rs` | how a loss is noticed, and what a holder can query |
//! | `twin.rs` | a client that finds that another one has its identity |
//! | `observe.rs`, `circle.rs` | what the program is told, and when; threads that wait for one another |
//! | `agenda.rs`, `core.rs` | the schedules of the threads; what every operation is given |
//! | `wait_limit.rs`, `cleanup.rs`, `inquiry.rs`, `record.rs`, `announce.rs`, `observer.rs`, `hook.rs`, `long_waits.rs`, `metrics.rs`, `activity.rs` | the parts that do not know the core |
//! | `listener.rs`, `worker.rs`, `renewals.rs`, `schedule.rs` | threads and times; these do not know locks |

pub(crate) mod acquire;
pub(crate) mod activity;
mod agenda;
mod announce;
mod apart;
mod at_exit;
mod circle;
mod cleanup;
mod closing;
pub(crate) mod core;
mod describe;
mod hear;
mod hook;
mod inquiry;
mod listener;
mod long_waits;
mod loss;
mod metrics;
mod observe;
mod observer;
mod question;
mod record;
mod refresh;
mod releases;
mod renew;
mod renewals;
mod retry;
mod schedule;
mod turn;
mod twin;
pub(crate) mod unlock;
pub(crate) mod wait_limit;
mod worker;

pub(crate) use hook::Hook;
pub(crate) use observer::Hooks;

use self::core::{Core, Rounds};
use crate::clock::Clock;
use crate::error::Error;
use crate::store::processor::LockProcessor;
use std::ops::Deref;
use std::sync::Arc;

/// The work of a client's threads, and the function that shuts it down.
const ROUNDS: Rounds = Rounds {
    retry: retry::round,
    renew: renew::round,
    retry_apart: retry::round_apart,
    renew_apart: renew::round_apart,
    listen: hear::listen,
    shut_down: Core::shut_down,
};

/// The owner of a core, shared by the handles. When the last handle is dropped, so is this, and the client ends.
#[derive(Debug)]
pub(crate) struct Client {
    core: Arc<Core>,
}

impl Client {
    pub(crate) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        listen: bool,
        hooks: Hooks,
        record: bool,
    ) -> Result<Arc<Self>, Error> {
        let core = Core::new(processor, clock, listen, hooks, record, ROUNDS)?;
        at_exit::note_use(&core);
        Ok(Arc::new(Self { core }))
    }
}

impl Deref for Client {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.core.end();
    }
}

#[cfg(all(test, dlock_shuttle))]
impl Client {
    /// Lets the model check that the core is dropped with its handles.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<Core> {
        Arc::downgrade(&self.core)
    }
}
