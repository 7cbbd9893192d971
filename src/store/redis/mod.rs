//! The store on a Redis server. It implements the [`LockProcessor`](crate::LockProcessor) contract, and knows nothing else of locks.
//!
//! ```text
//!   builder ─▶ processor ─▶ plain, script        requests in, outcomes out; requests as calls, replies as outcomes
//!                  │
//!                  ▼
//!             topology ─▶ node, or cluster ─▶ node  which server a call goes to
//!                                │
//!                                ▼
//!                            transport              calls and their replies, on a few connections
//!                                │
//!                                ▼
//!                               net                 one connection: bytes out, values in
//! ```
//!
//! No room names one above it. The builder of the store is in `processor/builder.rs`. A [`Topology`](topology::Topology) is one server or a Cluster,
//! and `processor.rs` has the answers of both side by side.
//!
//! | room | holds |
//! |---|---|
//! | `net/` | a URL, sockets, TLS, the handshake, RESP, the classes of errors |
//! | `sentinel/` | who says where the master is, when Sentinels watch it |
//! | `script/` | the scripts, requests as calls of them, replies as outcomes, messages, the names of keys |
//! | `transport/` | the calls of many threads on a few connections, each call with a deadline |
//! | `plain/` | the first attempt at a key that is likely to be free, without a script; when its fence number may be trusted |
//! | `node.rs` | one server: calls of scripts on its connections |
//! | `cluster/` | the nodes of a Cluster, which of them owns each slot, and a call from one to another |
//! | `processor.rs`, `processor/`, `inbox.rs` | the store: requests, releases that nobody waits for, its settings, what it tells people, its messages |
//! | `topology.rs` | one server, or a Cluster; what is known of one server |
//! | `processor/server.rs` | the servers behind the store, for a program that examines them |
//!
//! The crate of the same name is always written `::redis` here.

mod cluster;
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
mod timing;
mod topology;
mod transport;

pub use processor::{RedisBuilder, RedisLockProcessor, Server};
pub use transport::Polling;
