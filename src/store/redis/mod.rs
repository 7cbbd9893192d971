//! The store on a Redis server. It implements the [`LockProcessor`](crate::LockProcessor) contract, and knows nothing else of locks.
//!
//! ```text
//!   builder ─▶ processor ─▶ plain, inbox        requests in, outcomes out
//!                  │          │     │
//!                  ▼          ▼     ▼
//!              transport    script             calls and their replies; requests as calls, replies as outcomes
//!                  │          │
//!                  ▼          ▼
//!                     net                      one connection: bytes out, values in
//! ```
//!
//! No room names one above it. A plain attempt is given the way to ask a script; `RedisLockProcessor::builder` is a method
//! in `builder.rs`.
//!
//! | room | holds |
//! |---|---|
//! | `net/` | a URL, sockets, TLS, the handshake, RESP, the classes of errors |
//! | `sentinel/` | who says where the master is, when Sentinels watch it |
//! | `script/` | the scripts, requests as calls of them, replies as outcomes, messages, the names of keys |
//! | `transport/` | the calls of many threads on a few connections, each call with a deadline |
//! | `plain/` | the first attempt at a key that is likely to be free, without a script; when its fence number may be trusted |
//! | `processor.rs`, `capabilities.rs`, `builder.rs`, `inbox.rs` | the store: requests, the optional parts, its settings, its messages |
//! | `server.rs` | the servers behind the store, for a program that examines them |
//!
//! The crate of the same name is always written `::redis` here.

mod builder;
mod capabilities;
mod cluster;
mod directory;
#[cfg(any(test, fuzzing))]
#[path = "../../../tests/white_box/store/redis/fuzz.rs"]
pub(crate) mod fuzz;
mod inbox;
mod net;
mod node;
mod plain;
mod processor;
mod script;
mod sentinel;
mod server;
mod transport;
mod ways;

pub use builder::RedisBuilder;
pub use processor::RedisLockProcessor;
pub use server::Server;
