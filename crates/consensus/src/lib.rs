//! The lock of [`redis_dlock`] on etcd or Consul. A majority of servers agrees on every write, so a lock survives the death of a server.
//!
//! ```no_run
//! # #[cfg(feature = "etcd")]
//! # fn main() -> Result<(), redis_dlock::Error> {
//! use dlock_consensus::EtcdLockProcessor;
//! use redis_dlock::DLockGenerator;
//!
//! let generator = DLockGenerator::new(EtcdLockProcessor::new("etcd://h1,h2,h3")?)?;
//! let lock = generator.generate("EXPORT", "nightly")?;
//! let guard = lock.lock()?;
//! // The token is a revision of etcd, times 1024.
//! let token = guard.fencing_token();
//! # guard.unlock()
//! # }
//! # #[cfg(not(feature = "etcd"))]
//! # fn main() {}
//! ```
//!
//! The lock, its guarantees and its settings are those of `redis-dlock`; the page "Stores" of its manual compares the stores. What is so of these
//! two alone is below.
//!
//! | feature | default | gives |
//! |---|---|---|
//! | `etcd` | yes | [`EtcdLockProcessor`] |
//! | `consul` | yes | [`ConsulLockProcessor`] |
//! | `tls` | no | encrypted connections (`etcd+https://`, `consul+https://`), with rustls, ring and the platform's root certificates |
//!
// Where the page's links lead in the documentation: of several definitions of a label, the first counts.
#![doc = include_str!("links.md")]
#![doc = include_str!("manual.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without these features, some links point to items that do not exist.
#![cfg_attr(not(all(feature = "consul", feature = "etcd")), allow(rustdoc::broken_intra_doc_links))]

// # How it is made
//
// | file | holds |
// |---|---|
// | `processor.rs` | the port: requests in, outcomes out |
// | `acquire.rs`, `extend.rs`, `release.rs`, `breaking.rs` | the operations, each a value with the store, the claim and the limit |
// | `together.rs` | the extensions and probes of many tenures by few requests |
// | `directory.rs`, `presence.rs` | what people are told; the sessions of a process that serve no tenure |
// | `store.rs`, `gift.rs` | what several of them do: give a key on, write it again, end a session; the table of transactions |
// | `confirm.rs` | what a waiter does with a key that it is given, and what becomes of one that has died |
// | `sessions.rs` | the sessions of a process: each tenure has one |
// | `snapshot.rs` | who holds a key and who waits, at one index |
// | `inbox.rs`, `message.rs` | the inbox of a client, and what it is told |
// | `names.rs` | where things are in the store |
// | `kv.rs` | what all this needs of a client of the servers |
// | `http.rs`, `tls.rs`, `socket.rs`, `stream.rs`, `json.rs`, `url.rs`, `resolver.rs`, `deadline.rs` | what such clients are made of |
// | `settings.rs`, `public.rs`, `server.rs` | what the public types have in common; one server, for tools |
// | `timing.rs`, `log.rs`, `sync.rs` | lengths of time, warnings, mutexes |
// | `etcd/`, `consul/` | the clients of etcd and Consul |
// | `../tests/white_box/` | tests: how the requests of several clients fall between one another |
//
// One protocol runs on both stores, through the trait `Kv`: sessions, entries that a session holds, transactions. A tenure has a session. Its
// lock is an entry that the session holds, and so goes with it. A waiter is an entry, too; the order of their creation is the queue. Every
// hand-over is one transaction: the lock passes from the holder's session to that of the first waiter, the waiter's entry goes, and a message to
// its client is written. The waiter then confirms the lock, in another one.
//
// A request without an answer may be executed later. It names its session, and a store executes nothing for a session that has ended. So the end
// of the session is the end of the request, and nothing has to be waited for: `sessions.rs`.

mod acquire;
mod breaking;
mod confirm;
#[cfg(feature = "consul")]
mod consul;
mod deadline;
mod directory;
#[cfg(feature = "etcd")]
mod etcd;
mod extend;
mod gift;
mod http;
mod inbox;
mod json;
mod kv;
#[cfg(feature = "consul")]
mod log;
mod message;
mod names;
mod presence;
mod processor;
mod public;
mod release;
mod resolver;
mod server;
mod sessions;
mod settings;
mod snapshot;
#[cfg(unix)]
mod socket;
mod store;
#[cfg(feature = "etcd")]
mod stream;
mod sync;
mod timing;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod url;
#[cfg(test)]
#[path = "../tests/white_box/mod.rs"]
mod white_box;

#[cfg(feature = "consul")]
pub use consul::{ConsulBuilder, ConsulLockProcessor};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdBuilder, EtcdLockProcessor};
pub use server::Server;
