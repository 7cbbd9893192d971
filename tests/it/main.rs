//! The crate's integration tests, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod acks;
mod acl;
mod bad_input;
mod causes;
mod conformance;
mod connecting;
mod counts;
mod denied;
mod dropping;
mod ending;
mod endurance;
mod extremes;
mod forking;
mod hand_over;
mod jvm;
mod lock;
mod log_panics;
mod manual_clock;
mod network;
mod other_stores;
mod outages;
mod processes;
mod quiet;
mod redis_store;
mod security;
mod sentinel;
mod server_change;
mod settings;
mod support;
mod tasks;
mod tidy;
mod tls;
mod tokens;
mod wire;
