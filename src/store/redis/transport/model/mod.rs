//! The schedules of the transport, explored: its own code over a network that is made up.
//!
//! See [`crate::check::model`] for how schedules are explored. Here each use of a mutex, a condition variable or an atomic by the transport is
//! a step, and so is what the network does.
//!
//! | part | is | in |
//! |---|---|---|
//! | the callers | two to four threads with a short script each: call, post, collect, close | `scenarios`, `party` |
//! | the network | bytes each way. It may take only part of a write, bring replies cut anywhere, refuse a connection or let one hang, let a connect take longer than a caller has, and break one at any point; the server executes what it was sent, or part of it, also on a connection that is cut | `network` |
//! | time | virtual, as ever: every limit and time-out ends when the scheduler likes | |
//!
//! # What must hold
//!
//! 1. Every call ends, once, with its own replies in their order, or with a failure after some of them. Nobody sleeps for ever.
//! 2. Every callback runs exactly once, and without a lock; when `collect` says that none is missing, none is.
//! 3. No command arrives twice. One that failed with "not executed", or for the closing, never arrives.
//! 4. Of two calls of a key of which one was sent, or given up, before the other, that one arrives first, unless its connection broke.
//! 5. Without faults nobody's call fails but of those whose time was short.
//!    Each connection is opened once then, however short the limits of the callers are.
//! 6. In the end no call is under way, for the lanes and for the routes.
//!
//! What a callback may do, and what the sockets themselves do, is not modelled.

mod book;
mod mutants;
mod network;
mod party;
mod scenarios;
