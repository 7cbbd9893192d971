//! Explores the schedules of the transport: its own code runs over a simulated network.
//!
//! [`crate::check::model`] says how schedules are explored. Here each use of a mutex, a condition variable or an atomic by the transport is
//! a step, and so is each action of the network.
//!
//! | part | is | in |
//! |---|---|---|
//! | the callers | two to four threads with a short script each: call, post, collect, close | `scenarios`, `execution` |
//! | the network | bytes in each direction. It may take only part of a write, split replies anywhere, refuse a connection or let one hang, take longer for a connect than a caller has, and break a connection at any point; the server executes what it was sent, or part of it, also on a connection that is cut | `network` |
//! | time | virtual, as in all models: every limit and time-out ends when the scheduler decides | |
//!
//! # What must hold
//!
//! 1. Every call ends, once, with its own replies in their order, or with a failure after some of them. No caller sleeps forever.
//! 2. Every callback runs exactly once, and no lock is held while it runs. When `collect` reports that no answer is missing, none is.
//! 3. No command arrives twice. A command that failed with "not executed", or because of the closing, never arrives.
//! 4. If one of two calls for a key was sent or given up before the other began, it arrives first, unless its connection broke.
//! 5. Without faults no call fails except those whose time was short. Each connection is then opened only once, however short the
//!    limits of the callers are.
//! 6. In the end neither the muxes nor the routes count a call as in flight.
//!
//! The model does not cover what a callback may do, nor what the sockets themselves do.

mod book;
mod execution;
mod mutants;
mod network;
mod scenarios;
