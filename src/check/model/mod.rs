//! The schedules of a client, explored: the crate's own code, not a copy, under a scheduler that chooses who runs next.
//!
//! The model of `tests/model` tests the protocol between processes, and knows no threads. This one tests what happens inside a
//! client: who asks, who waits, who is woken, and what a late answer, a message and the end of a lease do to them.
//!
//! # What is explored
//!
//! [`shuttle`] runs the threads of an execution one at a time, and at each use of a mutex, a condition variable, an atomic or a thread
//! it chooses who goes on. The middle layer takes these from [`sync`](crate::sync), whole: locks, guards, keys, turns, the
//! passing on, the lingering, the clean-up list, closing, and the three threads of a client with their
//! real loops. Beside them there are
//!
//! | part | is | in |
//! |---|---|---|
//! | the program | a few threads a client, each with a short script: lock, try, give up, cancel, close | `visitor`, `scenarios` |
//! | the store | the embedded one; an operation is one step | `store` |
//! | the network | between question and operation, and between operation and answer, all others may act and time may pass. At most two commands of an execution are refused, lost before or after they were executed, or executed when their asker has gone | `store`, `command` |
//! | messages | heard in order, each as late as the scheduler likes; at most one is lost, and one subscription broken or refused, with what was in it | `inbox` |
//! | time | virtual. It moves to the end of the next sleep at some speed, from "only when all sleep" to "at every other step", or leaps by half a lease to two, which leaves everybody behind as if the process had been stopped; in three scenarios of its own it is moved once, by hand | `time`, `by_hand` |
//!
//! A thread is never woken without a reason, and whoever sleeps for 30 s, the longest that the crate ever sleeps, sleeps for good. So a lost
//! wake-up is a deadlock, which shuttle reports, and not a delay.
//!
//! # What must hold
//!
//! 1. At most one guard of all clients is valid at a time (`journal`). What was invalid is never valid again. Unlocking without an
//!    error means that the guard was valid until then; a loss is told to whoever watches, and nothing else is.
//! 2. Tokens rise in the order of the holds, and none comes twice.
//! 3. No thread is forgotten: every call returns. Who gives up was cancelled, or its time was over.
//! 4. Keys are not deleted here. So a lease can only be lost by its deadline, and never by "somebody else has the key".
//! 5. A client that has heard that others wait passes the lock on among its threads as often as it may and no more, and takes no
//!    lingering tenure up again.
//! 6. At any moment: the invariants of [`state`](crate::state::machine), as far as they can be seen; and no client waits for what it has heard it
//!    was given.
//! 7. In the end all keys are idle with an empty queue, the clean-up list comes to its end, a closed client's threads have ended and the client
//!    is gone with its last handle; and nothing is left in the store, without waiting for a lease to end (but for a command that came
//!    after its client had gone, or a lease after its sending, and for what a client closes on in the middle of faults).
//! 8. Reentry counts, and is the same hold.
//!
//! # Bounds
//!
//! One key; one or two clients with one to three threads each, and up to three calls a thread; all leases alike. Schedules are
//! drawn by chance and by random priorities (PCT), 2000 by each for each scenario, fresh ones in each run:
//! `DLOCK_MODEL_ITERATIONS` sets how many. An execution has some hundred steps, far too many for all orders; only who ends a closed
//! client is explored completely (`closing`). So this finds mistakes, and shows by [`mutants`] which it would find, but proves nothing.
//!
//! A failure is told with its seed. `SHUTTLE_RANDOM_SEED={seed}` repeats it (the schedule is the same: `replays` tests that); one that
//! was found by priorities shows the execution's end only. `RUST_LOG=trace` tells what happens.
//!
//! # What is not modelled
//!
//! * Weak memory: all atomics are sequentially consistent here.
//! * `redis/`: its transport is another matter, with its own tests.
//! * Several keys in one batch, leases of different lengths, gaps for pollers, tokens that run out, the JVM's lock and unlock, guards
//!   that other threads look at.
//! * Deleted and overwritten keys, refusals that do not pass.
//! * A panic: it ends the execution.

pub(crate) mod mutants;
pub(crate) mod twins;

mod by_hand;
mod closing;
mod command;
mod inbox;
mod journal;
pub(crate) mod scenarios;
mod store;
pub(crate) mod time;
mod visitor;
mod world;
