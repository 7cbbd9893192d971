//! The command `dlock`, as a person uses it: real servers, processes, signals and terminals.
//! `cargo test -p dlock-cli --test command -- --test-threads 4`.

#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
#[path = "../../../../tests/faults/each_store.rs"]
mod each;

mod asking;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/consensus/mod.rs"]
mod consensus;
mod consensus_stores;
mod cost;
mod daemons;
mod doctor;
mod ends;
mod examining;
mod exporter;
mod hangs;
mod json;
mod kept;
mod kit;
mod lost;
mod others;
mod pages;
mod places;
mod recipes;
mod run_book;
mod settings;
mod signals;
#[path = "../../../../tests/it/support/stalls.rs"]
mod stalls;
mod statuses;
mod streams;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod terminal;
