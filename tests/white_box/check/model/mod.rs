//! Explores the schedules of a client. It runs the crate's own code, not a copy, under a scheduler that chooses which thread runs next.
//!
//! The model of `tests/model` checks the protocol between processes, and has no threads. This one checks what happens inside a client:
//! which thread asks, waits and is woken, and what a late reply, a message and the end of a lease do to them.
//!
//! # What is explored
//!
//! [`shuttle`] runs the threads of an execution one at a time. At each use of a mutex, a condition variable, an atomic or a thread it
//! chooses the thread that continues. The whole middle layer takes these types from [`sync`](crate::sync): locks, guards, keys, turns,
//! passing on, lingering, the clean-up list, closing, and the three threads of a client with their real loops. Around it there are
//!
//! | part | is | in |
//! |---|---|---|
//! | the program | a few threads for each client, each with a short script: lock, try, give up, cancel, close, break a hold | `visitor`, `execution`, `scenarios` |
//! | the store | the embedded one; an operation is one step | `store`, `network` |
//! | the network | between request and operation, and between operation and reply, all other threads may act and time may pass. At most two commands of an execution are refused, lost before or after their execution, or executed after their caller has left. In half of the executions the store asks replicas: then they may also be executed and not acknowledged, and a grant that was heard is extended before it counts | `network` |
//! | messages | delivered in order, each as late as the scheduler likes; at most one is lost, and at most one subscription is broken or refused, which loses its messages. In one scenario a grant arrives only when its hold is being released | `inbox` |
//! | time | virtual. It moves to the end of the next sleep at some speed, from "only when all sleep" to "at every other step", or leaps by half a lease to two leases, which makes every thread late as if the process had been stopped; in three scenarios of its own it is moved once, by hand | `time`, `by_hand` |
//!
//! A thread is never woken without a reason, and a thread that sleeps for 30 s, the longest time that the crate ever sleeps, sleeps for
//! ever. So a lost wake-up is not a delay but a deadlock, which shuttle reports.
//!
//! # What must hold
//!
//! In the words of README and ARCHITECTURE.md: G1, G6, G7, G9, S8, S9, S11, S23 to S26, L1 to L4 and L6. They are looked at so:
//!
//! * *G1, G6*: at most one guard of all clients is valid at a time (`journal`). A guard that was invalid is never valid again. Unlocking
//!   without an error means that the guard was valid until then. A loss is reported to the threads that watch, and nothing else is.
//!   Keys are not deleted here, so a lease is lost only by its deadline, and never because another locker has the key. A hold that was
//!   broken is excused from then on, until it is told; all others are not.
//! * *G7*: tokens rise in the order of the holds, and no token is issued twice. *G9*: reentry counts, and is the same hold.
//! * *L1, L3*: a thread that is forgotten is a deadlock. No client waits for a grant that it has already heard of.
//! * *S8, S9, S11*: the timer looks at all keys at each of its steps, and each thread after each call.
//! * *S24 to S26, L2, L6* are looked at in the end: each client is closed by its program, or here, or it ends because one of its own threads drops the
//!   last handle. Nothing is left then, without waiting for a lease to end. (Exceptions: a command executed after its client had gone, or
//!   a lease after it was sent, and what a client that is closed amid faults leaves.)
//!
//! # Bounds
//!
//! One key, and in some scenarios a second one that threads take together with it, or tasks beside it; one or two clients with one to three
//! threads each, and up to three calls a thread; all leases have the same length.
//! Schedules are drawn at random and by random priorities (PCT), 2000 of each kind for each scenario, new ones in each run:
//! `DLOCK_MODEL_ITERATIONS` sets how many. An execution has some hundred steps, far too many for all orders; only the end of a closed
//! client is explored completely (`closing`). So this finds mistakes, and [`mutants`] shows which ones it would find, but it proves
//! nothing.
//!
//! A failure prints its schedule. `DLOCK_MODEL_SCHEDULE={schedule}` plays it again (the execution is then the same: `replays` tests that),
//! and `RUST_LOG=trace` logs what happens.
//!
//! # What is not modelled
//!
//! * Weak memory: all atomics are sequentially consistent here.
//! * `redis/`: its transport has tests of its own.
//! * Leases of different lengths, gaps for pollers, tokens that run out, the JVM's lock and unlock, guards that other threads look at.
//! * Deleted and overwritten keys, and refusals that do not end.
//! * A panic: it ends the execution.

pub(crate) mod explorer;
pub(crate) mod mistakes;
pub(crate) mod mutants;
pub(crate) mod shims;

mod by_hand;
mod closing;
mod execution;
mod inbox;
pub(crate) mod journal;
mod network;
#[path = "../../../it/support/owned.rs"]
mod owned;
pub(crate) mod scenarios;
mod store;
pub(crate) mod time;
mod visitor;
mod world;

use crate::port;
