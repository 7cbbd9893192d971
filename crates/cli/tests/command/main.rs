//! The command `dlock`, as a person uses it: real servers, processes, signals and terminals.
//! `cargo test -p dlock-cli --test command -- --test-threads 4`.

#![allow(clippy::unwrap_used, missing_docs)]

mod asking;
mod cost;
mod daemons;
mod doctor;
mod ends;
mod examining;
mod exporter;
mod json;
mod kept;
mod kit;
mod lost;
mod others;
mod pages;
mod places;
mod run_book;
mod settings;
mod signals;
mod statuses;
mod streams;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod terminal;
