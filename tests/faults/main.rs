//! Faults: real servers, real processes, a bad network; histories, and a checker that decides whether the lock kept
//! what it promises. `cargo test --test faults -- --test-threads 8`: the scenarios mostly wait.

#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
mod each_store;

mod admin;
mod beside;
mod cast;
mod checker;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/consensus/mod.rs"]
mod consensus;
mod consensus_servers;
mod elsewhere;
mod failovers;
mod fenced;
mod hearing;
mod history;
mod long;
#[cfg(dlock_mutants)]
mod mutants;
mod observer;
mod peers;
mod pulse;
mod refused;
mod report;
mod scenarios;
mod scene;
mod servers;
mod setup;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod taken;
mod toxics;
mod watch;
mod ways;
mod work;
mod worker;
