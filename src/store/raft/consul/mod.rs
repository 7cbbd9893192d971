//! The store on Consul.
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | what a program makes: [`ConsulLockProcessor`] |
//! | `kv.rs` | what the protocol needs |
//! | `client.rs` | the requests, as JSON over HTTP |
//! | `encode.rs` | transactions and entries as JSON |
//! | `query.rs` | blocking queries for changes |
//! | `classify.rs` | what an error says of a request |

mod classify;
mod client;
mod encode;
mod kv;
mod processor;
mod query;

pub use processor::{ConsulBuilder, ConsulLockProcessor};
