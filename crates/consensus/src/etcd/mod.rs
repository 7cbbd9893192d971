//! The store on etcd.
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the public type and its builder: [`EtcdLockProcessor`] |
//! | `kv.rs` | the requests of the protocol |
//! | `client.rs` | the requests, as JSON over HTTP |
//! | `cluster.rs` | which cluster the answers come from |
//! | `encode.rs` | transactions and entries as JSON |
//! | `watch.rs` | a stream of changes |
//! | `classify.rs` | what an error says of a request |

mod classify;
mod client;
mod cluster;
mod encode;
mod kv;
mod processor;
mod watch;

pub use processor::{EtcdBuilder, EtcdLockProcessor};
