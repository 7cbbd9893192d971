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
//! | `acquire.rs`, `unlock.rs` | a thread in `lock()`, and one in `unlock()`: each is a value with all its methods |
//! | `acquire/steps.rs` | what a thread that asks the store does after each answer, as a table |
//! | `turn.rs` | the turn to ask; one request and what its reply means |
//! | `retry.rs`, `renew.rs`, `hear.rs` | the work of the three threads |
//! | `loss.rs` | how a loss is noticed, and what a holder can query |
//! | `twin.rs` | a client that finds that another one has its identity |
//! | `core.rs` | the parts of a client, together; how a hold begins and ends |
//! | `renewals.rs`, `retries.rs`, `subscription.rs` | a part each, with its thread: `dlock-lease`, `dlock-retry`, `dlock-listen` |
//! | `releases.rs`, `at_exit.rs` | a part: releases, also those sent without waiting for the reply; what the end of the main thread waits for |
//! | `slow_nodes.rs` | a part with two more threads, for keys whose servers keep others waiting |
//! | `describe.rs`, `record.rs` | two parts for people: who holds and who waits; what the client says of itself |
//! | `context.rs`, `events/` | what every part is given: store, clock, identity, keys, and who is told what happens |
//! | `wait_limit.rs`, `cleanup.rs`, `activity.rs` | the parts of parts |
//! | `listener.rs`, `worker.rs`, `schedule.rs` | threads and times; these do not know locks |

pub(crate) mod acquire;
pub(crate) mod activity;
mod at_exit;
mod cleanup;
mod closing;
mod context;
pub(crate) mod core;
mod describe;
mod events;
mod hear;
mod listener;
mod loss;
mod record;
mod releases;
mod renew;
mod renewals;
mod retries;
mod retry;
mod schedule;
mod slow_nodes;
mod subscription;
mod turn;
mod twin;
pub(crate) mod unlock;
pub(crate) mod wait_limit;
mod worker;

pub(crate) use self::events::Function;

use self::activity::Inside;
use self::core::{Core, Rounds};
use self::events::Hooks;
use crate::clock::Clock;
use crate::description::Description;
use crate::error::Error;
use crate::port::LockProcessor;
use crate::state::key::Key;
use std::ops::Deref;
use std::sync::Arc;

/// The work of a client's threads, and the function that shuts it down.
const ROUNDS: Rounds = Rounds {
    retry: retry::round,
    renew: renew::round,
    retry_on_slow_nodes: retry::round_on_slow_nodes,
    renew_on_slow_nodes: renew::round_on_slow_nodes,
    listen: hear::listen,
    shut_down: closing::shut_down,
};

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
        let core = Core::new(processor, clock, options, ROUNDS)?;
        at_exit::note_use(&core);
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

    /// Describes a key.
    pub(crate) fn describe(&self, name: &Arc<str>) -> Result<Description, Error> {
        self.process.check()?;
        let _inside = Inside::of(&self.activity)?;
        self.core.describe.describe(name, &self.subscription, || !self.is_closed())
    }

    /// Returns how many events were dropped because a function was too slow for them.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.events.dropped()
    }

    /// Turns new and waiting threads away, and waits until they have left. Holds continue.
    pub(crate) fn close(&self) {
        closing::close(self);
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
        closing::end(self);
    }
}

#[cfg(all(test, dlock_shuttle))]
impl Client {
    /// Lets the model check that the core is dropped with its handles.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<Core> {
        Arc::downgrade(&self.core)
    }
}
