//! One client at work: a store, a clock, an identity, the keys in use, and up to three threads. If one of several servers keeps the others
//! waiting, there are two more. `dlock-events` calls the functions of the program.
//!
//! A client lives as long as a generator or a lock that belongs to it. After it is closed, its threads and its store go on until the last
//! thread has left `lock` and the last hold has ended: see [`activity`].
//!
//! | file | contents, from the top down |
//! |---|---|
//! | `mod.rs` | the client: owns the core |
//! | `acquire.rs`, `unlock.rs` | a thread in `lock()`, and one in `unlock()`: each is a value with all its methods |
//! | `acquire/steps.rs` | what a thread that asks the store does after each answer, as a table |
//! | `turn.rs` | the turn to ask; one request and what its reply means |
//! | `loss.rs` | how a loss is noticed, and what a holder can query |
//! | `twin.rs` | how a client notices that a copy of it has the same identity |
//! | `core.rs` | what every operation receives: store, clock, identity, keys and the parts; how a hold begins and ends |
//! | `renewals.rs`, `retries.rs`, `subscription.rs` | three parts, each with its thread and the work of that thread: `dlock-lease`, `dlock-retry`, `dlock-listen` |
//! | `releases.rs` | a part: releases, also posted ones; what the end of the main thread waits for |
//! | `slow_nodes.rs` | a part with two more threads, for keys whose servers keep others waiting |
//! | `server.rs` | a part: whether another server than before answers |
//! | `activity.rs` | a part: the users of the store, and how a client is closed |
//! | `describe.rs`, `record.rs` | two parts for people: who holds and who waits; what the client says of itself |
//! | `events/` | the events of the client, and their receivers |
//! | `wait_limit.rs`, `cleanup.rs` | the limit of a wait; the clean-up list of the retry thread |
//! | `worker.rs` | a thread that works when something is due; it knows nothing of locks |

pub(crate) mod acquire;
pub(crate) mod activity;
mod cleanup;
pub(crate) mod core;
mod describe;
mod events;
mod loss;
mod record;
mod releases;
mod renewals;
mod retries;
mod server;
mod slow_nodes;
mod subscription;
mod turn;
mod twin;
pub(crate) mod unlock;
pub(crate) mod wait_limit;
mod worker;

pub(crate) use self::events::Function;

use self::activity::Inside;
use self::core::Core;
use self::events::Hooks;
use crate::clock::Clock;
use crate::description::Description;
use crate::error::Error;
use crate::port::LockProcessor;
use crate::state::hold::Reentry;
use crate::state::key::Key;
use std::ops::Deref;
use std::sync::Arc;

/// What a builder says of a client.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) hooks: Hooks,
    /// Whether the client receives messages.
    pub(crate) listens: bool,
    /// Whether it says in the store what it is.
    pub(crate) has_record: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { hooks: Hooks::default(), listens: true, has_record: true }
    }
}

/// The owner of a core, shared by the handles. When the last handle is dropped, so is this, and the client ends.
#[derive(Debug)]
pub(crate) struct Client {
    core: Arc<Core>,
}

impl Client {
    pub(crate) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Arc<Self>, Error> {
        let core = Core::new(processor, clock, options)?;
        releases::note_use(&core);
        Ok(Arc::new(Self { core }))
    }

    /// Returns whether the hold with this token is certainly ours.
    pub(crate) fn is_valid(&self, key: &Arc<Key>, token: u64) -> bool {
        loss::is_valid(self, key, token)
    }

    /// Returns why the hold with this token is not valid.
    pub(crate) fn why_invalid(&self, key: &Key, token: u64) -> Error {
        loss::why_invalid(self, key, token)
    }

    /// Returns the reason why the calling thread may not enter again, although it has the hold of the key.
    #[cold]
    pub(crate) fn why_not_again(&self, key: &Key, refused: Reentry) -> Error {
        let key_name = || key.name.to_string();
        match refused {
            Reentry::Refused => Error::AlreadyHeld { key: key_name() },
            Reentry::TooMany => Error::TooManyHolds { key: key_name() },
            Reentry::Lost | Reentry::Entered | Reentry::NotHeld => loss::error(self, key),
        }
    }

    /// Describes a key.
    pub(crate) fn describe(&self, name: &Arc<str>) -> Result<Description, Error> {
        self.process.check()?;
        let _inside = Inside::of(&self.activity)?;
        self.core.describe.describe(self, name)
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.events.dropped()
    }

    /// Turns new and waiting threads away, and waits until they have left. Holds continue.
    pub(crate) fn close(&self) {
        activity::close(self);
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
        activity::end(self);
    }
}

#[cfg(all(test, dlock_shuttle))]
impl Client {
    /// Lets the model check that the core is dropped with its handles.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<Core> {
        Arc::downgrade(&self.core)
    }
}
