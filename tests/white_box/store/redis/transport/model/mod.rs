//! Explores the schedules of the transport: its own code runs over a simulated network.
//!
//! [`crate::check::model`] says how schedules are explored. Here each use of a mutex, a condition variable or an atomic by the transport is
//! a step, and so is each action of the network.
//!
//! | part | is | in |
//! |---|---|---|
//! | the callers | two to four threads with a short script each: call, post, collect, close | `scenarios`, `execution` |
//! | the network | bytes in each direction. It may take only part of a write, split replies anywhere, refuse a connection or let one hang, take longer for a connect than a caller has, and break a connection at any point; the server executes what it was sent, or part of it, also on a connection that is cut | `network`, `ends` |
//! | time | virtual, as in all models: every limit and time-out ends when the scheduler decides | |
//!
//! # What must hold
//!
//! S15 to S18 and L5 of ARCHITECTURE.md. Besides:
//!
//! * When `collect` reports that no answer is missing, none is.
//! * A command that failed because of the closing never arrives.
//! * Without faults no call fails except those whose time was short. Each connection is then opened only once, however short the
//!   limits of the callers are.
//! * On each connection one confirmation is under way at a time, and no command is written behind it.
//! * In the end neither the muxes nor the routes count a call as in flight.
//!
//! The model does not cover what a callback may do, nor what the sockets themselves do.

mod book;
mod ends;
mod execution;
mod mutants;
mod network;
mod scenarios;
