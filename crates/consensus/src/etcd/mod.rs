//! The store on etcd.
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the public type and its builder: [`EtcdLockProcessor`] |
//! | `kv.rs` | the requests of the protocol |
//! | `client.rs` | the requests, as JSON over HTTP |
//! | `encode.rs` | transactions and entries as JSON |
//! | `watch.rs` | a stream of changes |
//! | `classify.rs` | what an error says of a request |

mod classify;
mod client;
mod encode;
mod kv;
mod processor;
mod watch;

pub use processor::{EtcdBuilder, EtcdLockProcessor};
