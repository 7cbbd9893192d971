//! One client at work: a store, a clock, an identity, the keys in use, and the threads `dlock-lease`, `dlock-retry` and `dlock-listen`. Two more
//! threads start if one of several servers keeps calls waiting. `dlock-alarm` wakes tasks, and `dlock-events` calls the functions of the program.
//!
//! A client lives as long as a generator or a lock that belongs to it. After it is closed, its threads and its store go on until the last thread has
//! left `lock` and the last hold has ended: see [`closing`].
//!
//! | file | contents, from the top down |
//! |---|---|
//! | `mod.rs` | the client: owns the parts |
//! | `acquire.rs`, `unlock.rs` | a thread in `lock()`, and one in `unlock()`: each is a value with all its methods; several unlocks at once |
//! | `acquire/park.rs`, `acquire/task.rs` | what a thread that waits is woken by; how a task waits |
//! | `lease_thread.rs`, `retry_thread.rs`, `listen_thread.rs` | the work of the threads `dlock-lease`, `dlock-retry`, `dlock-listen` |
//! | `closing.rs` | how a client is closed |
//! | `give_back.rs` | how a tenure goes back to the store |
//! | `turn_end.rs` | how a turn ends whose request was answered |
//! | `steps.rs` | what a caller that asks the store does after each answer, as a table |
//! | `question.rs` | one request of a turn, and what its reply means |
//! | `releases.rs` | releases, also posted ones; what the end of the main thread waits for |
//! | `twin.rs` | how a client notices that a copy of it has the same identity |
//! | `loss.rs` | how a loss is noticed, and what a holder can query |
//! | `turn.rs` | the turn to ask |
//! | `parts.rs` | the parts of a client, which all of the above receive |
//! | `server.rs` | a part: makes all keys due when another server than before answers |
//! | `renewals.rs`, `retries.rs`, `cleanup.rs` | parts: what `dlock-lease` and `dlock-retry` have to do, and when; the clean-up list |
//! | `delayed.rs` | a release that is delayed: what the key contains, and what ends it |
//! | `subscription.rs` | a part: whether the client hears of grants |
//! | `orders.rs`, `alarms.rs` | for tasks: what they leave to `dlock-retry`; a part that knows when they are to be woken |
//! | `slow_nodes.rs` | a part with two more threads, for keys whose servers keep others waiting |
//! | `describe.rs`, `record.rs` | two parts for people: who holds and who waits; what the client says of itself |
//! | `core.rs` | store, clock, identity and keys, which every part knows |
//! | `activity.rs`, `events.rs` | in the core: the users of the store; the events of the client, and their receivers |
//! | `wait_limit.rs` | the limit of a wait |
//! | `worker.rs` | a thread that works when something is due; it knows nothing of locks |

pub(crate) mod acquire;
pub(crate) mod activity;
#[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only tasks use all of it"))]
mod alarms;
mod cleanup;
mod closing;
mod core;
mod delayed;
mod describe;
mod events;
mod give_back;
mod lease_thread;
mod listen_thread;
pub(crate) mod loss;
#[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only tasks use all of it"))]
pub(crate) mod orders;
pub(crate) mod parts;
mod question;
mod record;
mod releases;
mod renewals;
mod retries;
mod retry_thread;
mod server;
mod slow_nodes;
mod steps;
mod subscription;
mod turn;
mod turn_end;
mod twin;
pub(crate) mod unlock;
pub(crate) mod wait_limit;
mod worker;

pub(crate) use self::events::Function;

use self::closing::Inside;
use self::core::Core;
use self::events::Hooks;
use self::orders::Order;
use self::parts::{Parts, Rounds};
use crate::clock::Clock;
#[cfg(feature = "async")]
use crate::clock::Moment;
use crate::description::Description;
use crate::error::Error;
use crate::port::LockProcessor;
use crate::state::hold::Reentry;
use crate::state::key::Key;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "async")]
use std::task::{Poll, Waker};

/// The settings of a client that the builder passes.
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

/// The work of a client's threads.
const ROUNDS: Rounds = Rounds {
    lease: lease_thread::round,
    lease_on_slow_nodes: lease_thread::round_on_slow_nodes,
    retry: retry_thread::round,
    retry_on_slow_nodes: retry_thread::round_on_slow_nodes,
    alarm: |parts, now| parts.alarms.ring(now),
    listen: listen_thread::listen,
};

/// The owner of the parts, shared by the handles. When the last handle is dropped, so is this, and the client ends.
pub(crate) struct Client {
    pub(crate) parts: Arc<Parts>,
}

/// Shows its identity: a program that prints a generator wants to know which one it is.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.core().id.current().as_str()).finish()
    }
}

impl Client {
    pub(crate) fn new(
        processor: Box<dyn LockProcessor>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Arc<Self>, Error> {
        let core = Core::new(processor, clock, options.hooks, options.listens)?;
        let parts = Parts::new(core, options.has_record, &ROUNDS);
        releases::note_use(&parts);
        Ok(Arc::new(Self { parts }))
    }

    /// Returns the store, the clock, the identity and the keys.
    pub(crate) fn core(&self) -> &Core {
        &self.parts.core
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core().activity.is_closed()
    }

    /// Returns the reason why the calling thread may not enter again, although it has the hold of the key.
    #[cold]
    pub(crate) fn why_not_again(&self, key: &Key, refused: Reentry) -> Error {
        let key_name = || key.name.to_string();
        match refused {
            Reentry::Refused => Error::AlreadyHeld { key: key_name() },
            Reentry::TooMany => Error::TooManyHolds { key: key_name() },
            Reentry::Lost | Reentry::Entered | Reentry::NotHeld => loss::error(&self.parts, key),
        }
    }

    /// Describes a key.
    pub(crate) fn describe(&self, name: &Arc<str>) -> Result<Description, Error> {
        let _inside = Inside::of(&self.parts)?;
        self.parts.describe.describe(self.core(), &self.parts.subscription, name)
    }

    /// Polls a pause that has this number, and ends at a moment, or when the client is closed.
    #[cfg(feature = "async")]
    pub(crate) fn pause(&self, number: u64, until: Moment, waker: &Waker) -> Poll<Result<(), Error>> {
        let core = self.core();
        core.process.check()?;
        if core.clock.now() >= until {
            return Poll::Ready(Ok(()));
        }
        // The closing thread rings all alarms after the closing.
        if let Err(error) = self.parts.alarms.set(number, until, waker) {
            return Poll::Ready(Err(error));
        }
        if core.activity.is_closed() { Poll::Ready(Err(Error::ShutDown)) } else { Poll::Pending }
    }

    #[cfg(feature = "async")]
    pub(crate) fn end_pause(&self, number: u64) {
        // A forked child waits for no mutex of its parent, and its copy of the alarm rings for nobody.
        if !self.core().process.is_forked() {
            self.parts.alarms.remove(number);
        }
    }

    /// Lets the retry thread drop the client.
    pub(crate) fn drop_later(self) {
        let parts = Arc::clone(&self.parts);
        // A shutdown that has begun takes the order, too. Waiting for it here would block a task.
        if !matches!(parts.retries.thread.start(), Err(Error::Backend { .. })) {
            parts.order(Order::Drop(Box::new(self)));
        }
    }

    /// Turns new and waiting threads away, and waits until they have left. Holds continue.
    pub(crate) fn close(&self) {
        closing::close(&self.parts);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        closing::end(&self.parts);
    }
}
