//! The crate's integration tests, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod acks;
mod acl;
mod bad_input;
mod breaking;
mod causes;
mod cluster;
mod conformance;
mod connecting;
mod counts;
mod denied;
mod describe;
mod dropping;
mod ending;
mod endurance;
mod events;
mod extremes;
mod forking;
mod hand_over;
mod hidden;
mod jvm;
mod lock;
mod lock_delay;
mod log_panics;
mod manual_clock;
mod network;
mod other_stores;
mod outages;
mod processes;
mod quiet;
mod redis_store;
mod security;
mod send_sync;
mod sentinel;
mod server_change;
mod settings;
mod support;
mod support_cluster;
mod tasks;
mod tidy;
mod tls;
mod tokens;
#[cfg(all(feature = "consul", feature = "etcd"))]
mod which_store;
mod wire;
