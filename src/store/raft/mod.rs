//! Stores that vote: a majority of servers agrees on every write, so a lock survives the death of a server.
//!
//! | file | holds |
//! |---|---|
//! | `processor.rs` | the port: requests in, outcomes out |
//! | `acquire.rs`, `release.rs` | the operations of a lock |
//! | `store.rs` | what several of them do: give a key on, end a session |
//! | `sessions.rs` | the sessions of a process: each tenure has one |
//! | `sight.rs` | who holds a key and who waits, at one index |
//! | `inbox.rs`, `message.rs` | the inbox of a client, and what it is told |
//! | `names.rs` | where things are in the store |
//! | `kv.rs` | what all this needs of a client of the servers |
//! | `http.rs`, `tls.rs`, `stream.rs`, `json.rs`, `url.rs`, `deadline.rs` | what such clients are made of |
//! | `settings.rs`, `public.rs` | what the public types have in common |
//! | `etcd/`, `consul/` | the clients of etcd and Consul |
//! | `model/` | tests: how the requests of several clients fall between one another |
//!
//! The protocol is one for all of them. A tenure has a session. Its lock is an entry that the session holds, and so goes with it. A waiter
//! is an entry, too; the order of their creation is the queue. Every hand-over is one transaction: the lock passes from the holder's
//! session to that of the first waiter, the waiter's entry goes, and a message to its client is written.
//!
//! A request without an answer may be executed later. It names its session, and a store executes nothing for a session that has ended. So
//! the end of the session is the end of the request, and nothing has to be waited for.

mod acquire;
#[cfg(feature = "consul")]
mod consul;
mod deadline;
#[cfg(feature = "etcd")]
mod etcd;
mod http;
mod inbox;
mod json;
mod kv;
mod message;
#[cfg(all(test, dlock_shuttle))]
mod model;
mod names;
mod processor;
mod public;
mod release;
mod sessions;
mod settings;
mod sight;
mod store;
#[cfg(feature = "etcd")]
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod url;

#[cfg(feature = "consul")]
pub use consul::{ConsulBuilder, ConsulLockProcessor};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdBuilder, EtcdLockProcessor};
