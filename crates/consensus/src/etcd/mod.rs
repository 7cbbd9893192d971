//! The store on etcd.
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | what a program makes: [`EtcdLockProcessor`] |
//! | `kv.rs` | what the protocol needs |
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
