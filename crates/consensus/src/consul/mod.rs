//! The store on Consul.
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the public type and its builder: [`ConsulLockProcessor`] |
//! | `kv.rs` | the requests of the protocol |
//! | `node.rs` | sessions that outlive agents and servers |
//! | `scope.rs` | datacenter, namespace, partition |
//! | `sweep.rs` | deletes the inboxes of clients that have died |
//! | `client.rs` | the requests, as JSON over HTTP |
//! | `encode.rs` | transactions and entries as JSON |
//! | `query.rs` | blocking queries for changes |
//! | `classify.rs` | what an error says of a request |

mod classify;
mod client;
mod encode;
mod kv;
mod node;
mod processor;
mod query;
mod scope;
mod sweep;

pub use processor::{ConsulBuilder, ConsulLockProcessor};
