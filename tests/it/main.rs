//! The crate's integration tests, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod acl;
mod bad_input;
mod conformance;
mod connecting;
mod counts;
mod dropping;
mod endurance;
mod forking;
mod hand_over;
mod jvm;
mod lock;
mod network;
mod processes;
mod redis_store;
mod security;
mod support;
mod tls;
mod tokens;
mod wire;
