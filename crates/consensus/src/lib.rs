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
//! The lock, its guarantees and its settings are those of `redis-dlock`; the page "Stores" of its manual compares the stores. The rest
//! of this page is about these two stores.
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
mod shared;
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
